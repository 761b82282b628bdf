"""The cases. About messages: whole, in order, and no faster than they are read.

About a connection's life: how it begins and ends, and that others do not notice. About listening: which addresses there
are, who has them, and that a listener's limits hold. Every public function is a case: its docstring is the rule.
"""

from __future__ import annotations

import random
from dataclasses import replace

import trio

from fsl_async.errors import ChannelError, FslError
from transport.channel import Channel
from transport.errors import (
    BusyError,
    ChannelBrokenError,
    ChannelClosedError,
    ConnectionLostError,
    HandshakeTimeoutError,
    RefusedError,
    UnreachableError,
)
from transport.handshake import Refusal
from transport.testing.case import (
    ALICE,
    LARGE,
    SERVER,
    STRANGER,
    UNLIMITED,
    ConformanceError,
    Lab,
    expect,
    require,
    sleep,
)

SIZES = (0, 1, 65_509, 65_510, 65_511, 65_535, 65_536, 10_000_000)
BUFFERED = 32
"""MiB: more than a stream may buffer."""
CANCELLED_MESSAGES = 5
"""Received with cancelled reads: with one message alone, about one losing stream in fifteen goes unnoticed."""
LONG = bytes((BUFFERED + 1) << 20)
AT_ONCE = 50


async def both_ends_know_each_other(lab: Lab) -> None:
    """The listener's handler and the dialling side have one channel, each with the other's key and payload."""
    async with lab.both_ends(b"alice") as (channel, far):
        require((channel.peer_key, far.peer_key) == (SERVER.public, ALICE.public), "an end has another peer's key")
        require(channel.handshake_hash == far.handshake_hash, "the two ends are not of one handshake")
        require(channel.introduction.peer_payload == b"this is S0", "the server's payload was not delivered")
        require(far.introduction.peer_payload == b"alice", "the client's payload was not delivered")


async def a_message_of_any_size_comes_back(lab: Lab) -> None:
    """Bytes arrive unchanged, whatever their number."""
    await lab.serve()
    async with await lab.dial() as channel:
        for size in SIZES:
            message = random.Random(size).randbytes(size)  # noqa: S311 - no secret
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.send, message)
                require(await channel.receive(size) == message, f"a message of {size:,} bytes came back changed")


async def a_message_can_be_read_from_its_beginning_first(lab: Lab) -> None:
    """A look at a message's beginning takes nothing from it, whether it is received then or discarded."""
    await lab.serve()
    async with await lab.dial() as channel:
        for size in (0, 1, 5_000, 65_511, 1_000_000):
            message = random.Random(size).randbytes(size)  # noqa: S311 - no secret
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.send, message)
                require(await channel.beginning(100) == message[:100], f"{size:,} bytes begin with others")
                require(await channel.beginning(4_096) == message[:4_096], f"{size:,} bytes begin with others later")
                require(await channel.receive(size) == message, f"a message of {size:,} bytes came changed")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.send, message)
                require(await channel.beginning(100) == message[:100], f"{size:,} bytes begin with others")
                await channel.discard()


async def messages_go_both_ways_at_once(lab: Lab) -> None:
    """Neither direction waits for the other."""
    messages = [bytes([number % 256]) * (number * 97) for number in range(300)]

    async def both_ways(channel: Channel) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_all, channel, messages)
            received = [bytes(await channel.receive(LARGE)) for _ in messages]
        require(received == messages, "messages came changed or in another order")

    async def handler(channel: Channel) -> None:
        await both_ways(channel)
        with expect(ChannelClosedError):
            await channel.receive(LARGE)

    await lab.serve(handler)
    async with await lab.dial() as channel:
        await both_ways(channel)


async def messages_of_several_senders_stay_whole(lab: Lab) -> None:
    """Tasks that send over one channel at once do not mix their bytes."""
    await lab.serve()
    messages = [bytes([number]) * 150_000 for number in range(20)]
    async with await lab.dial() as channel, trio.open_nursery() as nursery:
        for message in messages:
            nursery.start_soon(channel.send, message[:70_000], message[70_000:])
        received = [bytes(await channel.receive(LARGE)) for _ in messages]
        require(sorted(received) == messages, "messages of several senders were mixed")


async def a_sender_waits_for_its_reader(lab: Lab) -> None:
    """A stream buffers a bounded number of bytes: what nobody reads cannot be sent for ever."""
    await lab.serve(sleep)
    async with await lab.dial() as channel:
        for _ in range(BUFFERED):
            with trio.move_on_after(1) as scope:
                await channel.send(bytes(1 << 20))
            if scope.cancelled_caught:
                return
    raise ConformanceError(f"{BUFFERED} MiB were sent to a server that reads nothing")


