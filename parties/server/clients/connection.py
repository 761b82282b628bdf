"""One client's connection to a server: a request comes, its answer goes, again and again until one side closes.

Rules:

- A request is read only if it declares what some request of this task has: a head alone, or a head and a bulk of one
  of the task's exact sizes. Room for a bulk is lent as it comes (see `parties.server.clients.memory_budget`); that it
  has begun counts at once, and is forgotten when it has come.
- An answer with bulk has its room before it is made, and until its client has taken it.
- While others wait for room, the slowest message gives its own up: a request is told to come back, and who does not
  read its answer loses its connection.
- A request that has begun comes at a pace, and so does the reading of its answer; who is slower loses its connection.
- A client that asks for nothing is let go after a while. One whose answer is long in coming is not idle; but if it
  leaves meanwhile, or gives no sign of life, that is noticed, and its place is free.
- A client that waits for its answer is shown signs of life.
- A client that breaks the message rules loses its connection, nobody else does; who goes on beyond its limits gets one
  last answer that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, PeerViolationError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import AskOutcome, Enter, FromClient, Message, Refused
from parties.server.clients.memory_budget import Budget, Loan, Moved, unmoved
from parties.server.limits import ConversationLimits
from parties.server.refusals import AbuseError, RequestRefusedError
from transport import Channel, ChannelClosedError, Progress, TooSlowError
from transport.arriving import unseen
from transport.limits import RateLimiter

__all__ = ["LONGEST_HEAD", "Answerer", "ClientConnections", "Reply"]

LONGEST_HEAD = 4_096
"""Bytes that a request has at most besides its bulk; the longest there is has a tenth of it."""

FIRST_ROOM = 2**19
"""Bytes of room that a request with bulk has before more of it comes."""

SENDING = 2**19
"""Bytes that an answer takes besides itself while it is sent: some of its records, and what they were made of."""

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Room: TypeAlias = Callable[[int], Awaitable[None]]
"""Takes room for so many bytes of an answer; see `Answerer.reply`."""


async def no_room(size: int) -> None:
    """For requests whose answers all clients share, or that have none of their own."""


Sent: TypeAlias = Callable[[str, Message, int, int], None]
"""Hears of every answer sent: to whom, what, its bytes before framing, of them bulk."""

Taken: TypeAlias = Callable[[str, Message, int], None]
"""Hears of every request that came: from whom, what, its bytes before framing."""


class Answerer(Protocol):
    """Carries out what clients ask for."""

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, where it has one."""

    def arriving(self, client: str) -> AbstractContextManager[None]:
        """Counts a request with bulk that has begun, until it has come; it stays counted if the block raises.

        Raises:
            RequestRefusedError: it is one too many.
            AbuseError: it is one too many, and not the first of those.
        """

    async def reply(self, client: str, message: Any, bulk: memoryview, room: Room) -> Reply:
        """Carry a request out; what is refused is answered with the reason.

        Args:
            client: who asks.
            message: for what.
            bulk: the bytes that came with it.
            room: takes room for an answer with so many bytes of its own; to be called just before the answer is made,
                so that a request that waits for its other half holds nothing that others need. Raises
                `RequestRefusedError` where there is none in time.

        Raises:
            AbuseError: the client goes on beyond its limits; it carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """


