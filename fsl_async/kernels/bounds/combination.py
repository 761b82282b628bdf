"""Whole-number combinations of rows of words: Σ coefficient·word for every column, as exact integers.

A server evaluates a proof's wires at one point: every wire is a column of its words, the coefficients are field
elements of four or six limbs. The products are summed as they are, limb by limb, and whoever knows the prime reduces
one number for each column: so the kernel knows no prime, and no product is reduced.

Every word costs the same whatever it is: multiplications of 64 bits, additions, and no branch on a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import read_only
from fsl_async.kernels.lane import passes

Words = npt.NDArray[np.uint64]


def combine(coefficients: Sequence[int], words: Words) -> list[int]:
    """Σ_c coefficients[c]·words[c, j] for every column j.

        combine([3, 5], np.array([[1, 0], [2, 7]], dtype=np.uint64))       # [13, 35]

    Args:
        coefficients: whole numbers from 0 on, one for each row.
        words: unsigned numbers of 64 bits, uint64 (rows, columns), or of 128 bits, uint64 (rows, columns, 2) with the
            low word first.

    Returns:
        One integer for each column, not reduced.

    Raises:
        MisuseError: a negative coefficient, another number of coefficients than rows, or words of another type.
    """
    if min(coefficients, default=0) < 0:
        raise MisuseError("coefficients of words are whole numbers from 0 on")
    shape = (len(coefficients), -1) if words.ndim == 2 else (len(coefficients), -1, 2)
    words = read_only("words", words, np.uint64, shape)
    columns = words if words.ndim == 3 else words[..., np.newaxis]
    return list(passes().sums_of_products(coefficients, columns))
