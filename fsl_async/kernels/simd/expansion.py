"""Key expansion, compiled: the round keys of AES-128 by the circuit, laid out for an instruction set.

A server expands a few keys for every forest of every submission; in Python each took as long as the trees of a hundred
bins.

Round keys begin at a cache line. Kernels load them at every vector, and a register of four blocks that lies across two
lines takes two loads: evaluation lost 3 to 6 %, whenever the allocator had so decided (`docs/adr/0025`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from fsl_async.kernels.simd import circuit

Words = npt.NDArray[np.uint64]

ROUNDS = circuit.ROUNDS
LOWEST_BITS = circuit.LOWEST_BITS
LINE_BYTES = 64
WORD_BYTES = 8

_substitute: Any = njit(circuit.substitute)


def expand_key(key: bytes, register: int) -> Words:
    """The eleven round keys of a 16-byte key, each repeated for a register of that many blocks: (11, 2·register).

    They begin at a cache line.
    """
    return expand(np.frombuffer(key, dtype="<u4").reshape(4), register)


@njit(cache=True, nogil=True)
def expand(key: npt.NDArray[np.uint32], register: int) -> Words:
    """FIPS 197, 5.2. No branch and no index depends on the key."""
    words = np.empty(4 * (ROUNDS + 1), dtype=np.uint32)
    for index in range(4):  # a slice would bring the text of its error with it, which takes 2 s to compile
        words[index] = key[index]
    constant = 1
    for index in range(4, len(words)):
        last = np.int64(words[index - 1])
        if index % 4 == 0:
            turned = last >> 8 | (last & 0xFF) << 24
            planes = _substitute(
                (
                    turned & LOWEST_BITS,
                    turned >> 1 & LOWEST_BITS,
                    turned >> 2 & LOWEST_BITS,
                    turned >> 3 & LOWEST_BITS,
                    turned >> 4 & LOWEST_BITS,
                    turned >> 5 & LOWEST_BITS,
                    turned >> 6 & LOWEST_BITS,
                    turned >> 7 & LOWEST_BITS,
                )
            )
            last = np.int64(constant)
            for bit in range(8):
                last ^= (planes[bit] & LOWEST_BITS) << bit
            constant = (constant << 1) ^ (0x11B * (constant >> 7))
        words[index] = np.int64(words[index - 4]) ^ last
    keys = _new_keys(2 * register)
    for turn in range(ROUNDS + 1):
        for half in range(2):
            word = np.uint64(words[4 * turn + 2 * half]) | np.uint64(words[4 * turn + 2 * half + 1]) << np.uint64(32)
            for block in range(register):
                keys[turn, 2 * block + half] = word
    return keys


@njit(cache=True, nogil=True)
def _new_keys(width: int) -> Words:
    """Room for round keys of `width` words each, from a cache line on."""
    size = (ROUNDS + 1) * width
    memory = np.empty(size + LINE_BYTES // WORD_BYTES, dtype=np.uint64)
    skip = (-memory.ctypes.data // WORD_BYTES) % (LINE_BYTES // WORD_BYTES)
    return memory[skip : skip + size].reshape((ROUNDS + 1, width))
