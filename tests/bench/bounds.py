"""`bench bounds`: a bounded update beside the same update without a bound, and what noise costs, in one run.

One client's update, in its own trees: a server's whole work on it, the client's proof, and the bytes. Both servers'
answers are made once and compared, so a figure is never that of a wrong proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
from msgspec import structs

from fsl_async import Ring
from fsl_async.bounds import accepts, private_part, terms_of, verifier_share
from fsl_async.bounds.terms import BoundTerms
from fsl_async.client.planting import MasterSeeds, plant
from fsl_async.config import RoundConfig
from fsl_async.derivation import binding
from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.errors import FslError
from fsl_async.privacy.doses import doses
from fsl_async.privacy.noise import noise_key, noised
from fsl_async.randomness import SeededSource
from fsl_async.ring import Elements
from fsl_async.server.aggregation import Aggregate, Claim, Submission
from fsl_async.task import Task
from fsl_async.wire.public_part import forests_of
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import PROOF_KEY, SEED, Case, Client
from tests.bench.measures import Spread, Work, aes_bound, alternate
from tests.bench.results import Result, Target
from tests.bench.workload import Options

Method: TypeAlias = Literal["exact", "projected"]
METHODS: tuple[Method, ...] = get_args(Method)

REPETITIONS = 7
FRACTION_BITS = 16
BOUND = 1.0
NORM = 0.9
"""Of the update that is measured."""

SET = (Case(select=10_486, bits=64), Case(rows=197_372, select=418, width=18, bits=64))
NOISE = 12.7
MOST_WEIGHTS = 2**20
NO_ROOM_TO_LIFT = 32
"""Bits of a ring in which no update is proved exactly."""

SERVER_TARGET = 0.003
CLIENT_TARGETS = {"exact": 0.015, "projected": 0.010}
NOISE_TARGET = 150


def bounds_suite(options: Options) -> Iterator[Result]:
    """Both methods for each case, then the noise of a share."""
    for case in SET[:1] if options.given else SET:
        chosen = replace(options.apply(case), security="verified")
        yield from bounded(chosen)
        yield noise_of(chosen)


@dataclass(frozen=True)
class Bounded:
    """A client whose update is within a bound, or the same without one."""

    case: Case
    method: Method | None

    @cached_property
    def task(self) -> Task:
        """The case's task, with the bound or without."""
        task = structs.replace(self.case.task, ring=Ring(self.case.bits, FRACTION_BITS), security="verified")
        return structs.replace(task, bound=BOUND, bound_proof=self.method) if self.method else task

    @cached_property
    def config(self) -> RoundConfig:
        """A round of it."""
        return structs.replace(self.case.config, task=self.task)

    @property
    def terms(self) -> BoundTerms:
        """Of its proof.

        Raises:
            FslError: there is none.
        """
        terms = terms_of(self.config.shape)
        if terms is None:
            raise FslError("bench: a task without a bound has no terms")
        return terms

    @cached_property
    def client(self) -> Client:
        """A client with random rows, and values of a norm below the bound."""
        source, draw = SeededSource(SEED, "bounded"), np.random.default_rng(SEED)
        rows = draw.choice(self.case.rows, self.case.select, replace=False).astype(np.uint32)
        client_trees = plant(self.config, {0: rows}, MasterSeeds.fresh(source), source)
        values = draw.normal(size=(self.case.select, self.case.width))
        values *= NORM * BOUND / np.linalg.norm(values)
        return Client("bounded", self.config, client_trees, self.task.ring.encode(values, largest=2**FRACTION_BITS))

    @cached_property
    def vector(self) -> Elements:
        """The whole update, in the order of the wire."""
        payload = np.concatenate([self.client.elements, self.task.ring.zeros(1, self.case.width)])
        planted, words = self.client.client_trees.planted, payload.shape[2:]  # two of an element of 128 bits
        return np.concatenate(
            [payload[planted[key].item].reshape(-1, *words) for key, _ in forests_of(self.config.shape)]
        )

    @cached_property
    def share(self) -> Elements:
        """A vector that looks like a server's share: no element is 0."""
        ring, weights = self.task.ring, self.terms.weights
        return ring.from_bytes(SeededSource(SEED, "share")(weights * ring.element_bytes), weights)

    @cached_property
    def bind(self) -> bytes:
        """What the proof is bound to."""
        client_trees = self.client.client_trees
        commitments = client_trees.seeds.commitments(self.config.round_id(), self.client.name)
        public = digest(Domain.PUBLIC_PART, self.client.public_part())
        return binding(self.config.round_id(), bytes(32), public, client_trees.digest, commitments)

    def prove(self) -> bytes:
        """The client's work: the private part, for S0."""
        other = self.client.client_trees.seeds.msk[1]
        return private_part(self.terms, self.vector, other, self.bind, SeededSource(SEED, "proof"))

    @cached_property
    def private(self) -> bytes:
        """A private part, made once."""
        return self.prove()

    def answer(self) -> bytes:
        """The carrier's answer to a vector, beside the walk that makes it."""
        msk = self.client.client_trees.seeds.msk[0]
        return verifier_share(self.terms, 0, self.share, self.private, msk, self.bind, PROOF_KEY, bytes(DIGEST_BYTES))

    def submission(self, server: int) -> Submission:
        """What a server has of it."""
        plain = self.client.submissions()[server]
        private = None if server or not self.method else memoryview(self.private)
        return replace(plain, claim=Claim(private, self.bind, bytes(DIGEST_BYTES)) if self.method else None)

    def entries(self) -> tuple[bytes, bytes]:
        """What both servers would exchange of it."""
        first, second = (self.server(server)() for server in (0, 1))
        return first, second

    def walk(self) -> Work:
        """The walk of server 0 alone, with totals if there is a bound."""
        jobs, _ = Aggregate(self.config, 0, PROOF_KEY).jobs(self.submission(0), self.case.threads)
        return lambda: run_all(jobs, self.case.threads)

    def server(self, server: int) -> Callable[[], bytes]:
        """A server's whole work on it: walk, totals, and its answer."""
        aggregate, submission = Aggregate(self.config, server, PROOF_KEY), self.submission(server)
        return lambda: _whole(aggregate, submission, self.case.threads)


