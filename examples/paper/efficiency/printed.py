"""What the paper prints beside its formulae, which `fsl_async.costs.paper` has with the table that follows from them.

Where a printed number cannot be what it says, `docs/planner.md` has the arithmetic; `evaluation_time` says what a
measurement may be compared with.

The figures' data are not in the paper's text; what a figure shows at a size that the table *Computation efficiency* has
is that table's.

Source: paper §"Parameter Choices", tables `scale-factor` and `max-bin-size`; §"Protocol Efficiency", table
`basic-comp`; §"Comparing with Existing Scheme".
"""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.costs.paper import MEBIBYTE

SCALE_FACTORS = {2**10: 1.25, 2**15: 1.25, 2**20: 1.27, 2**25: 1.28}
"""ε by input size, as printed."""

GENERATION = {
    2**10: {10: 0.028, 20: 0.045, 30: 0.056},
    2**15: {10: 0.838, 20: 1.129, 30: 1.707},
    2**20: {10: 22.806, 20: 37.018, 30: 55.918},
}
"""DPF Gen, by rows and percentage: seconds on 64 cores."""

AGGREGATION = {
    2**10: {10: 0.023, 20: 0.018, 30: 0.018},
    2**15: {10: 0.018, 20: 0.179, 30: 0.172},
    2**20: {10: 0.018, 20: 1.844, 30: 2.257},
}
"""Aggregation. 0.018 at 10 % of 2^15 and of 2^20 is a tenth and a hundredth of its neighbours: misplaced cells."""

TRIVIAL = {2**10: 0.015, 2**15: 0.5, 2**20: 16.0}
"""Secure aggregation of all weights, in MB, by rows."""

NIU_BYTES = 1.09 * MEBIBYTE
"""The submodel of Niu et al., in 128-bit numbers."""

NIU_PSU_BYTES = 1.76 * MEBIBYTE
"""At least, with their private set union."""

PAPER_SPARSE, PAPER_DENSE = 1.4 * MEBIBYTE, 0.98 * MEBIBYTE
"""The paper's upload for the embedding, and for the other components."""

BIN_SIZES = {
    2**10: {0.01: 324, 0.10: 45, 0.30: 27, 0.50: 21, 0.70: 18},
    2**15: {0.01: 315, 0.10: 54, 0.30: 36, 0.50: 24, 0.70: 21},
    2**20: {0.01: 336, 0.10: 66, 0.30: 39, 0.50: 30, 0.70: 27},
    2**25: {0.01: 366, 0.10: 78, 0.30: 48, 0.50: 36, 0.70: 30},
}
"""The table `max-bin-size` by m and k/m, as printed: Θ, the fullest of ε·k bins into which three hashes throw m rows.

Every one is a multiple of 3, and a third of it is the fullest bin after *one* hash. So they are three times the load of
one hash, as if all three fell into the same bin; three hashes that fall apart fill the fullest bin with less.
"""

EVALUATION = {
    2**10: {0.10: 0.012, 0.20: 0.015, 0.30: 7.532},
    2**15: {0.10: 0.253, 0.20: 0.124, 0.30: 0.197},
    2**20: {0.10: 7.532, 0.20: 0.98, 0.30: 1.732},
}
"""The table `basic-comp`, "DPF Eval time", by m and k/m, as printed: seconds on 64 cores.

7.532 appears twice, at 2^10 and 30 %, where it is 500 times its neighbours, and at 2^20 and 10 %, where it is above
both larger selections: a misplaced cell. 0.253 is above both of its larger selections as well.
"""


@dataclass(frozen=True)
class PrintedTime:
    """What the paper says that a step takes.

    Attributes:
        seconds: as printed, or the most that a cell which cannot be right may have been.
        at_most: whether it is that.
    """

    seconds: float
    at_most: bool = False


def evaluation_time(rows: int, select: int) -> PrintedTime | None:
    """The paper's evaluation of a selection that it measured; None of any other.

    The bins of every selection hold the same m rows, so a smaller one takes no longer than a larger one: a cell
    above one to its right is not believed, and that one bounds it.
    """
    cells = EVALUATION.get(rows, {})
    fraction = next((fraction for fraction in cells if abs(fraction * rows - select) < 1), None)
    if fraction is None:
        return None
    least = min(seconds for wider, seconds in cells.items() if wider >= fraction)
    return PrintedTime(least, at_most=least < cells[fraction])
