"""Parts of a server by themselves, some at sizes that no deployment on one machine has: a hundred thousand clients.

Each figure and what it is compared with are measured in the same run, in turns where they take the same disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import trio

from fsl_async.config import BlockModel
from fsl_async.costs.message_sizes import message_bytes
from fsl_async.digests import DIGEST_BYTES
from fsl_async.merkle import RosterTree
from fsl_async.protocols import ssa
from fsl_async.protocols.entries import Entries
from fsl_async.wire.messages import Finished
from parties.commands.bench.calibrating import LARGE_PART, SMALL_PART, Stored, store_in_folder, stored_at
from parties.commands.bench.members import name_of
from parties.outcome import Done, RoundReport
from parties.statement import Statement
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import Erase, Keep, Record
from tests.bench.measures import Spread
from tests.bench.results import Result, Target

MANY = 100_000
TOGETHER = 32
"""Submissions that wait together are recorded in one commit; at a hundred a second there are more."""

MOST_SUBMITTED = 0.1e-3
MOST_OUTCOMES = 1e9
MOST_WRITTEN = 1.1


# ---- a submission that is recorded


def submitted() -> Iterator[Result]:
    """What one `Submitted` takes in a round in which a hundred thousand are: state, journal and commit."""
    few, many = (trio.run(_enter, count) for count in (100, MANY))
    yield Result(
        name=f"a Submitted, {MANY:,} clients in the round",
        parameters={"clients": MANY, "together": TOGETHER, "seconds_with_100_clients": few.median},
        seconds=many,
        rate=1 / many.median,
        unit="per s",
        bound=Spread.of([1 / few.median]),
        against="the same with 100 clients in the round",
        targets=(Target(1e3 * many.median, "at most", 1e3 * MOST_SUBMITTED, "ms"),),
    )


async def _enter(before: int, commits: int = 30) -> Spread:
    """Processor seconds of one submission, over some commits of several each."""
    terms = ssa.Terms(bytes(32), 0, 2, True)
    state: ssa.Round = ssa.Open(Entries({name_of(number): number.to_bytes(32) for number in range(before)}))
    seconds = []
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as folder:
        store = await SqliteStore.open(Path(folder) / "store.sqlite")
        try:
            for commit in range(commits):
                begun = time.process_time()
                first = before + commit * TOGETHER
                events = [ssa.Submitted(name_of(first + place), bytes(32)) for place in range(TOGETHER)]
                for event in events:
                    state = ssa.step(state, event, terms)
                await store.commit(*(Record("events", msgspec.msgpack.encode(event)) for event in events))
                seconds.append((time.process_time() - begun) / TOGETHER)
        finally:
            await store.aclose()
    return Spread.of(seconds)


# ---- what clients are told


def outcomes() -> Iterator[Result]:
    """The bytes of all statements that both servers send of a round of a hundred thousand clients."""
    clients = {name_of(number): bytes(DIGEST_BYTES) for number in range(MANY)}
    report = RoundReport(
        round_id=bytes(32),
        number=1,
        ending=Done(),
        clients=clients,
        excluded={},
        model=(BlockModel("items", "f4", bytes(32)),),
    )
    begun = time.process_time()
    tree = RosterTree(report.clients, report.blind)
    planted = time.process_time() - begun
    seconds, sizes = [], []
    for client in list(clients)[:: MANY // 100]:
        begun = time.process_time()
        sizes.append(len(Statement.of(report, client, tree, named=False).canonical()))
        seconds.append(time.process_time() - begun)
    sent = [message_bytes(Finished(round_id=bytes(32), signature=bytes(64)), size) for size in sizes]
    together = 2 * MANY * sum(sent) / len(sent)
    yield Result(
        name=f"outcomes, {MANY:,} clients, from both servers",
        parameters={"clients": MANY, "bytes_each": max(sent), "seconds_of_the_tree": planted},
        seconds=Spread.of(seconds),
        rate=together,
        unit="bytes",
        targets=(Target(together / 1e9, "at most", MOST_OUTCOMES / 1e9, "GB"),),
    )


# ---- bulk on disk


def blobs() -> Iterator[Result]:
    """Public parts as files, beside the same in the store's database."""
    for size, count in ((LARGE_PART, 48), (SMALL_PART, 400)):
        files, database = trio.run(_both, size, count)
        rates = [size * count / each.seconds for each in files]
        bound = [size * count / each.seconds for each in database]
        written = max(each.written for each in files)
        yield Result(
            name=f"blobs of {size / 1e6:.3g} MB in files",
            parameters={
                "count": count,
                "written_by_the_database": max(each.written for each in database),
                "processor_ms_each": 1e3 * min(each.processor for each in files) / count,
            },
            seconds=Spread.of([each.seconds / count for each in files]),
            rate=Spread.of(rates).median,
            unit="bytes/s",
            bound=Spread.of(bound),
            against="the same in the store's database",
            targets=(Target(written, "at most", MOST_WRITTEN, "bytes written for a byte"),) if written else (),
        )


async def _both(size: int, count: int) -> tuple[list[Stored], list[Stored]]:
    files, database = [], []
    for _ in range(3):
        files.append(await store_in_folder(size, count))
        database.append(await _store_in_database(size, count))
    return files, database


async def _store_in_database(size: int, count: int) -> Stored:
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as folder:
        store = await SqliteStore.open(Path(folder) / "store.sqlite")

        async def put(number: int, data: bytes) -> None:
            await store.commit(Keep(f"round-00000001/parts/{number}", data))

        try:
            return await stored_at(put, partial(store.commit, Erase("round-00000001")), size, count)
        finally:
            await store.aclose()