class ClientConnections:
    """All clients' connections to one server, and what they share.

    Args:
        answerer: carries out what they ask for.
        longest: the longest bulk of a request that the task implies, in bytes.
        longest_answer: the longest bulk of an answer that is made for one client, likewise.
        limits: what they are allowed.
        taken: hears of every request.
        sent: hears of every answer.
        moved: hears how much memory is in use.

    Raises:
        MisuseError: the memory is not enough for one request and one answer.
    """

    def __init__(
        self,
        answerer: Answerer,
        longest: int,
        longest_answer: int,
        limits: ConversationLimits,
        taken: Taken,
        sent: Sent,
        moved: Moved = unmoved,
    ) -> None:
        self.answerer = answerer
        self.longest = longest + LONGEST_HEAD
        self.limits = limits
        self.taken = taken
        self.sent = sent
        requests, answers = limits.memory(self.longest, longest_answer + SENDING)
        self._moved = moved
        self.budget = Budget(requests, self._tell)
        self.answers = Budget(answers, self._tell)
        self.requests = RateLimiter(limits.requests_per_second, limits.request_burst)

    def _tell(self, used: int, limit: int) -> None:
        self._moved(self.budget.used + self.answers.used, self.budget.limit + self.answers.limit)

    async def hold(self, channel: Channel, client: str) -> None:
        """Answer a client's requests until it closes or has been silent for too long.

        Raises:
            PeerViolationError: the client broke the message rules.
            ChannelError: the connection was lost, or the client was too slow.
        """
        await _Conversation(self, channel, client).run()


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer, the bulk data that goes with it, and the room that it has."""

    message: Message
    content: Buffer
    loan: Loan


class _Conversation:
    """Requests and answers over one channel."""

    def __init__(self, shared: ClientConnections, channel: Channel, client: str) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._pace = shared.limits.pace
        self._channel = channel
        self._client = client

    async def run(self) -> None:
        try:
            while True:
                with trio.move_on_after(self._limits.idle_seconds) as idle:
                    length = await self._channel.announced(pace=self._pace)
                if idle.cancelled_caught:
                    return
                await self._shared.requests.wait(self._client)
                await self._serve(length)
        except ChannelClosedError:
            return

    async def _serve(self, length: int) -> None:
        """Take one request, of which only the length is known, and answer it."""
        async with AsyncExitStack() as lent:
            if length <= LONGEST_HEAD:
                answers = await self._carry_out(await self._channel.receive(length, pace=self._pace), lent)
            elif any(0 < length - size <= LONGEST_HEAD for size in self._shared.answerer.bulk_sizes()):
                answers = await self._carry_out_with_bulk(length, lent)
            else:
                await self._refuse_size(length)
            for answer in answers:
                await self._answer(answer)

    async def _refuse_size(self, length: int) -> NoReturn:
        explanation = f"no request of this task has {length:,} bytes"
        await self._send(Refused(reason="malformed", explanation=explanation))
        if length <= self._shared.longest:
            await self._channel.discard(pace=self._pace)  # else a client that does not read yet would not hear it
        raise PeerViolationError(self._client, explanation)

    async def _carry_out_with_bulk(self, length: int, lent: AsyncExitStack) -> list[_Answer]:
        """Carry out a request with room lent for it, which is free again before the answer leaves."""
        async with AsyncExitStack() as request:
            try:
                data = await self._arrived(await self._begun(self._shared.budget, length, request))
            except RequestRefusedError as refusal:
                await request.aclose()
                await self._let_pass(refusal)
                return []
            return await self._carry_out(data, lent)

    async def _arrived(self, loan: Loan) -> bytearray:
        """Take a request's bytes; room is lent as they come.

        Raises:
            RequestRefusedError: there is no room for it, or it has begun too often.
            AbuseError: it goes on beginning.
        """

        async def room(taken: int, size: int) -> None:
            loan.moved = taken
            await self._lend(self._shared.budget, loan, size)

        await self._lend(self._shared.budget, loan, min(loan.total, FIRST_ROOM))
        try:
            with self._shared.answerer.arriving(self._client):
                with loan.moving():
                    return await self._channel.receive(loan.total, pace=self._pace, room=room)
                raise self._busy(f"{loan.moved:,} of {loan.total:,} bytes came while others waited for their room")
        except AbuseError as abuse:
            await self._send(abuse.message)
            raise

    async def _begun(self, budget: Budget, size: int, lent: AsyncExitStack) -> Loan:
        """A loan for this client, whose turn comes in time; it lasts as long as the stack."""
        with trio.move_on_after(self._limits.queue_seconds):
            return await lent.enter_async_context(budget.loan(self._client, size))
        raise self._busy("another message of yours has not come to its end")

    async def _lend(self, budget: Budget, loan: Loan, size: int) -> None:
        """Lend more, if there is room in time."""
        with trio.move_on_after(self._limits.queue_seconds):
            await budget.lend(loan, size)
            return
        raise self._busy(f"no room for {loan.total:,} bytes within {self._retry_after} s")

    def _busy(self, why: str) -> RequestRefusedError:
        return RequestRefusedError.because("busy", f"{why}: others are being served", self._retry_after)

    @property
    def _retry_after(self) -> int:
        return max(1, round(self._limits.queue_seconds))

    async def _let_pass(self, refusal: RequestRefusedError) -> None:
        """Say why a request is not taken, and let it pass: its client reads when it has sent it, if not before."""
        await self._send(refusal.message)
        await self._channel.discard(pace=self._pace)

    async def _carry_out(self, data: bytearray, lent: AsyncExitStack) -> list[_Answer]:
        """Carry out a request and return its answer; none if the client leaves while it is long in coming.

        Args:
            data: the request.
            lent: keeps the room for the answer.
        """
        message, bulk = decode(data, FromClient, self._client)
        self._shared.taken(self._client, message, len(data))
        loan = Loan(self._client, 0, 0)
        if isinstance(message, Enter | AskOutcome):
            return [_Answer(reply, content, loan) for reply, content in await self._while_present(message)]

        async def room(own: int) -> None:
            nonlocal loan
            size = min(own + SENDING, self._shared.answers.limit)
            loan = await self._begun(self._shared.answers, size, lent)
            await self._lend(self._shared.answers, loan, loan.total)

        async with self._alive():
            try:
                reply, content = await self._shared.answerer.reply(self._client, message, bulk, room)
                return [_Answer(reply, content, loan)]
            except AbuseError as abuse:
                await self._send(abuse.message)
                raise

    @asynccontextmanager
    async def _alive(self) -> AsyncIterator[None]:
        """Show the client signs of life for as long as the block lasts."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._channel.beat)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()  # a client that reads nothing keeps a sign of life waiting

    async def _while_present(self, message: Enter | AskOutcome) -> list[Reply]:
        answers: list[Reply] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_leaving, nursery.cancel_scope)
            answers.append(await self._shared.answerer.reply(self._client, message, memoryview(b""), no_room))
            nursery.cancel_scope.cancel()
        return answers

    async def _notice_leaving(self, scope: trio.CancelScope) -> None:
        """Cancel a scope when the client leaves; what happened to the connection, its next user is told again."""
        with suppress(ChannelError):
            await self._channel.awaited()
            await self._channel.beat()  # it has sent ahead, and goes on waiting
        scope.cancel()

    async def _answer(self, answer: _Answer) -> None:
        """Send an answer; while others wait for room, its client must take it quickly enough."""
        loan = answer.loan
        loan.length = len(answer.content)
        with loan.moving():
            await self._send(answer.message, answer.content, loan.note)
            return
        raise TooSlowError(f"{loan.moved:,} of {loan.length:,} bytes were taken while others waited for their room")

    async def _send(self, message: Message, content: Buffer = b"", progress: Progress = unseen) -> None:
        parts = encode(message, content)
        await self._channel.send(*parts, pace=self._pace, progress=progress)
        self._shared.sent(self._client, message, sum(len(part) for part in parts), len(content))
