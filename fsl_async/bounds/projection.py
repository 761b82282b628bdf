"""y = R·w for the matrix R of -1, 0 and 1 that a binding determines: N rows, a column for every weight.

Eight columns at a time take 2·N bytes of the keystream: bit k of byte i is e of row i, column 8·g + k; of byte N + i,
it is e′; the entry is e - e′. Whoever knows the binding knows R; nobody knows it before the update is fixed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.digests import KEY_BYTES, Domain, digest
from fsl_async.ring import Elements

GROUPS_AT_ONCE = 64
"""Groups of eight columns whose entries are in memory at a time."""

_LIMB = np.uint64(2**32 - 1)

Words = npt.NDArray[np.uint64]


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
    whole = (1 << ring_bits) - 1
    if ring_bits != 128:
        return [total & whole for total in _products(bind, rows, elements.astype(np.uint64)).tolist()]
    # Limbs of 32 bits: their signed sums fit 64 bits.
    limbs = [elements[..., word] >> np.uint64(shift) & _LIMB for word in (0, 1) for shift in (0, 32)]
    sums = [_products(bind, rows, limb).view(np.int64).tolist() for limb in limbs]
    return [sum(part << 32 * place for place, part in enumerate(parts)) & whole for parts in zip(*sums, strict=True)]


def matrix_key(bind: bytes) -> tuple[bytes, int]:
    """The key and the nonce of R's keystream.

    192 bits together: of 128, a client could hit one of the matrices whose kernel its update lies in, n/N of them, with
    n/N chances in 2^128 a try.
    """
    seed = digest(Domain.BOUND_MATRIX, bind)
    return seed[:KEY_BYTES], int.from_bytes(seed[KEY_BYTES : KEY_BYTES + 8], "little")


def matrix_bytes(bind: bytes, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """The bits of R as the module describes them, (⌈columns/8⌉, 2, rows)."""
    groups = -(-columns // 8)
    key, nonce = matrix_key(bind)
    stream = kernels.keystream(key, nonce, count=groups * 2 * rows // 16)
    return stream.reshape(-1).view(np.uint8).reshape(groups, 2, rows)


def _products(bind: bytes, rows: int, words: Words) -> Words:
    """R·words modulo 2^64."""
    bits = matrix_bytes(bind, rows, len(words))
    padded = np.zeros(len(bits) * 8, dtype=np.uint64)
    padded[: len(words)] = words
    total = np.zeros(rows, dtype=np.uint64)
    for start in range(0, len(bits), GROUPS_AT_ONCE):
        piece = np.unpackbits(bits[start : start + GROUPS_AT_ONCE, ..., None], axis=3, bitorder="little")
        entries = (piece[:, 0].astype(np.int64) - piece[:, 1]).view(np.uint64)  # (groups, rows, 8)
        columns = padded[8 * start : 8 * (start + len(entries))].reshape(-1, 1, 8)
        total += (entries * columns).sum(axis=(0, 2), dtype=np.uint64)
    return total
