"""One round of five clients with a malicious server, and what comes of it."""

from dataclasses import dataclass, field

import numpy as np
import trio

from fsl_async import FslError, Task
from fsl_async.errors import leaves
from fsl_async.protocols import ssa
from fsl_async.wire.messages import Share
from parties.client.client import Client
from parties.compute import InlineLane
from parties.outcome import ClientOutcome, RoundReport
from parties.server.evidence import Evidence
from parties.server.server import Server
from parties.simulation.network import Network

from .byzantine import CLIENTS, MODEL, TASK, Byzantine, one_malicious

SUBMITTED = 30.0
"""Seconds of virtual time after which all have submitted that ever will."""
PATIENCE = 120.0
"""Seconds of virtual time after which a party that still waits will wait for ever."""


@dataclass
class Account:
    """What came of a meeting.

    Attributes:
        honest: the honest server.
        mutant: the other one.
        halts: with what each server ended, by its number.
        clients: what each client learnt, or what it failed with.
        report: the honest server's account of round 1, if it was settled.
        sums: the ring elements it arrived at, by block; empty without an outcome.
        revealed: whether the honest server sent its share.
        evidence: what it kept.
    """

    honest: Server
    mutant: Byzantine
    halts: dict[int, list[BaseException]]
    clients: dict[str, ClientOutcome | BaseException] = field(default_factory=dict)
    report: list[RoundReport] = field(default_factory=list)
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    revealed: bool = False
    evidence: list[Evidence] = field(default_factory=list)


async def meet(mutant: type[Byzantine], index: int, seed: int, task: Task = TASK) -> Account:
    """Let a malicious server be server `index` in a round with five clients; needs a clock that jumps."""
    network, halts = Network(task, MODEL, seed, InlineLane()), dict[int, list[BaseException]]()
    async with one_malicious(network, mutant, index, seed, halts) as servers:
        account = Account(*servers, halts)
        async with trio.open_nursery() as nursery:
            for place, name in enumerate(CLIENTS):
                nursery.start_soon(_take_part, network.client(name), place + 1, account)
            await trio.sleep(SUBMITTED)
            runs = [(server, server.running) for server in (account.honest, account.mutant) if server.running]
            for server, run in runs:
                await server.inbox.post(run.round_id, ssa.CloseRound())
            await _settled(halts, 1 - index)
            nursery.cancel_scope.cancel()
        account.report = [over.report for over in account.honest.rounds.past if over.report.number == 1]
        for server, run in runs:
            if server is account.honest and account.report and account.report[0].ended == "done":
                account.sums = run.driver.outcome().elements
        name = f"S{1 - index}"
        account.revealed = any(isinstance(n.message, Share) for n in network.transcript if n.sender == name)
        account.evidence = await account.honest.evidence.entries()
    return account


async def _settled(halts: dict[int, list[BaseException]], honest: int) -> None:
    """Wait until the honest server has ended, or will wait for ever: its clients dial it in vain all the while."""
    with trio.move_on_after(PATIENCE):
        while honest not in halts:  # noqa: ASYNC110 - a server ends in many ways
            await trio.sleep(5)


async def _take_part(client: Client, value: int, account: Account) -> None:
    """One client's round: rows 1 and its own, the same value everywhere."""
    try:
        async with client:
            await client.submit({"items": ([0, value], np.full((2, 2), value)), "head": np.full(3, value)})
            account.clients[client.name] = await client.outcome()
    except FslError as error:
        account.clients[client.name] = error
    except BaseExceptionGroup as group:
        account.clients[client.name] = leaves(group)[0]
