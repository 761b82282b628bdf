"""A client's requests to both servers: sent, sent again when a connection is lost, and answered or refused.

Each server is talked to by a task of its own, which reports what it hears to the task that asked.

Rules: a repeat is the same message with the same bulk, over a new connection; a connection is kept only if the
server holds its pinned key and runs the same task; a reply of another kind than the request's is a violation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar, assert_never

import trio

from fsl_async.differences import first_difference
from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, MisuseError, PeerViolationError, leaves
from fsl_async.foreign_text import printable
from fsl_async.geometry import SEGMENTS, bin_limits
from fsl_async.task import Task
from fsl_async.wire import messages
from fsl_async.wire.codec import CONTROL_LIMIT, Received, decode, encode
from parties.client.connection import ServerConnection
from parties.client.retries import LEAST, LONGEST_PAUSE, PATIENCE, Attempted, Retries, ends_connection
from parties.client.setup import ClientSetup, never
from parties.errors import RequestDeniedError, RoundClosedError, ServerBusyError
from parties.identity.handshake import NO_VOUCHER, Credentials, serves
from parties.identity.tokens import voucher
from parties.statement import longest_statement
from transport import Channel, HandshakeSettings, HandshakeTimeoutError, Role, SilentPeerError, UnansweredError

ResultT = TypeVar("ResultT")
ReplyT = TypeVar("ReplyT", bound=messages.Message)


class Requests:
    """Both servers, each of which is asked for one thing at a time."""

    def __init__(self, setup: ClientSetup) -> None:
        self._setup = setup
        self._name = setup.identity.name
        self._task_digest = setup.task.digest()
        limit = self._reply_limit()
        self._connections = tuple(ServerConnection(partial(self._connect, server), limit) for server in (0, 1))
        self._met: set[int] = set()
        self._failing: set[int] = set()
        self._suspected: set[int] = set()

    async def open(self, *, met_before: bool) -> None:
        """Connect to both servers, and check that they run the same task.

        Args:
            met_before: whether an earlier process of this client was connected: then an address where nobody listens
                is that of a server that is away, and not a wrong one.

        Raises:
            ChannelError: a server could not be reached, or does not know this client; the class says which.
            MisuseError: a server runs another task; the message names the first field that differs.
        """
        self._met = {0, 1} if met_before else set()
        for server, connection in enumerate(self._connections):
            await self._try(Attempted(self._name_of(server), "connecting"), server, partial(_open, connection))

    async def aclose(self) -> None:
        """Close both connections, also where closing the first one fails or is cancelled."""
        first, second = self._connections
        try:
            await first.aclose()
        finally:
            await second.aclose()

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to both servers so far: handshakes, framing and all."""
        return sum(connection.bytes_sent for connection in self._connections)

    @property
    def bytes_received(self) -> int:
        """Bytes received from both servers so far: handshakes, framing and all."""
        return sum(connection.bytes_received for connection in self._connections)

    async def ask(
        self, server: int, message: messages.FromClient, bulk: tuple[Buffer, ...], expected: type[ReplyT]
    ) -> Received[ReplyT]:
        """Send one request to one server until it is answered, and return the reply.

        Raises:
            RoundClosedError: the round is gone.
            RequestDeniedError: the server refused for another reason.
            PeerViolationError: the reply is of another kind than expected.
            ChannelError: the connection was lost, and patience is over.
            MisuseError: in a simulation, no other task is left that could end the wait.
        """
        waits = isinstance(message, messages.Enter | messages.AskOutcome)
        attempted = Attempted(self._name_of(server), _doing(message), waits=waits)
        asking = partial(self._try, attempted, server, partial(self._ask_once, server, message, bulk, expected))
        return await (asking() if self._setup.stuck is never else self._unless_stuck(attempted, asking))

    @asynccontextmanager
    async def replies(
        self, ask: Callable[[int], Awaitable[ResultT]], servers: Iterable[int] = (0, 1)
    ) -> AsyncIterator[trio.MemoryReceiveChannel[tuple[int, ResultT]]]:
        """Ask several servers at once, and have what each of them replies reported, as it comes.

            async with requests.replies(ask) as replies:
                async for server, reply in replies: ...

        The first failure ends all; it is raised out of the context, also where others fail because of it.
        """
        reports, replies = trio.open_memory_channel[tuple[int, ResultT]](2)

        async def one(server: int, report: trio.MemorySendChannel[tuple[int, ResultT]]) -> None:
            with report:
                await report.send((server, await ask(server)))

        try:
            async with trio.open_nursery() as nursery, replies:
                with reports:
                    for server in servers:
                        nursery.start_soon(one, server, reports.clone())
                yield replies
        except BaseExceptionGroup as group:
            error = _first_reason(group)
            raise error from error.__cause__

    async def both(self, ask: Callable[[int], Awaitable[ResultT]]) -> tuple[ResultT, ResultT]:
        """Ask both servers at once; the first failure ends both."""
        async with self.replies(ask) as replies:
            results = {server: reply async for server, reply in replies}
        return results[0], results[1]

    async def _try(
        self, attempted: Attempted, server: int, attempt: Callable[[Retries], Awaitable[ResultT]]
    ) -> ResultT:
        """Attempt something until it succeeds, cannot succeed, or patience is over."""
        stranger = server not in self._met
        retries = Retries(attempted, self._setup.patience, self._setup.randomness, stranger=stranger)
        try:
            while True:
                try:
                    return await attempt(retries)
                except (ChannelError, ServerBusyError) as error:
                    if isinstance(error, SilentPeerError | UnansweredError):
                        self._suspected.add(1 - server)
                    if ends_connection(error):
                        await self._connections[server].leave()
                    await self._let_the_other_speak(server, error)
                    self._failing.add(server)
                    await retries.wait_or_raise(error)
        finally:
            self._failing.discard(server)

    async def _let_the_other_speak(self, server: int, error: ChannelError | ServerBusyError) -> None:
        """Let the request to the other server fail first, if this one was not answered because of that server."""
        if isinstance(error, UnansweredError) and 1 - server in self._failing:
            await trio.sleep(LONGEST_PAUSE)

    async def _unless_stuck(self, attempted: Attempted, asking: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Wait for an answer, or until it is certain that there will be none."""

        async def watch() -> None:
            raise MisuseError(f"{attempted.server}: {attempted.doing}: {await self._setup.stuck()}")

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                answer = await asking()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            error = _first_reason(group)
            raise error from error.__cause__
        return answer

    async def _ask_once(
        self,
        server: int,
        message: messages.FromClient,
        bulk: tuple[Buffer, ...],
        expected: type[ReplyT],
        retries: Retries,
    ) -> Received[ReplyT]:
        self._setup.watch(self._name, f"S{server}", message, sum(len(part) for part in bulk))
        connection = self._connections[server]
        await self._check_if_suspected(server)
        reply = await connection.request(*encode(message, *bulk), until=retries.until, remind=retries.remind)
        return _expect(server, message, decode(reply, messages.FromServer, f"S{server}"), expected)

    async def _check_if_suspected(self, server: int) -> None:
        """Before a connection is used whose twin was dead unnoticed: what had forgotten the one may have both."""
        if server in self._suspected:
            self._suspected.discard(server)
            await self._connections[server].check(*encode(messages.AskTask()), until=trio.current_time() + LEAST)

    def _name_of(self, server: int) -> str:
        return f"S{server} ({self._setup.addresses[server]})"

    def _reply_limit(self) -> int:
        """The longest reply that any request can have; exact sizes are checked where a reply is read."""
        task = self._setup.task
        blocks = max(8 * block.weights for block in task.blocks)
        rows = ((SEGMENTS * bin_limits(block)[1] + block.stash, block.width) for _, block in task.sparse_blocks())
        answer = sum(8 * (trees + 1) * width for trees, width in rows)  # a block's tags are as long as one row
        return CONTROL_LIMIT + max(answer, blocks, longest_statement(task))

    # ---- connecting

    async def _connect(self, server: int) -> Channel:
        """Connect to a server, and check that it runs the same task: what it shows in the handshake says so."""
        channel = await self._dial(server)
        try:
            if not serves(channel.introduction.peer_payload, self._task_digest):
                await self._compare_tasks(server, channel)
        except BaseException:
            await channel.aclose()
            raise
        self._met.add(server)
        return channel

    async def _compare_tasks(self, server: int, channel: Channel) -> None:
        """Ask a server for the task that it runs.

        Raises:
            MisuseError: it is another one; the message says how they differ.
        """
        self._setup.watch(self._name, f"S{server}", messages.AskTask(), 0)
        await channel.send(*encode(messages.AskTask()))
        received = decode(await _soon(channel, self._reply_limit()), messages.FromServer, f"S{server}")
        theirs = _expect(server, messages.AskTask(), received, messages.TaskIs).message.task
        if theirs != self._setup.task.canonical():
            raise MisuseError(task_difference(server, self._setup.task, Task.parse(theirs, f"S{server}")))

    async def _dial(self, server: int) -> Channel:
        setup = self._setup
        shown = voucher(setup.token, self._task_digest, server) if setup.token else NO_VOUCHER
        settings = HandshakeSettings(
            private_key=setup.identity.channel_secret,
            role=Role.CLIENT,
            kind=setup.kind,
            randomness=setup.randomness,
            payload=Credentials.of(setup.identity, self._task_digest, shown).encode(),
        )
        return await setup.transport.dial(setup.addresses[server], setup.servers[server].channel, settings)


async def _soon(channel: Channel, limit: int) -> bytearray:
    """Wait for a reply that every server has at hand; a server that gives signs of life and no reply is of no use."""
    with trio.move_on_after(PATIENCE):
        await channel.awaited()
        return await channel.receive(limit)
    raise HandshakeTimeoutError(f"the server did not say within {PATIENCE:g} s which task it runs")


async def _open(connection: ServerConnection, retries: Retries) -> None:
    await connection.open(retries.until)


def task_difference(server: int, ours: Task, theirs: Task) -> str:
    """What to say of a server that runs another task."""
    field_name, mine, other = first_difference(ours, theirs) or ("", "", "")
    return f"S{server} runs another task: {field_name} is {other} there, {mine} here; use the servers' task file"


def _expect(
    server: int, message: messages.FromClient, received: Received[messages.FromServer], expected: type[ReplyT]
) -> Received[ReplyT]:
    """A reply of the expected kind; else what it stands for is raised."""
    match received.message:
        case messages.Refused() as refused:
            raise refusal(server, refused)
        case reply if isinstance(reply, expected):
            return Received(reply, received.bulk)
        case reply:
            raise PeerViolationError(f"S{server}", f"answered {type(message).__name__} with {type(reply).__name__}")


def refusal(server: int, message: messages.Refused) -> RoundClosedError | RequestDeniedError:
    """The error that a server's refusal stands for; the explanation is the server's text, made printable."""
    explanation = printable(message.explanation)
    match message:
        case messages.Refused(reason="round-closed"):
            return RoundClosedError(f"S{server}: {explanation}; the next call enters the next round")
        case messages.Refused(reason="busy"):
            after = message.retry_after
            return ServerBusyError(server, f"{explanation}; try again after {after} s", after)
        case _:
            return RequestDeniedError(server, message.reason, explanation)


def _doing(message: messages.FromClient) -> str:
    """What a request is for, for people."""
    match message:
        case messages.AskTask():
            return "asking for its task"
        case messages.Enter(after=after):
            return f"waiting for a round after round {after}" if after else "waiting for a round"
        case messages.Retrieve() | messages.Recall():
            return "retrieving rows"
        case messages.Download(block=block):
            return f"downloading block {block!r}"
        case messages.Submit() | messages.Hint():
            return "submitting"
        case messages.AskOutcome():
            return "waiting for a round's outcome"
        case _:
            assert_never(message)


def _first_reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of a group that tells most: a refusal or violation, not a connection that broke because of it."""
    return min(leaves(group), key=lambda error: (isinstance(error, ChannelError), isinstance(error, trio.Cancelled)))
