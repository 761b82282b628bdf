"""The placement of `cuckoo`, compiled as it stands there."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from fsl_async.kernels.rows import cuckoo
from fsl_async.kernels.rows.cuckoo import UNSEEN, Bins, Items

register_jitable(cuckoo.walk)
register_jitable(cuckoo.augment)
_place_rows = njit(cache=True, nogil=True)(cuckoo.place_rows)


def place_all(choices: Bins, rows_of_bin: Items, unplaced: Items, state: int) -> int:
    """`cuckoo.place_rows` on arrays."""
    scratch = np.full(len(rows_of_bin), UNSEEN, np.int32), np.empty(len(rows_of_bin), np.int32)
    return int(_place_rows(choices.reshape(-1), rows_of_bin, unplaced, scratch, state))
