"""What one visitor of a door asks for, put to the core: see `CoreCalls`.

A question that the core cannot answer yet is held here, and put again when a round opens or is over; so an idle client
costs the core nothing. Room for an answer of the client's own is taken before the core is asked to make it, because
what it makes is in this door's memory once it has come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

import trio

from fsl_async.errors import ChannelError
from fsl_async.task import Task
from fsl_async.wire.codec import Received, decode, encode
from fsl_async.wire.door_messages import Abused, Answered, Ask, Begin, Deposited, Granted, NotYet, Withdraw
from fsl_async.wire.messages import (
    AskOutcome,
    AskTask,
    Download,
    Enter,
    FromClient,
    FromServer,
    Hint,
    Message,
    Recall,
    Refused,
    Retrieve,
    Submit,
    TaskIs,
)
from parties.concurrency import RecurringEvent
from parties.server.clients.answerer import NOTHING, BulkRequest, Reply, Room
from parties.server.clients.deposits import Deposit, Wanted
from parties.server.door.core_link import CoreLink
from parties.server.door.rounds import DoorRounds
from parties.server.refusals import AbuseError, RequestRefusedError

__all__ = ["DoorKnowledge", "Requests", "VisitCalls"]


class Requests:
    """Counts the requests that are under way, but for those that wait for a round.

    Attributes:
        count: how many there are now.
        total: how many there have been.
        ended: occurs whenever one has ended.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.ended = RecurringEvent()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one for as long as the block lasts."""
        self.count += 1
        self.total += 1
        try:
            yield
        finally:
            self.count -= 1
            self.ended.set()


@dataclass(frozen=True)
class DoorKnowledge:
    """What all visitors of a door share.

    Attributes:
        task: the task.
        core: the connection to the core.
        rounds: the rounds that are on.
        requests: that are under way.
        longest_answer: bytes of the longest answer that is made for one client.
    """

    task: Task
    core: CoreLink
    rounds: DoorRounds
    requests: Requests
    longest_answer: int


class VisitCalls:
    """The core, as one visitor needs it.

    Args:
        known: what all visitors share.
        visit: the visit's number.
    """

    def __init__(self, known: DoorKnowledge, visit: int) -> None:
        self._known = known
        self._core = known.core
        self._visit = visit

    def bulk_sizes(self) -> frozenset[int]:
        """See `CoreCalls.bulk_sizes`."""
        return self._known.rounds.bulk_sizes()

    @asynccontextmanager
    async def begin(self, client: str, message: BulkRequest, size: int) -> AsyncIterator[_GrantedCall]:
        """See `CoreCalls.begin`."""
        with self._known.requests.one():
            async with self._granted(client, message, size) as granted:
                yield granted

    @asynccontextmanager
    async def _granted(self, client: str, message: BulkRequest, size: int) -> AsyncIterator[_GrantedCall]:
        call, known = self._core.number(), self._known
        try:
            answer = await self._core.call(call, self._begin(call, message, size))
        except trio.Cancelled:
            self._core.post(Withdraw(call=call, why="broken-off"))
            raise
        seed = self._granted_seed(client, message, answer)
        granted = _GrantedCall(known, client, call)
        try:
            granted.wanted = Wanted.of(known.rounds.find(message.round_id), client, message, seed)
            yield granted
        finally:
            granted.end("broken-off")

    async def ask(self, client: str, message: FromClient, room: Room) -> Reply:
        """See `CoreCalls.ask`."""
        match message:
            case AskTask():
                return TaskIs(self._known.task.canonical()), NOTHING
            case Enter():
                return await self._patiently(client, message, self._known.rounds.opened)
            case AskOutcome():
                return await self._patiently(client, message, self._known.rounds.settled)
            case Retrieve() | Recall() | Download() | Submit() | Hint():
                return await self._counted(client, message, room)
            case _:
                assert_never(message)

    async def _patiently(self, client: str, message: Enter | AskOutcome, occasion: RecurringEvent) -> Reply:
        """Ask, and ask again on each occasion, until the core can answer."""
        while True:
            call, again = self._core.number(), occasion.next
            answer = await self._core.call(call, Ask(call=call, visit=self._visit, request=_head(message)))
            if not isinstance(answer.message, NotYet):
                return _reply(client, answer)
            await again.wait()

    async def _counted(self, client: str, message: Retrieve | Recall | Download | Submit | Hint, room: Room) -> Reply:
        try:
            await self._take_room(message, room)
        except RequestRefusedError as refusal:
            return refusal.message, NOTHING
        call = self._core.number()
        with self._known.requests.one():
            return _reply(client, await self._core.call(call, self._begin(call, message, 0)))

    async def _take_room(self, message: Retrieve | Recall | Download | Submit | Hint, room: Room) -> None:
        match message:
            case Retrieve() | Recall():
                await room(self._known.longest_answer)
            case Download(round_id=round_id, block=block):
                await room(self._known.rounds.block_bytes(round_id, block))
            case Submit() | Hint():
                pass

    def _begin(self, call: int, message: Message, size: int) -> Begin:
        return Begin(call=call, visit=self._visit, request=_head(message), size=size)

    def _granted_seed(self, client: str, message: BulkRequest, answer: Received[Any]) -> bytes:
        """The master seed for a request that is granted.

        Raises:
            RequestRefusedError: it is not.
            AbuseError: the client went on above its limits.
        """
        if isinstance(answer.message, Granted):
            return answer.message.seed if isinstance(message, Hint) else message.seed
        reply, _ = _reply(client, answer)
        if isinstance(reply, Refused):
            raise RequestRefusedError(reply)
        raise StrangeAnswerError(f"the core answered a request before its bulk had come, with {type(reply).__name__}")


class StrangeAnswerError(ChannelError):
    """The core answers what no core of this release answers."""


@dataclass
class _GrantedCall:
    """A request that the core has granted, until it is completed or withdrawn.

    Attributes:
        known: what all visitors share.
        client: whose it is.
        call: the call's number.
        wanted: what its bulk has to be.
        is_open: whether the core still waits for what becomes of it.
    """

    known: DoorKnowledge
    client: str
    call: int
    wanted: Wanted = field(init=False)
    is_open: bool = True

    async def prepare(self, room: Room) -> None:
        """See `Granted.prepare`."""
        if self.wanted.key.purpose == "retrieve":
            await room(self.known.longest_answer)

    async def complete(self, deposit: Deposit, room: Room) -> Reply:
        """See `Granted.complete`."""
        del room
        self.is_open = False
        said = Deposited(call=self.call, part=deposit.part, tree=deposit.tree, size=deposit.size)
        return _reply(self.client, await self.known.core.call(self.call, said))

    async def refuse(self, refusal: RequestRefusedError) -> Reply:
        """See `Granted.refuse`."""
        await trio.lowlevel.checkpoint()
        self.end("no-room" if refusal.message.reason == "busy" else "refused")
        return refusal.message, NOTHING

    def end(self, why: Literal["broken-off", "refused", "no-room"]) -> None:
        """Tell the core that nothing comes of it, unless it is over."""
        if self.is_open:
            self.is_open = False
            self.known.core.post(Withdraw(call=self.call, why=why))


def _head(message: Message) -> bytes:
    """A message as its client's channel has it, without bulk."""
    return bytes(encode(message)[0])


def _reply(client: str, answer: Received[Any]) -> Reply:
    """The reply that the core has made for a client.

    Raises:
        AbuseError: it is the last one.
    """
    message, bulk = decode(answer.bulk, FromServer, "the core")
    match answer.message:
        case Answered():
            return message, bulk
        case Abused() if isinstance(message, Refused):
            raise AbuseError(client, message)
        case other:
            raise StrangeAnswerError(f"the core answered a client's request with {type(other).__name__}")
