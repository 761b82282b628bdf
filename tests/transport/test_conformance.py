"""The suite for transports notices what a transport does wrong: each of these breaks one rule."""

from collections import deque
from contextlib import suppress

import pytest
import trio
import trio.lowlevel

from transport import Listener, MemoryNetwork, TcpTransport, UnreachableError
from transport.memory import pipe_pair
from transport.testing import CASES, Case, ConformanceError
from transport.testing.__main__ import main

BY_NAME = {case.name: case for case in CASES}


class Endless(trio.abc.Stream):
    """Buffers whatever is sent, without a bound."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream, self._waiting, self._came = stream, deque(), trio.Event()
        trio.lowlevel.spawn_system_task(self._move)

    async def _move(self) -> None:
        try:
            while True:
                await self._came.wait()
                self._came = trio.Event()
                while self._waiting:
                    await self._stream.send_all(self._waiting.popleft())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def send_all(self, data) -> None:
        self._waiting.append(bytes(data))
        self._came.set()
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes=None) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Forgetful(Endless):
    """Takes bytes out of the stream and then waits, so that a cancelled read loses them."""

    async def send_all(self, data) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes=None) -> bytes:
        data = await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        return data


class Wrapping(MemoryNetwork):
    """A network of streams that are wrapped on both ends."""

    wrapper = Endless

    def make_pair(self):
        near, far = pipe_pair(steady=False)
        return self.wrapper(near), self.wrapper(far)


class Losing(Wrapping):
    """Loses bytes when a read is cancelled."""

    wrapper = Forgetful


class Unlimited(MemoryNetwork):
    """Gives each connection a listener of its own, so that no limit holds."""

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED):
        sending, receiving = trio.open_memory_channel(100)
        self._queues[address] = sending
        task_status.started(address)
        async with trio.open_nursery() as nursery:
            async for connection in receiving:
                nursery.start_soon(Listener(service).serve, Once(connection).accept)


class Once:
    """Accepts one connection, and then none."""

    def __init__(self, connection) -> None:
        self._connections = [connection]

    async def accept(self):
        return self._connections.pop() if self._connections else await trio.sleep_forever()


class Raw(TcpTransport):
    """Lets the system's own errors out."""

    async def connect(self, address):
        host, _, port = address.rpartition(":")
        return await trio.open_tcp_stream(host, int(port))


class Clinging(MemoryNetwork):
    """Keeps its address when its listener has ended."""

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED):
        if getattr(self, "taken", False):
            raise UnreachableError("taken")
        self.taken = True
        await super().listen(address, service, task_status=task_status)


class Sharing(MemoryNetwork):
    """Lets a second listener take over an address."""

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED):
        self._queues.pop(address, None)
        with suppress(KeyError):
            await super().listen(address, service, task_status=task_status)


class Silent(MemoryNetwork):
    """Does not report where it listens."""

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED):
        task_status.started(None)
        await super().listen(address, service)


class Nameless(MemoryNetwork):
    """Does not say where a connection comes from."""

    def _origin(self):
        return ""


class Slow(MemoryNetwork):
    """Waits where it cannot connect."""

    async def connect(self, address):
        if address not in self._queues:
            await trio.sleep_forever()
        return await super().connect(address)


FAULTS = [
    (Wrapping, "a_sender_waits_for_its_reader"),
    (Losing, "a_cancelled_receive_loses_nothing"),
    (Unlimited, "limits_hold"),
    (Raw, "nothing_listens_where_a_listener_has_ended"),
    (Clinging, "an_address_is_free_again"),
    (Sharing, "an_address_has_one_listener"),
    (Silent, "a_listener_reports_an_address_that_can_be_dialled"),
    (Nameless, "foreign_bytes_end_one_connection_only"),
    (Slow, "nothing_listens_where_a_listener_has_ended"),
]


@pytest.mark.parametrize(("make", "case"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_noticed(make, case):
    with pytest.raises(ConformanceError):
        BY_NAME[case].run(make, "127.0.0.1:0")


def test_a_case_that_hangs_is_named(monkeypatch):
    async def hang(lab) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr("transport.testing.case.PATIENCE", 0.05)
    with pytest.raises(ConformanceError, match=r"hung for 0\.05 s; but it ends"):
        Case("wait", "it ends", hang).run(MemoryNetwork, "s0")


def test_the_command_says_of_each_case_whether_it_passed(capsys):
    assert main(["transport:MemoryNetwork", "s0", "--only", "address"]) == 0
    assert main(["tests.transport.test_conformance:Clinging", "s0", "--only", "is_free"]) == 1
    passed, failed = capsys.readouterr().out.split("3 of 3 passed\n")
    assert passed.count(" ok\n") == 3
    assert failed.startswith("an address is free again")
    assert "FAILED: UnreachableError: taken; but When a listener has ended" in failed
    assert failed.endswith("0 of 1 passed\n")
