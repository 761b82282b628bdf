"""How the work on submissions or queries is cut into jobs that threads may run side by side.

Jobs cover disjoint ranges of bins, so they write to disjoint slices of their output and need no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fsl_async import kernels
from fsl_async.geometry import Forest

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
