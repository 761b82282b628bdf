"""The instruction sets that kernels are tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fsl_async import kernels
from tests.support.cases import often

NAMES = kernels.isa_names()
"""Those of this processor, the fastest first and code without AES instructions last."""


@pytest.fixture(params=often(1, NAMES))
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of them; those after the first with the slow tests, for they take long to compile."""
    before = kernels.active_isa()
    yield kernels.select_isa(request.param)
    kernels.select_isa(before)
