"""How a block of the model that is downloaded whole is cut: into parts of 64 MiB, each a request and a message."""

from __future__ import annotations

LONGEST_PART = 2**26
"""Bytes of a part at most; the last one has what is left."""


def parts_of(size: int) -> list[slice]:
    """Where each part of a block of so many bytes lies; a block has at least one."""
    starts = range(0, max(size, 1), LONGEST_PART)
    return [slice(start, min(start + LONGEST_PART, size)) for start in starts]
