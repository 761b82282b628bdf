"""The workload of benchmarks: a round's configuration, and clients with random rows and updates.

Nothing here is timed. Seeds are fixed, so every run does the same work; a real round draws them from the operating
system, which costs less than the source used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fsl_async import Ring, Sparse, Task
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import retrieval_part, submission_bulk
from fsl_async.config import RoundConfig
from fsl_async.costs.message_sizes import Setting, specimen_config
from fsl_async.geometry import Forest, geometry_of
from fsl_async.randomness import SeededSource
from fsl_async.ring import Elements
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.commands.bench.machine import run_all

Rows = npt.NDArray[np.uint32]

SEED = 2024
PROOF_KEY = bytes(range(16))


@dataclass(frozen=True)
class Case:
    """One block of one task, and who works on it with how many threads.

    Raises:
        MisuseError: the numbers are not those of a task.
    """

    rows: int = 2**20
    select: int = 10_486
    width: int = 1
    bits: Literal[32, 64, 128] = 128
    security: Literal["verified", "semi-honest"] = "verified"
    clients: int = 1
    threads: int = 1

    def __post_init__(self) -> None:
        _ = self.task  # which checks the numbers

    @cached_property
    def task(self) -> Task:
        """The case's task."""
        block = Sparse("block", rows=self.rows, select=self.select, width=self.width)
        return Task(name="bench", blocks=(block,), ring=Ring(self.bits), security=self.security)

    @cached_property
    def config(self) -> RoundConfig:
        """A round of that task, as both servers would have opened it."""
        return specimen_config(self.task, Setting(("client",)))

    @property
    def forest(self) -> Forest:
        """The block's trees."""
        return geometry_of(self.config.shape, self.config.shape.sparse(0)).bins

    @property
    def leaves(self) -> int:
        """Leaves that a server makes for one client."""
        return self.forest.trees * self.forest.leaves

    def parameters(self) -> dict[str, Any]:
        """The case as a result's parameters name it."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        forest = self.forest
        return named | {"trees": forest.trees, "leaves": self.leaves, "depth": forest.depth, "planes": forest.planes}

    @property
    def title(self) -> str:
        """The case in a few words."""
        return f"m={_power(self.rows)} k/m={100 * self.select / self.rows:.2g} % τ={self.width} l={self.bits}"


def _power(rows: int) -> str:
    return f"2^{rows.bit_length() - 1}" if rows & (rows - 1) == 0 else f"{rows:,}"


# ---- clients


@dataclass(frozen=True)
class Client:
    """A client with its trees and its update, of the only block; without elements, zeros in every block."""

    name: str
    config: RoundConfig
    client_trees: ClientTrees = field(repr=False)
    elements: Elements = field(repr=False)

    @property
    def rows(self) -> Rows:
        """The rows it selected."""
        return self.client_trees.rows[0]

    def query(self, server: int) -> Query:
        """What a server has of its retrieval."""
        part = Part(Layout.retrieval(self.config.shape), memoryview(retrieval_part(self.config, self.client_trees)))
        return Query(self.client_trees.seeds.msk[server], part)

    def public_part(self, trees: Trees = Trees.OWN) -> memoryview:
        """The public part of a submission, with trees of its own or those of its retrieval."""
        update = {}
        if len(self.elements):
            kept = ~np.isin(self.rows, self.client_trees.deferred[0])
            update = {0: (self.rows[kept], self.elements[kept])}
        return submission_bulk(self.config, self.name, self.client_trees, update, trees)[0]

    def submissions(self, trees: Trees = Trees.OWN) -> tuple[Submission, Submission]:
        """What S0 and S1 have of its submission."""
        part = Part(Layout.submission(self.config.shape, trees), memoryview(self.public_part(trees)))
        brought = part if trees is Trees.OWN else self.query(0).trees
        commitments = self.client_trees.seeds.commitments(self.config.round_id(), self.name)
        tree = self.client_trees.digest
        first, second = (
            Submission(self.name, msk, commitments, tree, brought, part, memoryview(b""))
            for msk in self.client_trees.seeds.msk
        )
        return first, second


def idle_client(config: RoundConfig) -> Client:
    """A client that selects the first rows of every block of a round, and whose update is zeros."""
    rows = {index: np.arange(block.select, dtype=np.uint32) for index, block in config.shape.sparse_blocks()}
    source = SeededSource(SEED, "idle")
    client_trees = plant(config, rows, MasterSeeds.fresh(source), source)
    return Client("client", config, client_trees, config.task.ring.zeros(0, 1))


def client_of(case: Case, number: int) -> Client:
    """One of a case's clients: random rows, random ring elements."""
    name = f"client-{number}"
    source = SeededSource(SEED, name)
    rows = np.random.default_rng((SEED, number)).choice(case.rows, case.select, replace=False).astype(np.uint32)
    client_trees = plant(case.config, {0: rows}, MasterSeeds.fresh(source), source)
    size = case.select * case.width * case.bits // 8
    elements = case.task.ring.from_bytes(source(size), case.select, case.width)
    return Client(name, case.config, client_trees, elements)


# ---- servers


def aggregate(case: Case, server: int) -> Aggregate:
    """A server at the start of a case's round."""
    return Aggregate(case.config, server, PROOF_KEY)


def expected(case: Case, clients: Sequence[Client]) -> Elements:
    """What the round must come to: the clients' updates added up in the clear."""
    ring = case.task.ring
    total = ring.zeros(case.rows, case.width)
    for client in clients:
        kept = ~np.isin(client.rows, client.client_trees.deferred[0])
        rows = client.rows[kept]
        total[rows] = ring.add(total[rows], client.elements[kept])
    return total


# ---- work


def add_together(state: Aggregate, submissions: Sequence[Submission], threads: int) -> None:
    """Add submissions as a server does with those that wait."""
    work = state.batch(submissions, threads)
    for step in (work.preparing, work.adding, work.concluding):
        run_all(step(), threads)


def answer_together(tables: PermutedModel, queries: Sequence[Query], threads: int) -> None:
    """Answer retrievals as a server does with those that wait."""
    work = tables.begin(queries, threads)
    for jobs in (work.selecting, work.answering):
        run_all(jobs, threads)
    work.finish()
