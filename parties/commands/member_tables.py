"""What `clients` and `peers` share: public keys that are given and shown, and tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsl_async.errors import MisuseError

__all__ = ["check_public", "columns", "short"]


def check_public(*paths: Path) -> None:
    """Refuse a file of secret keys where public ones are expected.

    Raises:
        MisuseError: one of the files has secret keys.
    """
    for path in paths:
        if path.suffix == ".key":
            raise MisuseError(f"{path} has secret keys, which are for its owner alone; give the .pub file beside it")


def short(key: str) -> str:
    """The beginning of a key, enough to tell keys apart."""
    return f"{key[:16]}…" if len(key) > 16 else key


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for people, a row a line."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (names, *rows)]
    return "\n".join(line.rstrip() for line in lines)