def _whole(aggregate: Aggregate, submission: Submission, threads: int) -> bytes:
    jobs, finish = aggregate.jobs(submission, threads)
    run_all(jobs, threads)
    return finish()


def bounded(case: Case) -> Iterator[Result]:
    """Each method that the case allows, measured in turns with the same update without a bound."""
    allowed = METHODS if case.bits > NO_ROOM_TO_LIFT else METHODS[1:]
    plain, kinds = Bounded(case, None), [Bounded(case, method) for method in allowed]
    for kind in kinds:
        _check(kind)
    works: list[Work] = [plain.server(0), plain.walk(), kinds[0].walk()]
    works += [work for kind in kinds for work in (kind.server(0), kind.answer, kind.prove)]
    _, (alone, walk, with_totals, *times) = alternate(REPETITIONS, aes_bound(case.threads), *works)
    yield _totals(kinds[0], walk, with_totals)
    for number, kind in enumerate(kinds):
        yield from _figures(kind, alone, *times[3 * number : 3 * number + 3])


def _check(kind: Bounded) -> None:
    """Both servers' answers say that the update is within its bound.

    Raises:
        FslError: they do not.
    """
    first, second = kind.entries()
    if not accepts(kind.terms, first[DIGEST_BYTES:], second[DIGEST_BYTES:]):
        raise FslError(f"bench: an update within its bound was refused, {kind.method}")


def _totals(kind: Bounded, walk: Spread, with_totals: Spread) -> Result:
    return Result(
        name=f"walk with totals / without, {kind.case.title}",
        parameters=kind.case.parameters() | {"seconds_without": walk.median},
        seconds=with_totals,
        rate=with_totals.median / walk.median,
        unit="× the time",
    )


def _figures(kind: Bounded, alone: Spread, whole: Spread, answer: Spread, proof: Spread) -> Iterator[Result]:
    case, method, terms = kind.case, kind.method, kind.terms
    sizes = {"weights": terms.weights, "bytes_up": terms.private_bytes, "bytes_between_servers": terms.verifier_bytes}
    parameters = case.parameters() | sizes | {"bound_proof": method, "slack": terms.slack}
    yield Result(
        name=f"server, {method} / no bound, {case.title}",
        parameters=parameters | {"seconds_without_bound": alone.median},
        seconds=whole,
        rate=whole.median / alone.median,
        unit="× the time",
        targets=(Target(1e3 * (whole.median - alone.median), "at most", 1e3 * SERVER_TARGET, "ms more"),),
    )
    for name, seconds, target in (
        (f"server's answer, {method}, {case.title}", answer, None),
        (f"client's proof, {method}, {case.title}", proof, CLIENT_TARGETS[method or "exact"]),
    ):
        yield Result(
            name=name,
            parameters=parameters,
            seconds=seconds,
            rate=terms.weights / seconds.median,
            unit="weights/s",
            targets=(Target(1e3 * seconds.median, "at most", 1e3 * target, "ms"),) if target else (),
        )
    yield Result(
        name=f"bytes up, {method} + {len(kind.client.public_part()):,} without a bound, {case.title}",
        parameters=parameters | {"bytes_without_bound": len(kind.client.public_part())},
        seconds=Spread.of([0.0]),
        rate=terms.private_bytes,
        unit="bytes",
    )


def noise_of(case: Case) -> Result:
    """One server's noise on a share of all rows."""
    ring, weights = Ring(case.bits, FRACTION_BITS), min(case.rows * case.width, MOST_WEIGHTS)
    share = bytes(weights * ring.element_bytes)
    sigma = doses(NOISE, int(BOUND * 2**FRACTION_BITS)).values
    key = noise_key(bytes(32), bytes(32), bytes(32), "values 0")
    _, (seconds,) = alternate(REPETITIONS, aes_bound(1), lambda: noised(ring, share, sigma, key))
    return Result(
        name=f"noise of a share, {weights:,} weights l={case.bits}",
        parameters=case.parameters() | {"weights": weights, "sigma": sigma},
        seconds=seconds,
        rate=weights / seconds.median,
        unit="weights/s",
        targets=(Target(1e9 * seconds.median / weights, "at most", NOISE_TARGET, "ns a weight"),),
    )
