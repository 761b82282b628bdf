"""Drawing who takes part in a round, on one server: the machine of `fsl_async.protocols.sampling`, recorded, obeyed.

Rules: our list is in the store before the peer hears of it, and the peer's before we act on it; so a server that
restarts sends the same list again, and draws the same clients. Who asks is not recorded before the list is frozen: a
client whose server was started again asks it once more. Whoever waits for a
round asks to take part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import msgspec
import trio

from fsl_async.config import Draw
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.options.taking_part import sample_digest, secret_of
from fsl_async.protocols import sampling as protocol
from fsl_async.protocols.machine import UnexpectedEvent
from fsl_async.protocols.toss import Tossed
from fsl_async.secrecy import Discreet
from fsl_async.task import LARGEST_CLIENTS, Task
from fsl_async.wire.messages import AskedList
from fsl_async.wire.peer_lists import unpack_names
from parties.concurrency import RecurringEvent
from parties.schedule import Schedule
from parties.server.peer.link import PeerLink
from parties.server.store_layout import round_prefix
from parties.storage.store import DAMAGED, Put, Record, Store, decode_stored, replaying

LAST = "last-sample"

PAUSE = 0.02
"""Seconds after which those who have asked are counted again."""

PAUSE_PER_CLIENT = 2e-6
"""Seconds more for each of them: counting 100,000 takes 0.02 s, in which the server does nothing else."""


class _Remembered(Discreet, frozen=True, forbid_unknown_fields=True):
    """The draw of the last settled round."""

    hidden: ClassVar[frozenset[str]] = frozenset({"secret"})
    number: int
    secret: bytes
    events: list[bytes]


class SampleRun:
    """The draw of one round.

    Args:
        terms: what is fixed for it.
        store: where it is recorded.
        link: to the peer.

    Attributes:
        number: the round's.
        state: the machine's.
    """

    def __init__(self, terms: protocol.DrawTerms, store: Store, link: PeerLink) -> None:
        self.terms = terms
        self.number = terms.number
        self.state: protocol.Sampling = protocol.Gathering()
        self._store = store
        self._link = link
        self._hurried = False
        self._moved = RecurringEvent()
        self._sent: tuple[protocol.Send, ...] = ()

    @staticmethod
    async def begin(task: Task, tossed: Tossed, store: Store, link: PeerLink) -> SampleRun:
        """Resume the draw for a round from the store, or begin it.

        Raises:
            StorageError: what is recorded cannot be read.
        """
        number = tossed.half.number
        run = SampleRun(_terms(task, tossed.half.server, number, secret_of(tossed.proof_key)), store, link)
        run._replay(await store.entries(_journal(number)), _journal(number))
        run._send()
        return run

    @staticmethod
    async def last(task: Task, server: int, store: Store, link: PeerLink) -> SampleRun | None:
        """The draw of the last settled round, as `remembered` stored it; None where there was none."""
        if not await store.keys(LAST):
            return None
        plain = decode_stored(await store.blob(LAST), _Remembered, LAST)
        run = SampleRun(_terms(task, server, plain.number, plain.secret), store, link)
        run._replay(plain.events, LAST)
        return run

    async def remembered(self) -> Put:
        """The change that stores this draw beyond its round, because the peer may still lack our list."""
        events = list(await self._store.entries(_journal(self.number)))
        return Put(LAST, msgspec.msgpack.encode(_Remembered(self.number, self.terms.secret, events)))

    # ---- how it stands

    def draw(self) -> Draw | None:
        """What the round's configuration says of it; None before the end."""
        match self.state:
            case protocol.Drawn(asked=asked, drawn=drawn):
                return Draw(asked, len(drawn), sample_digest(drawn, self.terms.secret))
            case protocol.TooFew(asked=asked):
                return Draw(asked, 0, sample_digest((), self.terms.secret))
            case _:
                return None

    def drawn(self) -> frozenset[str]:
        """Who takes part; nobody where too few have asked."""
        return frozenset(self.state.drawn if isinstance(self.state, protocol.Drawn) else ())

    def explanation(self) -> str:
        """Why the round is aborted at once; empty where it is not."""
        if not isinstance(self.state, protocol.TooFew):
            return ""
        return (
            f"{self.state.asked} clients asked both servers to take part, which is too few: a sample of them would "
            f"have fewer than the {self.terms.minimum} that are needed"
        )

    def waiting_for(self, asked: int) -> str:
        """Whom or what it waits for, for people."""
        match self.state:
            case protocol.Gathering():
                few = "" if self.terms.are_enough(asked) else ", which is too few"
                return f"clients to ask; {asked} have{few}"
            case protocol.Answering():
                return f"clients that have asked {self.terms.peer}"
            case protocol.Listed():
                return f"{self.terms.peer}'s list of who asked"
            case _:
                return ""

    # ---- when to freeze the list

    async def wait_ready(
        self, waiting: WaitingClients, everybody: Callable[[], int | None], schedule: Schedule
    ) -> bool:
        """Wait until our list is to be frozen; False if it is.

        Args:
            waiting: who asks.
            everybody: tells how many clients there are; None where more may come.
            schedule: how long to gather; infinity until `hurry`.
        """
        began, answering = trio.current_time(), float("inf")
        while True:
            asked, due = waiting.of(self.number), float("inf")
            match self.state:
                case protocol.Gathering() if self.terms.are_enough(len(asked)):
                    all_are_here = schedule.gather < float("inf") and len(asked) >= (everybody() or float("inf"))
                    if self._hurried or all_are_here:
                        return True
                    due = began + schedule.gather
                case protocol.Gathering():
                    due = began + schedule.gather + schedule.patience
                case protocol.Answering(theirs=theirs):
                    if asked.issuperset(theirs):
                        return True
                    answering = min(answering, trio.current_time())
                    due = answering + schedule.grace
                case protocol.Listed() | protocol.Drawn() | protocol.TooFew():
                    return False
            if due <= trio.current_time():
                return True
            with trio.move_on_at(due):
                await self._changed(waiting, PAUSE + len(asked) * PAUSE_PER_CLIENT)

    def hurry(self) -> None:
        """Gather no longer than until enough have asked."""
        self._hurried = True
        self._moved.set()

    async def _changed(self, waiting: WaitingClients, merged: float) -> None:
        """Wait until the state is another, or a while after somebody else has asked: many ask at once."""
        asked, moved = waiting.changed.next, self._moved.next

        async def end_after(event: trio.Event, pause: float) -> None:
            await event.wait()
            await trio.sleep(pause)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_after, asked, merged)
            nursery.start_soon(end_after, moved, 0.0)

    # ---- what the server's own task does

    async def freeze(self, asked: frozenset[str]) -> None:
        """Fix our list.

        Raises:
            StorageError: it could not be recorded; the state is as before.
        """
        if isinstance(self.state, protocol.Gathering | protocol.Answering):
            await self._adopt(protocol.Frozen(tuple(sorted(asked)[:LARGEST_CLIENTS])))

    async def take(self, message: AskedList, bulk: memoryview) -> None:
        """Take the peer's list.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or is no list.
            StorageError: it could not be recorded; the state is as before.
        """
        await self._adopt(protocol.PeerAsked(unpack_names(bulk, LARGEST_CLIENTS, self._link.peer)))

    def resend(self) -> None:
        """Send our list again, also when the round is open, because the peer may still lack it."""
        for sent in protocol.effects(self.state, self.terms):
            self._link.post(sent.message, sent.bulk)

    def resend_past(self) -> None:
        """Send our list again when the round is over here, because the peer may not know yet that it began."""
        for sent in protocol.effects(self.state, self.terms):
            self._link.post(msgspec.structs.replace(sent.message, past=True), sent.bulk)

    async def _adopt(self, event: protocol.SamplingEvent) -> None:
        try:
            after = protocol.step(self.state, event, self.terms)
        except UnexpectedEvent as error:
            raise PeerViolationError(self._link.peer, f"says who asked out of turn: {error}") from error
        if after != self.state:
            await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))
            self.state = after
            self._moved.set()
            self._send()

    def _replay(self, recorded: Sequence[bytes], journal: str) -> None:
        for entry in recorded:
            event = decode_stored(entry, protocol.SamplingEvent, journal)
            with replaying(journal):
                self.state = protocol.step(self.state, event, self.terms)

    def _send(self) -> None:
        before, self._sent = self._sent, protocol.effects(self.state, self.terms)
        for sent in self._sent:
            if sent not in before:
                self._link.post(sent.message, sent.bulk)


def _terms(task: Task, server: int, number: int, secret: bytes) -> protocol.DrawTerms:
    if task.sample is None:
        raise StorageError(f"a draw is recorded for round {number}, and the task draws nobody; {DAMAGED}")
    return protocol.DrawTerms(number, server, task.sample, task.quorum, task.max_clients, secret)


def _journal(number: int) -> str:
    return f"{round_prefix(number)}/sample"


class WaitingClients:
    """Who waits at one server.

    A client counts as long as it waits: one that has left would be drawn in vain.

    Attributes:
        changed: occurs whenever one more waits, or one has left.
    """

    def __init__(self) -> None:
        self.changed = RecurringEvent()
        self._waiting: Counter[tuple[str, int]] = Counter()

    @contextmanager
    def asking(self, client: str, after: int) -> Iterator[None]:
        """Let a client wait for a round with a number above `after`, for as long as the context lasts."""
        self._waiting[client, after] += 1
        self.changed.set()
        try:
            yield
        finally:
            self._waiting[client, after] -= 1
            if not self._waiting[client, after]:
                del self._waiting[client, after]
            self.changed.set()

    def of(self, number: int) -> frozenset[str]:
        """Who waits for the round of that number."""
        return frozenset(client for client, after in self._waiting if after < number)
