"""A round on both servers by the primitives alone: no channels, no actors, and tasks drawn at random to try them on."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from fsl_async import Dense, Ring, RingIntegers, Sparse, Task, bin_count, geometry
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant, rows_by_block
from fsl_async.client.upload import read_answers, retrieval_part, submission_bulk
from fsl_async.config import describe_model
from fsl_async.randomness import SeededSource
from fsl_async.ring import Elements
from fsl_async.server.aggregation import Aggregate, Submission, split_share
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.public_part import Layout, Part, Trees
from tests.support.machine_scenes import config_of, key

Model = dict[str, np.ndarray]
Update = Mapping[str, Any]
"""By sparse block (rows, signed integers), by dense block signed integers."""

DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
THREADS = 4


def few_bins(monkeypatch: pytest.MonkeyPatch, bins: int) -> None:
    """Let servers choose so few bins, and clients put up with it; afterwards `bin_count.planned` must be forgotten."""
    bin_count.planned.cache_clear()
    monkeypatch.setattr(bin_count, "bins_per_segment", lambda select, rows: bins)
    monkeypatch.setattr(geometry, "LEAST_BINS", ((2**32, 1),))


class Round:
    """One round on both servers."""

    def __init__(self, task: Task, model: Model, seed: int) -> None:
        self.task = task
        self.model = model
        described = describe_model(task, model)
        self.config = config_of(1, task=task, hash_seed=SeededSource(seed, "toss")(32), model=described)
        self._randomness = SeededSource(seed, "clients")
        self.aggregates = self.start()

    def start(self) -> tuple[Aggregate, Aggregate]:
        """Empty sums on both servers."""
        first, second = (Aggregate(self.config, server, key(9)) for server in (0, 1))
        return first, second

    def next_epoch(self) -> None:
        """The next round of the same session: other conversion keys, the same trees."""
        self.config = msgspec.structs.replace(self.config, number=self.config.number + 1)
        self.aggregates = self.start()

    # ---- a client

    def plant(self, rows: Mapping[str, Any]) -> ClientTrees:
        """A client's trees, at all of the rows."""
        client_trees = self.plant_some(rows)
        assert not any(len(deferred) for deferred in client_trees.deferred.values())
        return client_trees

    def plant_some(self, rows: Mapping[str, Any]) -> ClientTrees:
        """A client's trees, at as many of the rows as find a place."""
        seeds = MasterSeeds.fresh(self._randomness)
        return plant(self.config, rows_by_block(self.task, rows), seeds, self._randomness)

    def submissions(
        self, client: str, client_trees: ClientTrees, update: Update, trees: Trees = Trees.OWN
    ) -> tuple[Submission, Submission]:
        """What both servers hold of one client's submission."""
        config, ring, largest = self.config, self.task.ring, self.task.largest_integer
        names = {block.name: index for index, block in self.task.sparse_blocks()}
        dense_names = {block.name: index for index, block in self.task.dense_blocks()}
        sparse = {
            names[name]: (
                np.asarray(update[name][0], dtype=np.uint32),
                ring.encode(RingIntegers(update[name][1]), largest),
            )
            for name in names
            if name in update
        }
        dense = {
            index: ring.encode(RingIntegers(update[name]), largest)
            for name, index in dense_names.items()
            if name in update
        }
        layout = Layout.submission(config.shape, trees)
        public, share = submission_bulk(config, client, client_trees, sparse, trees, dense)
        part = Part(layout, memoryview(bytes(public)))
        assert len(part.data) == layout.size
        brought = part if trees is Trees.OWN else self.query_part(client_trees)
        carrier = config.carrier(client)
        first, second = (
            Submission(
                client=client,
                msk=client_trees.seeds.msk[server],
                commitments=client_trees.seeds.commitments(config.round_id(), client),
                tree=client_trees.digest,
                trees=brought,
                part=part,
                dense=memoryview(share) if server == carrier else memoryview(b""),
            )
            for server in (0, 1)
        )
        return first, second

    def query_part(self, client_trees: ClientTrees) -> Part:
        """The public part of a retrieval."""
        layout = Layout.retrieval(self.config.shape)
        part = memoryview(bytes(retrieval_part(self.config, client_trees)))
        assert len(part) == layout.size
        return Part(layout, part)

    # ---- the servers

    def retrieve(self, all_trees: Sequence[ClientTrees]) -> list[Model]:
        """Answer all all_trees' queries in one pass over the model, and read the answers."""
        answers = []
        for server in (0, 1):
            shelves = PermutedModel(self.config, server, self.model)
            queries = [
                Query(client_trees.seeds.msk[server], self.query_part(client_trees)) for client_trees in all_trees
            ]
            work = shelves.begin(queries, THREADS)
            run(work.selecting)
            run(work.answering)
            answers.append(work.finish())
        names = {index: block.name for index, block in self.task.sparse_blocks()}
        read = []
        for number, client_trees in enumerate(all_trees):
            first, second = (memoryview(np.ascontiguousarray(answer[number])).cast("B") for answer in answers)
            found = read_answers(self.config, client_trees, (first, second))
            read.append({names[index]: array for index, array in found.items()})
        return read

    def add(self, pair: tuple[Submission, Submission]) -> tuple[bytes, bytes]:
        """Add one submission on both servers; return both proofs."""
        first, second = (add(self.aggregates[server], pair[server]) for server in (0, 1))
        return first, second

    def submit(self, client: str, client_trees: ClientTrees, update: Update, trees: Trees = Trees.OWN) -> None:
        """Add an honest submission, whose proofs must agree."""
        first, second = self.add(self.submissions(client, client_trees, update, trees))
        assert first == second

    def total(self) -> dict[str, Elements]:
        """The sum of both servers' shares, by block."""
        first, second = (split_share(self.task, aggregate.share()) for aggregate in self.aggregates)
        return {name: self.task.ring.add(first[name], second[name]) for name in first}


