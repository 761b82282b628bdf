"""The kernel of evaluation at chosen places: leaves without one in the group are skipped, and so are subtrees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.trees.arguments import GROUP, AskedTotals, Conversion, Trees
from fsl_async.kernels.trees.passes import Target, add_leaf, copy_blocks
from fsl_async.kernels.trees.totals import clear_totals, gather_totals, scatter_totals, write_totals
from fsl_async.kernels.trees.walk import climb, new_group, new_row, new_totals, plant

Words = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.uint32]


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
