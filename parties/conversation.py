"""One client's connection to a server: a request comes, its answer goes, again and again until one side closes.

Rules:

- A request is read only when there is room for all that it declares, and only if it declares what some request of
  this task has: a head alone, or a head and a bulk of one of the task's exact sizes.
- A request that has begun comes at a pace, and so does the reading of its answer; who is slower loses its connection.
- A client that asks for nothing is let go after a while. One whose answer is long in coming is not idle; but if it
  leaves meanwhile, or gives no sign of life, that is noticed, and its place is free.
- A client that waits for its answer is shown signs of life.
- A client that breaks the message rules loses its connection, nobody else does; who goes on beyond its limits gets one
  last answer that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

import trio

from fsl_async.codec import decode, encode
from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, MisuseError, PeerViolationError
from fsl_async.messages import AskOutcome, Enter, FromClient, Message, Refused
from parties.allowance import AbuseError
from parties.budget import Budget, Moved, unmoved
from transport import Channel, ChannelClosedError, Pace, RateLimiter

__all__ = ["LONGEST_HEAD", "Answerer", "ConversationLimits", "Conversations", "Reply"]

LONGEST_HEAD = 4_096
"""Bytes that a request has at most besides its bulk; the longest there is has a tenth of it."""

ORDINARY_MEMORY = 2**28

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Sent: TypeAlias = Callable[[str, Message, int, int], None]
"""Hears of every answer sent: to whom, what, its bytes before framing, of them bulk."""

Taken: TypeAlias = Callable[[str, Message, int], None]
"""Hears of every request that came: from whom, what, its bytes before framing."""


class Answerer(Protocol):
    """Carries out what clients ask for."""

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, where it has one."""

    async def reply(self, client: str, message: Any, bulk: memoryview) -> Reply:
        """Carry a request out; what is refused is answered with the reason.

        Raises:
            AbuseError: the client goes on beyond its limits; it carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """What a server allows the clients that it has let in.

    Attributes:
        memory_bytes: for requests that are coming in or being carried out, all clients together; unless it is given,
            256 MiB or room for the task's two longest requests, whichever is more.
        minimum_rate: bytes per second that a message under way must keep, in either direction.
        message_seconds: in which a whole message must be through: a long one must be faster accordingly.
        idle_seconds: after so long without a request a client is let go; it may come back at any time.
        queue_seconds: that a request waits for room before its client is told to come back later.
        requests_per_second: by one client, in the long run; further ones wait.
        request_burst: by one client, at once.
    """

    memory_bytes: int | None = None
    minimum_rate: float = 8_192
    message_seconds: float = 1_800
    idle_seconds: float = 60
    queue_seconds: float = 30
    requests_per_second: float = 50
    request_burst: int = 200

    def __post_init__(self) -> None:
        for name in (
            "minimum_rate",
            "message_seconds",
            "idle_seconds",
            "queue_seconds",
            "requests_per_second",
            "request_burst",
        ):
            if not getattr(self, name) > 0:
                raise MisuseError(f"{name} must be positive, not {getattr(self, name)}")

    @property
    def pace(self) -> Pace:
        """How fast a message must move once it has begun."""
        return Pace(bytes_per_second=self.minimum_rate, message_seconds=self.message_seconds)

    def memory(self, longest: int) -> int:
        """The memory for requests of which the longest has so many bytes.

        Raises:
            MisuseError: what is given is not enough for one.
        """
        if self.memory_bytes is None:
            return max(ORDINARY_MEMORY, 2 * longest)
        if self.memory_bytes < longest:
            raise MisuseError(
                f"memory_bytes is {self.memory_bytes:,}, and one request of this task takes {longest:,}: allow the "
                "server at least as much, better twice"
            )
        return self.memory_bytes


class Conversations:
    """All clients' connections to one server, and what they share.

    Args:
        answerer: carries out what they ask for.
        longest: the longest bulk of a request that the task implies, in bytes.
        limits: what they are allowed.
        taken: hears of every request.
        sent: hears of every answer.
        moved: hears how much memory is in use.

    Raises:
        MisuseError: the memory is not enough for one request.
    """

    def __init__(
        self,
        answerer: Answerer,
        longest: int,
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
        self.budget = Budget(limits.memory(self.longest), moved)
        self.requests = RateLimiter(limits.requests_per_second, limits.request_burst)

    async def hold(self, channel: Channel, client: str) -> None:
        """Answer a client's requests until it closes or has been silent for too long.

        Raises:
            PeerViolationError: the client broke the message rules.
            ChannelError: the connection was lost, or the client was too slow.
        """
        await _Conversation(self, channel, client).run()


class _Conversation:
    """Requests and answers over one channel."""

    def __init__(self, shared: Conversations, channel: Channel, client: str) -> None:
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
        if length <= LONGEST_HEAD:
            replies = await self._carry_out(length)
        elif any(0 < length - size <= LONGEST_HEAD for size in self._shared.answerer.bulk_sizes()):
            replies = await self._carry_out_with_bulk(length)
        else:
            await self._refuse_size(length)
        for reply, content in replies:
            await self._send(reply, content)

    async def _refuse_size(self, length: int) -> NoReturn:
        explanation = f"no request of this task has {length:,} bytes"
        await self._send(Refused(reason="malformed", explanation=explanation))
        if length <= self._shared.longest:
            await self._channel.discard(pace=self._pace)  # else a client that does not read yet would not hear it
        raise PeerViolationError(self._client, explanation)

    async def _carry_out_with_bulk(self, length: int) -> list[Reply]:
        """Carry out a request with room taken for it, which is free again before the answer leaves."""
        budget = self._shared.budget
        with trio.move_on_after(self._limits.queue_seconds) as waiting:
            await budget.take(self._client, length)
        if waiting.cancelled_caught:
            await self._put_off(length)
            return []
        try:
            return await self._carry_out(length)
        finally:
            budget.give_back(self._client)

    async def _put_off(self, length: int) -> None:
        """Say that there is no room, and let the request pass: its client reads when it has sent it, if not before."""
        seconds = max(1, round(self._limits.queue_seconds))
        explanation = f"no room for {length:,} bytes within {seconds} s: others are being served"
        await self._send(Refused(reason="busy", explanation=explanation, retry_after=seconds))
        await self._channel.discard(pace=self._pace)

    async def _carry_out(self, length: int) -> list[Reply]:
        """Read a request and return its answer; none if the client leaves while it is long in coming."""
        data = await self._channel.receive(length, pace=self._pace)
        message, bulk = decode(data, FromClient, self._client)
        self._shared.taken(self._client, message, length)
        if isinstance(message, Enter | AskOutcome):
            return await self._while_present(message)
        async with self._alive():
            try:
                return [await self._shared.answerer.reply(self._client, message, bulk)]
            except AbuseError as abuse:
                await self._send(abuse.message)
                raise

    @asynccontextmanager
    async def _alive(self) -> AsyncIterator[None]:
        """Show the client signs of life for as long as the block lasts."""
        ended = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._channel.beat, ended)
            try:
                yield
            finally:
                ended.set()

    async def _while_present(self, message: Enter | AskOutcome) -> list[Reply]:
        answers: list[Reply] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice_leaving, nursery.cancel_scope)
            answers.append(await self._shared.answerer.reply(self._client, message, memoryview(b"")))
            nursery.cancel_scope.cancel()
        return answers

    async def _notice_leaving(self, scope: trio.CancelScope) -> None:
        """Cancel a scope when the client leaves; what happened to the connection, its next user is told again."""
        try:
            await self._channel.awaited()
        except ChannelError:
            scope.cancel()
        await self._channel.beat(trio.Event())  # it has sent ahead, and goes on waiting

    async def _send(self, message: Message, content: Buffer = b"") -> None:
        parts = encode(message, content)
        await self._channel.send(*parts, pace=self._pace)
        self._shared.sent(self._client, message, sum(len(part) for part in parts), len(content))
