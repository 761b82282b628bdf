"""What the paper prints, and is not in `fsl_async.costs.paper`.

The figures' data are not in the paper's text; what a figure shows at a size that the table *Computation efficiency* has
is that table's.

Source: paper §"Protocol Efficiency", table `basic-comp`; §"Comparing with Existing Scheme".
"""

from __future__ import annotations

MEBIBYTE = 2**20

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
