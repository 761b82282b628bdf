"""An update as `submit` takes it, by block, and what it may be made of.

Rules: a pair of rows and values where the block is sparse, values alone where it is dense; rows are distinct.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.task import Sparse

RowValues: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]
"""Distinct rows, and values (rows, width)."""

Update: TypeAlias = dict[str, RowValues | npt.NDArray[Any]]
"""What `submit` takes: by sparse block a pair of rows and values, by dense block values."""


def row_values(block: Sparse, given: object) -> RowValues:
    """The rows and values of a sparse block, any number of rows.

    Raises:
        MisuseError: they are no pair, or the rows are not distinct rows of the block, or the values not one for each.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise MisuseError(f"block {block.name!r}: a pair of rows and values expected, got {type(given).__name__}")
    rows, values = np.asarray(given[0]), np.asarray(given[1])
    if rows.size == 0:
        rows = rows.astype(np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise MisuseError(f"block {block.name!r}: a list of integer rows expected, got {rows.dtype} {rows.shape}")
    outside = (rows < 0) | (rows >= block.rows)
    if outside.any():
        raise MisuseError(f"block {block.name!r}: row {rows[outside][0]} is outside 0 to {block.rows - 1}")
    if len(distinct(rows)) != len(rows):
        raise MisuseError(f"block {block.name!r}: a row is named twice")
    shape = (len(rows), block.width)
    if values.shape != shape and not (block.width == 1 and values.shape == (len(rows),)):
        raise MisuseError(f"block {block.name!r}: values of shape {shape} expected, got {values.shape}")
    if values.dtype.kind not in "fiu":
        raise MisuseError(f"block {block.name!r}: floats or integers expected, got {values.dtype}")
    return rows.astype(np.int64), values.reshape(shape)


def distinct(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Each number once, ascending; what `np.unique` does, which is slow for millions of them (it hashes)."""
    ordered = np.sort(numbers, axis=None).astype(np.int64)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def flat_values(name: str, size: int, given: object) -> npt.NDArray[Any]:
    """The values of a dense block.

    Raises:
        MisuseError: they are not as many numbers as the block holds.
    """
    values = np.asarray(given) if not isinstance(given, tuple) else np.zeros(0)
    if values.shape != (size,) or values.dtype.kind not in "fiu":
        came = "a tuple" if isinstance(given, tuple) else f"{values.dtype} of shape {values.shape}"
        raise MisuseError(f"block {name!r}: {size} values expected, got {came}")
    return values
