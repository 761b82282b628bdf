"""The kit of malicious servers: ours, with one step changed, and how one is run beside an honest server.

A malicious server keeps to the protocol in everything but its one step, so that the step leads the honest server, or
its clients, as far astray as it can. `peer_attacks` has what is told to the other server, `client_attacks` what clients
are told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import outcome
import trio

from fsl_async import Dense, FslError, Ring, Sparse, Task
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain
from fsl_async.errors import leaves
from fsl_async.protocols import ssa
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import Message
from fsl_async.wire.pieces import piece_digest
from parties.compute import InlineLane
from parties.identity.keys import Identity
from parties.outcome import RoundReport
from parties.server.actor import Actor
from parties.server.clients.requests import BegunRequest, RequestHandler
from parties.server.peer.link import Fetch, PeerLink
from parties.server.replies import Reply, ReserveMemory
from parties.server.round.drawing import SampleRun
from parties.server.round.engine import RoundStart
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling

TASK = Task(
    name="table",
    blocks=(Sparse("items", rows=64, select=2, width=2), Dense("head", size=3)),
    ring=Ring(64),
    min_clients=2,
    max_clients=6,
)
MODEL = {"items": np.zeros((64, 2), dtype=np.int64), "head": np.zeros(3, dtype=np.int64)}
CLIENTS = ("anna", "ben", "carol", "dora", "emil")
VICTIM = "carol"

Said = Iterable[tuple[Message, bytes]]


class LyingLink(PeerLink):
    """Sends to the peer what `say` makes of its messages."""

    owner: Byzantine

    def post_stored(self, message: Message, fetch: Fetch) -> None:
        content = bytes(at_once(fetch()) or b"")
        said = list(self.owner.say(message, content))
        self.owner.fired |= said != [(message, content)]
        for changed, data in said:
            super().post_stored(changed, partial(_at_hand, data))


async def _at_hand(data: bytes) -> bytes:
    return data


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never waits for anything, though it may have checkpoints."""
    try:
        coroutine.send(None)
        while True:
            coroutine.send(outcome.Value(None))
    except StopIteration as stop:
        return stop.value


class LyingActor(Actor):
    """Takes what `hear` makes of the server's own events."""

    owner: Byzantine

    async def _take_own(self, round_id: bytes, event: Event) -> None:
        changed = self.owner.hear(event)
        self.owner.fired |= changed != (event,)
        for other in changed:
            await super()._take_own(round_id, other)

    async def _take_submitted(self, round_id: bytes, submitted: Sequence[ssa.Submitted]) -> None:
        for event in submitted:
            await self._take_own(round_id, event)


class LyingSequence(RoundSequence):
    """Opens what `open` makes of a round."""

    owner: Byzantine

    async def start_of(self, tossed: tossing.Tossed, sample: SampleRun | None) -> RoundStart:
        start = await super().start_of(tossed, sample)
        config = self.owner.open(start.config)
        self.owner.fired |= config is not start.config
        return replace(start, config=config)


class LyingRounds(Rounds):
    """Tells what `remember` makes of a round's account."""

    owner: Byzantine

    async def settled_report(self, round_id: bytes) -> RoundReport:
        report = await super().settled_report(round_id)
        told = self.owner.remember(report)
        self.owner.fired |= told is not report
        return told


@dataclass(frozen=True)
class LyingIdentity(Identity):
    """Gives what `write` makes of a signature."""

    owner: Byzantine | None = field(default=None, repr=False, compare=False)

    def sign(self, domain: Domain, *parts: bytes) -> bytes:
        signature = super().sign(domain, *parts)
        written = self.owner.write(domain, signature)
        self.owner.fired |= written != signature
        return written


def become(part: Any, other: type, owner: Byzantine) -> None:
    """Make a part of a server a lying one, which asks its owner."""
    part.__class__ = other
    part.owner = owner


