"""y = R·w for the matrix R of -1, 0 and 1 that a binding determines: N rows, a column for every weight.

Eight columns at a time take 2·N bytes of the keystream: bit k of byte i is e of row i, column 8·g + k; of byte N + i,
it is e′; the entry is e - e′. Whoever knows the binding knows R; nobody knows it before the update is fixed.
"""

from __future__ import annotations

import numpy as np

from fsl_async import kernels
from fsl_async.bounds.field import unsigned
from fsl_async.digests import KEY_BYTES, Domain, digest
from fsl_async.ring import Elements


def project(bind: bytes, rows: int, elements: Elements, ring_bits: int) -> list[int]:
    """R·elements modulo 2^l.

    Args:
        bind: determines R.
        rows: N, a multiple of 8.
        elements: of n weights, as `Ring` has them.
        ring_bits: l.

    Returns:
        N numbers from 0 to 2^l - 1.
    """
    key, nonce = matrix_key(bind)
    products = kernels.project(key, nonce, rows, elements.astype(np.uint64))
    return [number & (1 << ring_bits) - 1 for number in unsigned(products, ring_bits)]


def matrix_key(bind: bytes) -> tuple[bytes, int]:
    """The key and the nonce of R's keystream.

    192 bits together: of 128, a client could hit one of the matrices whose kernel its update lies in, n/N of them, with
    n/N chances in 2^128 a try.
    """
    seed = digest(Domain.BOUND_MATRIX, bind)
    return seed[:KEY_BYTES], int.from_bytes(seed[KEY_BYTES : KEY_BYTES + 8], "little")
