"""Cases about messages: whole, in order, and no faster than they are read."""

from __future__ import annotations

import random

import trio

from fsl_async.errors import ChannelError
from transport.channel import Channel
from transport.errors import ChannelBrokenError, ChannelClosedError
from transport.testing.case import ALICE, LARGE, SERVER, ConformanceError, Lab, echo, expect, require, sleep

SIZES = (0, 1, 65_509, 65_510, 65_511, 65_535, 65_536, 10_000_000)
BUFFERED = 32
"""MiB: more than a stream may buffer."""
CANCELLED_MESSAGES = 5
"""Received with cancelled reads: with one message alone, about one losing stream in fifteen goes unnoticed."""
LONG = bytes((BUFFERED + 1) << 20)


async def both_ends_know_each_other(lab: Lab) -> None:
    """The listener's handler and the dialling side have one channel, each with the other's key and payload."""
    met: list[Channel] = []

    async def remember(channel: Channel) -> None:
        met.append(channel)
        await echo(channel)

    await lab.serve(remember)
    async with await lab.dial(payload=b"alice") as channel:
        await channel.send(b"")
        await channel.receive(0)
        (far,) = met
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
