"""y = R·w for a matrix R of -1, 0 and 1 that a key determines, in any ring.

Eight columns at a time take 2·N bytes of AES in counter mode: bit k of byte i is e of row i and column 8·g + k; of byte
N + i it is e′; the entry is e - e′. All 256 sums of the eight columns' weights are made first; every row then adds one
of them and subtracts another. The keystream is made for a few columns at a time and never lies in memory whole, so that
millions of weights cost no more memory than a few.

What a table is read at are bits of R, which all who take part know; the weights are only what is in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.aes import key_schedule
from fsl_async.kernels.arrays import read_only
from fsl_async.kernels.lane import passes_of

Words = npt.NDArray[np.uint64]

COLUMNS = 8


def project(key: bytes, nonce: int, rows: int, weights: Words) -> Words:
    """R·weights modulo 2^64, or modulo 2^128.

    Args:
        key: determines R together with the nonce; 16 bytes.
        nonce: below 2^64, as of `keystream`.
        rows: N, a multiple of 8.
        weights: uint64 (n,), or for 128 bits uint64 (n, 2) with the low word first.

    Returns:
        uint64 (N,) or (N, 2). Rings of fewer bits take the lower ones.

    Raises:
        MisuseError: for a wrong type or shape, or a nonce that is not a 64-bit number.
    """
    if not 0 <= nonce < 2**64:
        raise MisuseError(f"expected a 64-bit nonce, got {nonce}")
    if rows < 1 or rows % COLUMNS:
        raise MisuseError(f"the matrix has a multiple of {COLUMNS} rows, not {rows}")
    weights = read_only("weights", weights, np.uint64, (-1, 2) if weights.ndim == 2 else (-1,))
    sums = np.zeros((rows, *weights.shape[1:]), dtype=np.uint64)
    keys = key_schedule(key)
    lane = passes_of(keys)
    project_on = lane.add_projections if weights.ndim == 1 else lane.add_wide_projections
    project_on(keys, np.uint64(nonce), weights, sums)
    return sums
