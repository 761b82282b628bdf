"""The permutations' kernels: a batch of values goes through the network together, and those outside once more."""

from __future__ import annotations

import numpy as np
from numba import njit

from fsl_async.kernels.rows.permutation import ROUNDS, Positions, Rounds

BATCH = 512


@njit(cache=True, nogil=True)
def forward(rounds: Rounds, low_bits: int, rows: int, values: Positions, moved: Positions) -> None:
    """P_s of every value."""
    low_mask = (1 << low_bits) - 1
    walking = np.empty(BATCH, np.int64)
    for start in range(0, len(values), BATCH):
        count = min(BATCH, len(values) - start)
        for place in range(count):
            walking[place] = start + place
            moved[start + place] = values[start + place]
        while count > 0:
            still = 0
            for place in range(count):
                index = walking[place]
                high, low = np.int64(moved[index]) >> low_bits, np.int64(moved[index]) & low_mask
                for turn in range(0, ROUNDS, 2):
                    high ^= rounds[turn, low]
                    low ^= rounds[turn + 1, high]
                value = (high << low_bits) | low
                moved[index] = value
                # Without a branch: one that goes either way half the time costs more than the network.
                walking[still] = index
                still += int(value >= rows)
            count = still


@njit(cache=True, nogil=True)
def inverse(rounds: Rounds, low_bits: int, rows: int, values: Positions, moved: Positions) -> None:
    """The value at every place."""
    low_mask = (1 << low_bits) - 1
    walking = np.empty(BATCH, np.int64)
    for start in range(0, len(values), BATCH):
        count = min(BATCH, len(values) - start)
        for place in range(count):
            walking[place] = start + place
            moved[start + place] = values[start + place]
        while count > 0:
            still = 0
            for place in range(count):
                index = walking[place]
                high, low = np.int64(moved[index]) >> low_bits, np.int64(moved[index]) & low_mask
                for turn in range(ROUNDS - 2, -1, -2):
                    low ^= rounds[turn + 1, high]
                    high ^= rounds[turn, low]
                value = (high << low_bits) | low
                moved[index] = value
                walking[still] = index
                still += int(value >= rows)
            count = still
