"""Callers that call again when an error invites them to, and what a malicious server learns from that.

A malicious server cannot open a sum that the honest one does not open with it, but it can try to have the same values
counted twice: two sums that differ in one client's values show these values. So the callers here do what callers do:
they repeat a call whose error says that it may be repeated, with the same values. `betrayals` then looks at all sums
that were opened, as the malicious server sees them, and at who is in them by the callers' own books.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import trio

from fsl_async import Dense, FslError, Ring, Sparse, Task
from fsl_async.errors import ChannelError, MisuseError
from fsl_async.wire.messages import Hint, Message, Share, Submit
from parties.client.client import Client
from parties.compute import InlineLane
from parties.errors import AlreadyCountedError, OutcomeUnknownError, RoundClosedError, ServerBusyError, SumRefusedError
from parties.schedule import Schedule
from parties.server.server import Server
from parties.simulation.network import Network

from .byzantine import CLIENTS, MODEL, Byzantine, one_malicious

TASK = Task(
    name="table",
    blocks=(Sparse("items", rows=64, select=2, width=2), Dense("head", size=3)),
    ring=Ring(64),
    min_clients=2,
    max_clients=6,
    largest=2.0**30,
)
PLANS = 2
"""Values that a caller has."""
ATTEMPTS = 5
"""Calls after which a caller has had enough."""
PATIENCE = 20.0
LONG = 2_000.0
"""Seconds of virtual time after which a caller that still waits will wait for ever."""
SETTLED = 200.0
"""Seconds of virtual time in which the round ends that is on when the last caller has ended."""


# ---- callers


class Caller:
    """Submits its values until they are in a sum, then others; `plans` numbers them.

    Attributes:
        sent: by round's name, the values that it sent to some server in it.
        heard: what its calls ended with that was no success, in order.
        counted: the values that it was told are in a sum.
        ended: whether its last call has ended.
        present: the sizes of its submissions, in order, for each server that they went to.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = CLIENTS.index(name)
        self.plan = 0
        self.sent: defaultdict[bytes, set[int]] = defaultdict(set)
        self.heard: list[FslError] = []
        self.counted: list[int] = []
        self.ended = False
        self.present: defaultdict[str, list[int]] = defaultdict(list)

    def values(self, plan: int) -> dict[str, Any]:
        """Row 0 and one of its own, and all of the dense block; no two clients' and no two plans' are the same."""
        value = 10 ** (2 * self.place) + plan
        return {"items": ([0, self.place + 1], np.full((2, 2), value)), "head": np.full(3, value)}

    def watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        """Hears of its own messages, before they leave."""
        if isinstance(message, Submit | Hint):
            self.sent[message.round_id].add(self.plan)
            self.present[receiver].append(bulk)

    async def live(self, client: Client) -> None:
        """Call until so many values are settled, or an error says that calling again is no use."""
        for _ in range(ATTEMPTS):
            if self.plan == PLANS:
                break
            try:
                await self._once(client)
            except (RoundClosedError, ServerBusyError, ChannelError) as error:
                self.heard.append(error)  # "call again": with the same values
            except AlreadyCountedError:
                self._settled()
            except (OutcomeUnknownError, SumRefusedError) as error:
                self.heard.append(error)  # the same values might count twice: never again
                self.plan += 1
            except FslError as error:
                self.heard.append(error)  # a server is found out, or this is a mistake: no caller goes on
                break
        self.ended = True

    async def _once(self, client: Client) -> None:
        values = self.values(self.plan)
        try:
            if self.place % 2:
                await client.retrieve({"items": values["items"][0], "head": ...})
            await client.submit(values)
        except MisuseError as error:
            if "`resume`" not in str(error):
                raise
            await client.resume()
        told = await client.outcome()
        if told.counted:
            self._settled()

    def _settled(self) -> None:
        self.counted.append(self.plan)
        self.plan += 1


# ---- what happened


@dataclass
class Play:
    """What came of some rounds with a malicious server.

    Attributes:
        honest: which server is honest.
        callers: by name.
        servers: S0 and S1.
        opened: by round's name, who is in the sum that the honest server has opened.
        halts: with what each server ended, by its number.
    """

    honest: int
    callers: dict[str, Caller]
    servers: tuple[Server, Server] = field(init=False)
    opened: dict[bytes, frozenset[str]] = field(default_factory=dict)
    halts: dict[int, list[BaseException]] = field(default_factory=dict)

    def watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        """Hears of every message that a server sends."""
        if isinstance(message, Share) and sender == f"S{self.honest}":
            state: Any = self.servers[self.honest].running.state
            self.opened[message.round_id] = frozenset(state.counted)

    @property
    def mutant(self) -> Byzantine:
        """The malicious server."""
        server = self.servers[1 - self.honest]
        assert isinstance(server, Byzantine)
        return server

    @property
    def heard(self) -> list[FslError]:
        """All callers' errors."""
        return [error for caller in self.callers.values() for error in caller.heard]

    @property
    def waiting(self) -> list[str]:
        """Whose last call never ended."""
        return [caller.name for caller in self.callers.values() if not caller.ended]


def betrayals(told: Play) -> Iterator[str]:
    """Values that a malicious server can take from the sums that were opened; none, where all is well."""
    for caller in told.callers.values():
        for plan in range(caller.plan + 1):
            rounds = [name for name, who in told.opened.items() if caller.name in who and plan in caller.sent[name]]
            if len(rounds) > 1:
                yield f"{caller.name}'s values {plan} are in {len(rounds)} opened sums"
    for first, second in combinations(told.mutant.sums.values(), 2):
        difference = {name: first[name] - second[name] for name in first}
        for caller in told.callers.values():
            for plan in range(caller.plan + 1):
                if _is(difference, caller, plan) or _is({n: -d for n, d in difference.items()}, caller, plan):
                    yield f"two sums differ in {caller.name}'s values {plan}"


def _is(difference: dict[str, np.ndarray], caller: Caller, plan: int) -> bool:
    rows, values = caller.values(plan)["items"]
    expected = np.zeros((64, 2), dtype=object)
    expected[rows] = values
    return bool((difference["items"] == expected).all())


# ---- the play


async def play(
    mutant: type[Byzantine], index: int, seed: int, make: Callable[[str], Caller] = Caller, task: Task = TASK
) -> Play:
    """Let a mutant be server `index` in some rounds with five callers; needs a clock that jumps."""
    callers = {name: make(name) for name in CLIENTS}
    network, told = Network(task, MODEL, seed, InlineLane()), Play(1 - index, callers)
    schedule = Schedule(clients=len(callers), seconds=60.0, grace=3.0, patience=60.0)
    changes = {"schedule": schedule, "watch": told.watch}
    async with one_malicious(network, mutant, index, seed, told.halts, **changes), trio.open_nursery() as nursery:
        told.servers = network.servers
        for caller in callers.values():
            nursery.start_soon(_call, network, caller)
        with trio.move_on_after(LONG - SETTLED):
            while not all(caller.ended for caller in callers.values()):  # noqa: ASYNC110 - five callers
                await trio.sleep(10)
        await trio.sleep(SETTLED)
        nursery.cancel_scope.cancel()
    return told


async def _call(network: Network, caller: Caller) -> None:
    setup = replace(network.client(caller.name).setup, watch=caller.watch, patience=PATIENCE)
    async with Client(setup) as client:
        await caller.live(client)
