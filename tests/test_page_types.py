"""The programs of the pages pass a type checker, as those do that their readers make of them."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import ROOT
from tests.support import guide

pytest.importorskip("mypy", reason="`make lint` installs it, and runs this")

PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if guide.blocks(str(path.relative_to(ROOT)), "python")
]
ALTERNATIVES = {"docs/fronts.md"}
"""Pages whose programs are read one instead of the other, each below the first; on other pages each goes on."""
GIVEN = {
    "docs/protocols.md": "client: parties.Client",
    "docs/flower.md": "MAPPING: StateMapping, STATE: dict[str, Any], load_data: Any, Net: Any, accuracy: Any",
}
"""What fragments on a page take as given, with its types."""

HEAD = """from typing import Any

import parties
from fsl_async.learning import StateMapping

"""
OPTIONS = ("--config-file=", "--check-untyped-defs", "--ignore-missing-imports", "--allow-redefinition-new")
OPTIONS += ("--local-partial-types", "--disable-error-code=no-redef", "--follow-imports=silent")


def program(page: str) -> str:
    """A page as a module in which every program may await."""
    first, *rest = guide.blocks(page, "python")
    programs = [[first, each] for each in rest] if page in ALTERNATIVES else [[first, *rest]]
    return HEAD + "\n".join(
        f"async def page_{number}({GIVEN.get(page, '')}) -> None:\n{textwrap.indent(''.join(parts), '    ')}"
        for number, parts in enumerate(programs)
    )


def test_every_program_of_a_page_passes_mypy(tmp_path: Path) -> None:
    assert len(PAGES) > 10
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        (tmp_path / f"{page.replace('/', '_').removesuffix('.md').replace('-', '_')}.py").write_text(program(page))
    command = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={ROOT / '.mypy_cache' / 'pages'}", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
