"""One client, two servers and a bound: what each holds, and what cheats can send."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

import fsl_async.client.bound as library
from fsl_async.bounds import accepts, private_part, verifier_share
from fsl_async.bounds.client import four_squares, packed, proved
from fsl_async.bounds.field import signed
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import prove
from fsl_async.bounds.terms import BoundTerms
from fsl_async.randomness import Randomness, SeededSource
from fsl_async.ring import Elements, Ring


def elements_of(numbers: Sequence[int], bits: int) -> Elements:
    """Any whole numbers, modulo 2^bits."""
    data = b"".join((number % 2**bits).to_bytes(bits // 8, "little") for number in numbers)
    return Ring(bits).from_bytes(data, len(numbers), writable=True)


@dataclass
class Scene:
    """A submission of some weights, each party with what it holds."""

    terms: BoundTerms
    weights: Sequence[int]
    carrier: int = 0
    seed: int = 1
    shares: list[Elements] = field(init=False)

    def __post_init__(self) -> None:
        source = SeededSource(self.seed, "scene")
        bits = self.terms.ring_bits
        self.msk, self.bind = [source(16), source(16)], source(32)
        self.toss, self.submission, self.source = source(32), source(32), source
        second = elements_of([int.from_bytes(source(bits // 8), "little") for _ in self.weights], bits)
        self.shares = [Ring(bits).add(self.elements, second), second]

    @property
    def elements(self) -> Elements:
        return elements_of(self.weights, self.terms.ring_bits)

    def honest(self) -> bytes:
        return private_part(self.terms, self.elements, self.msk[1 - self.carrier], self.bind, self.source)

    def lifted(self) -> list[int]:
        """What the servers' words differ by, over the integers: a cheat knows it."""
        words = [[int.from_bytes(w.tobytes(), "little") for w in share] for share in self.shares]
        return [x - z for x, z in zip(*words, strict=True)]

    def projected(self) -> list[int]:
        half = 2 ** (self.terms.ring_bits - 1)
        numbers = project(self.bind, self.terms.projections, self.elements, self.terms.ring_bits)
        return [(number + half) % (2 * half) - half for number in numbers]

    def squares(self, number: int) -> list[int]:
        return list(four_squares(number, self.source))

    def proof(self, values: Sequence[int]) -> list[int]:
        field, wires = self.terms.field, self.terms.wires
        return prove(wires, values, field.reduce(self.source(field.drawn_bytes * wires.count)))

    def pack(self, masked: list[int], proof: list[int]) -> bytes:
        return packed(self.terms, masked, proof, self.msk[1 - self.carrier], self.bind)

    def answer(self, server: int, private: bytes, **other: bytes) -> bytes:
        facts = {"bind": self.bind, "query": self.toss, "submission": self.submission, "msk": self.msk[server]} | other
        own = private if server == self.carrier else None
        return verifier_share(self.terms, server, self.shares[server], own, **facts)

    def accepted(self, private: bytes) -> bool:
        answers = [self.answer(server, private) for server in (0, 1)]
        verdict = accepts(self.terms, *answers)
        assert verdict == accepts(self.terms, *reversed(answers))
        return verdict


def of_norm(norm: int, size: int, places: int, seed: int = 0) -> list[int]:
    """An update of about that norm, not above it, in that many places."""
    rng = random.Random(seed)
    drawn = np.array([rng.gauss(0, 1) for _ in range(places)])
    scaled = [int(value) for value in drawn * (0.9999 * norm / np.linalg.norm(drawn))]
    weights = scaled + [0] * (size - places)
    rng.shuffle(weights)
    return weights


EXACT = BoundTerms("exact", 64, 10, 2**17, 40)
EXACT_128 = BoundTerms("exact", 128, 10, 2**60, 40)
PROJECTED = BoundTerms("projected", 32, 10, 2**19, 40)
PROJECTED_64 = BoundTerms("projected", 64, 10, 2**24, 40)
PROJECTED_128 = BoundTerms("projected", 128, 10, 2**60, 40)
ALL = {"exact": EXACT, "exact 128": EXACT_128} | {
    f"projected {terms.ring_bits}": terms for terms in (PROJECTED, PROJECTED_64, PROJECTED_128)
}


# ---- what a changed library can send of a weight that is none


def _proves_all_but_the_weight(
    terms: BoundTerms, elements: Elements, msk: bytes, bind: bytes, randomness: Randomness
) -> bytes:
    """The bound as it is, of the true weight; what is said of the weight itself is nothing."""
    words, half = signed(elements, terms.ring_bits), 2 ** (terms.ring_bits - 1)
    told = words[terms.weight_place]
    projected = [] if terms.exact else project(bind, terms.projections, elements, terms.ring_bits)
    shown = [(number + half) % (2 * half) - half for number in projected]
    linked = [] if terms.exact else [*shown, told]
    missing = terms.limit - sum(value * value for value in (shown or words))
    ranged = max(0, terms.largest_weight**2 - (2 * told - terms.largest_weight) ** 2)
    masked = [*linked, *four_squares(max(0, missing), randomness), *four_squares(ranged, randomness)]
    seeds = terms.field.reduce(randomness(terms.field.drawn_bytes * terms.wires.count))
    return packed(terms, masked, prove(terms.wires, proved(terms, words, masked), seeds), msk, bind)


def with_weight_lies() -> AbstractContextManager[object]:
    """A library that lies where a client's weight is none that a task allows, and is the true one else."""

    def either(terms: BoundTerms, elements: Elements, msk_other: bytes, bind: bytes, randomness: Randomness) -> bytes:
        weight = signed(elements, terms.ring_bits)[terms.weight_place] if terms.largest_weight else 0
        made = private_part if 0 <= weight <= terms.largest_weight else _proves_all_but_the_weight
        return made(terms, elements, msk_other, bind, randomness)

    return patch.object(library, "private_part", either)
