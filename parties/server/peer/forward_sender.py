"""The side of a forwarding link that sends clients' public parts: see `fsl_async.wire.forward_messages`.

Orders come from whoever decides; each is carried out once, or given back: then it stands, and comes again. Rules:

- A part is read from the blobs when the other server wants it, and not before.
- Several parts are under way at a time; the other server says how fast.
- Without a link, orders wait for the next attempt to dial, and are given back if it fails.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.error_groups import leaves
from fsl_async.errors import ChannelError, PeerViolationError, StorageError
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
from parties.concurrency import RecurringEvent
from parties.server.peer.link import PACE
from parties.server.store_layout import RequestKey, part_name, round_prefix
from parties.server.traffic import Traffic
from transport import Channel

__all__ = ["ForwardSender", "Order"]

_log = logging.getLogger("parties.door")

UNDER_WAY = 16
"""Parts of one link that are offered or on their way."""

IN_MEMORY = 2
"""Parts that are read: one leaves, and the next one is ready."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds until the other server is dialled again: twice as long each time."""

OFFERED_AGAIN = 1.0
"""Seconds until a part is offered again whose round the other server does not know yet."""


@dataclass(frozen=True)
class Order:
    """A part that is to be forwarded.

    Attributes:
        order: its number.
        round_id: the round, and `number` its number.
        key: the request.
        part: the digest of the part.
    """

    order: int
    round_id: bytes
    number: int
    key: RequestKey
    part: bytes

    @property
    def blob(self) -> str:
        """Under which name the part lies."""
        return part_name(round_prefix(self.number), self.key, self.part)


Read: TypeAlias = Callable[[Order], Awaitable[memoryview]]
"""Reads the part that an order is of."""

Size: TypeAlias = Callable[[Order], Awaitable[int | None]]
"""The bytes of the part that an order is of."""

Report: TypeAlias = Callable[[Order, Literal["forwarded", "not-forwarded"]], None]
"""Tells what became of an order."""


@dataclass
class _Offer:
    """An order under way.

    Attributes:
        order: the order.
        answered: occurs when the other server has said something about it.
        answers: what it has said and nobody has taken yet.
        is_asked_for: whether whoever gave the order still knows of it.
    """

    order: Order
    answered: RecurringEvent = field(default_factory=RecurringEvent)
    answers: deque[FromKeeper] = field(default_factory=deque)
    is_asked_for: bool = True

    async def next(self) -> FromKeeper:
        """What the other server says next."""
        while not self.answers:
            await self.answered.wait()
        return self.answers.popleft()


