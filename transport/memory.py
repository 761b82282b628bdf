"""Channels between parties in one process, with the same handshake, records and limits as over TCP.

An address is any name.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import trio

from transport.errors import UnreachableError
from transport.interface import LISTEN, Transport
from transport.listener import Listener, Service
from transport.pipe import pipe_pair

_BACKLOG = 1_024


class MemoryNetwork(Transport):
    """A network of its own; endpoints reach each other within one `MemoryNetwork` only.

    Args:
        steady: whether connections need no signs of life, because nothing can come between the two ends.
    """

    def __init__(self, *, steady: bool = False) -> None:
        self._steady = steady
        self._queues: dict[str, trio.MemorySendChannel[tuple[trio.abc.Stream, str]]] = {}
        self._numbers = itertools.count(1)

    async def connect(self, address: str) -> trio.abc.Stream:
        """Makes a pair of streams and queues one end with the listener; see `Transport.connect`."""
        near, far = self.make_pair()
        try:
            await self._queues[address].send((far, self._origin()))
        except (KeyError, trio.BrokenResourceError) as error:
            raise UnreachableError(
                f"nothing listens at {address!r} in this network; these do: {sorted(self._queues)}"
            ) from error
        return near

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves under a name; see `Transport.listen`."""
        LISTEN.require_trio()
        if address in self._queues:
            raise UnreachableError(f"there is already a listener at {address!r}; take another name")
        sending, receiving = trio.open_memory_channel[tuple[trio.abc.Stream, str]](_BACKLOG)
        self._queues[address] = sending
        try:
            task_status.started(address)
            await Listener(service).serve(receiving.receive)
        finally:
            del self._queues[address]
            await _turn_away(receiving)

    def make_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        """Makes every connection of this network; a subclass can record, delay or cut them here."""
        return pipe_pair(steady=self._steady)

    def _origin(self) -> str:
        """Names the dialling end for the listener's limits: every connection counts as a host of its own."""
        return f"memory-{next(self._numbers)}"


async def _turn_away(queue: trio.MemoryReceiveChannel[tuple[trio.abc.Stream, str]]) -> None:
    """Closes the queue, and the connections in it that will never be accepted."""
    with queue, suppress(trio.WouldBlock):
        while True:
            stream, _ = queue.receive_nowait()
            await trio.aclose_forcefully(stream)
