"""Pictures of charts in one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from parties.testing.chart.labels import plain

__all__ = ["page"]

STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem; font: 16px/1.5 system-ui, sans-serif; background: #ffffff; color: #1f2933; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
.chart { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #0f1419; color: #e4e8ec; } }
"""


def page(title: str, pictures: Sequence[tuple[str, str]]) -> str:
    """The page.

    Args:
        title: the page's heading.
        pictures: for each chart its heading and its SVG; of a single one the heading is not repeated.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_safe(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<h1>{_safe(title)}</h1>",
    ]
    for heading, picture in pictures:
        if heading != title:
            parts.append(f"<h2>{_safe(heading)}</h2>")
        parts.append(f'<div class="chart" tabindex="0" role="region" aria-label="{_safe(heading)}">\n{picture}</div>')
    return "\n".join([*parts, "</html>", ""])


def _safe(text: str) -> str:
    return escape(plain(text))
