"""How figures are written on the page and in the chart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any


def power(weights: int) -> str:
    """A model's size."""
    return f"2^{weights.bit_length() - 1}" if weights & (weights - 1) == 0 else f"{weights:,}"


def part(cell: Mapping[str, Any]) -> str:
    """Which part of the model a client changes."""
    if cell["share"] == 1000:
        return "all, dense"
    return f"{cell['share'] / 10:g} %" + (f", rows of {cell['width']}" if cell["width"] > 1 else "")


def size(value: float) -> str:
    """Bytes."""
    for unit, one in (("MB", 1e6), ("kB", 1e3)):
        if value >= one:
            return f"{value / one:.3g} {unit}"
    return f"{value:.0f} B"


def time(value: float) -> str:
    """Seconds."""
    return f"{value:.2g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def spread(of: Mapping[str, float]) -> str:
    """Seconds with the least and the greatest."""
    return f"{time(of['median'])} ({1e3 * of['least']:.3g}–{1e3 * of['greatest']:.3g})"


def table(*rows: Iterable[str]) -> str:
    """A table; the first row is its head."""
    head, *others = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join((head, f"|{' --- |' * (head.count(' | ') + 1)}", *others))


COLUMNS = 118
KEPT = ("|", "#", "!", "    ")


def filled(text: str) -> str:
    """Text whose paragraphs and list items are filled; tables, headings, pictures and code stay as they are."""
    return (
        "\n\n".join(block if block.startswith(KEPT) else _filled(block) for block in text.strip().split("\n\n")) + "\n"
    )


def _filled(block: str) -> str:
    items = block.removeprefix("- ").split("\n- ") if block.startswith("- ") else [block]
    mark = "- " if block.startswith("- ") else ""
    return "\n".join(
        textwrap.fill(
            mark + " ".join(item.split()),
            COLUMNS,
            subsequent_indent=" " * len(mark),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for item in items
    )
