"""What a server replies to a client, and why it does not carry a request out.

    RequestRefusedError         the client is told why, and stays connected
    └── ContradictionError      the request contradicts what is known, and goes into the evidence
    AbuseError                  the client has gone on beyond its limits; it is told so, and loses its connection

`AbuseError` is a `PeerViolationError`; the other two never leave the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, PeerViolationError
from fsl_async.foreign_text import shortened
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Hint, Message, Reason, Refused, Retrieve, Submit
from parties.events import EvidenceKind
from transport import Channel
from transport.channel import CLOSE_PATIENCE


def farewell(reason: Reason, party: str, why: object) -> Refused:
    """Why the connection to a party is about to end."""
    return Refused(reason=reason, explanation=shortened(str(why).removeprefix(f"{party}: ")))


async def say_why(channel: Channel, words: Refused) -> None:
    """Say something last; the caller ends the connection, and waits no longer for who does not read."""
    with trio.move_on_after(CLOSE_PATIENCE, shield=True), suppress(ChannelError):
        await channel.send(*encode(words))


class RequestRefusedError(Exception):
    """A client's request is not carried out; carries the message that tells it why."""

    def __init__(self, message: Refused) -> None:
        super().__init__(message.explanation)
        self.message = message

    @staticmethod
    def because(reason: Reason, explanation: str, retry_after: int = 0) -> RequestRefusedError:
        """Make one from its reason and an explanation, cut to what a message holds."""
        return RequestRefusedError(Refused(reason=reason, explanation=shortened(explanation), retry_after=retry_after))


class ContradictionError(RequestRefusedError):
    """A client's request contradicts what is known, and goes into the evidence.

    Attributes:
        kind: as evidence has it.
        first: the digest known before.
        second: the one that contradicts it.
        or_peer: whether the other server may have lied in place of the client.
    """

    def __init__(
        self,
        reason: Reason,
        explanation: str,
        kind: EvidenceKind,
        first: bytes,
        second: bytes,
        *,
        or_peer: bool = False,
    ) -> None:
        super().__init__(Refused(reason=reason, explanation=shortened(explanation)))
        self.kind: EvidenceKind = kind
        self.first = first
        self.second = second
        self.or_peer = or_peer


class AbuseError(PeerViolationError):
    """A client went on beyond its limits, so it loses its connection.

    Attributes:
        message: the last answer it gets.
    """

    def __init__(self, client: str, message: Refused) -> None:
        super().__init__(client, f"goes on beyond its limits: {message.explanation}")
        self.message = message


NOTHING = memoryview(b"")

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

ReserveMemory: TypeAlias = Callable[[int], Awaitable[None]]
"""Takes room for an answer with so many bytes of its own. It is called just before the answer is made, so that a
request that waits for its other half holds nothing that others need. Raises `RequestRefusedError` if there is no room
in time."""


async def reserve_nothing(size: int) -> None:
    """The room of answers without bulk, and of those that are made once for all clients."""


BulkRequest: TypeAlias = Retrieve | Submit | Hint
"""Requests that bring bulk to their client's carrier."""
