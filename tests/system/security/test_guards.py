"""The catalogue of guards keeps up with the program; `python -m tests.system.security.guards` takes each one out."""

import pytest

from .guards import GUARDS, ROOT


@pytest.mark.parametrize("path", GUARDS)
def test_a_guard_stands_where_it_is_said_to(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    for guard in GUARDS[path]:
        assert text.count(guard.line) == 1, f"{guard.name}: {guard.line!r}"
        assert guard.without != guard.line, guard.name
        for test in guard.files:
            assert (ROOT / test).is_file(), f"{guard.name}: {test}"