async def a_cancelled_receive_loses_nothing(lab: Lab) -> None:
    """`receive_some` returns bytes or is cancelled, never both."""
    await lab.serve()
    message = random.Random(1).randbytes(3_000_000)  # noqa: S311 - no secret
    async with await lab.dial() as channel:
        for _ in range(CANCELLED_MESSAGES):
            require(await _received(channel, message) == message, "a receive that was cancelled has lost bytes")


async def _received(channel: Channel, message: bytes) -> bytearray:
    """Sends a message that is sent back, and receives it in turns, each of which is cancelled a little later."""
    received, turns = None, 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, message)
        while received is None:
            turns += 1
            with trio.CancelScope() as scope:
                nursery.start_soon(_cancel_after, turns, scope)
                received = await channel.receive(LARGE)
    return received


async def a_send_cancelled_half_way_breaks_the_channel(lab: Lab) -> None:
    """A stream whose `send_all` was cancelled half-way is still there to be closed."""
    await lab.serve(sleep)
    async with await lab.dial() as channel:
        with trio.move_on_after(0.2):
            await channel.send(LONG)
        with expect(ChannelBrokenError):
            await channel.send(b"more")


async def closing_does_not_wait_for_a_deaf_peer(lab: Lab) -> None:
    """A stream can be closed while a send waits in it; the send ends."""
    await lab.serve(sleep)
    channel = await lab.dial()

    async def send() -> None:
        with expect(ChannelError):
            await channel.send(LONG)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.sleep(0.2)
        await channel.aclose()


async def _send_all(channel: Channel, messages: list[bytes]) -> None:
    for message in messages:
        await channel.send(message)


async def _cancel_after(turns: int, scope: trio.CancelScope) -> None:
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    scope.cancel()


# ---- lives of connections


async def close_is_seen_after_the_last_message(lab: Lab) -> None:
    """What was sent before a close arrives, and then the close."""

    async def say_something(channel: Channel) -> None:
        await channel.send(bytes(1_000_000))

    await lab.serve(say_something)
    async with await lab.dial() as channel:
        require(len(await channel.receive(LARGE)) == 1_000_000, "the last message was cut off")
        with expect(ChannelClosedError, text="peer has closed"):
            await channel.receive(LARGE)


async def nothing_is_received_after_ones_own_close(lab: Lab) -> None:
    """Two messages that come at once: whoever closes after the first is not given the second."""

    async def say_two_things(channel: Channel) -> None:
        await channel.send(b"first")
        await channel.send(b"second")

    await lab.serve(say_two_things)
    channel = await lab.dial()
    await channel.receive(LARGE)
    await channel.aclose()
    with expect(ChannelClosedError, text="this side has closed"):
        await channel.receive(LARGE)


async def a_client_that_vanishes_is_noticed(lab: Lab) -> None:
    """When a stream's end goes away without a word, the other end is told."""
    ended = trio.Event()

    async def handler(channel: Channel) -> None:
        with expect(ConnectionLostError):
            await channel.receive(LARGE)
        ended.set()

    await lab.serve(handler)
    streams = _remembering(lab)
    channel = await lab.dial()
    await trio.aclose_forcefully(streams[-1])
    await ended.wait()
    with expect(ChannelError):
        await channel.send(b"more")


async def a_server_that_vanishes_is_noticed(lab: Lab) -> None:
    """The same the other way: a listener that is cancelled cuts its connections."""
    stop = await lab.serve()
    async with await lab.dial() as channel:
        await channel.send(b"one")
        await channel.receive(LARGE)
        await stop()
        with expect(ConnectionLostError, ChannelClosedError):
            await channel.receive(LARGE)


async def many_connections_live_side_by_side(lab: Lab) -> None:
    """Connections are made at once, and each has its own bytes."""
    await lab.serve()
    answers: dict[int, bytes] = {}

    async def take_part(number: int) -> None:
        async with await lab.dial() as channel:
            for step in range(3):
                await channel.send(bytes([number, step]) * 10_000)
                answers[number] = bytes(await channel.receive(LARGE))

    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE):
            nursery.start_soon(take_part, number)
    wrong = [number for number, answer in answers.items() if answer != bytes([number, 2]) * 10_000]
    require(not wrong, f"{len(wrong)} of {AT_ONCE} connections got another one's bytes")


