"""What a client's connection and the handler of its requests say to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fsl_async.digests import Buffer
from fsl_async.wire.messages import Hint, Message, Retrieve, Submit

NOTHING = memoryview(b"")

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Room: TypeAlias = Callable[[int], Awaitable[None]]
"""Takes room for an answer with so many bytes of its own. It is called just before the answer is made, so that a
request that waits for its other half holds nothing that others need. Raises `RequestRefusedError` if there is no room
in time."""


async def no_room(size: int) -> None:
    """The room of answers without bulk, and of those that are made once for all clients."""


BulkRequest: TypeAlias = Retrieve | Submit | Hint
"""Requests that bring bulk to their client's carrier."""
