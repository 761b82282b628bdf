"""`bench server --only large`: both servers' rounds on a block of 2^28 rows, one after the other, in little memory.

Each server has a process of its own: it evaluates its clients' submissions, forms its share piece by piece and stores
it. The second one then adds both shares and applies the sum to a model of float32. Its peak is what a server takes for
a round on such a block; the sum is compared with the sum in the clear.

`python -m tests.bench.vast FOLDER SERVER` is such a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np
import trio

from fsl_async import kernels
from fsl_async.config import describe_model
from fsl_async.errors import FslError
from fsl_async.model_numbers import row_ranges
from fsl_async.server.aggregation import Aggregate
from fsl_async.wire.pieces import spans_of
from fsl_async.wire.public_part import ALL_ROWS
from parties.commands.bench.machine import cores, run_all
from parties.commands.bench.workload import Case, Client, aggregate
from parties.compute import ComputeLane, ThreadLane
from parties.deployment.process_memory import give_back_code
from parties.server.round.combining import Combining, Sums
from parties.server.round.computation import Forming, keep_formed
from parties.server.round.conclusion import apply_sum
from parties.server.round.engine import RoundStart
from parties.server.round.shares import ShareRecords
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.sqlite_store import SqliteStore
from tests.bench.alone import peak_memory, read_submission, write_submission
from tests.bench.measures import Spread
from tests.bench.results import Result, Target
from tests.bench.workload import clients_of

VAST_ROWS = 2**28
MEMORY_TARGET = 24 * 2**30
SELECTED = 300
WEIGHT = 0.5
LARGEST_VALUE = np.uint64(2**20)


@dataclass(frozen=True)
class Account:
    """What one server's process reports.

    Attributes:
        peak: its peak memory in bytes.
        started: its memory in bytes before the first client.
        share: the digest of its share, in hexadecimal.
        seconds: what each step took.
    """

    peak: int
    started: int
    share: str
    seconds: dict[str, float] = field(default_factory=dict)


def vast_round(rows: int = VAST_ROWS, clients: int = 2, threads: int | None = None) -> Iterator[Result]:
    """One round of clients with a few hundred rows each, verified, l = 64.

    Args:
        rows: of the block, a weight each.
        clients: how many there are.
        threads: of each server; None stands for as many as there are cores.

    Raises:
        FslError: a server's process failed, or the sum is wrong.
    """
    case = Case(rows=rows, select=SELECTED, bits=64, clients=clients, threads=threads or cores())
    senders = [replace(client, elements=client.elements % LARGEST_VALUE) for client in clients_of(case)]
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as name:
        folder = Path(name)
        _write(folder, case, senders)
        first = _process(folder, 1)
        second = _process(folder, 0, first.share)
    targets = (Target(second.peak / 2**30, "at most", MEMORY_TARGET / 2**30, "GiB"),) if rows == VAST_ROWS else ()
    for step, seconds in second.seconds.items():
        spread = Spread.of([seconds])
        yield Result(
            name=f"{step}, {case.title}", parameters=case.parameters(), seconds=spread, rate=1 / seconds, unit="per s"
        )
    yield Result(
        name=f"peak memory of one server, evaluating to applying, {case.title}",
        parameters=case.parameters() | {"bytes_started": second.started, "bytes_other": first.peak},
        seconds=Spread.of([sum(second.seconds.values())]),
        rate=second.peak,
        unit="bytes",
        targets=targets,
    )


def _write(folder: Path, case: Case, senders: Sequence[Client]) -> None:
    order = {"case": asdict(case), "isa": kernels.active_isa()}
    (folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
    for number, client in enumerate(senders):
        for server in (0, 1):
            write_submission(folder / f"{number}-{server}", client, server)
    rows = np.concatenate([client.rows for client in senders])
    elements = np.concatenate([client.elements for client in senders])
    np.savez(folder / "plain.npz", rows=rows, elements=elements)


def _process(folder: Path, server: int, *other: str) -> Account:
    command = [sys.executable, "-m", "tests.bench.vast", str(folder), str(server), *other]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FslError(f"the server process failed: {done.stderr.strip()}")
    return msgspec.json.decode(done.stdout, type=Account)


# ---- in a server's process


async def _serve(folder: Path, server: int, other: str) -> Account:
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    kernels.select_isa(order["isa"])
    case, seconds = Case(**order["case"]), dict[str, float]()
    started = peak_memory()
    give_back_code()
    model = np.full((case.rows, 1), WEIGHT, dtype=np.float32)
    lane, state = ThreadLane(case.threads), aggregate(case, server)
    async with _shares(folder, server, lane) as ours, _shares(folder, 1 - server, lane) as theirs:
        with _clock(seconds, "evaluate"):
            for number in range(case.clients):
                _add(state, folder / f"{number}-{server}", case)
        with _clock(seconds, "form and store the share"):
            share = await _form(state, case, ours, lane)
        state.release()
        if other:
            both = (ours, share), (theirs, bytes.fromhex(other))
            await _conclude(folder, case, model, both, lane, seconds)
    return Account(max(peak_memory(), started), started, share.hex(), seconds)


@asynccontextmanager
async def _shares(folder: Path, server: int, lane: ComputeLane) -> AsyncIterator[ShareRecords]:
    """A server's shares: pieces in a folder of blobs, lists in a store, as deployed servers have them."""
    store = await SqliteStore.open(folder / f"s{server}.sqlite")
    blobs = await FolderBlobs.open(folder / f"s{server}.blobs", owner=bytes([server]))
    try:
        yield ShareRecords(store, blobs, lane, "round-00000001")
    finally:
        await blobs.aclose()
        await store.aclose()


