"""The ceiling of evaluation: a client's trees walked and their leaves converted and proved, and nothing added up.

What evaluation takes beyond it is the accumulator: its way through memory, hints and sums. Leaves have one plane.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fsl_async import kernels
from fsl_async.derivation import expansion_keys, forest_roots
from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.multiplying import multiplier_of
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.simd.vectors import hash_vector, lanes, load, store
from fsl_async.kernels.trees.arguments import GROUP, Span, TagCheck, Trees
from fsl_async.kernels.trees.passes import prove_leaf
from fsl_async.kernels.trees.walk import climb, new_group, new_row, padded, plant, take
from fsl_async.server.slicing import tree_of
from fsl_async.wire.public_part import ForestKey
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import Case, client_of

BINS = ForestKey(0, 0)
KEYS = tuple(bytes([number]) * 16 for number in range(2))


def ceiling(case: Case) -> Callable[[], None]:
    """One client's trees, walked and converted, and proved if the case is verified; prepared."""
    forest, query = case.forest, client_of(case, 0).query(0)
    words = tree_of(forest, query.trees.layout.split(query.trees.data)[BINS, "tree"]).words
    roots = forest_roots(query.msk, BINS, forest, 0)
    roots.flags.writeable = False
    trees = Trees(expansion_keys(case.config), roots, words)
    convert, tag = map(kernels.key_schedule, KEYS)
    masks = kernels.keystream(KEYS[1], nonce=0, count=forest.leaves)
    check = TagCheck(tag, multiplier_of(tag), masks, masks, np.zeros((forest.trees, 2), dtype=np.uint64))
    edges = np.linspace(0, forest.bins, case.threads + 1).astype(int)

    def job(segment: int, part: int) -> Callable[[], None]:
        span = Span(segment * forest.bins, int(edges[part]), int(edges[part + 1]), forest.leaves)
        return lambda: _walk(trees, span, convert, check, case.task.verified)

    jobs = [job(segment, part) for segment in range(forest.segments) for part in range(case.threads)]
    return lambda: run_all(jobs, case.threads)


@compiled
def _walk(trees: Trees, span: Span, convert: Keys, check: TagCheck, verified: bool) -> None:
    nowhere = 1 << len(trees.words)
    group = new_group(trees, span.stop - span.start)
    images = new_row(padded(convert, min(GROUP, span.stop - span.start)))
    for start in range(span.start, span.stop, GROUP):
        first, count = span.offset + start, min(GROUP, span.stop - start)
        plant(trees, group, first, count)
        corrections = take(trees.keys, check.corrections, first, count)
        proofs = new_row(len(corrections))
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            if verified:
                prove_leaf(check, leaf, group.nodes, row, corrections, proofs)
            _convert(convert, group.nodes, row, images, count)


@compiled
def _convert(keys: Keys, nodes: Blocks, row: int, images: Blocks, count: int) -> None:
    for i in range(0, count, lanes(keys)):
        store(images, i, load(keys, images, i) ^ hash_vector(keys, load(keys, nodes, row + i)))