async def a_stranger_is_refused_and_told_why(lab: Lab) -> None:
    """The listener's answer arrives before it closes the stream."""
    await lab.serve()
    with expect(RefusedError, text="unknown client"):
        await lab.dial(STRANGER)


async def foreign_bytes_end_one_connection_only(lab: Lab) -> None:
    """What is not our protocol is closed, and observed with where it came from; the listener continues."""
    await lab.serve()
    stream = await lab.transport.connect(lab.address)
    async with stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: example\r\n\r\n" * 40)
        try:
            while await stream.receive_some(4_096):
                pass
        except trio.BrokenResourceError:
            pass
    origin, _ = (await lab.seen(1))[0]
    require(isinstance(origin, str) and origin, f"a connection comes from {origin!r}; limits count by a text")
    await _check_serving(lab)


async def a_handler_that_fails_ends_one_connection_only(lab: Lab) -> None:
    """The other connections of a listener do not notice."""

    async def fail_when_told(channel: Channel) -> None:
        if await channel.receive(LARGE) == b"fail":
            raise FslError("as it was told")
        await channel.send(b"here")

    await lab.serve(fail_when_told)
    async with await lab.dial() as other:
        async with await lab.dial() as failing:
            await failing.send(b"fail")
            with expect(ConnectionLostError, ChannelClosedError):
                await failing.receive(LARGE)
        await other.send(b"go on")
        require(await other.receive(LARGE) == b"here", "another connection was ended as well")


async def a_dial_that_is_cancelled_leaves_nothing(lab: Lab) -> None:
    """`connect` and what follows can be cancelled; the place that the handshake had is free again."""

    async def never_decide_for_strangers(key: bytes, payload: bytes) -> bytes | Refusal:
        if key == STRANGER.public:
            await trio.sleep_forever()
        return b""

    settings = replace(lab.service().settings, deadline=0.5)
    await lab.serve(admit=never_decide_for_strangers, settings=settings)
    for _ in range(5):
        with trio.move_on_after(0.1) as scope:
            await lab.dial(STRANGER)
        require(scope.cancelled_caught, "a dial that nobody answers has come to an end")
    await lab.seen(5)
    await _check_serving(lab)


async def a_dial_has_a_deadline(lab: Lab) -> None:
    """`dial` gives up after its settings' deadline, whatever `connect` waits for."""

    async def never_decide(key: bytes, payload: bytes) -> bytes | Refusal:
        await trio.sleep_forever()
        return b""  # pragma: no cover

    await lab.serve(admit=never_decide)
    with expect(HandshakeTimeoutError):
        await lab.dial(deadline=0.3)


async def _check_serving(lab: Lab) -> None:
    async with await lab.dial() as channel:
        await channel.send(b"still there?")
        require(await channel.receive(LARGE) == b"still there?", "the listener does not serve any more")


def _remembering(lab: Lab) -> list[trio.abc.Stream]:
    """The bare streams that the laboratory's transport makes from now on."""
    streams: list[trio.abc.Stream] = []
    connect = lab.transport.connect

    async def connect_and_remember(address: str) -> trio.abc.Stream:
        streams.append(await connect(address))
        return streams[-1]

    lab.transport.connect = connect_and_remember  # type: ignore[method-assign]
    return streams


async def a_listener_reports_an_address_that_can_be_dialled(lab: Lab) -> None:
    """`listen` calls `task_status.started` with the address, once it can be dialled."""
    await lab.serve()
    require(isinstance(lab.address, str) and lab.address, f"a listener reports {lab.address!r} for its address")
    async with await lab.dial():
        pass


async def an_address_has_one_listener(lab: Lab) -> None:
    """A second listener at an address is refused, and the first one serves on."""
    await lab.serve()
    with expect(UnreachableError):
        await lab.serve()
    async with await lab.dial():
        pass


async def nothing_listens_where_a_listener_has_ended(lab: Lab) -> None:
    """Dialling an address at which nothing listens is an `UnreachableError` at once."""
    stop = await lab.serve()
    await stop()
    with trio.fail_after(5), expect(UnreachableError):
        await lab.dial()


async def an_address_is_free_again(lab: Lab) -> None:
    """When a listener has ended, another one may listen at its address."""
    for _ in range(3):
        stop = await lab.serve()
        async with await lab.dial() as channel:
            await channel.send(b"hello")
            await channel.receive(LARGE)
        await stop()


async def limits_hold(lab: Lab) -> None:
    """A transport serves through a `Listener`, so that the limits hold: here, connections with one key."""
    await lab.serve(limits=replace(UNLIMITED, per_key=1))
    async with await lab.dial():
        with expect(BusyError):
            await lab.dial()
