"""The shape of a sparse block's trees, a function of public parameters alone.

A block's rows are laid out η = 3 times, each time through another permutation, as a table of `bins` columns; a client
places each of its rows in one column (`kernels.place`), and grows one tree per column (`kernels.generate`). A stash
slot is a forest of one tree over all rows. What must agree between parties, above all sizes on the wire, is computed
here once. How many bins there are stands in the round's configuration, as the servers choose (`fsl_async.bin_count`);
what no client puts up with stands here.

    y = P_s(row)      slot = y mod positions      bin = (y div positions) mod bins      leaf = y div (positions · bins)

Source: paper §"Batch Codes" and §"Basic Protocols"; equal bins and early termination as in docs/adr/0003.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.blocks import Binned, Sparse
from fsl_async.errors import MisuseError
from fsl_async.options.fields import TaskFields

RowNumbers: TypeAlias = npt.NDArray[np.uint32]
"""Rows of a sparse block by number, one-dimensional."""

SEGMENTS = 3
BLOCK_BYTES = 16

LEAST_BINS = ((3, 50), (15, 320), (63, 150), (255, 70), (1023, 44), (2**32, 43))
"""Up to how many selected rows a segment has at least how many bins for each 100 of them.

The fewest with which a client takes part. `bin_count.bins_per_segment` never asks for fewer; with them a placement
still fails with probability 2^-29 at most, by small sets of rows and by the fit, where that asks for 2^-40.
"""

MOST_TIMES = 16
"""How many times the least a client puts up with: enough for failures of 2^-64, and no more trees than it can make."""


@dataclass(frozen=True)
class Forest:
    """Trees of one shape, side by side: `segments` × `bins` of them, `leaves` leaves each.

    Args:
        segments: how many permuted copies of the rows the trees stand over.
        bins: trees per segment.
        leaves: leaves per tree.
        positions: rows that one leaf covers (early termination), a power of two.
        element_bits: bits of a ring element.
        width: elements per row.
        count_elements: 1 where contributors are counted: a count behind the row's elements, and a last leaf, the void
            leaf, that stands over no row and on which dummies stand; otherwise 0.
    """

    segments: int
    bins: int
    leaves: int
    positions: int
    element_bits: int
    width: int
    count_elements: int = 0

    @property
    def trees(self) -> int:
        """B, all trees of the forest."""
        return self.segments * self.bins

    @property
    def depth(self) -> int:
        """d, the levels below the root."""
        return (self.leaves - 1).bit_length()

    @property
    def bin_size(self) -> int:
        """Θ, positions in every bin, with the void leaf's."""
        return self.leaves * self.positions

    @property
    def payload_elements(self) -> int:
        """Ring elements under one leaf."""
        return self.positions * self.width + self.count_elements

    @property
    def planes(self) -> int:
        """16-byte blocks that one leaf's payload takes."""
        return -(-self.payload_elements * self.element_bits // 128)

    @property
    def tree_bytes(self) -> int:
        """Bytes of all trees' correction words."""
        return self.depth * self.trees * BLOCK_BYTES

    @property
    def hint_bytes(self) -> int:
        """Bytes of one hint for every tree."""
        return self.trees * self.payload_elements * (self.element_bits // 8)

    @property
    def select_bytes(self) -> int:
        """Bytes of the selection hints; 0 where a leaf covers one row, because the control bit selects it."""
        return -(-self.trees * self.positions // 8) if self.positions > 1 else 0

    @property
    def proof_bytes(self) -> int:
        """Bytes of the tag corrections that prove every tree a point function."""
        return self.trees * BLOCK_BYTES


@dataclass(frozen=True)
class Geometry:
    """All forests of one sparse block: the bins first, then one forest for each stash slot."""

    rows: int
    width: int
    select: int
    bins: Forest
    stash: tuple[Forest, ...]

    @cached_property
    def forests(self) -> tuple[Forest, ...]:
        """The bins, then the stash slots: the order of the wire."""
        return (self.bins, *self.stash)

    @property
    def trees(self) -> int:
        """All trees of the block."""
        return sum(forest.trees for forest in self.forests)


def bin_limits(block: Sparse) -> tuple[int, int]:
    """The fewest and the most bins of a segment with which a client takes part in a round; never more than rows."""
    each = next(bins for select, bins in LEAST_BINS if block.select <= select)
    least = -(-block.select * each // 100)
    return min(block.rows, least), min(block.rows, MOST_TIMES * least)


@lru_cache(maxsize=256)
def geometry_of(task: TaskFields, block: Sparse) -> Geometry:
    """The geometry of one sparse block of a round's shape.

    Raises:
        MisuseError: the block is a task's, which does not say how many bins it has.
    """
    if not isinstance(block, Binned):
        raise MisuseError(
            f"block {block.name!r}: a round says how many bins it has; use `RoundConfig.shape`, or "
            "`bin_count.planned` for a round that servers would open"
        )
    bins = block.bins
    bits = task.ring.bits
    positions = _positions_per_leaf(task, block, bins)
    counted = int(task.min_contributors is not None)  # and one leaf more, over no row
    leaves = -(-block.rows // (bins * positions)) + counted
    slot = Forest(1, 1, block.rows + counted, 1, bits, block.width, counted)
    return Geometry(
        rows=block.rows,
        width=block.width,
        select=block.select,
        bins=Forest(SEGMENTS, bins, leaves, positions, bits, block.width, counted),
        stash=(slot,) * block.stash,
    )


def _positions_per_leaf(task: TaskFields, block: Sparse, bins: int) -> int:
    """2^ν minimising (d - ν)·128 + 2^ν·τ·l, the larger on a tie (docs/adr/0037).

    1 in a verified task, because a proof and the tag of an answer are about leaves, with fixed selection, because
    one tree takes many hints, and where two rows do not fit one cipher block: there tags are worth more than the walk.
    Never so many that a bin would have no row: clients count on all of them for their rows.
    Where rounds only serve retrievals, a hint has one bit for each row, whatever the row's width.
    """
    row_bits = 1 if task.protocol == "psr" else block.width * task.ring.bits
    if task.security == "verified" or task.selection == "fixed" or 2 * row_bits > 128:
        return 1

    def cost(positions: int) -> int:
        leaves = -(-block.rows // (bins * positions))
        return (leaves - 1).bit_length() * 128 + positions * row_bits

    return min((p for p in (4, 2, 1) if p == 1 or p * bins <= block.rows), key=cost)
