"""Measures the speeds of this machine by which the planner converts counts into seconds.

The kernels are timed through the code that the parties call, on one thread, with a block small enough to take about a
second and large enough that its tables do not fit into the inner caches. `TYPICAL` has the speeds of one core of a
2-core cloud machine (AMD EPYC with VAES), rounded down, and is used unless a measurement is requested.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import retrieval_part, submission_bulk
from fsl_async.config import RoundConfig
from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting
from fsl_async.costs.scaling import Constants
from fsl_async.errors import MisuseError
from fsl_async.randomness import SeededSource
from fsl_async.ring import Ring
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.task import Sparse, Task
from fsl_async.wire.codec import UNREADABLE
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.files.disk import replaced_by

BLOCK = "rows"
ROWS = 2**18
WIDE_ROWS = 2**16
SELECT = 2**12
NARROW = 2
WIDE = 64
REPEATS = 3


@dataclass(frozen=True)
class Speeds:
    """What one thread does in a second.

    Attributes:
        client: AES blocks of a client that plants and fills trees.
        server: AES blocks of a server that evaluates trees.
        read_rows: narrow rows of the model's tables that a server reads to answer one retrieval.
        read_bytes: bytes of wide rows that it reads for that.
        fold: bytes of accumulators that a server folds to rows.
        layout: rows of the model that a server permutes.
    """

    client: float
    server: float
    read_rows: float
    read_bytes: float
    fold: float
    layout: float


TYPICAL = Speeds(client=120e6, server=1800e6, read_rows=750e6, read_bytes=20e9, fold=1700e6, layout=180e6)


def measure() -> Speeds:
    """Time this machine's kernels: about a second, and longer if they must be compiled first."""
    for width in (NARROW, WIDE):  # compiles, and touches every page of code
        small = _Trial(2**10, 2**4, width)
        small.speeds(small)
    wide = _Trial(WIDE_ROWS, SELECT, WIDE)
    return _Trial(ROWS, SELECT).speeds(wide)


class _Trial:
    """One client's round, timed step by step."""

    def __init__(self, rows: int, select: int, width: int = NARROW) -> None:
        self.task = Task(
            name="calibration",
            blocks=(Sparse(BLOCK, rows=rows, select=select, width=width),),
            ring=Ring(64),
            min_clients=2,
            max_clients=2,
        )
        self.setting = Setting(clients=("client", "client"))
        self.config: RoundConfig = costs.specimen_config(self.task, self.setting)
        self.model = {BLOCK: np.zeros((rows, width), dtype=np.float32)}
        self.width = width
        self.rows = {0: np.arange(select, dtype=np.uint32)}
        self.randomness = SeededSource(0, "calibration")
        self.seeds = MasterSeeds.fresh(self.randomness)

    def speeds(self, wide: _Trial) -> Speeds:
        """Time every step a few times and divide the counts by the best times; `wide` is a trial of wide rows."""
        submission = self._submission(self._grove())
        aggregate = Aggregate(self.config, 0, bytes(32))
        submitting = costs.submission_work(self.config.shape, Trees.RETRIEVAL)
        client = costs.tree_work(self.config.shape).client + submitting.client
        server = submitting.server / _seconds(partial(_add, aggregate, submission))
        return Speeds(
            client=client / _seconds(lambda: self._submission(self._grove())),
            server=server,
            read_rows=costs.retrieval_work(self.config.shape, self.setting).read_rows
            / self._seconds_of_reading(server),
            read_bytes=costs.retrieval_work(wide.config.shape, wide.setting).read_bytes
            / wide._seconds_of_reading(server),
            fold=costs.folded_bytes(self.config.shape) / _seconds(aggregate.share),
            layout=costs.laid_out_rows(self.config.shape)
            / _seconds(partial(PermutedModel, self.config, 0, self.model)),
        )

    def _seconds_of_reading(self, server: float) -> float:
        """The time of an answer without that of its AES blocks, which are counted elsewhere; at least half of it."""
        query = Query(self.seeds.msk[0], self._submission(self._grove()).trees)
        whole = _seconds(partial(_answer, PermutedModel(self.config, 0, self.model), query))
        return max(whole / 2, whole - costs.retrieval_work(self.config.shape, self.setting).server / server)

    def _grove(self) -> ClientTrees:
        return plant(self.config, self.rows, self.seeds, self.randomness)

    def _submission(self, client_trees: ClientTrees) -> Submission:
        trees = memoryview(retrieval_part(self.config, client_trees))
        update = {0: (self.rows[0], self.task.ring.zeros(len(self.rows[0]), self.width))}
        part, _ = submission_bulk(self.config, "client", client_trees, update, Trees.RETRIEVAL)
        return Submission(
            client="client",
            msk=self.seeds.msk[0],
            commitments=self.seeds.commitments(self.config.round_id(), "client"),
            tree=client_trees.digest,
            trees=Part(Layout.retrieval(self.config.shape), trees),
            part=Part(Layout.submission(self.config.shape, Trees.RETRIEVAL), part),
            dense=memoryview(b""),
        )


def _add(aggregate: Aggregate, submission: Submission) -> None:
    jobs, finish = aggregate.jobs(submission, 1)
    for job in jobs:
        job()
    finish()


def _answer(model: PermutedModel, query: Query) -> None:
    """Answer a query."""
    work = model.begin([query], 1)
    for job in (*work.selecting, *work.answering):
        job()
    work.finish()


def _seconds(work: Callable[[], object]) -> float:
    """The least of a few measured times."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


VERSION = 2
AGAIN = "measure them anew with `fsl-async bench --calibrate FILE`"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    constants: Constants


def save_constants(path: Path, constants: Constants) -> None:
    """Write the file; it appears whole.

    Raises:
        MisuseError: it cannot be written.
    """
    content = json.dumps({"version": VERSION, "constants": asdict(constants)}, indent=2) + "\n"
    try:
        with replaced_by(path) as file:
            file.write(content.encode())
    except OSError as error:
        raise MisuseError(f"{path} cannot be written: {error}") from error


def load_constants(path: Path) -> Constants:
    """Read the file.

    Raises:
        MisuseError: it cannot be read, or is not such a file; the message says what to do.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error}; {AGAIN}") from error
    try:
        file = msgspec.json.decode(content, type=_File)
    except UNREADABLE as error:
        raise MisuseError(f"{path} has no constants of the scaling model: {error}; {AGAIN}") from error
    if file.version != VERSION:
        raise MisuseError(f"{path} has constants of version {file.version}, not {VERSION}; {AGAIN}")
    return file.constants
