"""Several charts in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parties.testing.chart import html, labels
from parties.testing.chart.sequence_chart import Chart

__all__ = ["save"]


def save(path: Path, charts: Sequence[tuple[str, Chart]]) -> list[Path]:
    """Write charts as the file's name says: text or a page with all of them, or one picture for each.

    Args:
        path: ends in .txt, .html or .svg; of several pictures, the second is in `name-2.svg`.
        charts: each with its heading.

    Returns:
        The files that were written.
    """
    match path.suffix:
        case ".svg":
            paths = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(charts) + 1))]
            for each, (name, chart) in zip(paths, charts, strict=False):
                each.write_text(chart.svg(name), encoding="utf-8")
            return paths[: len(charts)]
        case ".html":
            title = charts[0][0] if len(charts) == 1 else f"{len(charts)} sequence charts"
            written = html.page(title, [(name, chart.svg(name)) for name, chart in charts])
        case _:
            written = "\n\n".join(f"{labels.plain(name)}\n\n{chart.text()}" for name, chart in charts) + "\n"
    path.write_text(written, encoding="utf-8")
    return [path]