class LyingRequestHandler(RequestHandler):
    """Answers clients with what `answer` makes of a reply."""

    owner: Byzantine

    async def ask(self, client: str, message: Message, room: ReserveMemory) -> Reply:
        return await self.owner.answer(client, message, await super().ask(client, message, room))

    async def complete(self, begun: BegunRequest, bulk: memoryview, room: ReserveMemory) -> Reply:
        reply = await super().complete(begun, bulk, room)
        return await self.owner.answer(begun.client, begun.message, reply)


class Byzantine(Server):
    """A server that keeps to the protocol, but for what a subclass changes in one of the methods below.

    Attributes:
        fired: whether the mutated step was reached.
    """

    def __init__(self, setup: ServerSetup) -> None:
        own = setup.identity
        super().__init__(
            replace(
                setup,
                identity=LyingIdentity(own.name, own.channel_secret, own.statement_secret, own.noise_secret, self),
                lane=InlineLane(),  # also where computing takes time: what it says is read at once
            )
        )
        become(self.actor, LyingActor, self)
        become(self.link, LyingLink, self)
        become(self.sequence, LyingSequence, self)
        become(self.rounds, LyingRounds, self)
        become(self.requests, LyingRequestHandler, self)
        self.fired = False

    def say(self, message: Message, bulk: bytes) -> Said:
        """What is said to the peer in place of a message."""
        yield message, bulk

    def hear(self, event: Event) -> tuple[Event, ...]:
        """What its own machine is told in place of an event of its own."""
        return (event,)

    def open(self, config: RoundConfig) -> RoundConfig:
        """What it opens in place of a round."""
        return config

    def remember(self, report: RoundReport) -> RoundReport:
        """What clients are told in place of a round's account."""
        return report

    def write(self, domain: Domain, signature: bytes) -> bytes:
        """What it gives in place of its signature."""
        return signature

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        """What a client is answered in place of an honest answer."""
        changed = self.tell(client, message, reply[0])
        self.fired |= changed is not reply[0]
        return reply if changed is reply[0] else (changed, b"")

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        """What a client is told in place of an answer; another one goes without bulk."""
        return reply

    def number(self) -> int:
        """The round that is on."""
        return self.sequence.number


def flipped(data: bytes, place: int = 0) -> bytes:
    """The same bytes but for one bit."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def with_error(server: Byzantine, event: ssa.Summed, places: slice, error: int) -> ssa.Summed:
    """A server's share with an error added to some of its elements."""
    shares = server.running.records.shares
    pieces = [bytes(at_once(shares.piece(name))) for name in at_once(shares.pieces(event.share))]
    share = np.frombuffer(b"".join(pieces), "<u8").copy()
    share[places] += np.uint64(error)  # as a ring does, without a warning
    whole, names = share.tobytes(), []
    for before in pieces:
        piece, whole = whole[: len(before)], whole[len(before) :]
        names.append(piece_digest(piece))
        at_once(shares.keep_piece(names[-1], piece))
    return ssa.Summed(at_once(shares.keep_list(tuple(names))), event.nonce)


@asynccontextmanager
async def one_malicious(
    network: Network,
    attack: type[Byzantine],
    index: int,
    seed: int,
    halts: dict[int, list[BaseException]],
    **changes: Any,
) -> AsyncIterator[tuple[Server, Byzantine]]:
    """Run a network's servers with a malicious one as server `index`.

    Args:
        network: whose servers have not been started.
        attack: the malicious server's class.
        index: 0 or 1.
        seed: of the order of tasks.
        halts: takes what each server ends with, by its number.
        changes: to both servers' setups.
    """
    setups = [replace(server.setup, **changes) for server in network.servers]
    honest, malicious = Server(setups[1 - index]), attack(setups[index])
    network.servers = (malicious, honest) if index == 0 else (honest, malicious)
    with seeded_scheduling(seed):
        async with trio.open_nursery() as nursery:
            for number, server in enumerate(network.servers):
                await nursery.start(run_server, server, number, halts)
            yield honest, malicious
            nursery.cancel_scope.cancel()


async def run_server(
    server: Server,
    number: int,
    halts: dict[int, list[BaseException]],
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a server, and note with what it ended."""
    try:
        await server.run(task_status=task_status)
    except* FslError as group:
        halts[number] = leaves(group)
