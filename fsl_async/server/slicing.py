"""How work is cut: into jobs that threads may run side by side, and a round's trees into slices, ranges of bins.

Jobs cover disjoint ranges of bins, so they write to disjoint slices of their output and need no lock. A round is cut
into slices where one machine has no room for a sum of all rows, or no time.

The trees of a forest stand in groups of neighbouring bins, and what the servers compare of a submission is a digest of
one digest for each group. So whoever adds a slice of whole groups can digest what those trees prove, and the digests
of all slices together give the digest of all trees. The groups are part of the protocol: both servers have the
same ones, into however many slices each of them cuts a round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.digests import Domain, digest
from fsl_async.geometry import BLOCK_BYTES, Forest
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements
from fsl_async.task import Task
from fsl_async.wire.public_part import ForestKey, forests_of

Job: TypeAlias = Callable[[], None]

LEAVES_PER_PIECE = 65_536
"""Fewer leaves than this (about 0.3 ms of work) are not worth a thread of their own."""

CUT_AT = 16
"""Ranges that begin at multiples of this many bins begin at a whole vector of any instruction set."""

TILE_BYTES = 2**21
"""Cells that stay in a core's second-level cache from one submission to the next."""


class Range(NamedTuple):
    """Some bins of one segment of one forest.

    Attributes:
        forest: the forest's place among those that were cut.
        segment: the segment.
        start: first bin.
        stop: one past the last bin.
    """

    forest: int
    segment: int
    start: int
    stop: int


def work_of(forest: Forest) -> int:
    """What it takes to add the trees of one submission, in leaves of trees with a payload of one block.

    The walk to a leaf takes about twice as long as one block of its payload.
    """
    return forest.segments * forest.bins * _work_of_bin(forest) // 3


def _work_of_bin(forest: Forest) -> int:
    return forest.leaves * (2 + forest.planes)


