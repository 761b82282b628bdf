"""One round on one server: the machine of the protocol that it runs, fed, recorded and obeyed.

Rules: an event is recorded before the new state is adopted, and the state is adopted before its effects are performed;
a peer's message that is ahead of us waits its turn; computations and timers run in tasks of the round's nursery and
report events, so only the server's own task changes the state. After a restart the recorded events are taken again, and
the effects of the state they lead to are performed again. What is particular to a protocol is in its driver,
which has the machine's state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import assembly, ssa
from fsl_async.protocols.ending import CloseRound
from fsl_async.protocols.machine import Event, UnexpectedEvent, accepted_later, held_back
from fsl_async.protocols.reconciliation import Round
from fsl_async.task import ProtocolName
from fsl_async.wire.messages import HeldParts, OfRound
from fsl_async.wire.peer_lists import mark_of, packed_marks, read_marks
from parties.events import RoundMoved, Warned
from parties.outcome import RoundReport
from parties.server.replies import RequestRefusedError
from parties.server.round.aggregating import Aggregation
from parties.server.round.assembly import RequestAssembly
from parties.server.round.engine import RoundStart
from parties.server.round.outbox import Outbox
from parties.server.round.places import RoundQuota
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import Asked
from parties.server.round.services import RoundServices
from parties.server.round.serving import Serving
from parties.server.round.waiting import Stopwatch, Timers, waiting_for
from parties.server.store_layout import KnownPart
from parties.status import PastRound, RoundStatus, fingerprint
from parties.storage.store import Record, decode_stored, replaying

ProtocolDriver: TypeAlias = Aggregation | Serving

DRIVERS: dict[ProtocolName, type[ProtocolDriver]] = {"ssa": Aggregation, "psu": Aggregation, "psr": Serving}
"""By what a round runs, what the server computes and answers for it, and the machine that this drives."""

PARTS_APART = "several parts are stored for one request"
"""How the operator is told, at a start, of parts that nobody has noted."""


class RoundRun:
    """A round from open to settled.

    Args:
        start: what it begins with.
        records: what it keeps in the store.
        services: what it has of its server.

    Attributes:
        config: the round.
        round_id: its name in every message.
        server: 0 or 1.
        peer: the other server's name.
        requests: the clients' requests, of which halves may be missing.
        quota: how many requests each client has made.
        outbox: what goes to the other server.
        settled: set when the round is done or aborted.
        driver: what the round does by its protocol.
    """

    def __init__(self, start: RoundStart, records: RoundRecords, services: RoundServices) -> None:
        self.config = config = start.config
        self.round_id = config.round_id()
        self.server = start.server
        self.peer = f"S{1 - start.server}"
        self.records = records
        self.requests = RequestAssembly(
            self.peer, config.task.max_clients, lambda client: config.carrier(client) != start.server
        )
        self.quota = RoundQuota(config.task.retrievals)
        self.settled = records.over
        self.outbox = Outbox(config, services.link, records, self.settled)
        self.driver: ProtocolDriver = DRIVERS[config.protocol](start, records, services, self.outbox)
        self.start = start
        self._services = services
        self._early: list[Event] = []
        self._met = False
        self._timers = Timers(start, records, services, lambda: self.state)
        self._journal = f"{records.prefix}/events"
        self._stopwatch = Stopwatch(start.opened_at, f"{records.prefix}/times", lambda: services.standstill.seconds)

    # ---- how it stands

    @property
    def state(self) -> Round:
        """The machine's state."""
        return self.driver.state

    @property
    def is_open(self) -> bool:
        """Whether the round is as it began: any client may enter it."""
        return type(self.state) in self.driver.machine.initial

    @property
    def aggregation(self) -> Aggregation:
        """The round's driver, where it takes submissions.

        Raises:
            RequestRefusedError: it takes none.
        """
        if isinstance(self.driver, Aggregation):
            return self.driver
        raise RequestRefusedError.because("malformed", "this task only retrieves: its rounds take no submissions")

    def accepts(self, event: type[Event]) -> bool:
        """Whether the state accepts events of that kind."""
        return event in self.driver.machine.accepts[type(self.state)]

    def status(self) -> RoundStatus:
        """How the round stands, for people."""
        return RoundStatus(
            number=self.config.number,
            round_id=self.round_id.hex(),
            fingerprint=fingerprint(self.round_id),
            protocol=self.config.protocol,
            state=type(self.state).__name__,
            opened_at=self.start.opened_at,
            activity=self.state.activity or "waiting",
            since=self._stopwatch.since(self.state),
            times=self._stopwatch.times(self.state, self._services.clock()),
            evaluating=self.driver.seconds,
            closes_at=self.start.closes_at if math.isfinite(self.start.closes_at) else None,
            submissions=self.driver.submissions,
            evaluated=self.driver.evaluated,
            retrievals=self.driver.retrievals.answered,
            minimum=self.config.task.quorum,
            maximum=self.start.enough,
            waiting_for=self._waiting_for(),
        )

    def _waiting_for(self) -> str:
        """Whom or what it waits for, for people: while the server itself is held up, for nobody else."""
        if self._services.standstill.what:
            return self._services.standstill.what
        drawn = self.start.drawn
        if drawn is not None and self.is_open:
            return f"{len(drawn) - self.driver.submissions} of the {len(drawn)} clients that were drawn"
        return waiting_for(self.state, self.records.awaits_any, self.peer)

    # ---- how it ended

    def report(self) -> RoundReport:
        """The public account of a settled round.

        Raises:
            UnexpectedEvent: it is not settled.
        """
        return self.driver.report()

    def past(self) -> PastRound:
        """A settled round, as it is remembered."""
        now = self._services.clock()
        return PastRound(
            report=self.report(),
            protocol=self.config.protocol,
            opened_at=self.start.opened_at,
            settled_at=now,
            times=self._stopwatch.times(self.state, now),
            evaluating=self.driver.seconds,
            concluded=self.driver.concluded,
        )

    def release(self) -> None:
        """Free all that it holds in memory: it is settled, and none of its tasks runs any more."""
        self.records.release()
        self.driver.release()

    # ---- what clients need of it

    async def answer(self, asked: Asked) -> memoryview:
        """The answer to a retrieval.

        Raises:
            RequestRefusedError: the round is over by now, and its records are gone.
            StorageError: the retrieval's trees are not stored.
        """
        try:
            return await self.driver.retrievals.answer(asked)
        except StorageError:
            if not self.settled.is_set():
                raise
            raise RequestRefusedError.because("round-closed", f"round {self.config.number} is over") from None

    # ---- what the server's own task does

    async def begin(self) -> None:
        """Take up what is recorded, and set to work; nothing is recorded of a round that has just opened."""
        await self.replay()
        await self._stopwatch.resume(self.records.store, self.state, self._services.clock())
        await self._restore_requests()
        self._services.nursery.start_soon(self.outbox.forward_repaired)
        self.driver.begin()
        for effect in self.driver.effects():
            self._perform(effect)
        if self.is_open:
            self._timers.start_deadline()
        self._timers.watch_peer()

    async def replay(self) -> None:
        """Take the recorded events again.

        Raises:
            StorageError: the records cannot be read, or do not lead from one state to the next.
        """
        for entry in await self.records.store.entries(self._journal):
            event = decode_stored(entry, self.driver.events, self._journal)
            with replaying(self._journal):
                await self.driver.replay(event)
            self._end_waiting()

    async def enter(self, submitted: Sequence[ssa.Submitted]) -> None:
        """Take submissions that wait together, unless they come too late; with as few commits as can be.

        The task that reported one that comes too late finds out from the state.
        """
        waiting = submitted
        while together := self.aggregation.together(waiting):
            waiting = waiting[waiting.index(together[-1]) + 1 :]
            await self.take(*together)
            self.aggregation.tell_held()
            if self.driver.is_full:
                await self.take(CloseRound())

    async def take(self, event: Event, *more: Event) -> None:
        """Record an event, adopt the new state, perform what is new in its effects; then whatever had come early.

        Several events are recorded in one commit; only `enter` knows which can be. Evidence that they bring is stored
        before they are, because a replay does not look for evidence again.

        Raises:
            PeerViolationError: the peer broke the protocol.
            StorageError: the event could not be recorded; the state is as before.
        """
        driver, before = self.driver, self.state
        if not self.accepts(type(event)) and accepted_later(driver.machine.accepts, before, event):
            self._early = held_back(self._early, event, self.peer)
            return
        await driver.foresee(event)
        after, events = driver.after(event, *more), (event, *more)
        if after == before:
            return
        warnings: list[Warned] = []
        for seen in chain.from_iterable(driver.seen(each) for each in events):
            if isinstance(seen, Warned):
                warnings.append(seen)
            else:
                await self._services.evidence.keep(seen)
        measured = self._stopwatch.moved(before, after, self._services.clock())
        changes = [*driver.changes(event), *self._stopwatch.changes(measured)]
        records = [Record(self._journal, msgspec.msgpack.encode(each)) for each in events]
        await self.records.own.commit(*changes, *records)
        self._stopwatch.adopt(measured)
        for warned in warnings:
            self._services.observe(warned)
        done = driver.effects()
        for each in events:
            driver.adopt(each)
        self._end_waiting()
        self._begin_effects(before, events, done)
        early, self._early = self._early, []
        for waiting in early:
            await self.take(waiting)

    async def take_message(self, message: HeldParts | OfRound, bulk: memoryview) -> None:
        """Take a message of the peer's that belongs to this round.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes where no honest server sends it.
        """
        if isinstance(message, HeldParts):
            await self._resend(read_marks(bulk, self.config.task.max_clients, self.peer))
            return
        try:
            event = await self.driver.read(message, bulk)
            if event is not None:
                await self.take(event)
            elif self.driver.is_full:  # by what the peer has just said to hold
                await self.take(CloseRound())
        except UnexpectedEvent as error:
            raise PeerViolationError(self.peer, f"speaks out of turn: {error}") from error

    def meet(self) -> None:
        """Say which parts are here, because the servers have met; what the peer lacks follows once it has said so."""
        self._met = True
        self.outbox.say_held_parts(self._held)

    async def _held(self) -> bytes:
        here = [known for known in self.requests.forwarded() if not self.records.awaits(*known)]
        most = self.config.task.max_clients
        return await self._services.lane.run(lambda: packed_marks((mark_of(*key, part) for key, part in here), most))

    async def peer_is_at(self, present: bytes) -> None:
        """Send again all that the peer may lack, where the round that it says is on there is not this one."""
        if present != self.round_id:
            await self._resend(frozenset())

    async def _resend(self, held: frozenset[bytes]) -> None:
        """Send again what the state says the peer may lack: once for each time that the servers meet."""
        if self._met:
            self._met = False
            await self.outbox.resend_forwards(held, self._services.lane)
            self.driver.resend()

    def _end_waiting(self) -> None:
        if not self.driver.takes_requests:
            self.requests.close(f"round {self.config.number} has closed")
        if type(self.state) in self.driver.machine.final:
            self.settled.set()

    def _begin_effects(self, before: Round, events: Iterable[Event], done: tuple[Any, ...]) -> None:
        for event in events:
            self.driver.taken(event)
        for effect in self.driver.effects():
            if effect not in done:
                self._perform(effect)
        if type(before) is not type(self.state):
            self._services.observe(RoundMoved(number=self.config.number, state=type(self.state).__name__))
            self._timers.watch_peer()

    def _perform(self, effect: Any) -> None:
        self.driver.perform(effect, self._timers)

    async def _restore_requests(self) -> None:
        """Take up the requests of before a restart; the carrier forwards their parts once more.

        On the carrier a part whose request is not noted counts for nothing: its client repeats the request. On the
        other server, the part of a request that is noted was on loan, if it is not there; and one that is not noted
        counts if it is the only one of its request, because a crash may leave one behind that nobody has noted, and
        blobs are not only this process's. That the carrier's own part is missing shows when it is read.
        """
        noted, place = await self.records.requests(), f"{self.records.prefix}/requests"
        counting, there = set(noted), await self.records.parts()
        parts_of = Counter(key for key, _ in {*noted, *there})
        for key, part in there:
            carries = self.config.carrier(key.client) == self.server
            is_noted = KnownPart(key, part) in counting
            if is_noted or (not carries and parts_of[key] == 1):
                self.requests.restore(key, assembly.Public(part), f"{self.records.prefix}/parts")
            elif not carries:
                explanation = f"{PARTS_APART} of {key.client!r}: {part.hex()[:16]}… is not noted, and does not count"
                self._services.observe(Warned(about="blobs", explanation=explanation))
            if carries and is_noted:
                self.outbox.note_forward(key, part)
        for key, part in noted:
            self.requests.restore(key, assembly.Direct(part), place)
            if self.requests.has_public(key, part):
                continue
            self.requests.restore(key, assembly.Public(part), place)
            if self.config.carrier(key.client) == self.server:
                self.outbox.note_forward(key, part)
            else:
                self.records.await_part(key, part)
