"""Inner products of shares with tossed points, modulo the prime 2^61 - 1: what a sketch costs a server at every leaf.

Words below 2^64 come in, as leaves are converted, and are reduced here; residues below the prime go out. A product of
two residues has 122 bits, so 2^61 = 1 folds it with shifts alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from fsl_async.kernels.arrays import read_only, require
from fsl_async.kernels.bounds.combination_kernels import multiply_add

PRIME: Final = 2**61 - 1

BIT_PLANES: Final = 2
ANY_PLANES: Final = 4

Residues = npt.NDArray[np.uint64]

_PRIME, _SHIFT = np.uint64(PRIME), np.uint64(61)
_ZERO, _THREE = np.uint64(0), np.uint64(3)


def multiply_residues(first: Residues, second: Residues) -> Residues:
    """Products modulo 2^61 - 1 of words below 2^64, of one shape.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    require("second factor", second, np.uint64, first.shape)
    flat = [read_only("factor", array.reshape(-1), np.uint64, (first.size,)) for array in (first, second)]
    found = np.empty(first.size, dtype=np.uint64)
    _multiply_all(flat[0], flat[1], found)
    return found.reshape(first.shape)


def sketch_sums(shares: Residues, points: Residues) -> Residues:
    """Every bin's inner products, modulo 2^61 - 1.

    With v and the other planes at position x of a bin, and r the point there: for two planes the sums of r·v, r²·v and
    r·v₁; for four the sums of v, r·v, r²·v and v₁ + r·v₂ + r²·v₃.

    Args:
        shares: uint64 (positions, bins, planes), planes 2 or 4.
        points: uint64 (positions, bins).

    Returns:
        uint64 (bins, 3) or (bins, 4), below the prime.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    planes = ANY_PLANES if shares.shape[-1:] == (ANY_PLANES,) else BIT_PLANES
    shares = read_only("shares", shares, np.uint64, (-1, -1, planes))
    points = read_only("points", points, np.uint64, shares.shape[:2])
    sums = np.zeros((shares.shape[1], 4 if planes == ANY_PLANES else 3), dtype=np.uint64)
    (_any_sums if planes == ANY_PLANES else _bit_sums)(shares, points, sums)
    return sums


@njit(inline="always")
def _fold(word: Any) -> Any:
    """A word below 2^64 modulo the prime."""
    word = (word & _PRIME) + (word >> _SHIFT)
    return word - _PRIME * np.uint64(word >= _PRIME)


@njit(inline="always")
def _product(first: Any, second: Any) -> Any:
    """The product of two residues, a residue."""
    low, high = multiply_add(first, second, _ZERO, _ZERO)
    return _fold((low & _PRIME) + ((high << _THREE) | (low >> _SHIFT)))


@njit(cache=True, nogil=True)
def _multiply_all(first: Residues, second: Residues, found: Residues) -> None:
    for index in range(len(found)):
        found[index] = _product(_fold(first[index]), _fold(second[index]))


@njit(cache=True, nogil=True)
def _bit_sums(shares: Residues, points: Residues, sums: Residues) -> None:
    for x in range(len(shares)):
        for j in range(len(sums)):
            r = _fold(points[x, j])
            once = _product(r, _fold(shares[x, j, 0]))
            sums[j, 0] = _fold(sums[j, 0] + once)
            sums[j, 1] = _fold(sums[j, 1] + _product(r, once))
            sums[j, 2] = _fold(sums[j, 2] + _product(r, _fold(shares[x, j, 1])))


@njit(cache=True, nogil=True)
def _any_sums(shares: Residues, points: Residues, sums: Residues) -> None:
    for x in range(len(shares)):
        for j in range(len(sums)):
            r = _fold(points[x, j])
            value = _fold(shares[x, j, 0])
            once = _product(r, value)
            sums[j, 0] = _fold(sums[j, 0] + value)
            sums[j, 1] = _fold(sums[j, 1] + once)
            sums[j, 2] = _fold(sums[j, 2] + _product(r, once))
            inner = _fold(_fold(shares[x, j, 2]) + _product(r, _fold(shares[x, j, 3])))
            sums[j, 3] = _fold(sums[j, 3] + _fold(_fold(shares[x, j, 1]) + _product(r, inner)))
