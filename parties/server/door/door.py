"""A door: takes a server's clients at its address, with its channel key, and asks its core about everything.

    clients ──> listener ──> visits ──> ClientConnections ──> Depositing ──> blobs
                                │                                 │
                                └── forwarding links ──> desk     └──> calls ──> core

Rules: whom the core does not let in is not let in, and nothing is acknowledged that the core has not. When the core is
gone, so are all visits, because it knows of none of them any more: clients come again, here or at another door. While
it is away, who comes is told to come back. A door has no state that outlives it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, assert_never

import trio

from fsl_async.config import RoundConfig
from fsl_async.error_groups import leaves, sole_error
from fsl_async.errors import ChannelError, FslError, StorageError
from fsl_async.foreign_text import printable
from fsl_async.randomness import Randomness
from fsl_async.task import Task
from fsl_async.union import union_task
from fsl_async.wire.codec import encode
from fsl_async.wire.door_messages import (
    AdmitKey,
    Admitted,
    CoreHello,
    Dismissed,
    DoorHello,
    Forwarded,
    ForwardOrder,
    Leave,
    Leaving,
    NotForwarded,
    RoundOpened,
    RoundSettled,
    TurnedAway,
)
from fsl_async.wire.forward_messages import forwarding
from parties.compute import ComputeLane
from parties.events import ConnectionFailed, Observer, unobserved
from parties.server.admission import DismissedError
from parties.server.clients.connection import ClientConnections
from parties.server.clients.depositing import Depositing
from parties.server.clients.deposits import Depositor, bulk_sizes
from parties.server.door.core_link import CoreAwayError, CoreLink, Unasked
from parties.server.door.desk import DoorDesk
from parties.server.door.rounds import DoorRounds, StrangeRoundError
from parties.server.door.visit_calls import DoorKnowledge, Requests, VisitCalls
from parties.server.limits import ConversationLimits
from parties.server.peer.forward_keeper import FORWARDED_BYTES, MOST_LINKS, ForwardKeeper, ForwardRoom
from parties.server.peer.forward_sender import ForwardSender, Order
from parties.server.recent_parts import RecentParts
from parties.server.round.reading_back import ReadBack
from parties.server.round.records import submission_bytes
from parties.server.store_layout import RequestKey
from parties.server.traffic import Traffic
from parties.storage.blobs.blobs import Blobs
from parties.storage.store import StoreLostError
from parties.watch import Watch, silent
from transport import (
    Channel,
    HandshakeSettings,
    Kind,
    Limits,
    NoPlace,
    Refusal,
    Role,
    SecureChannel,
    Service,
    Transport,
)
from transport.listener import Visit
from transport.needs_trio import NeedsTrio

__all__ = ["Door", "DoorSetup"]

_log = logging.getLogger("parties.door")

RUN = NeedsTrio("Door.run")


@dataclass(frozen=True)
class DoorSetup:
    """All that a door is made of.

    Attributes:
        task: what is learnt.
        index: its server's: 0 or 1.
        name: the door's, one of a kind among the doors of its server.
        channel_secret: its server's channel key; the one that signs a door does not have.
        channel: the public part of it.
        peer: the other server's public channel key.
        peer_address: where clients reach the other server, to which parts are forwarded.
        address: where it listens for clients: its server's address.
        transport: how it listens there, and dials the other server.
        core_address: where its core listens for doors.
        core_transport: how it is dialled there.
        blobs: where bulk is put: the same as its core's.
        lane: where it hashes.
        randomness: the operating system's; in a simulation, a seed's.
        kind: simulation or live, announced in every handshake.
        release: of its software; the core refuses another.
        host: where it runs, and `process` its number there, for the operator.
        limits: what strangers are allowed.
        conversations: what admitted clients are allowed.
        watch: sees every message that it sends.
        observe: takes its events.
    """

    task: Task
    index: int
    name: str
    channel_secret: bytes = field(repr=False)
    channel: bytes
    peer: bytes
    peer_address: str
    address: str
    transport: Transport
    core_address: str
    core_transport: Transport
    blobs: Blobs
    lane: ComputeLane
    randomness: Randomness = field(repr=False)
    kind: Kind
    release: str = ""
    host: str = ""
    process: int = 0
    limits: Limits = field(default_factory=Limits)
    conversations: ConversationLimits = field(default_factory=ConversationLimits)
    watch: Watch = silent
    observe: Observer = unobserved

    @property
    def server(self) -> str:
        """S0 or S1."""
        return f"S{self.index}"

    @property
    def peer_name(self) -> str:
        """The other server's name."""
        return f"S{1 - self.index}"

    def handshake(self, role: Role, payload: bytes) -> HandshakeSettings:
        """What it brings to a handshake."""
        return HandshakeSettings(self.channel_secret, role, self.kind, self.randomness, payload)


