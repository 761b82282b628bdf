"""Measures the speeds of this machine by which the planner converts counts into seconds.

The kernels are timed through the code that the parties call, on one thread, with a block small enough to take about a
second and large enough that its tables do not fit into the inner caches. `TYPICAL` has the speeds of one core of a
2-core cloud machine (AMD EPYC with VAES), rounded down, and is used unless a measurement is requested.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting
from fsl_async.costs.scaling import Constants
from fsl_async.errors import MisuseError
from fsl_async.server.retrieval import PermutedModel
from fsl_async.wire.codec import UNREADABLE
from fsl_async.wire.public_part import Trees
from parties.commands.bench.machine import processor_seconds
from parties.commands.bench.workload import Case, add_together, aggregate, answer_together, idle_client
from parties.files.disk import replaced_by
from parties.outcome import Model

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
    narrow, wide = Case(ROWS, SELECT, NARROW, bits=64), Case(WIDE_ROWS, SELECT, WIDE, bits=64)
    shape, client, state = narrow.config.shape, idle_client(narrow.config), aggregate(narrow, 0)
    submitting = costs.submission_work(shape, Trees.RETRIEVAL)
    submissions = [client.submissions(Trees.RETRIEVAL)[0]]
    making = _seconds(lambda: idle_client(narrow.config).submissions(Trees.RETRIEVAL))
    server = submitting.server / _seconds(lambda: add_together(state, submissions, 1))
    return Speeds(
        client=(costs.tree_work(shape).client + submitting.client) / making,
        server=server,
        read_rows=_retrieval(narrow).read_rows / _seconds_of_reading(narrow, server),
        read_bytes=_retrieval(wide).read_bytes / _seconds_of_reading(wide, server),
        fold=costs.folded_bytes(shape) / _seconds(state.share),
        layout=costs.laid_out_rows(shape) / _seconds(partial(PermutedModel, narrow.config, 0, _model(narrow))),
    )


def _seconds(work: Callable[[], object]) -> float:
    return processor_seconds(work, REPEATS)


def _seconds_of_reading(case: Case, server: float) -> float:
    """The time of an answer without that of its AES blocks, which are counted elsewhere; at least half of it."""
    tables, queries = PermutedModel(case.config, 0, _model(case)), [idle_client(case.config).query(0)]
    whole = _seconds(lambda: answer_together(tables, queries, 1))
    return max(whole / 2, whole - _retrieval(case).server / server)


def _retrieval(case: Case) -> costs.Work:
    return costs.retrieval_work(case.config.shape, Setting(("client",)))


def _model(case: Case) -> Model:
    block = case.config.shape.sparse(0)
    return {block.name: np.zeros(block.shape, dtype=np.float32)}


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
