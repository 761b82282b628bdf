"""One door's connection to the core: many calls at a time, each answered once; what a door's end takes with it.

Rules:

- A door is this server's own process, and may be broken all the same: it has a limited number of visits, each with one
  call at a time, and what no door says ends its connection. It cannot speak for a client that it has not brought in,
  nor for another door's.
- Nothing is held for a client that waits but its visit: no task, and no bulk.
- When a door ends, its visits end, their places are free, and its calls are forgotten; nothing of that counts against
  clients. What was acknowledged is in the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal, assert_never

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.foreign_text import printable
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_bundles import LONGEST_OF_A_DOOR, Outgoing, unbundled
from fsl_async.wire.door_messages import (
    Abused,
    AdmitKey,
    Admitted,
    Answered,
    Ask,
    Begin,
    CoreToDoor,
    Deposited,
    Dismissed,
    DoorHello,
    DoorToCore,
    Forwarded,
    ForwardOrder,
    Granted,
    Kept,
    Leave,
    NotForwarded,
    NotYet,
    Offer,
    RoundOpened,
    RoundSettled,
    TurnedAway,
    Withdraw,
)
from fsl_async.wire.messages import AskOutcome, AskTask, Enter, FromClient, Hint, Refused, Submit
from parties.concurrency import RecurringEvent
from parties.server.clients.answerer import BulkRequest, Reply, Room, bringing_bulk, no_room
from parties.server.clients.depositing import told_of_no_room
from parties.server.clients.deposits import Deposit
from parties.server.clients.requests import GrantedHere, LongRequest, Waiting
from parties.server.doors.desk import CoreDesk, DoorViolationError
from parties.server.doors.offered_parts import OfferedParts
from parties.server.doors.visits import Call, Visit
from parties.server.peer.link import PACE
from parties.server.refusals import AbuseError, RequestRefusedError
from parties.status import DoorStatus
from parties.storage.store import StoreLostError
from transport import Channel, NoPlace, Refusal

__all__ = ["DoorSession"]

MOST_VISITS = 20_000
"""Connections that one door may have at a time."""

MOST_UNREAD = 100_000
"""Messages that may wait for a door to take them."""


class _BrokenOffError(Exception):
    """The bulk of a request has broken off."""


class DoorSession:
    """One door, while it is connected.

    Args:
        desk: decides.
        channel: to the door.
        hello: what the door has said of itself.

    Attributes:
        hello: as given.
        had: how many connections of clients ended with it.
    """

    def __init__(self, desk: CoreDesk, channel: Channel, hello: DoorHello) -> None:
        self.hello = hello
        self.had = 0
        self._desk = desk
        self._channel = channel
        self._name = f"{desk.server.setup.name}'s {hello.door}"
        self._visits: dict[int, Visit] = {}
        self._calls: dict[int, Call] = {}
        self._offered = OfferedParts(desk, self._name, self.post)
        self._outgoing = Outgoing()
        self._posted = RecurringEvent()
        self._sent = 0
        self._left = RecurringEvent()
        self._since = desk.server.setup.clock()
        self._requests = 0
        self._stored = 0

    @property
    def clients(self) -> int:
        """How many connections of clients it has."""
        return sum(visit.client is not None for visit in self._visits.values())

    def status(self) -> DoorStatus:
        """How it stands, for people."""
        return DoorStatus(
            name=printable(self.hello.door),
            host=printable(self.hello.host),
            process=self.hello.process,
            connected=True,
            since=self._since,
            clients=self.clients,
            requests=self._requests,
            stored_bytes=self._stored + self._offered.stored_bytes,
            forwards_waiting=self._desk.orders.of_door(self.hello.door),
        )

    async def run(self) -> None:
        """Answer the door until it ends.

        Raises:
            PeerViolationError: it says what no door says.
            ChannelError: the connection is lost.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._send_all)
                self._nursery.start_soon(self._tell_opened)
                self._nursery.start_soon(self._tell_settled)
                self._desk.orders.add(self.hello.door, self._order)
                await self._receive_all()
        finally:
            self._desk.orders.remove(self.hello.door)
            self.had = len(self._visits)
            for number in list(self._visits):
                self._leave(number)

    async def _receive_all(self) -> None:
        while True:
            await self._channel.awaited()
            bundle = unbundled(await self._channel.receive(LONGEST_OF_A_DOOR, pace=PACE), DoorToCore, self._name)
            if any(bulk for _, bulk in bundle):
                raise DoorViolationError(self._name, "sends bulk, which the core never takes")
            if len(self._outgoing) > MOST_UNREAD:
                raise DoorViolationError(self._name, "asks more and more, and takes no answers")
            for message, _ in bundle:
                self._take(message)

    def _take(self, message: DoorToCore) -> None:
        match message:
            case AdmitKey():
                self._begin_visit(message)
            case Leave(visit=number):
                self._leave(number)
            case Ask():
                self._take_question(message)
            case Begin(call=call, visit=visit):
                self._requests += 1
                self._start(self._at_leisure(call, visit), call, partial(self._begin, message))
            case Deposited(call=call) | Withdraw(call=call):
                self._take_bulk(call, message)
            case Offer(visit=visit):
                self._offered.offer(self._visits.get(visit), message, self._nursery)
            case Kept():
                self._offered.keep(message, self._nursery)
            case Forwarded(order=order):
                self._desk.orders.forwarded(self.hello.door, order)
            case NotForwarded(order=order):
                self._desk.orders.not_forwarded(self.hello.door, order)
            case _:
                assert_never(message)

    # ---- what is said to it

    def post(self, message: CoreToDoor, *bulk: Buffer) -> int:
        """Say something, in order; returns its number, for `sent`."""
        number = self._outgoing.add(message, *bulk)
        self._posted.set()
        return number

    async def sent(self, number: int) -> None:
        """Wait until what was posted under this number has left."""
        while self._sent < number:
            await self._left.wait()

    def _order(self, order: ForwardOrder) -> None:
        self.post(order)

    def dismiss(self) -> None:
        """End the visits of clients that are not known any more."""
        enrolment = self._desk.server.enrolment
        for visit in self._visits.values():
            refusal = None if visit.client is None else enrolment.dismissal(visit.client)
            if refusal is not None:
                self.post(Dismissed(visit=visit.number, reason=refusal.reason[:256]))

    async def _send_all(self) -> None:
        while True:
            while self._outgoing:
                await self._channel.send(*self._outgoing.take(), pace=PACE)
                self._sent = self._outgoing.taken
                self._left.set()
            await self._posted.wait()

    async def _tell_opened(self) -> None:
        """Say which round is on, and which opens later."""
        rounds, told = self._desk.server.actor.rounds, b""
        while True:
            run = rounds.running
            if run is not None and run.round_id != told and not run.settled.is_set():
                told = run.round_id
                self.post(RoundOpened(number=run.config.number, round_id=told), run.config.canonical())
            await rounds.opened.wait()

    async def _tell_settled(self) -> None:
        rounds = self._desk.server.actor.rounds
        while True:
            await rounds.settled.wait()
            for past in rounds.past[-1:]:
                self.post(RoundSettled(past.report.round_id))

    # ---- visits

    def _begin_visit(self, asked: AdmitKey) -> None:
        if asked.call in self._visits:
            raise DoorViolationError(self._name, f"begins visit {asked.call} twice")
        if len(self._visits) >= MOST_VISITS:
            self.post(TurnedAway(call=asked.call, kind="no-place", reason="this door has no place; come again"))
            return
        visit = self._visits[asked.call] = Visit(asked.call, asked.key)
        answer = self._desk.admit_offhand(visit, asked.payload)
        if answer is None:
            self._nursery.start_soon(self._admit, visit, asked.payload)
        else:
            self._say_admitted(visit, answer)

    async def _admit(self, visit: Visit, payload: bytes) -> None:
        try:
            answer = await self._desk.admit(visit, payload)
        except StoreLostError:
            raise  # the server ends
        except StorageError as error:
            answer = NoPlace(self._no_room(error).message.explanation)
        self._say_admitted(visit, answer)

    def _say_admitted(self, visit: Visit, answer: bytes | Refusal) -> None:
        if isinstance(answer, Refusal):
            if self._visits.get(visit.number) is visit:
                del self._visits[visit.number]
            kind: Literal["refused", "no-place"] = "no-place" if isinstance(answer, NoPlace) else "refused"
            self.post(TurnedAway(call=visit.number, kind=kind, reason=answer.reason[:256]))
        elif self._visits.get(visit.number) is not visit:  # it has left meanwhile
            self._desk.end(visit)
        else:
            self.post(Admitted(call=visit.number, name=visit.name, welcome=answer, peer=visit.client is None))

    def _leave(self, number: int) -> None:
        visit = self._visits.pop(number, None)
        if visit is None:
            return
        if visit.client is None:
            self._offered.forget(visit)
        if visit.call is not None:
            visit.call.scope.cancel()
        if visit.name:
            self._desk.end(visit)

    def _of_client(self, number: int) -> Visit:
        visit = self._visits.get(number)
        if visit is None or visit.client is None:
            raise DoorViolationError(self._name, f"asks for visit {number}, of which no client is there")
        return visit

    # ---- clients' requests

    def _start(self, visit: Visit, number: int, carry_out: Callable[[Call], Awaitable[None]]) -> None:
        call = visit.call = self._calls[number] = Call(number, visit, trio.CancelScope())
        self._nursery.start_soon(self._run, call, carry_out)

    def _at_leisure(self, number: int, visitor: int) -> Visit:
        """The visit for which a new call is made."""
        visit = self._of_client(visitor)
        if visit.call is not None or number in self._calls:
            raise DoorViolationError(self._name, f"asks twice at a time for visit {visitor}")
        return visit

    def _take_question(self, asked: Ask) -> None:
        """Answer a question, without a task of its own where nothing has to be waited for."""
        visit = self._at_leisure(asked.call, asked.visit)
        question = self._question(visit, asked)
        answer = None if isinstance(question, PeerViolationError) else self._desk.requests.offhand(visit.name, question)
        if answer is None or not self._desk.is_leisurely(visit.name):
            self._start(visit, asked.call, partial(self._ask, question))
        elif isinstance(answer, Waiting):
            self._desk.wait_for_round(visit, answer.after)
            self.post(NotYet(asked.call))
        else:
            self._desk.wait_for_round(visit, None)
            self.post(Answered(asked.call), *encode(*answer))

    def _question(self, visit: Visit, asked: Ask) -> LongRequest | PeerViolationError:
        """What a client asks; or what is wrong with that, which it is told when its turn comes."""
        try:
            message = decode(asked.request, FromClient, visit.name).message
        except PeerViolationError as error:
            return error
        if isinstance(message, AskTask | Enter | AskOutcome):
            return message
        return PeerViolationError(visit.name, f"does not wait for the answer to {type(message).__name__}")

    async def _run(self, call: Call, carry_out: Callable[[Call], Awaitable[None]]) -> None:
        """Carry a call out, and say to the client why not where it is refused."""
        client = call.visit.name
        try:
            with call.scope:
                try:
                    await self._desk.pace(client)
                    await carry_out(call)
                except RequestRefusedError as refusal:
                    self._say(call, Answered(call.number), *encode(refusal.message))
                except StoreLostError:
                    raise  # a server that cannot store what it acknowledges must end
                except StorageError as error:
                    self._say(call, Answered(call.number), *encode(self._no_room(error).message))
                except _BrokenOffError:
                    pass  # it counts as that
                except AbuseError as abuse:
                    self._say(call, Abused(call.number), *encode(abuse.message))
                except PeerViolationError as error:
                    last = Refused(reason="malformed", explanation=str(error)[:240])
                    self._say(call, Abused(call.number), *encode(last))
        finally:
            self._forget(call)

    def _no_room(self, error: StorageError) -> RequestRefusedError:
        return told_of_no_room(error, self._desk.server.setup.observe)

    def _forget(self, call: Call) -> None:
        if self._calls.get(call.number) is call:
            del self._calls[call.number]
            call.visit.call = None

    def _say(self, call: Call, message: CoreToDoor, *bulk: Buffer) -> int:
        """Answer a call, which is over: the door may ask for something else at once."""
        self._forget(call)
        return self.post(message, *bulk)

    async def _answer(self, call: Call, reply: Reply) -> None:
        message, content = reply
        number = self._say(call, Answered(call.number), *encode(message, content))
        if len(content):
            await self.sent(number)  # its room is lent until then

    async def _ask(self, question: LongRequest | PeerViolationError, call: Call) -> None:
        visit = call.visit
        if isinstance(question, PeerViolationError):
            raise question
        answer = await self._desk.requests.at_once(visit.name, question)
        if isinstance(answer, Waiting):
            self._desk.wait_for_round(visit, answer.after)
            self._say(call, NotYet(call.number))
            return
        self._desk.wait_for_round(visit, None)
        await self._answer(call, answer)

    async def _begin(self, asked: Begin, call: Call) -> None:
        visit, requests = call.visit, self._desk.requests
        self._desk.wait_for_round(visit, None)
        message = decode(asked.request, FromClient, visit.name).message
        if isinstance(message, AskTask | Enter | AskOutcome):
            raise PeerViolationError(visit.name, f"is not counted for {type(message).__name__}")
        if asked.size:
            await self._take_in(asked, call, bringing_bulk(message))
            return
        try:
            await self._reply(call, message, partial(requests.ask, visit.name, message))
        except trio.Cancelled:
            if _is_lost_with_its_door(call):
                requests.forget(visit.name, message)
            raise

    async def _reply(self, call: Call, message: FromClient, carry_out: Callable[[Room], Awaitable[Reply]]) -> None:
        """Carry a request out and answer it; what room its answer takes is lent until it has left."""
        if isinstance(message, Submit | Hint):
            await self._answer(call, await carry_out(no_room))
            return
        async with AsyncExitStack() as lent:
            await self._answer(call, await carry_out(self._desk.room(call.visit.name, lent)))

    async def _take_in(self, asked: Begin, call: Call, message: BulkRequest) -> None:
        """Take a request with bulk, one of each client at a time."""
        client = call.visit.name
        await self._desk.take_turn(client)
        try:
            granted = await self._desk.requests.grant(client, message, asked.size)
            try:
                call.is_granted = True
                seed = granted.wanted.needed_seed if isinstance(message, Hint) else b""
                self.post(Granted(call=call.number, seed=seed))
                await self._complete(call, granted)
            except BaseException as error:
                if isinstance(error, trio.Cancelled) and _is_lost_with_its_door(call):
                    granted.forget()
                granted.break_off()
                raise
        finally:
            self._desk.end_turn(client)

    async def _complete(self, call: Call, granted: GrantedHere) -> None:
        """Wait for what becomes of a granted request's bulk, and carry the request out."""
        with trio.move_on_after(self._desk.patience):
            await call.has_said.wait()
        match call.said:
            case Deposited(part=part, tree=tree, size=size):
                self._stored += granted.wanted.size
                self._desk.orders.note(self.hello.door, part)
                await self._reply(call, granted.message, partial(granted.complete, Deposit(part, tree, size)))
            case Withdraw(why="refused"):
                await granted.refuse(RequestRefusedError.because("malformed", "its bulk is not what it must be"))
            case Withdraw(why="no-room"):
                await granted.refuse(RequestRefusedError.because("busy", "there was no room for its bulk"))
            case Withdraw():
                raise _BrokenOffError
            case None:  # its disk hangs, say: the client may go to another door
                self._forget(call)
                granted.forget()

    def _take_bulk(self, number: int, said: Deposited | Withdraw) -> None:
        call = self._calls.get(number)
        if call is None:  # it was given up, before the door knew
            if isinstance(said, Deposited):
                busy = RequestRefusedError.because("busy", "its bulk was put too late", 1)
                self.post(Answered(number), *encode(busy.message))
            return
        if isinstance(said, Deposited) and (call.has_said.is_set() or not call.is_granted):
            raise DoorViolationError(
                self._name, f"puts bulk under call {number} that it was not granted, or puts it twice"
            )
        call.said = said
        call.has_said.set()
        if isinstance(said, Withdraw):
            self._forget(call)  # the door may ask for something else at once
            if not call.is_granted:
                call.scope.cancel()


def _is_lost_with_its_door(call: Call) -> bool:
    """Whether a call is cancelled because its door has ended: it was not its client, for whom it does not count."""
    return not call.scope.cancel_called
