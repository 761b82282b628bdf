"""What the documentation site has beside the pages in this folder: made from the code, whenever the site is built.

- reference/commands.md has every subcommand and its options, as `--help` says them.
- notebook.md, learning-notebook.md and recommender.md have the notebooks in examples/.
- reference/<package>.md has every public name of a package, from its docstring.
- The decision records in adr/ are listed under "Decisions".
- Links to files outside of this folder lead nowhere on a site: they become plain text.
"""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from parties.commands.application import app

PACKAGES = ("fsl_async", "fsl_async.learning", "parties", "parties.aio", "parties.testing", "transport")
# The site is built without what these need, so they are read, not imported.
WITH_AN_EXTRA = ("fsl_async.learning.pytorch", "parties.flower")
ADR = Path(__file__).parent / "adr"
ROOT = Path(__file__).parent.parent
NOTEBOOKS = {
    "notebook.md": "notebook.ipynb",
    "learning-notebook.md": "learning.ipynb",
    "recommender.md": "recommender.ipynb",
}
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:examples|fsl_async|transport|parties|tests|README|CHANGELOG|SECURITY|CONTRIBUTING)[^)]*\)"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decision records in the navigation."""
    records = [{_title(path): f"adr/{path.name}"} for path in sorted(ADR.glob("*.md"))]
    config.nav = [{"Decisions": records} if "Decisions" in entry else entry for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {"commands": _commands()} | {name: _api(name) for name in PACKAGES}
    pages |= {name: _api_as_written(name) for name in WITH_AN_EXTRA}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    for page, name in NOTEBOOKS.items():
        files.append(File.generated(config, page, content=_notebook(ROOT / "examples" / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take links out that lead to files outside of the documentation."""
    return OUTSIDE.sub(r"\1", markdown)


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _commands() -> str:
    text: str = app.generate_docs()
    return text.replace("```console\n", "```text\n").replace("# fsl-async\n", "# Commands\n", 1)


def _notebook(path: Path) -> str:
    """A notebook among the examples: its texts, and its code as blocks."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in texts)


def _api(name: str) -> str:
    """A package's docstring, then each public name."""
    package = import_module(name)
    introduction = (package.__doc__ or "").partition("\n")[0]
    entries = [f"::: {_place(package, public)}\n" for public in sorted(package.__all__, key=str.lower)]
    return f"# `{name}`\n\n{introduction}\n\n" + "\n".join(entries)


def _api_as_written(name: str) -> str:
    """The same from a package's source, which imports each public name from the module that defines it."""
    source = ast.parse((ROOT / name.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in source.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    introduction = (ast.get_docstring(source) or "").partition("\n")[0]
    entries = [f"::: {places[public]}\n" for public in sorted(places, key=str.lower)]
    return f"# `{name}`\n\n{introduction}\n\n" + "\n".join(entries)


def _place(package: Any, public: str) -> str:
    """Where a name is defined; a constant's is where the package says."""
    found = getattr(package, public)
    defined = found.__module__ if isinstance(found, type | FunctionType) else package.__name__
    return f"{defined}.{public}"
