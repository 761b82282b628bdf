"""What a client's connection needs of the server behind it: somebody who carries requests out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from fsl_async.digests import Buffer
from fsl_async.wire.messages import FromClient, Message

NOTHING = memoryview(b"")

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Room: TypeAlias = Callable[[int], Awaitable[None]]
"""Takes room for so many bytes of an answer; see `Answerer.reply`."""


async def no_room(size: int) -> None:
    """The room of answers without bulk, and of those that are made once for all clients."""


class Answerer(Protocol):
    """Carries out what clients ask for."""

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, if it has any."""

    def arriving(self, client: str) -> AbstractContextManager[None]:
        """Count a request with bulk that has begun to come, until all of it has; it stays counted if the context fails.

        Raises:
            RequestRefusedError: it is above the limit.
            AbuseError: the client went on above its limits.
        """

    async def reply(self, client: str, message: FromClient, bulk: memoryview, room: Room) -> Reply:
        """Carry a request out; the answer to a request that is refused is the reason.

        Args:
            client: who asks.
            message: the request.
            bulk: the bytes that came with it.
            room: takes room for an answer with so many bytes of its own. It is called just before the answer is made,
                so that a request that waits for its other half holds nothing that others need. Raises
                `RequestRefusedError` if there is no room in time.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """
