"""The side of a forwarding link that takes clients' public parts: see `fsl_async.wire.forward_messages`.

The other server is not trusted. Rules:

- A part is read only after it was offered and is wanted, and room was lent for it; a peer that sends another one, one
  of another size, or more offers at a time than are allowed, breaks the protocol, and loses its link.
- What is wanted must come in time, and at a pace; else the link ends, and its room is free.
- A part is hashed in the lane and compared with the digest under which it was offered, before it is put; it is
  acknowledged once whoever decides has noted it. Another digest, or a form that no part has, is the peer's violation:
  its own server has checked the part before it was offered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, assert_never

import trio

from fsl_async.errors import PeerViolationError
from fsl_async.wire.codec import bulk_overhead, decode, encode
from fsl_async.wire.forward_messages import (
    FromKeeper,
    FromSender,
    OfferPart,
    PartFollows,
    PartLater,
    PartTaken,
    PartUnwanted,
    PartWanted,
)
from parties.server.peer.link import PACE
from parties.server.traffic import Traffic
from transport import Channel, TooSlowError

__all__ = ["FORWARDED_BYTES", "MOST_LINKS", "ForwardKeeper", "ForwardRoom", "PartDesk", "Verdict"]

MOST_LINKS = 32
"""Forwarding links from one peer at a time: one for each of its doors."""

MOST_OFFERS = 64
"""Offers on one link that are not settled; each costs a task and a few hundred bytes."""

FORWARDED_BYTES = 128 << 20
"""Room in memory for parts that the other server is forwarding, besides what clients have."""

PATIENCE = 120.0
"""Seconds for which nothing may come on a link while parts are wanted on it; what comes has its own pace."""


class Verdict(Enum):
    """What becomes of an offer."""

    WANTED = PartWanted
    UNWANTED = PartUnwanted
    LATER = PartLater


class PartDesk(Protocol):
    """Decides about parts that the other server forwards, and keeps them."""

    async def offered(self, offer: OfferPart) -> Verdict:
        """Decide about a part of which nothing has come.

        Raises:
            PeerViolationError: no server that keeps the protocol offers it.
        """

    async def keep(self, offer: OfferPart, part: memoryview) -> None:
        """Examine a part that was wanted, keep it and note that it is here.

        Raises:
            PeerViolationError: it is not the one that was offered.
            StorageError: it could not be kept.
        """


class ForwardRoom:
    """The bytes that forwarded parts may have in memory, over all links.

    Args:
        limit: bytes in all; a longer part is taken alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._freed = trio.Condition()

    @asynccontextmanager
    async def lent(self, size: int) -> AsyncIterator[None]:
        """Room for one part, as soon as there is."""
        async with self._freed:
            while self.used and self.used + size > self.limit:
                await self._freed.wait()
            self.used += size
        try:
            yield
        finally:
            self.used -= size
            with trio.CancelScope(shield=True):
                async with self._freed:
                    self._freed.notify_all()


@dataclass
class _Awaited:
    """A part that is wanted.

    Attributes:
        offer: what was said of it.
        came: set once it has come.
        part: its bytes.
    """

    offer: OfferPart
    came: trio.Event = field(default_factory=trio.Event)
    part: memoryview = field(default=memoryview(b""), repr=False)


class ForwardKeeper:
    """Takes what the other server forwards, over any number of links.

    Args:
        peer: the other server's name.
        desk: decides about parts and keeps them.
        room: the memory that parts may take.
        traffic: tells of every message.
    """

    def __init__(self, peer: str, desk: PartDesk, room: ForwardRoom, traffic: Traffic) -> None:
        self._peer = peer
        self._desk = desk
        self._room = room
        self._traffic = traffic

    async def hold(self, channel: Channel) -> None:
        """Take parts over one link, until it ends.

        Raises:
            PeerViolationError: the peer broke the protocol.
            ChannelError: the link was lost, or the peer was too slow.
        """
        await _Link(self._peer, self._desk, self._room, self._traffic, channel).run()


