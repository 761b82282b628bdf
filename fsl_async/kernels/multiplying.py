"""Which multiplier is in use, and the known-answer test that it must pass before it computes a tag.

A wrong product would refuse honest answers and clients on one machine alone. So a multiplier first multiplies rows of
every piece that there is, and the halves of blocks; the products must be those of an independent reference.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.aes import active_isa
from fsl_async.kernels.rows.shelves import RUN, multiply_rows, products_of_words, shelf_of
from fsl_async.kernels.selftest import KernelFaultError
from fsl_async.kernels.simd.carryless import Multiplier, Unit, unit_for
from fsl_async.kernels.simd.isa import Isa, Keys, find_isa, isa_of, processor_features, schedule
from fsl_async.kernels.trees.passes import multiply_row

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

ROW_BYTES = (71, 38, 21, 12, 3, 2, 1)
ROWS = 3
KEY = 0xF0E1D2C3B4A59687
BLOCKS = 16
# BLAKE2b-128 of the sums below, word after word, for every length of rows, and then of the blocks' products.
PRODUCTS = "4268f1901a7d403f498d419a151b9875"

_passed: dict[Isa, Multiplier] = {}


def active_multiplier() -> Multiplier:
    """The multiplier of the active instruction set.

    Raises:
        KernelFaultError: if it multiplies wrongly on this machine.
    """
    return _checked(find_isa(active_isa()))


def multiplier_of(keys: Keys) -> Multiplier:
    """The multiplier that goes with keys.

    Raises:
        KernelFaultError: if it multiplies wrongly on this machine.
    """
    return _checked(isa_of(type(keys)))


def sum_products(keys: Words, rows: Bytes) -> Words:
    """The sum of keys times rows, (n,) and (n, row_bytes), word by word and not reduced: (words, 2)."""
    shelf = shelf_of(rows, len(rows))
    leaves = np.zeros((len(rows) + RUN, 2), dtype=np.uint64)
    leaves[: len(rows), 1] = keys
    sums = np.zeros(2 * shelf.words, dtype=np.uint64)
    multiply_rows(active_multiplier(), shelf, leaves, sums)
    total: Words = sums.reshape(-1, 2)[products_of_words(rows.shape[1])]
    return total


def _checked(isa: Isa) -> Multiplier:
    if isa not in _passed:
        unit = unit_for(isa, processor_features())
        check_unit(unit, schedule(isa, bytes(16)))
        _passed[isa] = unit.multiplier
    return _passed[isa]


def check_unit(unit: Unit, keys: Keys) -> None:
    """Run the known-answer test, on vectors as they are with some keys.

    Raises:
        KernelFaultError: if a product is wrong.
    """
    if products_digest(unit.multiplier, keys) != PRODUCTS:
        raise KernelFaultError(
            f"multiplier {unit.name!r} fails its known-answer test on this machine; choose another instruction set"
        )


def products_digest(multiplier: Multiplier, keys: Keys) -> str:
    """BLAKE2b-128 of the sums of known rows times known keys, then of known blocks' products; none is reduced."""
    digest = hashlib.blake2b(digest_size=16)
    for row_bytes in ROW_BYTES:
        rows = (np.arange(ROWS * row_bytes) * 157 + row_bytes).astype(np.uint8).reshape(ROWS, row_bytes)
        leaves = np.zeros((ROWS + RUN, 2), dtype=np.uint64)
        leaves[:ROWS, 1] = [KEY + row for row in range(ROWS)]
        shelf = shelf_of(rows, ROWS)
        sums = np.zeros(2 * shelf.words, dtype=np.uint64)
        multiply_rows(multiplier, shelf, leaves, sums)
        digest.update(sums.reshape(-1, 2)[products_of_words(row_bytes)].astype("<u8").tobytes())
    row = np.array([[KEY + place, ~(KEY << place) % 2**64] for place in range(BLOCKS)], dtype=np.uint64)
    multiply_row(keys, multiplier, row)
    digest.update(row.astype("<u8").tobytes())
    return digest.hexdigest()
