"""Which multiplier is in use, and the known-answer test that it must pass before it computes a tag.

A wrong product would refuse honest answers on one machine alone. So a multiplier first multiplies rows of every piece
that there is, and the sums must be those of an independent reference.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fsl_async.kernels.aes import active_isa
from fsl_async.kernels.rows.shelves import RUN, multiply_rows, products_of_words, shelf_of
from fsl_async.kernels.selftest import KernelFaultError
from fsl_async.kernels.simd.carryless import Multiplier, Unit, unit_for
from fsl_async.kernels.simd.isa import Isa, Keys, find_isa, isa_of, processor_features

ROW_BYTES = (71, 38, 21, 12, 3, 2, 1)
ROWS = 3
# BLAKE2b-128 of the sums below, word after word, for every length of rows.
SUMS = "6a69eefd339048f7e53bb5edf02bc754"

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


def _checked(isa: Isa) -> Multiplier:
    if isa not in _passed:
        unit = unit_for(isa, processor_features())
        check_unit(unit)
        _passed[isa] = unit.multiplier
    return _passed[isa]


def check_unit(unit: Unit) -> None:
    """Run the known-answer test.

    Raises:
        KernelFaultError: if a product is wrong.
    """
    if sums_digest(unit.multiplier) != SUMS:
        raise KernelFaultError(
            f"multiplier {unit.name!r} fails its known-answer test on this machine; choose another instruction set"
        )


def sums_digest(multiplier: Multiplier) -> str:
    """BLAKE2b-128 of the sums of known rows times known keys, not reduced."""
    digest = hashlib.blake2b(digest_size=16)
    for row_bytes in ROW_BYTES:
        rows = (np.arange(ROWS * row_bytes) * 157 + row_bytes).astype(np.uint8).reshape(ROWS, row_bytes)
        leaves = np.zeros((ROWS + RUN, 2), dtype=np.uint64)
        leaves[:ROWS, 1] = [0xF0E1D2C3B4A59687 + row for row in range(ROWS)]
        shelf = shelf_of(rows, ROWS)
        sums = np.zeros(2 * shelf.words, dtype=np.uint64)
        multiply_rows(multiplier, shelf, leaves, sums)
        digest.update(sums.reshape(-1, 2)[products_of_words(row_bytes)].astype("<u8").tobytes())
    return digest.hexdigest()
