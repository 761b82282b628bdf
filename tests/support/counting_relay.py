"""A TCP relay that counts what passes it: before a process's only port, all that the process is sent and sends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


@dataclass
class CountingRelay:
    """Passes on connections from one address to another, unchanged.

    Attributes:
        listen: host:port, where it listens.
        to: host:port, whom it connects to.
        inward: bytes that have gone there.
        outward: bytes that have come from there.
        ports: its own ports towards there, of all connections so far.
    """

    listen: str
    to: str
    inward: int = 0
    outward: int = 0
    ports: set[int] = field(default_factory=set)

    @property
    def passed(self) -> int:
        """Bytes both ways."""
        return self.inward + self.outward

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Relay until cancelled."""
        host, _, port = self.listen.partition(":")
        await trio.serve_tcp(self._relay, int(port), host=host, task_status=task_status)

    async def _relay(self, here: trio.SocketStream) -> None:
        host, _, port = self.to.partition(":")
        try:
            there = await trio.open_tcp_stream(host, int(port))
        except OSError:
            return
        self.ports.add(there.socket.getsockname()[1])
        async with here, there, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, here, there, "inward", nursery.cancel_scope)
            nursery.start_soon(self._pass, there, here, "outward", nursery.cancel_scope)

    async def _pass(
        self, source: trio.SocketStream, into: trio.SocketStream, way: str, scope: trio.CancelScope
    ) -> None:
        try:
            async for data in source:
                setattr(self, way, getattr(self, way) + len(data))
                await into.send_all(data)
        except BROKEN:
            pass
        scope.cancel()


@contextmanager
def counting_relay(listen: str, to: str) -> Iterator[CountingRelay]:
    """A relay in a thread of its own, for as long as the block lasts."""
    relay, listening = CountingRelay(listen, to), threading.Event()
    running: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            running.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            listening.set()

    thread = threading.Thread(target=partial(trio.run, live), daemon=True)
    thread.start()
    assert listening.wait(30), f"nothing can listen at {listen}"
    try:
        yield relay
    finally:
        ((token, scope),) = running
        token.run_sync_soon(scope.cancel)
        thread.join()
