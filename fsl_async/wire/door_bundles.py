"""Bundles: what a core and a door say to each other, several messages in one message of their channel.

One message after the other would have a record of its own each, which both sides encrypt, decrypt and wake up for. A
bundle is whatever waits when a side is about to send, so nothing waits for a bundle to become full:

    bundle = entry…        1 to `MOST_BUNDLED` of them, in the order in which they were said
    entry  = size of the head `u32be` ‖ size of the bulk `u32be` ‖ head ‖ bulk

Rules: a head is a message as `fsl_async.wire.codec` has it, without its bulk; a bundle is taken as a whole or not at
all, so what breaks the rules at its end has had no effect at its beginning. Its length is limited by whoever receives
it, before anything of it is read.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from struct import Struct
from typing import Any

import msgspec

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.wire.codec import BULK_LIMIT, CONTROL_LIMIT, Message, Received
from fsl_async.wire.door_messages import CoreToDoor, DoorToCore

__all__ = ["LONGEST_OF_A_CORE", "LONGEST_OF_A_DOOR", "MOST_BUNDLED", "Outgoing", "unbundled"]

MOST_BUNDLED = 512
"""Messages of one bundle."""

FULL = 2**15
"""Bytes from which on a bundle takes no further message: it leaves in one record."""

_SIZES = Struct(">II")

LONGEST_OF_A_DOOR = 2 * CONTROL_LIMIT
"""Bytes of a door's longest bundle: nothing in it has bulk."""

LONGEST_OF_A_CORE = _SIZES.size + CONTROL_LIMIT + BULK_LIMIT
"""Bytes of a core's longest bundle: one message with bulk."""

_SHORT = 2**12
"""Bytes of bulk that are copied, rather than sent from where they are."""

_ENCODER = msgspec.msgpack.Encoder()


class Outgoing:
    """Messages that wait to be sent, and leave in bundles.

    Attributes:
        added: how many have been added so far.
        taken: how many of them have been taken, to be sent.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[Buffer, ...]] = deque()
        self.added = 0
        self.taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, message: DoorToCore | CoreToDoor, *bulk: Buffer) -> int:
        """Say something after all that has been said; bulk is kept as it is until it is sent.

        Returns:
            The message's number: `added`, now that it is.

        Raises:
            MisuseError: more bulk than one message carries.
        """
        head, size = _ENCODER.encode(message), sum(map(len, bulk))
        if size > BULK_LIMIT:
            raise MisuseError(f"{size:,} bytes in one message; {BULK_LIMIT:,} are the most")
        first = _SIZES.pack(len(head), size) + head
        self._entries.append((b"".join((first, *bulk)),) if size <= _SHORT else (first, *bulk))
        self.added += 1
        return self.added

    def take(self) -> list[Buffer]:
        """The parts of the next bundle: several short messages, or one with much bulk; at least one must wait."""
        parts: list[Buffer] = []
        size = count = 0
        while self._entries and count < MOST_BUNDLED:
            entry = self._entries[0]
            size += len(entry[0]) if len(entry) == 1 else sum(map(len, entry))
            if count and size > FULL:
                break
            parts += self._entries.popleft()
            count += 1
        self.taken += count
        return [b"".join(parts)] if size <= FULL else parts

    def clear(self) -> None:
        """Forget what waits: nobody is there to hear it."""
        self._entries.clear()
        self.taken = self.added


def unbundled(data: Buffer, union: Any, sender: str) -> list[Received[Any]]:
    """Read a bundle; bulk is a view of it.

    Args:
        data: the whole bundle.
        union: the message types that the sender may use: `DoorToCore` or `CoreToDoor`.
        sender: whom to name when it is no bundle of them.

    Raises:
        PeerViolationError: anything but a bundle of well-formed messages of the union.
    """
    view, decode = memoryview(data), _decoder(union).decode
    received: list[Received[Any]] = []
    start, end = 0, len(view)
    while start < end or not received:
        head, bulk = _bounds(view, start, sender)
        if len(received) == MOST_BUNDLED:
            raise PeerViolationError(sender, f"sent more than {MOST_BUNDLED} messages in one bundle")
        try:
            message: Message = decode(view[start + _SIZES.size : head])
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise PeerViolationError(sender, f"sent a message that cannot be read: {error}") from error
        received.append(Received(message, view[head:bulk]))
        start = bulk
    return received


def _bounds(view: memoryview, start: int, sender: str) -> tuple[int, int]:
    """Where the head of the entry that starts there ends, and where its bulk does.

    Raises:
        PeerViolationError: the entry does not end within the bundle, or its head is too long.
    """
    if start + _SIZES.size > len(view):
        left = len(view) - start
        raise PeerViolationError(sender, f"sent a bundle with {left} bytes where a message's two sizes are expected")
    head, bulk = _SIZES.unpack_from(view, start)
    if head > CONTROL_LIMIT:
        raise PeerViolationError(
            sender, f"sent a message whose head has {head:,} bytes; {CONTROL_LIMIT:,} are the most"
        )
    left = len(view) - start - _SIZES.size
    if head + bulk > left:
        raise PeerViolationError(
            sender, f"sent a bundle that ends too early: a message has {head + bulk:,} bytes, and {left:,} are there"
        )
    return start + _SIZES.size + head, start + _SIZES.size + head + bulk


@cache
def _decoder(union: Any) -> msgspec.msgpack.Decoder[Any]:
    """Text does not pass for bytes here, and nothing is read of a field that no message of the union has."""
    return msgspec.msgpack.Decoder(union)
