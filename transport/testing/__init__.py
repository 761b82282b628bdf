"""What every transport must do, as a suite that runs on yours.

    import pytest
    from transport.testing import CASES

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_my_transport(case):
        case.run(MyTransport, "the address to listen at")

Each case is a server and some clients over one transport; it needs neither pytest nor a plugin. From the command line:
`python -m transport.testing my_package.my_module:MyTransport ADDRESS`.
"""

from transport.testing import cases
from transport.testing.case import Case, ConformanceError, cases_of

CASES: tuple[Case, ...] = cases_of(cases)
"""All cases, from the simple ones on."""

__all__ = ["CASES", "Case", "ConformanceError"]