def run(jobs: Sequence[Any]) -> None:
    """Do all jobs, the last ones first: their order must not matter."""
    for job in reversed(jobs):
        job()


def add(aggregate: Aggregate, submission: Submission) -> bytes:
    """Add one submission on one server; return its proof."""
    jobs, finish = aggregate.jobs(submission, THREADS)
    run(jobs)
    return finish()


# ---- tasks, models and updates drawn at random


@dataclass
class Draw:
    """One random task with all that belongs to it."""

    seed: int
    bits: int
    security: str
    most_weights: int = 2**16
    chance: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.bits} {self.security}")
        self.numbers = np.random.default_rng(self.chance.getrandbits(64))
        if self.bits == 128:
            self.most_weights //= 8  # Python's integers are slow

    def task(self, **changes: Any) -> Task:
        """A task of up to three sparse and two dense blocks."""
        sparse = [self.sparse(f"sparse {number}") for number in range(self.chance.choice((0, 1, 1, 1, 2, 3)))]
        dense = [
            Dense(f"dense {number}", size=self.chance.randint(1, 70)) for number in range(self.chance.randrange(3))
        ]
        blocks = [*sparse, *dense] or [self.sparse("only")]
        self.chance.shuffle(blocks)
        fields: dict[str, Any] = {
            "name": "drawn",
            "blocks": blocks,
            "ring": Ring(self.bits, self.chance.randrange(self.bits - 1)),
            "security": self.security,
            "updates": self.chance.choice(("retrieved", "any")),
            "min_clients": 2,
            "max_clients": self.chance.choice((2, 7, 1000)),
        }
        return Task(**(fields | changes))

    def sparse(self, name: str) -> Sparse:
        """A block of 1 to 2^17 rows of 1 to 64 weights, of which 1 to all rows are selected."""
        width = self.chance.choice((1, 1, 1, 2, 3, 4, 5, 18, 64))
        rows = max(1, min(int(2 ** self.chance.uniform(0, 17)), self.most_weights // width))
        most = min(rows, 2000)
        select = self.chance.choice((1, most, max(1, int(most ** self.chance.uniform(0, 1)))))
        return Sparse(name, rows=rows, select=select, width=width, stash=self.chance.choice((0, 0, 0, 1, 2)))

    def model(self, task: Task) -> Model:
        """Any bytes at all, as any dtype: what comes back must be bit for bit the same."""
        arrays = {}
        for block in task.blocks:
            dtype = np.dtype(self.chance.choice(DTYPES))
            shape = (block.rows, block.width) if isinstance(block, Sparse) else (block.size,)
            arrays[block.name] = np.frombuffer(self.numbers.bytes(block.weights * dtype.itemsize), dtype).reshape(shape)
        return arrays

    def rows(self, task: Task) -> dict[str, np.ndarray]:
        """Some client's rows: none, some or all that it may select, of some of the blocks."""
        chosen = {}
        for _, block in task.sparse_blocks():
            count = self.chance.choice((0, 1, block.select, self.chance.randint(0, block.select)))
            if self.chance.random() < 0.85:
                chosen[block.name] = self.numbers.choice(block.rows, count, replace=False)
        return chosen

    def update(self, task: Task, rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """An update of some of those rows and of some dense blocks, from the whole range that the task allows."""
        update: dict[str, Any] = {}
        for _, block in task.sparse_blocks():
            if block.name in rows and self.chance.random() < 0.9:
                some = self.numbers.permutation(rows[block.name])[
                    : self.chance.choice((None, len(rows[block.name]) // 2))
                ]
                update[block.name] = (some, self.integers(task, (len(some), block.width)))
        for _, dense in task.dense_blocks():
            if self.chance.random() < 0.8:
                update[dense.name] = self.integers(task, (dense.size,))
        return update

    def integers(self, task: Task, shape: tuple[int, ...]) -> np.ndarray:
        """Signed integers of the whole range of one client, its ends among them."""
        most, count = task.largest_integer, int(np.prod(shape))
        if self.bits == 128:
            drawn = np.empty(count, dtype=object)
            drawn[:] = [self.chance.randint(-most, most) for _ in range(count)]
        else:
            drawn = self.numbers.integers(-most, most, count, endpoint=True)
        drawn[self.numbers.random(count) < 0.02] = most
        drawn[self.numbers.random(count) < 0.02] = -most
        return drawn.reshape(shape)


class Plaintext:
    """The same sum without any cryptography, in Python's integers or numpy's."""

    def __init__(self, task: Task) -> None:
        self.task = task
        dtype = object if task.ring.bits == 128 else np.int64
        self.sums = {
            block.name: np.zeros((block.rows, block.width) if isinstance(block, Sparse) else block.size, dtype=dtype)
            for block in task.blocks
        }

    def add(self, update: Update) -> None:
        """Add one client's update."""
        for name, values in update.items():
            if isinstance(values, tuple):
                self.sums[name][values[0]] += values[1]
            else:
                self.sums[name] += values

    def elements(self) -> dict[str, bytes]:
        """The sums as ring elements."""
        half = 2 ** (self.task.ring.bits - 1)
        return {name: self.task.ring.encode(RingIntegers(sums), half).tobytes() for name, sums in self.sums.items()}


def in_bytes(elements: Mapping[str, Elements]) -> dict[str, bytes]:
    """Elements by block, as bytes."""
    return {name: array.tobytes() for name, array in elements.items()}
