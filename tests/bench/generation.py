"""`bench generate`: what a client computes before it sends a submission, whole and in parts.

The parts are measured through the kernels, on the case's own trees: the permuted positions and the placement, the
trees, the hints and, where the task is verified, the tag corrections. `plant` is all of it up to the trees, dummies
and roots included; the public part is hints, corrections and the bytes that travel, whose trees are digested once.

Source: paper §"Protocol Efficiency", table "Computation efficiency", DPF Gen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from examples.paper.efficiency.printed import PrintedTime
from fsl_async import kernels
from fsl_async.client.planting import ForestTrees, MasterSeeds, plant
from fsl_async.derivation import expansion_keys, forest_roots
from fsl_async.geometry import SEGMENTS
from fsl_async.randomness import SeededSource
from fsl_async.wire.public_part import SALT_BYTES, ForestKey
from parties.commands.bench.workload import SEED, Case, Client, client_of
from tests.bench.measures import Spread, Work, aes_bound, alternate
from tests.bench.results import Result, Target
from tests.bench.workload import Options

REPETITIONS = 9
MANY, FEW = 104_858, 1_000
TARGETS = {(2**20, MANY): 0.015, (2**20, FEW): 0.002}
PAPER_SECONDS = {
    (2**10, 103): PrintedTime(0.028),
    (2**15, 3277): PrintedTime(0.838),
    (2**20, MANY): PrintedTime(22.806),
}
KEY = ForestKey(0, 0)


def generate_suite(options: Options) -> Iterator[Result]:
    """A set of cases, or the one that is asked for."""
    cases = (Case(select=MANY),) if options.given else (Case(select=MANY), Case(select=FEW))
    for case in cases:
        yield from planting(replace(options.apply(case), threads=1))


def planting(case: Case) -> Iterator[Result]:
    """One client's generation, whole and in parts."""
    client = client_of(case, 0)
    seeds, planted = client.client_trees.seeds, client.client_trees.planted[KEY]
    source = SeededSource(SEED, "planting")
    works: dict[str, Work] = {
        "plant": lambda: plant(case.config, {0: client.rows}, seeds, source),
        "public part": client.public_part,
        "of that: placement": partial(_place, case, client),
        "of that: trees": partial(_grow, case, seeds, planted),
        "of that: hints": partial(_hint, case, planted),
        "of that: tags": partial(_tag, case, planted),
    }
    bound = aes_bound()
    blocks, seconds = alternate(REPETITIONS, bound, *works.values())
    spent = _aes_blocks(case)
    whole, hints = seconds[0], seconds[4]
    for name, spread in zip(works, seconds, strict=True):
        targets = _targets(case, whole, hints) if name == "plant" else ()
        yield Result(
            name=f"{name}, {case.title}, k={case.select:,}",
            parameters=case.parameters() | {"aes_blocks": spent[name]},
            seconds=spread,
            rate=case.forest.trees / spread.median,
            unit="trees/s",
            bound=blocks.times(case.forest.trees / spent[name]) if spent[name] else None,
            against=f"{bound.name}, {spent[name]:,} blocks in all" if spent[name] else "",
            paper=PAPER_SECONDS.get((case.rows, case.select)) if name == "plant" else None,
            targets=targets,
        )


def _targets(case: Case, whole: Spread, hints: Spread) -> tuple[Target, ...]:
    """Placement, trees and hints together."""
    limit = TARGETS.get((case.rows, case.select))
    if limit is None or case.width > 1:
        return ()
    return (Target(1e3 * (whole.median + hints.median), "at most", 1e3 * limit, "ms with hints"),)


def _aes_blocks(case: Case) -> dict[str, int]:
    """AES blocks of every work: both servers' nodes on the path are hashed; 0 where none is spent."""
    forest = case.forest
    trees, proofs = forest.trees * (2 + 2 * forest.depth), case.task.verified * 3 * forest.trees
    hints = 2 * forest.trees * forest.planes
    return {
        "plant": trees,
        "public part": hints + proofs,
        "of that: placement": 0,
        "of that: trees": trees,
        "of that: hints": hints,
        "of that: tags": proofs,
    }


def _place(case: Case, client: Client) -> kernels.Placement:
    forest, key = case.forest, case.config.placement_key(0)
    segments = [kernels.Permutation(key, segment, case.rows).forward(client.rows) for segment in range(SEGMENTS)]
    bins = np.stack(segments, axis=1) // np.uint32(forest.positions) % np.uint32(forest.bins)
    return kernels.place(bins, forest.bins, bytes(16))


def _grow(case: Case, seeds: MasterSeeds, planted: ForestTrees) -> kernels.Tree:
    first, second = (forest_roots(seeds.msk[server], KEY, case.forest, server) for server in (0, 1))
    tree, _, _ = kernels.generate(expansion_keys(case.config), first, second, planted.alphas, case.forest.depth)
    return tree


def _hint(case: Case, planted: ForestTrees) -> object:
    payload = np.zeros((case.forest.planes, case.forest.trees, 2), dtype=np.uint64)
    keys = kernels.key_schedule(case.config.convert_key(0, bytes(SALT_BYTES)))
    return kernels.make_hints(keys, *planted.leaves, payload, case.bits)


def _tag(case: Case, planted: ForestTrees) -> object:
    counters = np.zeros((case.forest.trees, 2), dtype=np.uint64)
    counters[:, 0] = planted.alphas
    tag, mask = (kernels.key_schedule(bytes(range(start, start + 16))) for start in (0, 16))
    return kernels.tag_corrections(tag, *planted.leaves, kernels.encrypt_blocks(mask, counters))
