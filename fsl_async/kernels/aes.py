"""AES for the rest of the package: which instruction set is active, key schedules, blocks in and blocks out.

One instruction set is active per process. It is chosen when the first key schedule is made, or before by `select_isa`,
and must pass its known-answer test before it computes anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import Blocks, blocks_in
from fsl_async.kernels.lane import active, passes_of
from fsl_async.kernels.selftest import check_isa
from fsl_async.kernels.simd.isa import PLAIN, Keys, find_isa, isa_names, schedule
from fsl_async.kernels.simd.vectors import lanes


def select_isa(name: str | None = None) -> str:
    """Choose the instruction set of key schedules made from now on; the fastest one if no name is given.

    Kernels follow their keys, so keys made before keep the set they were made for; do not mix them.

    Returns:
        The name of the chosen set.

    Raises:
        MisuseError: if this processor lacks it.
        KernelFaultError: if it computes wrongly here.
    """
    isa = find_isa(isa_names()[0] if name is None else name)
    check_isa(isa)
    active[:] = [isa]
    return isa.name


@contextmanager
def plain_unless_chosen() -> Iterator[None]:
    """Within this context the plain set, if none is active: where kernels are not worth the second of loading them."""
    chosen = not active
    if chosen:
        select_isa(PLAIN.name)
    try:
        yield
    finally:
        if chosen:
            active.clear()


def active_isa() -> str:
    """The instruction set of new key schedules, chosen now if it has not been."""
    return active[0].name if active else select_isa()


def key_schedule(key: bytes) -> Keys:
    """The round keys of a 16-byte key for the active instruction set.

    Raises:
        MisuseError: if the key is not 16 bytes.
    """
    active_isa()
    return schedule(active[0], key)


def encrypt_blocks(keys: Keys, blocks: Blocks) -> Blocks:
    """AES-128 of every block: uint64 (n, 2) in and out."""
    row = _padded(keys, blocks_in("blocks", blocks))
    passes_of(keys).encrypt_row(keys, row)
    return row[: len(blocks)]


def hash_blocks(keys: Keys, blocks: Blocks) -> Blocks:
    """H(x) = AES(σ(x)) ^ σ(x) of every block (design §5): uint64 (n, 2) in and out."""
    row = _padded(keys, blocks_in("blocks", blocks))
    passes_of(keys).hash_row(keys, row)
    return row[: len(blocks)]


def keystream(key: bytes, nonce: int, count: int, first: int = 0) -> Blocks:
    """The blocks AES_key(nonce‖i), i the low word, from i = first on: uint64 (count, 2).

    Raises:
        MisuseError: if the nonce is not a 64-bit number, or the count or the first negative.
    """
    if not 0 <= nonce < 2**64 or count < 0 or not 0 <= first < 2**64 - count:
        raise MisuseError(
            f"expected a 64-bit nonce, a count and a first from 0 on, got nonce {nonce}, count {count}, first {first}"
        )
    keys = key_schedule(key)
    row = _row(keys, count)
    row[:, 0] = np.arange(len(row), dtype=np.uint64) + np.uint64(first)
    row[:, 1] = nonce
    passes_of(keys).encrypt_row(keys, row)
    return row[:count]


def _padded(keys: Keys, blocks: Blocks) -> Blocks:
    row = _row(keys, len(blocks))
    row[: len(blocks)] = blocks
    return row


def _row(keys: Keys, count: int) -> Blocks:
    """Zeros for `count` blocks and up to a whole vector."""
    return np.zeros((-(-count // lanes(keys)) * lanes(keys), 2), dtype=np.uint64)
