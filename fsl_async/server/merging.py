"""One sum added to another of the same round: partial sums of disjoint clients give the sum of all of them.

A sum's content is its arrays, in an order that the round's configuration gives; it moves between processes as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.ring import Ring
from fsl_async.server.jobs import TILE_BYTES, Job

__all__ = ["Content", "merging"]

Content: TypeAlias = Sequence[npt.NDArray[Any]]
"""The arrays of a sum: words of cells, then the elements of the dense blocks."""

JOB_BYTES = 16 * TILE_BYTES

BIN_AXIS = 3
"""Cells have the axes segment, leaf, plane, bin and word."""


def merging(ring: Ring, into: Content, other: Content, sign: Literal[1, -1]) -> list[Job]:
    """The jobs that add a sum to another one, or take it off; they may run side by side.

    Args:
        ring: the task's.
        into: what is changed in place.
        other: of the same round; not changed.
        sign: -1 to take it off.

    Raises:
        MisuseError: the two are not of one form; nothing has changed.
    """
    forms = [[(array.dtype, array.shape) for array in content] for content in (into, other)]
    if forms[0] != forms[1]:
        raise MisuseError("a partial sum has another form than the round that it is said to belong to")
    jobs: list[Job] = []
    for mine, theirs in zip(into, other, strict=True):
        runs = -1 if mine.flags.c_contiguous else math.prod(mine.shape[:BIN_AXIS])
        cells, more = _in_runs(mine, ring, runs), _in_runs(theirs, ring, runs)
        step = max(1, JOB_BYTES // max(1, cells[:1].nbytes))
        jobs += [partial(_add, ring, cells, more, sign, slice(at, at + step)) for at in range(0, len(cells), step)]
    return jobs


def _in_runs(array: npt.NDArray[Any], ring: Ring, count: int) -> npt.NDArray[Any]:
    """A view of an array's elements as (runs, elements of a run), so that a slice of cells can be viewed as well.

    Args:
        array: contiguous, or a slice of cells, whose runs are those of the neighbouring bins under one leaf.
        ring: the task's.
        count: how many runs; -1 for one of each element.
    """
    words = array.view(np.uint32) if ring.bits == 32 else array
    runs = words.view()
    shape = (-1, 1) if count < 0 else (count, -1)
    runs.shape = (*shape, 2) if ring.bits == 128 else shape  # raises where a copy would be made
    return runs


def _add(ring: Ring, cells: npt.NDArray[Any], more: npt.NDArray[Any], sign: Literal[1, -1], part: slice) -> None:
    into, other = cells[part], more[part]
    most = max(1, TILE_BYTES // (4 * ring.element_bytes))
    across = max(1, min(most, into.shape[1]))
    down = max(1, most // across)
    for top, left in itertools.product(range(0, len(into), down), range(0, into.shape[1], across)):
        tile = slice(top, top + down), slice(left, left + across)
        into[tile] = ring.add(into[tile], other[tile] if sign == 1 else ring.negate(other[tile]))
