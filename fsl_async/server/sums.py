"""The running sum of one sparse block on one server, where shares are added before they are folded to rows.

`BinSum` has a cell for every position of every bin: all clients of a round share the bins, so their shares are added
there and folded to rows once. `UnionSum` has cells only for positions of rows in a union; it serves rounds that are
aligned on a union while their trees stay as they are.

Rule: ranges of bins have disjoint cells, so threads add to ranges that do not overlap side by side without a lock.

Fresh memory from the system costs as much time as several submissions, so `CellMemory` gives the next sum the memory of
the one before.

Partial sums of disjoint clients give the sum of all of them: `merging` adds one to another of the same round. A sum's
content is its arrays, in an order that the round's configuration gives; it moves between processes as it is.

Source: paper §"Basic Protocols" (SSA); design §7, §12.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest, RowNumbers, geometry_of
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements, Ring
from fsl_async.server.slicing import TILE_BYTES, Job
from fsl_async.task import Sparse

Words = npt.NDArray[np.uint64]


class CellMemory:
    """Memory that one sum after the other uses for its cells.

    Args:
        most: bytes to keep at most, while no sum needs them.
    """

    def __init__(self, most: int = 0) -> None:
        self._room = most
        self._kept: dict[tuple[int, ...], list[Words]] = {}

    def zeros(self, *shape: int) -> Words:
        """Zeros of a shape, uint64, aligned to a cache line."""
        if not self._kept.get(shape):
            return _aligned_zeros(shape)
        cells = self._kept[shape].pop()
        self._room += cells.nbytes
        cells.fill(0)
        return cells

    def give_back(self, cells: Words) -> None:
        """Take back an array that `zeros` gave; the caller must not use it any more."""
        if cells.nbytes <= self._room:
            self._kept.setdefault(cells.shape, []).append(cells)
            self._room -= cells.nbytes


class BinSum:
    """A cell for every position of every bin and stash slot; allocated for the first share."""

    def __init__(
        self, config: RoundConfig, index: int, block: Sparse, memory: CellMemory, forests: Mapping[int, Forest]
    ) -> None:
        """Start at zero.

        Args:
            config: the round.
            index: the block's, in the task.
            block: the block.
            memory: where cells come from.
            forests: by number, the block's forests, or slices of them.
        """
        self._forests = forests
        self._block = block
        self._memory = memory
        self._ring = config.shape.ring
        self._geometry = geometry_of(config.shape, block)
        self._placement = config.placement_key(index)

    @cached_property
    def _cells(self) -> dict[int, Blocks]:
        return {
            number: self._memory.zeros(forest.segments, forest.leaves, forest.planes, forest.bins, 2)
            for number, forest in self._forests.items()
        }

    def allocate(self) -> None:
        """Take the memory now: what several threads add to must be there before they do."""
        _ = self._cells

    @property
    def _allocated(self) -> bool:
        return "_cells" in self.__dict__

    def adder(self, number: int, evaluation: kernels.Evaluation, totals: kernels.AskedTotals) -> kernels.OnRange:
        """What adds the shares of one forest's trees, and writes the totals of every tree that are asked for."""
        return kernels.adder(evaluation, self._cells[number], totals)

    def verifying_adder(
        self,
        number: int,
        evaluation: kernels.Evaluation,
        verification: kernels.Verification,
        totals: kernels.AskedTotals,
    ) -> tuple[kernels.OnRange, Blocks]:
        """The same with proofs: what adds, and the array (trees, 2) of one block per tree that it fills."""
        proofs = np.zeros((self._forests[number].trees, 2), dtype=np.uint64)
        return kernels.verifying_adder(evaluation, verification, self._cells[number], proofs, totals), proofs

    def content(self) -> list[Words]:
        """The cells, where there are any yet; not copied."""
        return list(self._cells.values()) if self._allocated else []

    def cells(self, number: int, bins: range) -> Words:
        """The cells of some bins of a forest; not copied."""
        return self._cells[number][:, :, :, bins.start : bins.stop]

    def negate(self) -> None:
        """Turn the sum into its negative."""
        for cells in self.content():
            _negate(cells, self._ring)

    def release(self) -> None:
        """Give the memory back; this sum cannot be used any more."""
        for cells in self.content():
            self._memory.give_back(cells)
        self._cells = {}

    def rows(self, chosen: RowNumbers) -> Elements:
        """The sum of some rows, if it is over all bins: (rows, width); calls for others may run meanwhile.

        Where contributors are counted, the row's count is one element more, the last.
        """
        forest = self._geometry.bins
        totals = self._ring.zeros(len(chosen), self._block.width + forest.count_elements)
        if not self._allocated:
            return totals
        places = [permutation.forward(chosen) for permutation in self._permutations]
        kernels.fold(self._cells[0], places, totals, forest.positions)
        for slot in (self._cells[number] for number in range(1, len(self._cells))):
            planes = slot[0, :, :, 0][chosen].transpose(1, 0, 2)
            totals = self._ring.add(totals, _elements_of(planes, self._ring, totals))
        return totals

    @cached_property
    def _permutations(self) -> list[kernels.Permutation]:
        segments = range(self._geometry.bins.segments)
        return [kernels.Permutation(self._placement, segment, self._block.rows) for segment in segments]