@dataclass(eq=False)
class _Visitor:
    """One connection that has been let in.

    Attributes:
        number: the visit's.
        name: the client's, or the other server's.
        scope: cancelled when the connection has to end.
        reason: why it had to.
    """

    number: int
    name: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    reason: ChannelError | None = None

    def end(self, reason: ChannelError) -> None:
        """End the connection."""
        self.reason = reason
        self.scope.cancel()


class Door:
    """One door of a server.

        async with trio.open_nursery() as nursery:
            address = await nursery.start(Door(setup).run)

    Args:
        setup: what it is made of.

    Attributes:
        setup: what it is made of.
        core: the connection to the core.
        sender: forwards what the core orders.
        requests: of clients, that are under way.
    """

    def __init__(self, setup: DoorSetup) -> None:
        self.setup = setup
        self.core = CoreLink(setup.server, self._dial_core, self)
        self._traffic = Traffic(setup.server, setup.observe, setup.watch)
        self.requests = Requests()
        self.sender = ForwardSender(
            setup.peer_name, self._dial_peer, self._part_size, self._read_part, self._report, self._traffic
        )
        self._rounds = DoorRounds(setup.task)
        self._recent = RecentParts()
        self._depositor = Depositor(setup.blobs, setup.lane, self._recent.hold)
        self._room = ForwardRoom(FORWARDED_BYTES)
        self._visitors: dict[int, _Visitor] = {}
        self._core_leaving = ""
        self._ending = ""
        self._lost: StoreLostError | None = None
        self._is_lost = trio.Event()

    async def _part_size(self, order: Order) -> int | None:
        held = self._recent.find(order.blob)
        return await self.setup.blobs.size(order.blob) if held is None else len(held)

    async def _read_part(self, order: Order) -> memoryview:
        """A part that the core has ordered to be forwarded, which must be as it was put.

        Raises:
            StorageError: it is not, or cannot be read.
        """
        try:
            config = self._rounds.find(order.round_id)
        except StrangeRoundError as error:
            raise StorageError(str(error)) from error  # it is over, and its parts are erased
        held = self._recent.find(order.blob)
        if held is not None:
            return held
        back = ReadBack(self.setup.blobs, self.setup.lane, config.shape, self.setup.observe)
        return await back.part(order.blob, order.key.purpose, order.part)

    @property
    def visitors(self) -> int:
        """How many connections have been let in."""
        return len(self._visitors)

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Take connections until cancelled, from when the core is there; reports the address then.

        Raises:
            MisuseError: the core refuses this door for good, or no trio task runs here.
            StoreLostError: the blobs cannot be written any more.
            UnreachableError: the address cannot be listened at.
        """
        RUN.require_trio()
        with sole_error():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with_the_blobs)
                hello = await nursery.start(self.core.keep)
                nursery.start_soon(self.sender.run)
                address = await nursery.start(self._listen, hello)
                task_status.started(address)

    async def wind_up(self, seconds: float) -> None:
        """Take nobody in any more, and wait until no request is under way; at most so many seconds."""
        self._ending = f"a door of {self.setup.server} is about to end; come again, to another one"
        with trio.move_on_after(seconds):
            while self.requests.count:
                await self.requests.ended.wait()

    async def _end_with_the_blobs(self) -> None:
        """End the door when a connection finds that the blobs are lost: the listener takes that for the one's alone."""
        await self._is_lost.wait()
        if self._lost is not None:
            raise self._lost

    async def _listen(self, hello: CoreHello, *, task_status: trio.TaskStatus[str]) -> None:
        """Listen at the server's address for as long as the door takes anybody in."""
        setup = self.setup
        sizes = bulk_sizes(union_task(setup.task) if setup.task.finds_unions else setup.task)
        known = DoorKnowledge(setup.task, self.core, self._rounds, self.requests, hello.longest_answer)
        clients = ClientConnections(
            max(*sizes, submission_bytes(setup.task)),
            hello.longest_answer,
            setup.conversations,
            self._traffic,
            setup.observe,
        )
        role = Role.SERVER_0 if setup.index == 0 else Role.SERVER_1
        service = Service(
            setup.handshake(role, setup.task.digest()),
            partial(self._admit, known, clients),
            _nobody,
            self._limits(hello),
            self._tell_failure,
        )
        await setup.transport.listen(setup.address, service, task_status=task_status)

    def _limits(self, hello: CoreHello) -> Limits:
        """What strangers are allowed here; how many connections a key has over all doors is up to the core."""
        limits = self.setup.limits
        exceptions = {self.setup.peer: MOST_LINKS} | dict(limits.per_key_exceptions)
        return replace(limits, per_key=max(limits.per_key, hello.connections), per_key_exceptions=exceptions)

    def _tell_failure(self, origin: str, error: FslError) -> None:
        self.setup.observe(ConnectionFailed(origin=origin, kind=type(error).__name__, explanation=str(error)))

    # ---- who comes

    async def _admit(
        self, known: DoorKnowledge, clients: ClientConnections, key: bytes, payload: bytes
    ) -> Visit | Refusal:
        """Ask the core about the holder of an authenticated channel key."""
        if self._ending or self._core_leaving:
            return NoPlace(self._ending or self._core_leaving)
        number = self.core.number()
        try:
            answer = (await self.core.call(number, AdmitKey(call=number, key=key, payload=payload))).message
        except CoreAwayError as error:
            return NoPlace(str(error))
        except trio.Cancelled:  # its handshake has hung
            self.core.post(Leave(number))
            raise
        match answer:
            case Admitted(name=name, welcome=welcome, peer=peer):
                visitor = self._visitors[number] = _Visitor(number, name)
                serve = partial(self._take_forwards, known) if peer else partial(self._answer, known, clients)
                return Visit(welcome, partial(self._serve, visitor, serve), partial(self._over, visitor))
            case TurnedAway(kind="no-place", reason=reason):
                return NoPlace(reason)
            case TurnedAway(reason=reason):
                return Refusal(reason)
            case _:
                return NoPlace(f"{self.setup.server} has not answered as a server does")

    def _over(self, visitor: _Visitor) -> None:
        if self._visitors.pop(visitor.number, None) is not None:
            self.core.post(Leave(visitor.number))

    async def _serve(
        self, visitor: _Visitor, serve: Callable[[_Visitor, Channel], Awaitable[None]], channel: SecureChannel
    ) -> None:
        """Serve a connection until it is closed, or has to end."""
        with visitor.scope:
            try:
                await serve(visitor, channel)
            except* StoreLostError as lost:
                self._lost = StoreLostError(str(leaves(lost)[0]))
                self._is_lost.set()
                raise
        if visitor.reason is not None:
            raise visitor.reason

    async def _answer(
        self, known: DoorKnowledge, clients: ClientConnections, visitor: _Visitor, channel: Channel
    ) -> None:
        calls = VisitCalls(known, visitor.number)
        await clients.hold(channel, visitor.name, Depositing(calls, self._depositor, self.setup.observe))

    async def _take_forwards(self, known: DoorKnowledge, visitor: _Visitor, channel: Channel) -> None:
        setup = self.setup
        desk = DoorDesk(known, visitor.number, setup.peer_name, setup.blobs, setup.lane)
        await ForwardKeeper(setup.peer_name, desk, self._room, self._traffic).hold(channel)

    # ---- the core

    async def _dial_core(self) -> SecureChannel:
        setup = self.setup
        hello = DoorHello(
            release=setup.release, task=setup.task.digest(), door=setup.name, host=setup.host, process=setup.process
        )
        role = Role.DOOR_0 if setup.index == 0 else Role.DOOR_1
        said = setup.handshake(role, bytes(encode(hello)[0]))
        return await setup.core_transport.dial(setup.core_address, setup.channel, said)

    def core_met(self, hello: CoreHello) -> None:
        """See `CoreListener.core_met`."""
        del hello  # it is the same for the same task and release
        self._core_leaving = ""

    def core_said(self, message: Unasked, bulk: memoryview) -> None:
        """See `CoreListener.core_said`."""
        match message:
            case RoundOpened():
                self._rounds.open(RoundConfig.parse(bytes(bulk), self.setup.server))
            case RoundSettled():
                self._rounds.settle()
                self._recent.clear()
            case Dismissed(visit=visit, reason=reason):
                visitor = self._visitors.get(visit)
                if visitor is not None:
                    visitor.end(DismissedError(f"{visitor.name!r} is disconnected: {reason}"))
            case ForwardOrder():
                key = RequestKey(message.client, message.purpose, message.query)
                self.sender.order(Order(message.order, message.round_id, message.number, key, message.part))
            case Leaving(explanation=explanation):
                self._core_leaving = explanation
                _log.info("%s", printable(explanation))
            case _:
                assert_never(message)

    def core_lost(self) -> None:
        """See `CoreListener.core_lost`."""
        self.sender.forget()
        explanation = self._core_leaving or f"{self.setup.server} has lost its core; come again"
        for visitor in list(self._visitors.values()):
            visitor.end(CoreAwayError(explanation))

    # ---- the other server

    async def _dial_peer(self) -> Channel:
        setup = self.setup
        role = Role.SERVER_0 if setup.index == 0 else Role.SERVER_1
        said = setup.handshake(role, forwarding(setup.task.digest()))
        return await setup.transport.dial(setup.peer_address, setup.peer, said)

    def _report(self, order: Order, became: Literal["forwarded", "not-forwarded"]) -> None:
        if became == "forwarded":
            self._recent.let_go(order.blob)
        self.core.post(Forwarded(order.order) if became == "forwarded" else NotForwarded(order.order))


async def _nobody(channel: SecureChannel) -> None:
    """Every visit names who serves it."""
