"""The README as the tests read it: its fenced blocks, by language, and the files among them, by name."""

from __future__ import annotations

import re

from tests import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [content for found, content in FENCE.findall(text) if found == language]


def file(name: str) -> str:
    """The block that begins with `# file: name`."""
    (content,) = [block for block in blocks("toml") if block.startswith(f"# file: {name}\n")]
    return content


def commands() -> list[tuple[list[str], str]]:
    """The shell blocks' lines: words, and the comment behind them."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line]
    return [(line.partition("#")[0].split(), line.partition("#")[2].strip()) for line in lines]