class _Link:
    """One link."""

    def __init__(self, peer: str, desk: PartDesk, room: ForwardRoom, traffic: Traffic, channel: Channel) -> None:
        self._peer = peer
        self._desk = desk
        self._room = room
        self._traffic = traffic
        self._channel = channel
        self._offers: set[int] = set()
        self._awaited: dict[int, _Awaited] = {}
        self._is_coming = False
        self._came_at = trio.current_time()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._channel.beat)
            while True:
                length = await self._channel.announced(pace=PACE)
                self._is_coming = True
                data = await self._channel.receive(self._longest(length), pace=PACE)
                self._is_coming = False
                message, bulk = decode(data, FromSender, self._peer)
                self._traffic.received(self._peer, message, length)
                match message:
                    case OfferPart() if not bulk:
                        self._note(message)
                        nursery.start_soon(self._settle, message)
                    case PartFollows(number=number):
                        self._take(number, bulk)
                    case _:
                        raise PeerViolationError(self._peer, "sends bulk with an offer")

    def _longest(self, length: int) -> int:
        """The longest message that may come now: an offer, or one of the parts that are wanted."""
        longest = max((awaited.offer.size for awaited in self._awaited.values()), default=0) + bulk_overhead()
        if length > longest:
            raise PeerViolationError(self._peer, f"sends {length:,} bytes where {longest:,} are the most")
        return longest

    def _note(self, offer: OfferPart) -> None:
        if offer.number in self._offers or len(self._offers) >= MOST_OFFERS:
            raise PeerViolationError(self._peer, f"offers twice under one number, or more than {MOST_OFFERS} at a time")
        self._offers.add(offer.number)

    def _take(self, number: int, part: memoryview) -> None:
        awaited = self._awaited.pop(number, None)
        if awaited is None:
            raise PeerViolationError(self._peer, "forwards a part that is not wanted")
        if len(part) != awaited.offer.size:
            expected = awaited.offer.size
            raise PeerViolationError(self._peer, f"forwards {len(part):,} bytes of a part offered with {expected:,}")
        awaited.part = part
        awaited.came.set()
        self._came_at = trio.current_time()

    async def _settle(self, offer: OfferPart) -> None:
        """Decide about one offer, and take the part if it is wanted."""
        verdict = await self._desk.offered(offer)
        match verdict:
            case Verdict.UNWANTED | Verdict.LATER:
                self._offers.discard(offer.number)
                await self._say(verdict.value(offer.number))
            case Verdict.WANTED:
                async with self._room.lent(offer.size):
                    await self._take_in(offer)
                self._offers.discard(offer.number)
                await self._say(PartTaken(offer.number))
            case _:
                assert_never(verdict)

    async def _take_in(self, offer: OfferPart) -> None:
        awaited = self._awaited[offer.number] = _Awaited(offer)
        await self._say(PartWanted(offer.number))
        await self._until_come(awaited)
        await self._desk.keep(offer, awaited.part)

    async def _until_come(self, awaited: _Awaited) -> None:
        """Wait for a part that is wanted: for as long as parts come at all, because they come one after the other.

        Raises:
            TooSlowError: none has come for too long.
        """
        asked_at = trio.current_time()
        while not awaited.came.is_set():
            since = trio.current_time() if self._is_coming else max(asked_at, self._came_at)
            if trio.current_time() >= since + PATIENCE:
                raise TooSlowError(
                    f"{self._peer} has sent no part for {PATIENCE:g} s, though it was told of some wanted"
                )
            with trio.move_on_at(since + PATIENCE):
                await awaited.came.wait()

    async def _say(self, message: FromKeeper) -> None:
        parts = encode(message)
        await self._channel.send(*parts, pace=PACE)
        self._traffic.sent(self._peer, message, sum(map(len, parts)), 0)
