"""What an actor takes, one after the other, and where the server's tasks put it; see `parties.server.actor`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import trio

from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import AskedList, HeldParts, Known, OfRound, TossCommitment, TossReveal
from parties.server.peer.forwarding import Forwarded

Said: TypeAlias = Known | TossCommitment | TossReveal | AskedList | HeldParts | OfRound
"""Messages of the peer's that the actor takes; a public part that it forwards is a `Forwarded` instead."""


@dataclass(frozen=True)
class Heard:
    """A message of the peer's."""

    message: Said
    bulk: memoryview


@dataclass(frozen=True)
class Ours:
    """An event of our own for a round."""

    round_id: bytes
    event: Event


@dataclass(frozen=True)
class Gathered:
    """The clients that have asked for that round by now are to be listed."""

    number: int


Notice: TypeAlias = Literal["peer met", "submissions wait"]
"""The servers are connected (again); submissions are stored, and wait to be entered in their round's list."""

Item: TypeAlias = Heard | Forwarded | Ours | Gathered | Notice | trio.Event
"""An event of trio's is set when its turn comes: what was put in before it has been taken by then."""


class Inbox:
    """Where the server's tasks put what the actor is to take; once that has ended, nothing put here waits for it."""

    def __init__(self) -> None:
        self._in, self._out = trio.open_memory_channel[Item](64)
        self._submitted: list[tuple[bytes, ssa.Submitted]] = []

    async def post(self, round_id: bytes, event: Event) -> None:
        """Post an event of our own for a round; submissions that wait for their turn at the same time have one."""
        if not isinstance(event, ssa.Submitted):
            await self.put(Ours(round_id, event))
            return
        self._submitted.append((round_id, event))
        if len(self._submitted) == 1:
            await self.put("submissions wait")

    async def all_taken(self) -> None:
        """Wait until everything posted so far has been taken, or the actor has ended."""
        taken = trio.Event()
        await self.put(taken)
        await taken.wait()

    async def put(self, item: Item) -> None:
        """Put something in; an actor that has ended takes nothing, and the server ends with it."""
        try:
            await self._in.send(item)
        except trio.BrokenResourceError:
            if isinstance(item, trio.Event):
                item.set()

    # ---- for the actor

    @asynccontextmanager
    async def items(self) -> AsyncIterator[AsyncIterator[Item]]:
        """What is put in, as it comes, until the block ends, and with it the actor."""
        async with self._out:
            try:
                yield self._out
            finally:
                with suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        item = self._out.receive_nowait()
                        if isinstance(item, trio.Event):
                            item.set()

    def submitted(self) -> list[tuple[bytes, ssa.Submitted]]:
        """Take all submissions that wait, each with its round."""
        submitted, self._submitted = self._submitted, []
        return submitted
