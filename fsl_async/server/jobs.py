"""How the work of one submission or query is cut into jobs that threads may run side by side.

Jobs cover disjoint ranges of bins, so they write to disjoint slices of their output and need no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fsl_async import kernels
from fsl_async.geometry import Forest

Job: TypeAlias = Callable[[], None]

LEAVES_PER_PIECE = 65_536
"""Fewer leaves than this (about 0.3 ms of work) are not worth a thread of their own."""


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


def tree_of(forest: Forest, piece: memoryview) -> kernels.Tree:
    """View a piece of a public part as a forest's trees."""
    words = np.frombuffer(piece[: forest.word_bytes], dtype="<u8").reshape(forest.depth, forest.trees, 2)
    bits = np.frombuffer(piece[forest.word_bytes :], dtype=np.uint8).reshape(forest.depth, -(-forest.trees // 8))
    return kernels.Tree(words, bits)
