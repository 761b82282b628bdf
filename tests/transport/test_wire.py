"""A wire over a socket sleeps until what it needs is there, and no longer than that."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from transport.errors import ConnectionLostError
from transport.sockets import SocketStream
from transport.wire import Wire

DATA = bytes(range(256))


class Reads:
    """Counts how often a stream is read from."""

    def __init__(self, stream: SocketStream) -> None:
        self.count = 0
        self._receive_now = stream.receive_now
        stream.receive_now = self

    def __call__(self, *words) -> bytes | None:
        self.count += 1
        return self._receive_now(*words)


class Unable:
    """A socket of a system that has no `SO_RCVLOWAT`."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def setsockopt(self, *words) -> None:
        raise OSError("protocol not available")


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[SocketStream, trio.SocketStream]]:
    """Both ends of a connection over TCP."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        far = await trio.open_tcp_stream(*listener.socket.getsockname())
        near = SocketStream(await listener.accept())
    async with near, far:
        yield near, far


async def trickle(far: trio.SocketStream) -> None:
    """Send byte by byte, and let everybody else do what they can after each."""
    for place in range(len(DATA)):
        await send_when_asleep(far, DATA[place : place + 1])


async def send_when_asleep(far: trio.SocketStream, data: bytes) -> None:
    """Send once nobody has anything to do."""
    await trio.testing.wait_all_tasks_blocked(0.002)
    await far.send_all(data)


async def reset(far: trio.SocketStream) -> None:
    """Go without an end of the stream."""
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await far.aclose()


async def test_one_that_sends_byte_by_byte_wakes_nobody_before_all_is_there():
    async with connected() as (near, far):
        reads = Reads(near)
        assert await trickled(near, far) == DATA
        assert reads.count <= 3


async def test_a_system_that_cannot_wait_for_more_wakes_us_for_each_byte(monkeypatch):
    async with connected() as (near, far):
        monkeypatch.setattr(near, "_socket", Unable(near._socket))
        assert await trickled(near, far) == DATA


async def trickled(near: SocketStream, far: trio.SocketStream) -> bytes:
    """What is read of data that comes byte by byte."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, far)
            return await Wire(near).receive_exactly(len(DATA))


async def test_what_comes_next_is_read_at_its_first_byte():
    async with connected() as (near, far):
        wire = Wire(near)
        await far.send_all(DATA)
        assert await wire.receive_exactly(len(DATA)) == DATA
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_when_asleep, far, b"x")
                assert await wire.receive_some(100) == b"x"


async def test_what_was_too_little_for_one_reader_wakes_the_next_one():
    """A reader gives up on bytes that it needs; the next one, already asleep or not, is content with less."""
    async with connected() as (near, far):
        wire = Wire(near)
        with trio.move_on_after(0.05) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_when_asleep, far, b"few")
                await wire.receive_some(100, needed=100)
        assert scope.cancelled_caught
        with trio.fail_after(5):
            assert await wire.receive_some(100) == b"few"


@pytest.mark.parametrize("sent", [0, 1, len(DATA) - 1])
@pytest.mark.parametrize("leave", [trio.SocketStream.send_eof, reset], ids=["end", "reset"])
async def test_the_end_wakes_a_reader_that_needs_more(sent, leave):
    async def go() -> None:
        await send_when_asleep(far, DATA[:sent])
        await trio.testing.wait_all_tasks_blocked(0.01)
        await leave(far)

    async with connected() as (near, far), trio.open_nursery() as nursery:
        nursery.start_soon(go)
        with trio.fail_after(5), pytest.raises(ConnectionLostError):
            await Wire(near).receive_exactly(len(DATA))