def shared_out(forests: Sequence[Forest], count: int, multiple: int) -> list[list[Range]]:
    """Cut the bins of all forests into `count` parts of about equal work: every bin is in exactly one of them.

    Args:
        forests: what to cut, one after the other.
        count: how many parts; there are fewer if that many cannot be cut.
        multiple: cut only at multiples of this many bins.
    """
    total = sum(forest.segments * forest.bins * _work_of_bin(forest) for forest in forests)
    parts: list[list[Range]] = [[] for _ in range(count)]
    done = 0
    for number, forest in enumerate(forests):
        each = _work_of_bin(forest)
        for segment in range(forest.segments):
            start = 0
            while start < forest.bins:
                part = done * count // total
                missing = -(-((part + 1) * total - done * count) // (count * each))
                stop = min(forest.bins, -(-(start + missing) // multiple) * multiple)
                parts[part].append(Range(number, segment, start, stop))
                done += (stop - start) * each
                start = stop
    return [part for part in parts if part]


def tiles(piece: Range, forest: Forest, multiple: int) -> Iterator[tuple[int, int]]:
    """Cut a range into first and last bins of tiles, whose cells fit a cache; only at multiples of so many bins.

    Trees are walked in groups: a tile has whole groups, if it has at least one.
    """
    fitting = TILE_BYTES // (16 * forest.leaves * forest.planes)
    unit = kernels.GROUP if fitting >= kernels.GROUP else multiple
    bins = max(1, fitting // unit) * unit
    return ((start, min(piece.stop, start + bins)) for start in range(piece.start, piece.stop, bins))


def ranges(forest: Forest, threads: int, multiple: int = 1) -> list[tuple[int, int, int]]:
    """Cut a forest into (segment, first bin, last bin) pieces: enough for `threads`, none too small.

    Args:
        forest: what to cut.
        threads: how many pieces should be able to run at once.
        multiple: cut only at multiples of this many bins.
    """
    pieces = max(1, min(threads, forest.bins * forest.leaves // LEAVES_PER_PIECE))
    cuts = sorted({forest.bins * piece // pieces // multiple * multiple for piece in range(pieces)} | {forest.bins})
    cuts = sorted({0, *cuts})
    return [(segment, start, stop) for segment in range(forest.segments) for start, stop in itertools.pairwise(cuts)]


LEAVES_OF_GROUP = 6 * 2**20
"""A forest has a group for so many leaves: about 15 ms of work, beside which a digest is nothing."""

MOST_GROUPS = 64
"""Groups of one forest, at most."""


class BinGroup(NamedTuple):
    """Some bins of every segment of a forest.

    Attributes:
        key: the forest.
        start: first bin.
        stop: one past the last bin.
    """

    key: ForestKey
    start: int
    stop: int


Slice: TypeAlias = Mapping[ForestKey, range]
"""By forest, in the order of the wire, bins of every segment; forests without any are not in it."""


@dataclass(frozen=True)
class ForestSlice:
    """Some bins of a forest, and what a server needs of theirs.

    Attributes:
        whole: the forest.
        bins: which of every segment.
    """

    whole: Forest
    bins: range

    @cached_property
    def forest(self) -> Forest:
        """The trees of the slice, as a forest of their own."""
        return replace(self.whole, bins=len(self.bins))

    @property
    def is_whole(self) -> bool:
        """Whether these are all bins."""
        return len(self.bins) == self.whole.bins

    def of_trees(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Of an array with an entry for each tree of the forest, shape (trees, …), those of the slice's trees."""
        if self.is_whole:
            return array
        by_segment = array.reshape(self.whole.segments, self.whole.bins, *array.shape[1:])
        return by_segment[:, self.bins.start : self.bins.stop].reshape(self.forest.trees, *array.shape[1:])

    def trees(self, piece: memoryview) -> kernels.Tree:
        """The trees of the slice, from the forest's correction words as they lie in a public part."""
        tree = tree_of(self.whole, piece)
        if self.is_whole:
            return tree
        return kernels.Tree(np.ascontiguousarray(self.of_trees(tree.words.swapaxes(0, 1)).swapaxes(0, 1)))


def tree_of(forest: Forest, piece: memoryview) -> kernels.Tree:
    """View a piece of a public part as a forest's trees."""
    return kernels.Tree(np.frombuffer(piece, dtype="<u8").reshape(forest.depth, forest.trees, 2))


def whole(task: Task) -> Slice:
    """The slice of all bins."""
    return {key: range(forest.bins) for key, forest in forests_of(task)}


def slices_of(task: Task, count: int) -> tuple[Slice, ...]:
    """Cut a round into slices of about equal work: every group of bins is in exactly one of them.

    Args:
        task: the round's, with its blocks as they are in the round.
        count: how many, from 1 on; there are fewer if there are not so many groups.
    """
    forests, groups = dict(forests_of(task)), groups_of(task)
    work = [_work(forests[group.key], range(group.start, group.stop)) for group in groups]
    total, done = sum(work), 0
    found: list[dict[ForestKey, range]] = [{} for _ in range(count)]
    for group, own in zip(groups, work, strict=True):
        bins = found[(2 * done + own) * count // (2 * total)]
        bins[group.key] = range(bins[group.key].start if group.key in bins else group.start, group.stop)
        done += own
    return tuple(bins for bins in found if bins)


def even_slices(task: Task, count: int) -> tuple[Slice, ...]:
    """Cut every forest evenly, as answers to retrievals may be cut: anywhere, because nothing is proved of them."""
    forests = dict(forests_of(task))
    slices = (
        {
            key: bins
            for key, forest in forests.items()
            if (bins := range(forest.bins * number // count, forest.bins * (number + 1) // count))
        }
        for number in range(count)
    )
    return tuple(some for some in slices if some)


def slices_within(task: Task, most: int) -> tuple[Slice, ...]:
    """Cut a round into as few slices as have cells of at most so many bytes, or into as many as there can be."""
    least = max(1, cell_bytes(task, whole(task)) // max(1, most))
    for count in range(least, len(groups_of(task)) + 1):
        slices = slices_of(task, count)
        if all(cell_bytes(task, some) <= most for some in slices):
            return slices
    return slices_of(task, max(1, len(groups_of(task))))


def groups_of(task: Task) -> tuple[BinGroup, ...]:
    """The groups of bins of a round, in the order of the wire."""
    return _groups_of(task, LEAVES_OF_GROUP)


@lru_cache(maxsize=64)
def _groups_of(task: Task, leaves: int) -> tuple[BinGroup, ...]:
    return tuple(
        BinGroup(key, forest.bins * number // count, forest.bins * (number + 1) // count)
        for key, forest in forests_of(task)
        for count in [max(1, min(MOST_GROUPS, forest.bins, forest.trees * forest.leaves // leaves))]
        for number in range(count)
    )


def cell_bytes(task: Task, some: Slice) -> int:
    """The memory that a sum over a slice takes: a cell for each leaf."""
    forests = dict(forests_of(task))
    return sum(
        forest.segments * len(bins) * forest.leaves * forest.planes * BLOCK_BYTES
        for forest, bins in ((forests[key], bins) for key, bins in some.items())
    )


# ---- what the servers compare


def group_digests(
    groups: Sequence[BinGroup],
    forests: Mapping[ForestKey, ForestSlice],
    proofs: Mapping[ForestKey, Blocks],
    counts: Mapping[ForestKey, Elements],
) -> bytes:
    """What the trees of each group prove: a digest of its proof blocks, then its trees' counts, segment after segment.

    Args:
        groups: those of the round.
        forests: the slice; groups that are not in it have no digest.
        proofs: by forest with proofs, a block for each tree of the slice, (trees, 2).
        counts: by forest, where contributors are counted, the count of each of these trees.
    """
    return b"".join(
        digest(Domain.PROOF_GROUP, *_of_group(group, forests[group.key], proofs, counts))
        for group in groups
        if group.key in forests and group.start in forests[group.key].bins
        if group.key in proofs or group.key in counts
    )


def proof_digest(tree: bytes, groups: bytes) -> bytes:
    """What the servers compare of a submission.

    Args:
        tree: the digest of its trees.
        groups: the `group_digests` of all slices, in order.
    """
    return digest(Domain.PROOF, tree, groups)


def _of_group(
    group: BinGroup,
    some: ForestSlice,
    proofs: Mapping[ForestKey, Blocks],
    counts: Mapping[ForestKey, Elements],
) -> Iterator[bytes | memoryview]:
    place = slice(group.start - some.bins.start, group.stop - some.bins.start)
    for array in (proofs.get(group.key), counts.get(group.key)):
        if array is None:
            yield from [b""] * some.forest.segments
        else:
            for segment in array.reshape(some.forest.segments, some.forest.bins, *array.shape[1:]):
                yield np.ascontiguousarray(segment[place]).reshape(-1).view(np.uint8).data


def _work(forest: Forest, bins: range) -> int:
    return work_of(replace(forest, bins=len(bins)))
