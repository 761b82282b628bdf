"""The sketch that the paper names beside verified trees, for one client and one server, in one run.

Both begin with the same walk. Verified trees add a tag and a proof to every leaf, 32 bytes are exchanged, and payloads
stay in the ring. A sketch needs payloads in a field, more of them in a leaf (the payload times secret keys), and inner
products over all leaves; it is measured as a walk with as many planes as its elements fill, plus its inner products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from examples.sketching import MERSENNE_61, Claim, first_message
from parties.commands.bench.workload import Case
from tests.bench.evaluation import evaluate
from tests.bench.measures import Spread, Work, aes_bound, alternate
from tests.bench.results import Result
from tests.bench.workload import Options

REPETITIONS = 5
ELEMENT_BYTES = 8
PROOF_BYTES = 32
BLOCK_BYTES = 16
SET = (Case(select=10_486, bits=64),)

COVERS = {
    Claim.BIT: "bins hold one entry, 0 or 1; one epoch",
    Claim.ANY: "bins hold one entry of one field element; one epoch",
}


def sketch_suite(options: Options) -> Iterator[Result]:
    """Verified trees, then the sketch of each claim, for each case."""
    for case in SET:
        yield from compared(replace(options.apply(case), security="verified"))


def compared(case: Case) -> Iterator[Result]:
    """A case's trees walked alone, verified, and sketched, measured in turns."""
    case = replace(case, width=1)
    works = evaluate(case), *(evaluate(_wide(case, claim)) for claim in Claim)
    products = [_products(case, claim) for claim in Claim]
    _, (proved, *times) = alternate(REPETITIONS, aes_bound(case.threads), *works, *products)
    walks, sums = times[: len(Claim)], times[len(Claim) :]
    yield _verified(case, proved, walks[0])
    for claim, walk, seconds in zip(Claim, walks, sums, strict=True):
        yield _sketched(case, claim, walk, seconds, proved)


def _wide(case: Case, claim: Claim) -> Case:
    """The case without proofs, its leaves as wide as a claim's elements, two of which fill a block.

    A leaf covers one row then, as in a verified task; that of `BIT`, one block, costs as much as the plain walk.
    """
    wide = claim.planes * ELEMENT_BYTES // BLOCK_BYTES
    return replace(case, security="semi-honest", width=wide, bits=128)


def _products(case: Case, claim: Claim) -> Work:
    """A server's first message, from leaves that are there."""
    draw = np.random.default_rng(1)
    positions, bins = case.forest.leaves, case.forest.trees
    shares = draw.integers(0, 2**64, (positions, bins, claim.planes), dtype=np.uint64)
    points = MERSENNE_61.of(draw.integers(0, 2**64, (positions, bins), dtype=np.uint64))
    correlated = MERSENNE_61.of(draw.integers(0, 2**64, (bins, claim.correlated), dtype=np.uint64))
    return partial(first_message, MERSENNE_61, claim, shares, points, correlated)


def _verified(case: Case, seconds: Spread, walk: Spread) -> Result:
    up = case.forest.hint_bytes + case.forest.proof_bytes
    return Result(
        name=f"verified trees, {case.title}",
        parameters=case.parameters()
        | {
            "bytes_up": up,
            "bytes_between_servers": PROOF_BYTES,
            "messages_of_a_server": 1,
            "seconds_of_the_walk": walk.median,
            "covers": "a tree differs at one leaf; any payload, every epoch, and retrievals with it",
        },
        seconds=seconds,
        rate=seconds.median / walk.median,
        unit="× the walk",
    )


def _sketched(case: Case, claim: Claim, walk: Spread, products: Spread, proved: Spread) -> Result:
    seconds = Spread(*(first + second for first, second in zip(walk, products, strict=True)))
    bins = case.forest.trees
    return Result(
        name=f"sketch, {claim.name}, {case.title}",
        parameters=case.parameters()
        | {
            "bytes_up": bins * (claim.planes + claim.corrections) * ELEMENT_BYTES,
            "bytes_between_servers": (bins * claim.masks + 1) * ELEMENT_BYTES,
            "messages_of_a_server": 2,
            "seconds_of_the_walk": walk.median,
            "seconds_of_the_products": products.median,
            "covers": COVERS[claim],
        },
        seconds=seconds,
        rate=seconds.median / proved.median,
        unit="× verified trees",
    )
