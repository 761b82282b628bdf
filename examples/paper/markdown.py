"""Tables and numbers as the page writes them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ABSENT", "power", "table"]

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
