"""The known-answer test that an instruction set must pass before it is used.

A wrong block raises no error: it would silently spoil sums or, worse, correlate what must look random. So every
instruction set first encrypts the example of FIPS 197 and generates three small trees whose leaves are known from an
independent reference.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import FslError
from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.simd.isa import Isa, Keys, schedule
from fsl_async.kernels.simd.vectors import lanes
from fsl_async.kernels.trees.arguments import Pair, Span, Trees

TREES, DEPTH = 3, 3
PLAIN = bytes.fromhex("00112233445566778899aabbccddeeff")
CIPHER = bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a")
# BLAKE2b-128 of every leaf of the trees below: leaf by leaf, server by server, tree by tree.
LEAVES = "77f2068234f6714c29f60d577fe9054a"

_passed: set[str] = set()


class KernelFaultError(FslError):
    """An instruction set computes wrongly on this machine; choose another with `select_isa`."""


def check_isa(isa: Isa) -> None:
    """Run the known-answer test, once per process.

    Raises:
        KernelFaultError: if a block is wrong.
    """
    if isa.name in _passed:
        return
    keys = schedule(isa, bytes(range(16)))
    if _fips_block(keys) != CIPHER or _leaves_digest(keys) != LEAVES:
        raise KernelFaultError(
            f"instruction set {isa.name!r} fails its known-answer test on this machine; choose another one"
        )
    _passed.add(isa.name)


def _fips_block(keys: Keys) -> bytes:
    row = np.tile(np.frombuffer(PLAIN, dtype=np.uint64), (lanes(keys), 1))
    passes_of(keys).encrypt_row(keys, row)
    return bytes(row[-1].tobytes())


def _leaves_digest(keys: Keys) -> str:
    roots = Pair(_roots(0), _roots(1))
    words = np.empty((DEPTH, TREES, 2), dtype=np.uint64)
    passes_of(keys).grow_pairs(keys, _constant(np.array([0, 5, 7], dtype=np.uint32)), roots, words)
    leaves = np.empty((2**DEPTH, 2, TREES, 2), dtype=np.uint64)
    for server in (0, 1):
        leaves[:, server] = _leaves(Trees(keys, _constant(_roots(server)), _constant(words)))
    return hashlib.blake2b(leaves.tobytes(), digest_size=16).hexdigest()


def _leaves(trees: Trees) -> Blocks:
    """Every leaf of every tree: shape (leaves, trees, 2)."""
    leaves = np.empty((2**DEPTH, TREES, 2), dtype=np.uint64)
    passes_of(trees.keys).leaves_of(
        trees, Span(0, 0, TREES, len(leaves)), _constant(np.arange(len(leaves), dtype=np.uint32)), leaves
    )
    return leaves


def _roots(server: int) -> Blocks:
    return np.array([[2 * tree + server, 0x1111 * (tree + 1)] for tree in range(TREES)], dtype=np.uint64)


def _constant(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The read-only form in which kernels take their inputs: one compiled form for all callers."""
    array.flags.writeable = False
    return array
