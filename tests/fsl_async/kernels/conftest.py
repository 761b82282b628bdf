"""The instruction sets that kernels are tested on, with the lane without a compiler among them."""

from collections.abc import Iterator

import pytest

from fsl_async import kernels
from tests.support.cases import often

FASTEST, *OTHERS, PLAIN = kernels.isa_names()


@pytest.fixture(params=often(2, [FASTEST, PLAIN, *OTHERS]))
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of them; those between the fastest and the plain one with the slow tests, for they take long to compile."""
    before = kernels.active_isa()
    yield kernels.select_isa(request.param)
    kernels.select_isa(before)
