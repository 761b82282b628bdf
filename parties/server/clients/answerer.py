"""What a client's connection needs of the server behind it: somebody who carries requests out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from fsl_async.digests import Buffer
from fsl_async.wire.messages import FromClient, Hint, Message, Retrieve, Submit
from parties.server.refusals import RequestRefusedError

NOTHING = memoryview(b"")

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Room: TypeAlias = Callable[[int], Awaitable[None]]
"""Takes room for so many bytes of an answer; see `Answerer.ask`."""


async def no_room(size: int) -> None:
    """The room of answers without bulk, and of those that are made once for all clients."""


BulkRequest: TypeAlias = Retrieve | Submit | Hint
"""Requests that bring bulk to their client's carrier."""


class Begun(Protocol):
    """A request whose bulk may come."""

    async def complete(self, bulk: memoryview, room: Room) -> Reply:
        """Carry the request out, now that all of it has come; the answer to a request that is refused is the reason.

        Args:
            bulk: the bytes that came with it.
            room: see `Answerer.ask`.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """


class Answerer(Protocol):
    """Carries out what clients ask for."""

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, if it has any."""

    def begin(self, client: str, message: BulkRequest, size: int) -> AbstractAsyncContextManager[Begun]:
        """Decide whether a request's bulk may come, before it is read.

        A request that ends in the context before it is completed counts as one that has broken off.

        Args:
            client: who asks.
            message: the request.
            size: the bytes of bulk that come with it.

        Raises:
            RequestRefusedError: they may not.
            AbuseError: the client went on above its limits.
        """

    async def ask(self, client: str, message: FromClient, room: Room) -> Reply:
        """Carry out a request that brings no bulk; the answer to a request that is refused is the reason.

        Args:
            client: who asks.
            message: the request.
            room: takes room for an answer with so many bytes of its own. It is called just before the answer is made,
                so that a request that waits for its other half holds nothing that others need. Raises
                `RequestRefusedError` if there is no room in time.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """


def bringing_bulk(message: FromClient) -> BulkRequest:
    """A message that brings bulk, as one that may.

    Raises:
        RequestRefusedError: no bulk belongs to it.
    """
    if isinstance(message, Retrieve | Submit | Hint):
        return message
    raise RequestRefusedError.because("malformed", f"no bulk belongs to the request {type(message).__name__}")
