"""Whole rounds of a deployment: beside their evaluation and the scaling model, and in a budget of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import perf_counter

from fsl_async import Dense, Ring, Task
from fsl_async.costs.scaling import HostCapacity, Limit, capacity, load_of
from fsl_async.server.batch import at_once
from parties.commands.bench.calibrating import calibrated
from parties.commands.bench.deployed import LARGE, SMALL, Deployed, RoundTaken, Size, take_rounds
from parties.commands.bench.machine import cores
from parties.commands.bench.workload import Case, add_together, aggregate, client_of
from parties.schedule import ORDINARY_MEMORY
from tests.bench.measures import Spread
from tests.bench.results import Result, Target

SIZES = ((SMALL, 1_000, False), (LARGE, 100, True))
"""Sizes, clients, and whether servers are what limits: with small ones it is the one process that all clients share."""

TURNS = 3
OFF = 0.15
"""By this part of itself a round may take longer or shorter than the model says, on a machine to itself."""

LOOPBACK = 20e9
"""Bits in a second between processes of one machine."""

WEIGHTS, SENDERS = 52_000_000, 3
WAYS = {"one after the other": 1, "all at once": SENDERS}
SHARES_BESIDE = 4
CODE = 160 << 20
"""What a server may hold beside submissions: the sum, what is being added to it, the same as elements, and the new
model; kernels."""


def whole_rounds() -> Iterator[Result]:
    """Rounds of both sizes on this machine, with both servers and all clients: beside their submissions' evaluation
    alone, of both servers, and beside what the scaling model says, whose constants are measured first.

    Raises:
        FslError: a process failed, a client was not counted, or a model is wrong.
    """
    constants = calibrated(lambda step: print(f"measuring {step}", file=sys.stderr))
    for size, clients, servers_limit in SIZES:
        alone = [_evaluated(size, clients)]
        turns = [take_rounds(Deployed(size.task(clients), clients)) for _ in range(TURNS)]
        alone.append(_evaluated(size, clients))
        taken = sorted(turns, key=lambda each: each.outcome)[TURNS // 2]
        host = HostCapacity(cores(), network=LOOPBACK, link=LOOPBACK, servers=2, clients=taken.clients / clients)
        predicted = capacity(load_of(size.task(clients)), host, constants, clients)
        off = predicted.round_seconds / taken.outcome - 1
        yield Result(
            name=f"a round of {clients:,} clients, {size.name} each",
            parameters=_parameters(size, taken, predicted) | {"off": off},
            seconds=Spread.of([each.outcome for each in turns]),
            rate=clients / taken.outcome,
            unit="clients/s",
            bound=Spread.of([clients / seconds for seconds in alone]),
            against="their evaluation alone, for both servers",
            targets=(Target(abs(off), "at most", OFF, "off the model"),) if servers_limit else (),
        )


def _parameters(size: Size, taken: RoundTaken, predicted: Limit) -> dict[str, object]:
    return {
        "rows": size.rows,
        "select": size.select,
        "receipts_seconds": taken.receipts,
        "ending_seconds": taken.ending,
        "servers_processor_seconds": 2 * taken.until(1).total,
        "clients_processor_seconds": taken.clients,
        "memory_bytes": [most[-1] for most in taken.memory],
        "predicted_seconds": predicted.round_seconds,
        "first_limit": predicted.first.part,
    }


def _evaluated(size: Size, clients: int) -> float:
    """Seconds to add so many submissions on both servers, with all processors; some different ones take turns."""
    case = Case(rows=size.rows, select=size.select, bits=64, threads=cores())
    count = min(clients, at_once(case.config.shape, case.threads))
    both = list(zip(*(client_of(case, number).submissions() for number in range(count)), strict=True))
    states = [aggregate(case, server) for server in (0, 1)]
    seconds = 0.0
    for state, submissions in zip(states, both, strict=True):
        add_together(state, submissions, case.threads)  # kernels are compiled, memory has been touched
        begun = perf_counter()
        for first in range(0, clients, count):
            add_together(state, submissions[: clients - first], case.threads)
        seconds += perf_counter() - begun
    return seconds


def budget() -> Iterator[Result]:
    """What a round adds to a server's memory where each client brings 416 MB: it must not grow with the clients.

    Raises:
        FslError: a process failed, a client was not counted, or a model is wrong.
    """
    share = 8 * WEIGHTS
    allowed = max(ORDINARY_MEMORY, 2 * share) + SHARES_BESIDE * share + CODE
    task = Task(name="bench", blocks=(Dense("body", size=WEIGHTS),), ring=Ring(64), min_clients=2, max_clients=SENDERS)
    for way, together in WAYS.items():
        taken = take_rounds(Deployed(task, SENDERS, rounds=1, together=together))
        needed = max(most - before for before, _, most in taken.memory)
        yield Result(
            name=f"memory of a round, {SENDERS} clients of {share >> 20} MiB, {way}",
            parameters={"weights": WEIGHTS, "clients": SENDERS, "memory_bytes": taken.memory},
            seconds=Spread.of([taken.outcome]),
            rate=needed,
            unit="bytes",
            targets=(Target(needed, "at most", allowed, "bytes"),),
        )
