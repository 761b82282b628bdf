"""One sum added to another of the same round: partial sums of disjoint clients give the sum of all of them.

A sum's content is its arrays, in an order that the round's configuration gives; it moves between processes as it is.
"""

from __future__ import annotations

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
        cells, more = _elements(mine, ring), _elements(theirs, ring)
        step = max(1, JOB_BYTES // ring.element_bytes)
        jobs += [partial(_add, ring, cells, more, sign, slice(at, at + step)) for at in range(0, len(cells), step)]
    return jobs


def _elements(array: npt.NDArray[Any], ring: Ring) -> npt.NDArray[Any]:
    """An array's memory as elements in a row."""
    words = array.view(np.uint32) if ring.bits == 32 else array
    elements = words.view()
    elements.shape = (-1, 2) if ring.bits == 128 else (-1,)  # raises where a copy would be made
    return elements


def _add(ring: Ring, cells: npt.NDArray[Any], more: npt.NDArray[Any], sign: Literal[1, -1], part: slice) -> None:
    into, other = cells[part], more[part]
    step = max(1, TILE_BYTES // (4 * ring.element_bytes))
    for at in range(0, len(into), step):
        tile = slice(at, at + step)
        into[tile] = ring.add(into[tile], other[tile] if sign == 1 else ring.negate(other[tile]))
