"""Tables and numbers as the page writes them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 120
NOT_PROSE = ("|", "#", "-", "!", "*", " ")

ABSENT = "–"
"""Stands where there is no result."""


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; every line has as many cells as the header."""
    return "\n".join(_line(cells) for cells in (header, ["---"] * len(header), *lines))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def power(number: int) -> str:
    """2^10, where it is a power of two."""
    return f"2^{number.bit_length() - 1}" if number & (number - 1) == 0 else f"{number:,}"


def filled(text: str) -> str:
    """The same with prose in lines of at most `WIDTH`; tables, lists, headings and pictures as they are."""
    return "\n\n".join(part if part.startswith(NOT_PROSE) else _fill(part) for part in text.split("\n\n"))


def _fill(prose: str) -> str:
    return textwrap.fill(prose, WIDTH, break_long_words=False, break_on_hyphens=False)
