"""The blocks of a task's model: sparse ones, of which a client touches a few rows, and dense ones.

Rules: a block is immutable and checked when it is made.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fsl_async.errors import MisuseError

LARGEST_ROWS = 2**32
"""A row's number, and its place in a segment, is a word of 32 bits."""

LARGEST_WIDTH = 2**20


class _Named(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    name: str


class Sparse(_Named, frozen=True, kw_only=True, tag="sparse", tag_field="type", forbid_unknown_fields=True):
    """A block of which each client touches a few rows, privately.

    Args:
        name: unique in the task.
        rows: m, the rows of the block.
        select: k, the rows a client selects; public, so a client with fewer is padded and one with more is refused.
        width: τ, the weights of a row; a row is moved as one element.
        stash: σ, slots over all rows for rows that find no bin.
    """

    rows: int
    select: int
    width: int = 1
    stash: int = 0

    def __post_init__(self) -> None:
        check_name("block", self.name)
        check_range(self.name, "rows", self.rows, 1, LARGEST_ROWS)
        check_range(self.name, "select", self.select, 1, self.rows)
        check_range(self.name, "width", self.width, 1, LARGEST_WIDTH)
        check_range(self.name, "stash", self.stash, 0, 64)

    @property
    def weights(self) -> int:
        """How many weights the block holds."""
        return self.rows * self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its array."""
        return self.rows, self.width


class Dense(_Named, frozen=True, kw_only=True, tag="dense", tag_field="type", forbid_unknown_fields=True):
    """A block that every client touches whole: plain sharing between the two servers.

    Args:
        name: unique in the task.
        size: how many weights it holds.
    """

    size: int

    def __post_init__(self) -> None:
        check_name("block", self.name)
        check_range(self.name, "size", self.size, 1, LARGEST_ROWS)

    @property
    def weights(self) -> int:
        """How many weights the block holds."""
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its array."""
        return (self.size,)


class Plain(Dense, frozen=True, kw_only=True, tag="plain", tag_field="type", forbid_unknown_fields=True):
    """The rows of a sparse block's union in a round that moves them without trees. A task's own blocks have none.

    Args:
        name: the sparse block's.
        size: all of its weights, rows × width.
        rows: of the union, at least one.
        width: the sparse block's.
    """

    rows: int
    width: int

    def __post_init__(self) -> None:
        """No check: the sparse block was checked, and this one is smaller."""

    @staticmethod
    def of(block: Sparse, rows: int) -> Plain:
        """That many rows of a sparse block."""
        return Plain(block.name, size=rows * block.width, rows=rows, width=block.width)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its array."""
        return self.rows, self.width


class Binned(Sparse, frozen=True, kw_only=True, tag="binned", tag_field="type", forbid_unknown_fields=True):
    """A sparse block in a round, which says how many bins it has. A task's own blocks do not.

    Args:
        bins: b, the bins of each segment.
    """

    bins: int

    def __post_init__(self) -> None:
        """No check: the sparse block was checked, and the round's configuration checks the bins."""

    @staticmethod
    def of(block: Sparse, bins: int) -> Binned:
        """A sparse block with that many bins to a segment."""
        return Binned(block.name, rows=block.rows, select=block.select, width=block.width, stash=block.stash, bins=bins)


Block: TypeAlias = Sparse | Dense


def check_name(kind: str, name: str) -> None:
    """Check a task's or a block's name.

    Raises:
        MisuseError: it is empty, too long, or not printable.
    """
    if not (isinstance(name, str) and 1 <= len(name) <= 64 and name.isprintable()):
        raise MisuseError(f"{kind}: a name of 1 to 64 printable characters expected, got {name!r}")


def check_range(where: str, field: str, value: int, low: int, high: int) -> None:
    """Check a whole number.

    Raises:
        MisuseError: it is none, or out of its range.
    """
    if type(value) is not int or not low <= value <= high:
        raise MisuseError(f"{where}: {field} must be an integer from {low} to {high}, not {value!r}")
