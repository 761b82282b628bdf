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
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.trees.arguments import GROUP, NO_TOTALS, AskedTotals
from fsl_async.kernels.trees.evaluation import Evaluation, conversion_of, totals_of, trees_of

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
    passes = passes_of(evaluation.keys, evaluation.convert)

    def add(start: int, stop: int) -> None:
        if not 0 <= start <= stop <= places.width or start % GROUP or (stop % GROUP and stop != places.width):
            raise MisuseError(f"bins {start} to {stop} of {places.width} do not begin and end with a group of {GROUP}")
        bounds = (segment * places.width, start, stop, places.leaves)
        passes.add_places(trees, conversion, bounds, places.bins, places.starts, cells, asked)

    return add