class ForwardSender:
    """Carries orders out, over one link that is made anew when it is lost.

    Args:
        peer: the other server's name.
        dial: opens a channel to it that forwards.
        size: the bytes of a part; None if it is not there.
        read: reads a part, and compares it with its digest: an altered one would look like a lie of this server.
        report: told what became of each order.
        traffic: tells of every message.
    """

    def __init__(
        self,
        peer: str,
        dial: Callable[[], Awaitable[Channel]],
        size: Size,
        read: Read,
        report: Report,
        traffic: Traffic,
    ) -> None:
        self._peer = peer
        self._dial = dial
        self._bytes = size
        self._read = read
        self._report = report
        self._traffic = traffic
        self._queue: deque[Order] = deque()
        self._ordered = RecurringEvent()
        self._numbers = 0
        self._offers: dict[int, _Offer] = {}
        self._under_way = trio.Semaphore(UNDER_WAY)
        self._reading = trio.Semaphore(IN_MEMORY)

    @property
    def waiting(self) -> int:
        """How many orders are not carried out."""
        return len(self._queue) + len(self._offers)

    def order(self, order: Order) -> None:
        """Take an order."""
        self._queue.append(order)
        self._ordered.set()

    def forget(self) -> None:
        """Forget all orders: whoever gave them does not know of them any more, and may use their numbers again."""
        self._queue.clear()
        for offer in self._offers.values():
            offer.is_asked_for = False

    async def run(self) -> None:
        """Carry orders out until cancelled; a link stands from the first order on."""
        pause = FIRST_PAUSE
        while True:
            while not self._queue:
                await self._ordered.wait()
            lost: list[BaseException] = []
            try:
                async with await self._dial() as channel:
                    pause = FIRST_PAUSE
                    await self._use(channel)
            except* (ChannelError, PeerViolationError) as group:
                lost = leaves(group)
            finally:
                self._give_back()
            for error in lost:
                _log.info("%s cannot be forwarded to: %s; next attempt in %.1f s", self._peer, error, pause)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _give_back(self) -> None:
        """The link is gone, or could not be made: what was not taken is ordered again."""
        orders = [*(offer.order for offer in self._offers.values() if offer.is_asked_for), *self._queue]
        self._offers.clear()
        self._queue.clear()
        self._under_way, self._reading = trio.Semaphore(UNDER_WAY), trio.Semaphore(IN_MEMORY)
        for order in orders:
            self._report(order, "not-forwarded")

    async def _use(self, channel: Channel) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, channel)
            while True:
                while self._queue:
                    await self._under_way.acquire()
                    if not self._queue:  # forgotten meanwhile
                        self._under_way.release()
                        break
                    self._numbers += 1
                    offer = self._offers[self._numbers] = _Offer(self._queue.popleft())
                    nursery.start_soon(self._carry_out, channel, self._numbers, offer)
                await self._ordered.wait()

    async def _listen(self, channel: Channel) -> None:
        while True:
            await channel.awaited()
            data = await channel.receive(bulk_overhead(), pace=PACE)
            message, _ = decode(data, FromKeeper, self._peer)
            self._traffic.received(self._peer, message, len(data))
            offer = self._offers.get(message.number)
            if offer is not None:
                if offer.answers:  # each answer follows something that it answers
                    raise PeerViolationError(self._peer, f"says {type(message).__name__} before it was told anything")
                offer.answers.append(message)
                offer.answered.set()

    async def _carry_out(self, channel: Channel, number: int, offer: _Offer) -> None:
        """Forward one part; ends when the other server has it, or needs it no more."""
        order = offer.order
        done = await self._forwarded(channel, number, offer)
        if self._offers.pop(number, None) is not None and offer.is_asked_for:
            self._report(order, "forwarded" if done else "not-forwarded")
        self._under_way.release()

    async def _forwarded(self, channel: Channel, number: int, offer: _Offer) -> bool:
        order = offer.order
        size = await self._size(order)
        if size is None:
            return await self._missing(order)
        said = OfferPart(
            number=number,
            round_id=order.round_id,
            client=order.key.client,
            purpose=order.key.purpose,
            query=order.key.query,
            part=order.part,
            size=size,
        )
        await self._say(channel, said)
        while isinstance(answer := await offer.next(), PartLater):
            await trio.sleep(OFFERED_AGAIN)
            await self._say(channel, said)
        match answer:
            case PartUnwanted():
                return True
            case PartWanted():
                if not await self._send(channel, number, order):
                    return await self._missing(order)
            case _:
                raise PeerViolationError(self._peer, f"says {type(answer).__name__} of a part that is only offered")
        if isinstance(last := await offer.next(), PartTaken):
            return True
        raise PeerViolationError(self._peer, f"says {type(last).__name__} of a part that it has got")

    async def _size(self, order: Order) -> int | None:
        """The bytes of a part; None if it is not there, or cannot be reached."""
        try:
            return await self._bytes(order)
        except StorageError as error:
            _log.warning("%s cannot be forwarded at present: %s", order.blob, error)
            return None

    async def _missing(self, order: Order) -> bool:
        """A part is not there: its round is over, or it is lost, which whoever gave the order finds out."""
        _log.info("%s is not there: it is not forwarded", order.blob)
        await trio.sleep(LONGEST_PAUSE)
        return False

    async def _send(self, channel: Channel, number: int, order: Order) -> bool:
        """Send a part, if it is there; few at a time are in memory."""
        async with self._reading:
            try:
                part = await self._read(order)
            except StorageError:
                return False
            await self._say(channel, PartFollows(number), part)
        return True

    async def _say(self, channel: Channel, message: FromSender, part: Buffer = b"") -> None:
        parts = encode(message, part)
        await channel.send(*parts, pace=PACE)
        self._traffic.sent(self._peer, message, sum(map(len, parts)), len(part))
