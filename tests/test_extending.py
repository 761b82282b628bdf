"""docs/extending.md: what it shows works. Parties over the page's transport: tests/parties/deployment."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support import guide
from transport.testing import CASES

PAGE = "docs/extending.md"


@pytest.fixture(scope="module")
def shown() -> ModuleType:
    """The page's transport and its test, as a module of a project."""
    module = ModuleType("shown_transport")
    for code in guide.blocks(PAGE, "python")[:2]:
        exec(compile(code, PAGE, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_transport_of_the_page_does_what_every_one_must(shown, case, tmp_path):
    case.run(shown.AbstractSockets, f"{tmp_path.name}-{case}"[:100])


def test_the_test_of_the_page_is_one(shown):
    assert shown.test_abstract_sockets.pytestmark[0].args[1] is CASES
