"""A server: one actor that owns the rounds, and a task for every connection that brings it work.

The actor's inbox takes the peer's messages and our own computations' results; only the actor changes a round's state,
so there is nothing to lock. Connection tasks (see `parties.conversation`) read rounds, wait on them, and post to the
inbox.

    listener ──> conversations ────┐
    peer link ─────────────────────┼──> inbox ──> actor ──> toss ──> round ──> toss ──> …
    compute tasks ─────────────────┘
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import trio

from fsl_async.alignment import union_task
from fsl_async.codec import Received, bulk_overhead
from fsl_async.config import RoundConfig, ServerKeys, describe_model
from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.errors import FslError, MisuseError, PeerViolationError
from fsl_async.messages import Forward, Message, TossCommitment, TossReveal
from fsl_async.protocols import alignment as aligning
from fsl_async.protocols import round as protocol
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.client import RETRIEVALS_PER_ROUND
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.public_part import Layout, Trees, share_bytes
from fsl_async.randomness import Randomness
from fsl_async.task import Task
from parties.compute import ComputeLane
from parties.conversation import Conversation
from parties.desk import RequestKey, RequestRefusedError
from parties.enrolment import Enrolment, ListOnly, Policy
from parties.evidence import Evidence, EvidenceBook
from parties.identity import Identity, PublicIdentity, Registry
from parties.link import PeerLink
from parties.outcome import ENTRY_BYTES, RoundOutcome, RoundReport
from parties.reception import Reception
from parties.round_run import Held, Model, RoundRun, SettledRound, Tools
from parties.sessions import Sessions
from parties.store import Store
from transport import Channel, HandshakeSettings, Kind, Limits, Refusal, Role, Service, Transport

__all__ = ["Schedule", "Server", "ServerSetup", "Watch", "silent"]

_log = logging.getLogger("parties.server")

ROUNDS_REMEMBERED = 16

Watch: TypeAlias = Callable[[str, str, Message, int], None]
"""Hears of every message sent: sender, receiver, message, bytes of bulk."""


def silent(sender: str, receiver: str, message: Message, bulk: int) -> None:
    """Hears nothing."""


@dataclass(frozen=True)
class Schedule:
    """When rounds close, and how many there are.

    Attributes:
        clients: close as soon as so many submissions are in.
        seconds: close so long after opening; infinity waits for the clients.
        rounds: stop after so many rounds; 0 goes on for ever.
        grace: when the peer has closed, wait so many seconds for submissions that are still on their way to us.
    """

    clients: int
    seconds: float = float("inf")
    rounds: int = 0
    grace: float = 5.0


@dataclass(frozen=True)
class ServerSetup:
    """All that a server is made of.

    Attributes:
        task: what is learnt.
        index: 0 or 1.
        identity: its own keys.
        peer: the other server's public keys.
        peer_address: where S0 listens; used by S1 alone.
        registry: the clients it lets in from the start.
        policy: who may enrol besides them.
        model: the model it starts from.
        address: where it listens.
        transport: how.
        store: what it must not forget.
        lane: where it computes.
        randomness: the operating system's, but in simulation.
        kind: which of the two, announced in every handshake.
        schedule: when rounds close.
        limits: what strangers are allowed.
        watch: hears of every message it sends.
    """

    task: Task
    index: int
    identity: Identity
    peer: PublicIdentity
    peer_address: str
    registry: Registry
    model: Model = field(repr=False)
    address: str
    transport: Transport
    store: Store
    lane: ComputeLane
    randomness: Randomness = field(repr=False)
    kind: Kind
    schedule: Schedule
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=ListOnly)
    watch: Watch = silent


@dataclass(frozen=True)
class _FromPeer:
    received: Received


@dataclass(frozen=True)
class _Met:
    """The servers are connected (again)."""


@dataclass(frozen=True)
class _Ours:
    """An event of our own for a round."""

    round_id: bytes
    event: Event


class Server:
    """S0 or S1.

    Attributes:
        setup: what it is made of.
        model: the model as it stands.
        enrolment: the clients it knows.
        sessions: the trees that outlive their round, where the task's selection is fixed.
        evidence: what it saw against the protocol.
        visitors: how many clients are connected.
    """

    def __init__(self, setup: ServerSetup) -> None:
        self.setup = setup
        self.model = dict(setup.model)
        self._name = f"S{setup.index}"
        self.enrolment = Enrolment(self._name, setup.task.digest(), setup.registry, setup.policy, setup.store)
        self._peer = f"S{1 - setup.index}"
        self._inbox_in, self._inbox = trio.open_memory_channel[_FromPeer | _Met | _Ours](1024)
        self._link = PeerLink(self._peer, _longest_peer_message(setup.task), self._deliver, self._met)
        self._described = describe_model(setup.task, self.model)
        self._current: tossing.Toss | RoundRun
        self._over: dict[bytes, SettledRound] = {}
        self._toss_words: tuple[TossCommitment | TossReveal, ...] = ()
        self._opened = trio.Event()
        self._settled = trio.Event()
        self._left = trio.Event()
        self._seed = (0, b"")
        self._union: Model = {}
        self._alignment = aligning.begin(setup.task)
        self.sessions = Sessions()
        self.evidence = EvidenceBook(setup.store)
        self.visitors = 0

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address once clients can connect.

        Raises:
            PeerViolationError: the other server broke the protocol; nothing was revealed that it should not see.
            StorageError: what must not be forgotten cannot be read.
        """
        await self.enrolment.restore()
        if self.enrolment.warning:
            _log.warning("%s: %s", self._name, self.enrolment.warning)
        async with trio.open_nursery() as nursery:
            self._tools = Tools(
                nursery=nursery,
                lane=self.setup.lane,
                store=self.setup.store,
                evidence=self.evidence,
                randomness=self.setup.randomness,
                post=self._post,
                report=self._report,
                grace=self.setup.schedule.grace,
            )
            self._begin_toss(1)
            nursery.start_soon(self._act)
            self._reception = Reception(self)
            service = Service(self.handshake(), self._admit, self._serve, self.setup.limits)
            address = await nursery.start(self.setup.transport.listen, self.setup.address, service)
            if self.setup.index == 1:
                nursery.start_soon(self._link.keep_dialling, self._dial_peer)
            task_status.started(address)

    # ---- for connection tasks

    def handshake(self) -> HandshakeSettings:
        """What this server brings to every handshake."""
        role = Role.SERVER_0 if self.setup.index == 0 else Role.SERVER_1
        return HandshakeSettings(
            private_key=self.setup.identity.channel_secret,
            role=role,
            kind=self.setup.kind,
            randomness=self.setup.randomness,
            payload=self.setup.task.digest(),
        )

    def open_round(self, round_id: bytes, client: str) -> RoundRun:
        """The round of that name, if it is open for this client.

        Raises:
            RequestRefusedError: it is not open (any more).
        """
        run = self._current
        if isinstance(run, RoundRun) and run.round_id == round_id and run.admits(client):
            return run
        raise RequestRefusedError.because("round-closed", "that round is not open; enter the next one")

    async def next_round(self, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`."""
        while True:
            run = self._current
            if isinstance(run, RoundRun) and run.config.number > after and isinstance(run.state, protocol.Open):
                return run
            await self._opened.wait()

    async def settled(self, round_id: bytes) -> RoundReport:
        """Wait until a round is settled, and return its account.

        Raises:
            RequestRefusedError: it is unknown, or too long ago.
        """
        run = self._current
        if isinstance(run, RoundRun) and run.round_id == round_id:
            await run.settled.wait()
            return run.report()
        if round_id not in self._over:
            raise RequestRefusedError.because("round-closed", "that round is unknown here, or too long ago")
        return self._over[round_id].report

    async def post_event(self, round_id: bytes, event: Event) -> None:
        """Take an event of our own to the actor."""
        await self._report(round_id, event)

    def sign(self, domain: Domain, *parts: bytes) -> bytes:
        """Sign a statement."""
        return self.setup.identity.sign(domain, *parts)

    # ---- for whoever runs the server

    async def close_round(self) -> RoundOutcome:
        """Close the open round now and wait for its sum.

        Raises:
            FslError: the round was aborted; the message says why.
        """
        run = await self.next_round(0)
        await self._report(run.round_id, protocol.CloseRound())
        return await self.settled_outcome(run)

    async def settled_outcome(self, run: RoundRun) -> RoundOutcome:
        """Wait for a round's sum.

        Raises:
            FslError: the round was aborted; the message says why.
        """
        await run.settled.wait()
        aborted = run.report().aborted
        if aborted:
            raise FslError(f"round {run.config.number} was aborted: {aborted}")
        return run.outcome()

    async def settlements(self) -> AsyncGenerator[RoundReport, None]:
        """The account of every round from now on, when it is settled; ends with the schedule's last."""
        number = 0
        while not (self.setup.schedule.rounds and number >= self.setup.schedule.rounds):
            fresh = [over.report for over in self._over.values() if over.config.number > number]
            if not fresh:
                await self._settled.wait()
                continue
            number = fresh[0].number
            yield fresh[0]

    async def drain(self, seconds: float) -> None:
        """Wait until every client has gone, to hear what became of the last round; at most so many seconds."""
        with trio.move_on_after(seconds):
            while self.visitors:
                await self._left.wait()

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Count a client's connection."""
        self.visitors += 1
        try:
            yield
        finally:
            self.visitors -= 1
            left, self._left = self._left, trio.Event()
            left.set()

    def state_name(self) -> str:
        """What the server is doing, for people."""
        run = self._current
        if isinstance(run, RoundRun):
            return f"round {run.config.number}: {type(run.state).__name__}"
        return f"round {run.half.number}: {type(run).__name__}, waiting for {self._peer}"

    # ---- the actor

    async def _act(self) -> None:
        try:
            await self._take_all()
        except PeerViolationError as error:
            await self.evidence.keep(
                Evidence(number=self._number(), about=error.peer, kind="violation", words=str(error))
            )
            await self._link.flush()  # so that the peer hears what contradicts it, and ends as well
            raise

    async def _take_all(self) -> None:
        async for item in self._inbox:
            match item:
                case _Met():
                    self._resend()
                case _FromPeer(received=received):
                    await self._take_from_peer(received)
                case _Ours(round_id=round_id, event=event):
                    await self._take_own(round_id, event)
            self._move_on()

    async def _take_from_peer(self, received: Received) -> None:
        match received.message:
            case TossCommitment() | TossReveal() as message:
                self._take_toss(message)
            case Forward() as message:
                self._take_forward(message, received.bulk)
            case message:
                run = self._current
                if isinstance(run, RoundRun) and run.round_id == message.round_id:
                    await run.take_message(message, received.bulk)
                else:
                    self._refuse_unknown(message.round_id)

    async def _take_own(self, round_id: bytes, event: Event) -> None:
        run = self._current
        if not isinstance(run, RoundRun) or run.round_id != round_id:
            return  # the round is over; a timer of its grace period, say, comes too late
        match event:
            case protocol.Submitted(client=client) if not run.admits(client):
                return  # the round closed in the meantime; whoever reported it finds out from the state
            case protocol.CloseRound() if not isinstance(run.state, protocol.Open):
                return
        await run.take(event)
        entries = run.state.entries if isinstance(run.state, protocol.Open) else {}
        if len(entries) >= self.setup.schedule.clients:
            await run.take(protocol.CloseRound())

    def _move_on(self) -> None:
        """When a round is settled, begin the next."""
        run = self._current
        if not isinstance(run, RoundRun) or not run.settled.is_set() or run.round_id in self._over:
            return
        self._over[run.round_id] = run.settle()
        for forgotten in list(self._over)[:-ROUNDS_REMEMBERED]:
            del self._over[forgotten]
        self.model = run.model
        self._take_union(run)
        if self.setup.task.selection == "fixed":
            self.sessions.settle(run.config.epoch, run.counted())
        self._described = describe_model(self.setup.task, self.model)
        settled, self._settled = self._settled, trio.Event()
        settled.set()
        if not self.setup.schedule.rounds or run.config.number < self.setup.schedule.rounds:
            self._begin_toss(run.config.number + 1)

    # ---- tossing

    def _begin_toss(self, number: int) -> None:
        seed, nonce = self.setup.randomness(DIGEST_BYTES), self.setup.randomness(DIGEST_BYTES)
        self._adopt_toss(tossing.begin(self.setup.index, number, self._model_digest(), seed, nonce))

    def _take_toss(self, message: TossCommitment | TossReveal) -> None:
        number = self._number()
        if message.number < number:
            return  # a repeat from before the servers met again
        if message.number > number:
            raise PeerViolationError(
                self._peer, f"tosses for round {message.number} while round {number} is not settled"
            )
        if isinstance(self._current, RoundRun):
            return
        match message:
            case TossCommitment(commitment=commitment, model=model):
                event: Event = tossing.PeerTossCommitment(commitment, model)
            case TossReveal(seed=seed, nonce=nonce):
                event = tossing.PeerTossReveal(seed, nonce)
        try:
            self._adopt_toss(tossing.step(self._current, event, self._peer))
        except UnexpectedEvent as error:
            raise PeerViolationError(self._peer, f"tosses out of turn: {error}") from error

    def _number(self) -> int:
        """The round that is open, or being tossed."""
        return self._current.config.number if isinstance(self._current, RoundRun) else self._current.half.number

    def _adopt_toss(self, state: tossing.Toss) -> None:
        self._current = state
        said, self._toss_words = self._toss_words, tossing.effects(state)
        for message in self._toss_words:
            if message not in said:
                self._post(message)
        if isinstance(state, tossing.Tossed):
            self._open(state)

    def _open(self, tossed: tossing.Tossed) -> None:
        setup = self.setup
        if setup.task.selection != "fixed" or not self._seed[0]:
            self._seed = (tossed.half.number, tossed.hash_seed)
        own, peer = setup.identity.public.keys, setup.peer.keys
        servers: tuple[ServerKeys, ServerKeys] = (own, peer) if setup.index == 0 else (peer, own)
        config = RoundConfig(
            task=setup.task,
            number=tossed.half.number,
            session=self._seed[0],
            hash_seed=self._seed[1],
            toss=tossed.commitments,
            servers=servers,
            model=self._described,
            phase="union" if isinstance(self._alignment, aligning.Seeking) else "main",
            union=self._alignment.union if isinstance(self._alignment, aligning.Aligned) else (),
        )
        run = RoundRun(config, setup.index, tossed.proof_key, Held(self.model, self._union), self._tools)
        self._current = run
        if setup.schedule.seconds != float("inf"):
            self._tools.nursery.start_soon(self._close_later, run)
        opened, self._opened = self._opened, trio.Event()
        opened.set()

    def _take_union(self, run: RoundRun) -> None:
        """After a union round keep what it found."""
        if run.config.phase == "main":
            event: Event = aligning.MainSettled()
        elif run.counted():
            self._union = run.union
            event = aligning.UnionFound(run.found_union(), stays=self.setup.task.selection == "fixed")
        else:
            event = aligning.UnionLost()
        self._alignment = aligning.step(self._alignment, event)

    async def _close_later(self, run: RoundRun) -> None:
        await trio.sleep(self.setup.schedule.seconds)
        await self._report(run.round_id, protocol.CloseRound())

    def _model_digest(self) -> bytes:
        return digest(Domain.MODEL, *(entry.digest for entry in self._described))

    # ---- the peer

    def _take_forward(self, message: Forward, bulk: memoryview) -> None:
        """Take a client's public part that the peer carried."""
        run = self._current
        if not isinstance(run, RoundRun) or run.round_id != message.round_id:
            self._refuse_unknown(message.round_id)
            return  # for a round that has closed; the client hears so from its own connection
        if run.config.carrier(message.client) == self.setup.index:
            raise PeerViolationError(self._peer, f"forwards for {message.client!r}, whose carrier it is not")
        if message.query not in (range(1, RETRIEVALS_PER_ROUND + 1) if message.purpose == "retrieve" else (0,)):
            raise PeerViolationError(self._peer, f"forwards a {message.purpose} numbered {message.query}")
        if message.client not in self.enrolment:
            _log.warning("%s forwards for %r, who is not known here: not counted", self._peer, message.client)
            return  # no violation: a client may be known to one server alone, and must not stop both by it
        sizes = _part_sizes(run.config.shape, message.purpose)
        if len(bulk) not in sizes:
            raise PeerViolationError(
                self._peer, f"forwards a {message.purpose} of {len(bulk)} bytes, the round implies {sorted(sizes)}"
            )
        try:
            run.desk.public(RequestKey(message.client, message.purpose, message.query), bulk)
        except RequestRefusedError as error:
            raise PeerViolationError(self._peer, f"forwards twice for {message.client!r}: {error}") from error

    def _refuse_unknown(self, round_id: bytes) -> None:
        """A round that is not the present one must be a past one: the peer's configurations are ours, byte for byte."""
        if round_id not in self._over:
            raise PeerViolationError(
                self._peer,
                f"speaks of a round {round_id.hex()[:16]} that is unknown here while round {self._number()} is on: "
                "its configuration is not ours; compare both servers' task files and models",
            )

    def _resend(self) -> None:
        for over in list(self._over.values())[-1:]:
            self._post(over.last_words.message, over.last_words.bulk)  # may be what was lost
        for message in self._toss_words:  # the peer may still lack our half of a seed that we know
            self._post(message)
        if isinstance(self._current, RoundRun):
            self._current.resend()

    def _post(self, message: Message, *bulk: Any) -> None:
        self._link.post(message, *bulk)
        self.setup.watch(self._name, self._peer, message, sum(len(part) for part in bulk))

    async def _report(self, round_id: bytes, event: Event) -> None:
        await self._inbox_in.send(_Ours(round_id, event))

    async def _deliver(self, received: Received) -> None:
        await self._inbox_in.send(_FromPeer(received))

    async def _met(self) -> None:
        await self._inbox_in.send(_Met())

    async def _dial_peer(self) -> Channel:
        return await self.setup.transport.dial(
            self.setup.peer_address, self.setup.peer.channel, self.handshake(), self._check_peer
        )

    def _check_peer(self, payload: bytes) -> None:
        if payload != self.setup.task.digest():
            raise MisuseError(self._other_task(payload))

    def _other_task(self, payload: bytes) -> str:
        return (
            f"{self._peer} serves another task: its digest is {payload.hex()[:16]}…, ours is "
            f"{self.setup.task.digest().hex()[:16]}…; give both servers the same task file"
        )

    async def _serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed; the peer's becomes the link between the servers."""
        if channel.peer_key == self.setup.peer.channel:
            await self._link.attach(channel)
            return
        client = self.enrolment.by_channel(channel.peer_key)
        if client is None:
            raise PeerViolationError("client", "is not known any more")
        with self.visit():
            await Conversation(channel, client.name, self._reception, partial(self.setup.watch, self._name)).run()

    async def _admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        if key == self.setup.peer.channel:
            if payload != self.setup.task.digest():
                return Refusal(self._other_task(payload))
            return b"peer"
        return await self.enrolment.admit(key, payload)


def _part_sizes(task: Task, purpose: str) -> set[int]:
    if purpose == "retrieve":
        return {Layout.retrieval(task).size}
    return {Layout.submission(task, trees).size for trees in Trees}


def _longest_peer_message(task: Task) -> int:
    """An upper bound over all rounds: aligned ones are never larger than the task itself."""
    shapes = (task, union_task(task)) if task.alignment == "union" else (task,)
    parts = {size for shape in shapes for purpose in ("retrieve", "submit") for size in _part_sizes(shape, purpose)}
    shares = {share_bytes(shape) for shape in shapes}
    return bulk_overhead() + max(*parts, *shares, ENTRY_BYTES * task.max_clients)
