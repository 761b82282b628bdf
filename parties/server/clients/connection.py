"""One client's connection to a server: a request comes, its answer goes, again and again until one side closes.

Rules:

- A request is read only if it declares a size that some request of this task can have (see `RequestHandler.expects`).
  Its bulk is read once it has been granted, by its head, which implies one size. Room for a bulk is lent as the bulk
  comes (see `parties.server.clients.memory_budget`).
- An answer with bulk has its room before it is made, and until its client has taken it.
- While others wait for room, the slowest message gives up its own: a client whose request is slowest is told to come
  back, and one that reads its answer slowest loses its connection.
- A request that has begun must come at a certain pace, and its answer must be read at that pace; a slower client loses
  its connection.
- A client that asks for nothing is disconnected after a while. A client that waits for its answer is not idle; but if
  it leaves meanwhile, or gives no sign of life, its connection ends and its place is free.
- A client that waits for its answer is shown signs of life.
- A client that breaks the message rules, or those of the record layer, loses its connection, and no other client does;
  so does one that goes on beyond its limits. One last answer says why: who writes a client does not see our log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NoReturn

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, PeerViolationError
from fsl_async.wire.codec import decode, decode_beginning, encode
from fsl_async.wire.messages import AskOutcome, AskTask, Enter, FromClient, Message, Reason
from parties.concurrency import RecurringEvent
from parties.events import BudgetMoved, Observer
from parties.schedule import ConversationLimits
from parties.server import replies
from parties.server.clients.memory_budget import Budget, Reservation
from parties.server.clients.requests import RequestHandler
from parties.server.message_tap import MessageTap
from transport import Channel, ChannelClosedError, Progress, RecordError, SilentPeerError, TooSlowError
from transport.arriving import Room as RoomToCome
from transport.arriving import endless, unseen
from transport.channel import HEARTBEAT
from transport.limits import RateLimiter

LONGEST_HEAD = 4_096
"""The most bytes that a request has besides its bulk; the longest request has a tenth of it."""

FIRST_ROOM = 2**19
"""Bytes of room that a request with bulk has before more of it comes."""

SENDING = 2**19
"""Bytes that an answer takes besides itself while it is sent: some of its records, and what they were made of."""


class ClientConnections:
    """All clients' connections to one server, and what they share.

    Args:
        longest: the longest bulk of a request that the task implies, in bytes.
        longest_answer: the longest bulk of an answer that is made for one client, likewise.
        limits: what they are allowed.
        tap: tells of every request and every answer.
        observe: takes an event whenever memory is lent or given back.

    Raises:
        MisuseError: the memory is not enough for one request and one answer.
    """

    def __init__(
        self,
        longest: int,
        longest_answer: int,
        limits: ConversationLimits,
        tap: MessageTap,
        observe: Observer,
    ) -> None:
        self.longest = longest + LONGEST_HEAD
        self.limits = limits
        self.tap = tap
        requests, answers = limits.memory(self.longest, longest_answer + SENDING)
        self._observe = observe
        self.request_memory = Budget(requests, self._note_moved)
        self.answer_memory = Budget(answers, self._note_moved)
        self.rate = RateLimiter(limits.requests_per_second, limits.request_burst)
        self.life = SignsOfLife()

    def _note_moved(self) -> None:
        requests, answers = self.request_memory, self.answer_memory
        self._observe(BudgetMoved(used=requests.used + answers.used, limit=requests.limit + answers.limit))

    async def turn_away(self, channel: Channel, client: str, why: str) -> NoReturn:
        """Tell a client why nothing that it asks for is answered on this connection.

        Raises:
            PeerViolationError: always; the caller ends the connection.
        """
        await replies.say_why(channel, replies.farewell("malformed", client, why))
        raise PeerViolationError(client, why)

    async def hold(self, channel: Channel, client: str, requests: RequestHandler, *, same_task: bool = True) -> None:
        """Answer a client's requests until it closes or has been silent for too long.

        Args:
            channel: the connection.
            client: who is at its other end.
            requests: carries out what is asked for.
            same_task: whether it has the credentials for this task; else it hears which is served, and nothing else.

        Raises:
            PeerViolationError: the client broke the message rules.
            ChannelError: the connection was lost, or the client was too slow.
        """
        await _Conversation(self, channel, client, requests, same_task=same_task).run()


class SignsOfLife:
    """Shows all clients that wait for an answer that this server lives, in one task: most of them wait shortly."""

    def __init__(self) -> None:
        self._due: dict[Channel, float] = {}
        self._shown: dict[Channel, trio.CancelScope] = {}
        self._waits = RecurringEvent()

    @contextmanager
    def shown_to(self, channel: Channel) -> Iterator[None]:
        """Show them to a client for as long as the block lasts."""
        if not channel.steady:
            self._due[channel] = trio.current_time() + HEARTBEAT
            self._waits.set()
        try:
            yield
        finally:
            self._due.pop(channel, None)
            if channel in self._shown:  # a client that reads nothing keeps a sign of life waiting
                self._shown[channel].cancel()

    async def show(self) -> None:
        """Show them, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while not self._due:
                    await self._waits.wait()
                channel, at = next(iter(self._due.items()))  # all wait equally long: the first of them is the next
                await trio.sleep_until(at)
                if self._due.get(channel) == at:
                    del self._due[channel]
                    self._due[channel] = at + HEARTBEAT
                    nursery.start_soon(self._show, channel)

    async def _show(self, channel: Channel) -> None:
        if channel not in self._shown:
            with trio.CancelScope() as scope, suppress(ChannelError):
                self._shown[channel] = scope
                await channel.ping_unless_sending()
            del self._shown[channel]


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, the bulk data that goes with it, and the room that it has."""

    message: Message
    content: Buffer
    reservation: Reservation


def _nothing_reserved(client: str) -> Reservation:
    """The room of an answer that takes none."""
    return Reservation(client, 0, 0)


class _Conversation:
    """Requests and answers over one channel."""

    def __init__(
        self, shared: ClientConnections, channel: Channel, client: str, requests: RequestHandler, *, same_task: bool
    ) -> None:
        self._shared = shared
        self._same_task = same_task
        self._requests = requests
        self._limits = shared.limits
        self._pace = shared.limits.pace
        self._channel = channel
        self._client = client
        self._unread = 0
        """Bytes of the request that has been announced and has not been received."""

    async def run(self) -> None:
        try:
            while await self._serve_until_idle():
                pass
            await self._say_why("busy", f"nothing was asked for in {self._limits.idle_seconds:g} s")
        except ChannelClosedError:
            return
        except replies.AbuseError:
            raise  # the client has been told
        except TooSlowError as error:
            await self._say_why("busy", error)
            raise
        except (PeerViolationError, RecordError) as error:
            await self._say_why("malformed", error)
            if 0 < self._unread <= self._shared.longest:
                with suppress(ChannelError):  # else a client that does not read yet would not hear it
                    await self._channel.discard(pace=self._pace)
            raise

    async def _serve_until_idle(self) -> bool:
        """Serve requests until none comes in time, in one scope for all of them; whether another one came after all."""
        with trio.CancelScope() as idle:
            while not idle.cancel_called:
                idle.deadline = trio.current_time() + self._limits.idle_seconds
                length = await self._channel.announced(pace=self._pace)
                idle.deadline = inf
                if not idle.cancel_called:
                    await self._serve_next(length)
        if not idle.cancelled_caught:  # a request came at the very last moment
            await self._serve_next(length)
        return not idle.cancelled_caught

    async def _serve_next(self, length: int) -> None:
        self._unread = length
        await self._shared.rate.wait(self._client)
        await self._serve(length)

    async def _say_why(self, reason: Reason, why: object) -> None:
        await replies.say_why(self._channel, replies.farewell(reason, self._client, why))

    async def _serve(self, length: int) -> None:
        """Take one request, of which only the length is known, and answer it."""
        async with AsyncExitStack() as lent:
            if length <= LONGEST_HEAD:
                answer = await self._carry_out(await self._received(length), lent)
            elif self._same_task and self._requests.expects(length, LONGEST_HEAD):
                answer = await self._carry_out_with_bulk(length, lent)
            else:
                raise PeerViolationError(self._client, f"no request of this task has {length:,} bytes")
            if answer is not None:
                await self._answer(answer)

    async def _received(self, length: int, room: RoomToCome = endless) -> bytearray:
        data = await self._channel.receive(length, pace=self._pace, room=room)
        self._unread = 0
        return data

    async def _carry_out_with_bulk(self, length: int, lent: AsyncExitStack) -> _Answer | None:
        """Carry out a request with room lent for it, which is given back before the answer is sent."""
        async with AsyncExitStack() as request:
            try:
                reservation = await self._begun(self._shared.request_memory, length, request)
                await self._reserve(self._shared.request_memory, reservation, min(length, FIRST_ROOM))
                with reservation.moving():
                    return await self._carry_out_as_it_comes(reservation, lent)
                raise self._busy(f"{reservation.moved:,} of {length:,} bytes came while others waited for their room")
            except replies.RequestRefusedError as refusal:
                await request.aclose()
                await self._refuse(refusal)
            except replies.AbuseError as abuse:
                await self._send(abuse.message)
                raise
        return None

    async def _carry_out_as_it_comes(self, reservation: Reservation, lent: AsyncExitStack) -> _Answer:
        """Receive a request, once its beginning has been granted, and carry it out; room is lent as its bytes come.

        Raises:
            RequestRefusedError: it is not granted, or there is no room for it.
            AbuseError: its client went on above its limits.
        """

        async def room(taken: int, size: int) -> None:
            reservation.moved = taken
            await self._reserve(self._shared.request_memory, reservation, size)

        beginning = await self._channel.beginning(LONGEST_HEAD, pace=self._pace)
        message, start = decode_beginning(beginning, reservation.total, replies.BulkRequest, self._client)
        async with AsyncExitStack() as granted:
            with reservation.held_up():
                begin = self._requests.begin(self._client, message, reservation.total - start)
                complete = await granted.enter_async_context(begin)
            data = await self._received(reservation.total, room)
            self._shared.tap.received(self._client, message, len(data))
            with reservation.held_up():
                return await self._answered(partial(complete, memoryview(data)[start:]), lent)

    async def _begun(self, budget: Budget, size: int, lent: AsyncExitStack) -> Reservation:
        """A reservation for this client, if its turn comes in time; it lasts as long as the stack."""
        with trio.move_on_after(self._limits.queue_seconds):
            return await lent.enter_async_context(budget.reservation(self._client, size))
        raise self._busy("another message of yours has not come to its end")

    async def _reserve(self, budget: Budget, reservation: Reservation, size: int) -> None:
        """Reserve more, if there is room in time."""
        with trio.move_on_after(self._limits.queue_seconds):
            await budget.reserve(reservation, size)
            return
        raise self._busy(f"no room for {reservation.total:,} bytes within {self._retry_after} s")

    def _busy(self, why: str) -> replies.RequestRefusedError:
        return replies.RequestRefusedError.because("busy", f"{why}: others are being served", self._retry_after)

    @property
    def _retry_after(self) -> int:
        return max(1, round(self._limits.queue_seconds))

    async def _refuse(self, refusal: replies.RequestRefusedError) -> None:
        """Say why a request is not taken, and discard the rest of it: its client may not read before it has sent it."""
        await self._send(refusal.message)
        await self._channel.discard(pace=self._pace)

    async def _carry_out(self, data: bytearray, lent: AsyncExitStack) -> _Answer | None:
        """Carry out a short request and return its answer; None if the client leaves while it waits for the answer.

        Args:
            data: the request.
            lent: holds the room for the answer.
        """
        message, bulk = decode(data, FromClient, self._client)
        self._shared.tap.received(self._client, message, len(data))
        try:
            if not (self._same_task or isinstance(message, AskTask)):
                why = "your credentials are for another task than this server's: ask-task is all that is answered"
                raise replies.RequestRefusedError.because("malformed", why)
            if bulk:
                async with self._requests.begin(self._client, message, len(bulk)) as complete:
                    return await self._answered(partial(complete, bulk), lent)
            if isinstance(message, Enter | AskOutcome):
                reply = await self._while_present(message)
                return None if reply is None else _Answer(*reply, _nothing_reserved(self._client))
            return await self._answered(partial(self._requests.ask, self._client, message), lent)
        except replies.RequestRefusedError as refusal:
            return _Answer(refusal.message, replies.NOTHING, _nothing_reserved(self._client))
        except replies.AbuseError as abuse:
            await self._send(abuse.message)
            raise

    async def _answered(
        self, carry_out: Callable[[replies.ReserveMemory], Awaitable[replies.Reply]], lent: AsyncExitStack
    ) -> _Answer:
        """Carry out a request that has come, and show its client signs of life meanwhile."""
        reservation = _nothing_reserved(self._client)

        async def reserve(own: int) -> None:
            nonlocal reservation
            size = min(own + SENDING, self._shared.answer_memory.limit)
            reservation = await self._begun(self._shared.answer_memory, size, lent)
            await self._reserve(self._shared.answer_memory, reservation, reservation.total)

        with self._shared.life.shown_to(self._channel):
            return _Answer(*await carry_out(reserve), reservation)

    async def _while_present(self, message: Enter | AskOutcome) -> replies.Reply | None:
        """The answer to a request that may wait for hours; None if the client leaves meanwhile."""
        reply = self._requests.at_once(self._client, message)
        if reply is not None:
            return reply
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_leaving, nursery.cancel_scope)
            reply = await self._requests.ask(self._client, message, replies.reserve_nothing)
            nursery.cancel_scope.cancel()
        return reply

    async def _notice_leaving(self, scope: trio.CancelScope) -> None:
        """Cancel a scope when the client leaves; the next use of the connection raises the error again."""
        try:
            await self._channel.awaited()
            await self._channel.beat()  # it has sent its next request ahead, and still waits
        except SilentPeerError as error:
            await self._say_why("busy", f"{error}: who waits sends a PING every {HEARTBEAT:g} s")
        except ChannelError:
            pass
        scope.cancel()

    async def _answer(self, answer: _Answer) -> None:
        """Send an answer; while others wait for room, its client must take it quickly enough."""
        reservation = answer.reservation
        if not reservation.total:
            await self._send(answer.message, answer.content)
            return
        reservation.length = len(answer.content)
        with reservation.moving():
            await self._send(answer.message, answer.content, reservation.note)
            return
        raise TooSlowError(
            f"{reservation.moved:,} of {reservation.length:,} bytes were taken while others waited for their room"
        )

    async def _send(self, message: Message, content: Buffer = b"", progress: Progress = unseen) -> None:
        parts = encode(message, content)
        await self._channel.send(*parts, pace=self._pace, progress=progress)
        self._shared.tap.sent(self._client, message, sum(len(part) for part in parts), len(content))