def _add(state: Aggregate, path: Path, case: Case) -> None:
    jobs, finish = state.jobs(read_submission(path, case), case.threads)
    run_all(jobs, case.threads)
    finish()


async def _form(state: Aggregate, case: Case, shares: ShareRecords, lane: ComputeLane) -> bytes:
    spans = spans_of(case.task)
    forming = Forming(state, spans, ALL_ROWS, lambda _, piece: bytes(piece))
    return await keep_formed(forming, shares, lane)


async def _conclude(
    folder: Path,
    case: Case,
    model: np.ndarray,
    both: tuple[tuple[ShareRecords, bytes], tuple[ShareRecords, bytes]],
    lane: ComputeLane,
    seconds: dict[str, float],
) -> None:
    """Add both shares, apply the sum, and digest the model, as a server does; then compare the sum."""
    begun = RoundStart(case.config, 0, b"", {"block": model}, {}, {}, 0.0, 0.0, case.clients)
    combining = Combining(begun, ALL_ROWS, case.clients)
    lists = [await shares.pieces(name) for shares, name in both]
    with _clock(seconds, "combine"):
        for span, *names in zip(spans_of(case.task), *lists, strict=True):
            pieces = [await shares.piece(name) for (shares, _), name in zip(both, names, strict=True)]
            await lane.run(partial(combining.add, span, pieces[0], pieces[1]))
        sums = combining.finish()
    with _clock(seconds, "apply"):
        after = await lane.run(partial(apply_sum, begun, None, {}, sums))
    with _clock(seconds, "digest the model"):
        await lane.run(partial(describe_model, case.task, after.model))
    _compare(folder, case, sums)


def _compare(folder: Path, case: Case, sums: Sums) -> None:
    """Compare the sum with the sum in the clear.

    Raises:
        FslError: they differ.
    """
    plain = np.load(folder / "plain.npz")
    rows, inverse = np.unique(plain["rows"], return_inverse=True)
    expected = case.task.ring.zeros(len(rows), 1)
    np.add.at(expected, inverse, plain["elements"])
    total = sums.totals["block"]
    touched = sum(int(np.count_nonzero(total[part])) for part in row_ranges(total))
    if not np.array_equal(total[rows], expected) or touched != np.count_nonzero(expected):
        raise FslError("the round's sum differs from the sum in the clear: this must never happen")


@contextmanager
def _clock(seconds: dict[str, float], step: str) -> Iterator[None]:
    begun = perf_counter()
    yield
    seconds[step] = perf_counter() - begun


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(trio.run(_serve, Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])))))
