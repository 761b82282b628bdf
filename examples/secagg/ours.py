"""A round of this project: real parties in memory, handshakes, records, signatures and proofs included.

All parties share one thread here, so a party's processor seconds are those of its tasks. The busier of the two servers
is the one that is reported, and what closing the round takes is added to it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import trio

from examples.secagg.cases import CLIPPED, SEED, Array, Case, Figures, errors
from examples.secagg.party_clock import CLIENT, SERVERS, PartyClock
from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from parties import Client, Network, simulate

RING = Ring(64, fraction_bits=24)
TOO_LARGE = 1e15


def setting() -> dict[str, object]:
    """What was chosen, for the result."""
    return {"servers": 2, "bits": RING.bits, "fraction_bits": RING.fraction_bits, "security": "verified"}


def measure(case: Case) -> Figures:
    """One round, in which each client retrieves its rows and submits its changes."""
    clock = PartyClock(time.process_time)
    return trio.run(_round, case, clock, instruments=(clock,), strict_exception_groups=True)


def clip() -> dict[str, object]:
    """The mean of the example, and the error for a value that does not fit."""
    return trio.run(_clip)


@dataclass(frozen=True)
class Taken:
    """What one client took: processor seconds, and bytes."""

    seconds: float
    up: int
    down: int


def task_of(case: Case) -> Task:
    """The task of a case."""
    block = (
        Dense("rows", size=case.weights)
        if case.dense
        else Sparse("rows", rows=case.rows, width=case.width, select=case.select)
    )
    return Task(name="comparison", blocks=[block], ring=RING, min_clients=2, max_clients=100)


async def _round(case: Case, clock: PartyClock) -> Figures:
    model = np.zeros(case.weights if case.dense else (case.rows, case.width), np.float32)
    async with simulate(task_of(case), {"rows": model}, seed=SEED) as network:
        before, taken = clock.busier, []
        for client in range(case.clients):
            one = await _take_part(network, case, client, clock)
            taken += [one] * (client < case.counted)
        closing = clock.seconds[CLIENT]
        outcome = await network.finish_round()
        server = clock.busier - before + clock.seconds[CLIENT] - closing
    if len(outcome.clients) != case.counted:
        raise RuntimeError(f"{len(outcome.clients)} clients were counted instead of {case.counted}")
    largest, typical = errors(outcome.update["rows"] / case.counted, case.mean())
    return Figures(
        client=float(np.mean([one.seconds for one in taken])),
        server=server / case.counted,
        up=max(one.up for one in taken),
        down=max(one.down for one in taken),
        largest_error=largest,
        typical_error=typical,
        between=sum(note.bulk for note in network.transcript if {note.sender, note.receiver} == {*SERVERS})
        // case.counted,
    )


async def _take_part(network: Network, case: Case, number: int, clock: PartyClock) -> Taken:
    rows, changes = case.changes(number)
    started = clock.seconds[CLIENT]
    async with network.client(f"client-{number}") as client:
        await client.retrieve({"rows": ... if case.dense else rows})
        if number < case.counted:
            await client.submit({"rows": changes.reshape(-1) if case.dense else (rows, changes)})
            _check_none_deferred(client)
        return Taken(clock.seconds[CLIENT] - started, client.bytes_sent, client.bytes_received)


def _check_none_deferred(client: Client) -> None:
    if any(len(rows) for rows in client.deferred.values()):
        raise RuntimeError("a row found no place, and its change would be missing from the sum")


async def _clip() -> dict[str, object]:
    task = Task(name="clipping", blocks=[Dense("rows", size=len(CLIPPED))], ring=RING, min_clients=2, max_clients=100)
    refusals = []
    async with simulate(task, {"rows": np.zeros(len(CLIPPED), np.float32)}, seed=SEED) as network:
        for number in range(Case.clients):
            async with network.client(f"client-{number}") as client:
                await client.retrieve({"rows": ...})
                refusals.append(await _refusal(client))
                await client.submit({"rows": np.array(CLIPPED)})
        outcome = await network.finish_round()
    mean: Array = outcome.update["rows"] / Case.clients
    return {"sent": list(CLIPPED), "mean": mean.tolist(), "too_large": TOO_LARGE, "refusal": refusals[0]}


async def _refusal(client: Client) -> str:
    """What is said when a value does not fit; nothing is sent then."""
    try:
        await client.submit({"rows": np.array([*CLIPPED[:-1], TOO_LARGE])})
    except MisuseError as error:
        return str(error)
    raise RuntimeError(f"{TOO_LARGE:g} was taken")
