"""The Python programs of a page, run one after the other, as its reader would run them."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

from tests.support import guide


def programs_of(page: Path) -> list[str]:
    """The programs, each below as many empty lines as it has above it: errors then have the page's line numbers."""
    text = page.read_text(encoding="utf-8")
    programs = [content for language, content in guide.fenced(text) if language == "python"]
    return [text[: text.index(program)].count("\n") * "\n" + program for program in programs]


async def run_programs(page: Path, module: ModuleType) -> None:
    """Run all of them in one module."""
    for program in programs_of(page):
        await run_program(program, page, module)


async def run_program(program: str, page: Path, module: ModuleType) -> None:
    """Run one, which may await."""
    running = eval(compile(program, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), module.__dict__)
    if inspect.iscoroutine(running):
        await running
