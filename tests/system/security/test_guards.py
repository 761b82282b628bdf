"""The catalogue of guards keeps up with the program; `python -m tests.system.security.guards` takes each one out."""

from __future__ import annotations

from tests.support.cases import in_turn

from .guards import GUARDS, ROOT, Guard


@in_turn("guard", GUARDS)
def test_a_guard_stands_where_it_is_said_to(guard: Guard) -> None:
    text = (ROOT / guard.path).read_text(encoding="utf-8")
    assert text.count(guard.line) == 1, f"{guard.line!r} in {guard.path}"
    assert guard.without != guard.line
    for test in guard.tests:
        assert (ROOT / test).is_file(), test
