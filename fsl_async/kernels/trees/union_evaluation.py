"""Evaluation at chosen places only: the places of a union's rows in the bins.

Where a round is aligned on a union while the trees stay as they are, over all rows, a server walks the trees and
converts only the leaves that cover rows of the union. The chosen places of one segment are ordered by group of bins,
then leaf, then bin; the accumulator has one cell per place in that order. Leaves without a place in the group are
skipped, and so are subtrees of such leaves.

Source: design §7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import read_only, writable
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.trees.evaluation import Evaluation, conversion_of, totals_of, trees_of
from fsl_async.kernels.trees.passes import Conversion, Target, add_leaf, copy_blocks
from fsl_async.kernels.trees.totals import (
    NO_TOTALS,
    AskedTotals,
    clear_totals,
    gather_totals,
    scatter_totals,
    write_totals,
)
from fsl_async.kernels.trees.walk import GROUP, Trees, climb, new_group, new_row, new_totals, plant

Words = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Places:
    """Chosen places of one segment.

    Attributes:
        bins: the bin of every place, in the order of the cells; uint32 (places,).
        starts: for every group and leaf the first of its places, and at the end their number; uint32 (groups·leaves +
            1,).
        order: which of the chosen rows each place is; intp (places,).
        leaves: leaves of every tree.
        width: bins of the segment.
    """

    bins: Indices = field(repr=False)
    starts: Indices = field(repr=False)
    order: npt.NDArray[np.intp] = field(repr=False)
    leaves: int
    width: int


def choose_places(positions: Indices, leaves: int, bins: int) -> Places:
    """Order the places of some rows, given by their positions y = leaf·bins + bin; uint32 (rows,), distinct.

    Raises:
        MisuseError: for positions outside the segment.
    """
    positions = read_only("positions", positions, np.uint32, (-1,))
    if len(positions) and int(positions.max()) >= leaves * bins:
        raise MisuseError(f"positions must lie below {leaves} leaves × {bins} bins, got {int(positions.max())}")
    bin_, leaf = positions % np.uint32(bins), positions // np.uint32(bins)
    cell = (bin_ // np.uint32(GROUP)).astype(np.int64) * leaves + leaf
    order = np.lexsort((bin_, cell))
    groups = -(-bins // GROUP)
    starts = np.searchsorted(cell[order], np.arange(groups * leaves + 1)).astype(np.uint32)
    return Places(np.ascontiguousarray(bin_[order]), starts, order, leaves, bins)


def places_adder(
    evaluation: Evaluation, places: Places, accumulator: Words, segment: int, totals: AskedTotals = NO_TOTALS
) -> Callable[[int, int], None]:
    """What adds the shares at chosen places under some bins to an accumulator; all arguments are checked here, once.

    A tree's total is over its chosen leaves alone: what is added is what is summed.

    Args:
        evaluation: the trees and hints.
        places: the chosen places of this segment.
        accumulator: uint64 (planes, places, 2), changed in place.
        segment: the segment of the bins.
        totals: where the sums over the chosen leaves of every tree in range go, or `NO_TOTALS`.

    Returns:
        Takes the first bin, a multiple of `GROUP`, and one past the last bin: a multiple of `GROUP`, too, unless it is
        the last bin of all.

    Raises:
        MisuseError: for wrong types or shapes; what is returned raises it for bins that do not begin and end with a
            group.
    """
    trees, conversion, asked = trees_of(evaluation), conversion_of(evaluation), totals_of(evaluation, totals)
    writable("accumulator", accumulator, np.uint64, (len(conversion.hints), len(places.bins), 2))
    if not 0 <= segment * places.width <= evaluation.tree.count - places.width:
        raise MisuseError(f"segment {segment} of {places.width} bins is not among {evaluation.tree.count} trees")
    cells = accumulator.reshape(-1, 2)

    def add(start: int, stop: int) -> None:
        if not 0 <= start <= stop <= places.width or start % GROUP or (stop % GROUP and stop != places.width):
            raise MisuseError(f"bins {start} to {stop} of {places.width} do not begin and end with a group of {GROUP}")
        bounds = (segment * places.width, start, stop, places.leaves)
        add_places(trees, conversion, bounds, places.bins, places.starts, cells, asked)

    return add


@compiled
def add_places(
    trees: Trees,
    conversion: Conversion,
    bounds: tuple[int, int, int, int],
    bins: Indices,
    starts: Indices,
    cells: Words,
    totals: AskedTotals,
) -> None:
    """Add the shares at the chosen places of some bins of one segment to their cells, (planes, places, 2)."""
    offset, begin, end, leaves = bounds
    group = new_group(trees, end - begin)
    planes, count = len(conversion.hints), len(bins)
    row, hints = new_row(GROUP), new_row(planes * GROUP)
    work, gathered = new_totals(totals, planes), new_totals(totals, planes)
    for start in range(begin, end, GROUP):
        plant(trees, group, offset + start, min(GROUP, end - start))
        clear_totals(work)
        nowhere = 1 << len(trees.words)
        previous = -1
        for leaf in range(leaves):
            cell = start // GROUP * leaves + leaf
            first, size = int(starts[cell]), int(starts[cell + 1]) - int(starts[cell])
            if size == 0:
                continue
            place = climb(trees, group, leaf, leaf + nowhere if previous < 0 else previous, leaves)
            previous = leaf
            for i in range(size):
                bin_ = int(bins[first + i])
                copy_blocks(group.nodes, place + bin_ - start, row, i, 1)
                for plane in range(planes):
                    copy_blocks(conversion.hints[plane], offset + bin_, hints, plane * GROUP + i, 1)
            gather_totals(work, gathered, bins, first, size, start)
            add_leaf(conversion, row, 0, 0, Target(cells, count, first, size, hints, GROUP, 0), gathered)
            scatter_totals(gathered, work, bins, first, size, start)
        write_totals(totals, work, offset + start, min(GROUP, end - start))