class UnionSum:
    """A cell for every position of a row in the union."""

    def __init__(self, config: RoundConfig, index: int, block: Sparse, union: RowNumbers) -> None:
        self._block = block
        self._ring = config.shape.ring
        self._union = union
        self._forests = geometry_of(config.shape, block).forests
        bins = self._forests[0]
        key = config.placement_key(index)
        permuted = [kernels.Permutation(key, segment, block.rows).forward(union) for segment in range(bins.segments)]
        self._places = [[kernels.choose_places(places, bins.leaves, bins.bins) for places in permuted]]
        self._places += [[kernels.choose_places(union, slot.leaves, slot.bins)] for slot in self._forests[1:]]
        self._where = [[np.argsort(places.order) for places in segments] for segments in self._places]
        self._cells = [
            [np.zeros((forest.planes, len(union), 2), dtype=np.uint64) for _ in places]
            for forest, places in zip(self._forests, self._places, strict=True)
        ]

    def adder(self, number: int, evaluation: kernels.Evaluation, totals: kernels.AskedTotals) -> kernels.OnRange:
        """What adds one forest's shares at the union's rows; totals are over the leaves of these rows alone.

        Its ranges begin and end with a group of trees.
        """
        segments = enumerate(zip(self._places[number], self._cells[number], strict=True))
        adders = [
            kernels.places_adder(evaluation, places, cells, segment, totals) for segment, (places, cells) in segments
        ]
        return lambda segment, start, stop: adders[segment](start, stop)

    def content(self) -> list[Words]:
        """The cells; not copied."""
        return [cells for segments in self._cells for cells in segments]

    def negate(self) -> None:
        """Turn the sum into its negative."""
        for cells in self.content():
            _negate(cells, self._ring)

    def rows(self, chosen: RowNumbers) -> Elements:
        """The sum of some rows, ascending, zero outside the union: (rows, width)."""
        totals = self._ring.zeros(len(chosen), self._block.width)
        places = np.minimum(np.searchsorted(self._union, chosen), max(len(self._union) - 1, 0))
        inside = self._union[places] == chosen if len(self._union) else np.zeros(len(chosen), dtype=bool)
        totals[inside] = self._sums(places[inside])
        return totals

    def _sums(self, numbers: npt.NDArray[np.intp]) -> Elements:
        """The sum of some rows of the union, by their numbers in it."""
        found = self._ring.zeros(len(numbers), self._block.width)
        for where, segments in zip(self._where, self._cells, strict=True):
            for cell, cells in zip(where, segments, strict=True):
                found = self._ring.add(found, _elements_of(cells[:, cell[numbers]], self._ring, found))
        return found


def numbered(start: int, stop: int) -> RowNumbers:
    """The rows from `start` up to `stop`."""
    return np.arange(start, stop, dtype=np.int64).astype(np.uint32)


def _aligned_zeros(shape: tuple[int, ...]) -> Words:
    size = math.prod(shape)
    memory = np.zeros(size + 8, dtype=np.uint64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + size].reshape(shape)


def _negate(cells: Blocks, ring: Ring) -> None:
    view = cells.view(np.uint32) if ring.bits == 32 else cells
    view[...] = ring.negate(view)


def _elements_of(planes: Blocks, ring: Ring, like: Elements) -> Elements:
    """Payloads in planes (planes, rows, 2) as elements of another array's shape."""
    payloads = kernels.payload_of_planes(np.ascontiguousarray(planes), like[0].nbytes if len(like) else 0)
    return payloads.view(np.uint32 if ring.bits == 32 else np.uint64).reshape(like.shape)


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
