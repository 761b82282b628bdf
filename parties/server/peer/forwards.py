"""How a client's public part gets from its carrier to the other server: over the link between them, or by doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.wire.messages import Forward
from parties.server.peer.link import PeerLink
from parties.server.store_layout import RequestKey

__all__ = ["ByLink", "ForwardWay", "Forwards", "StoredPart"]

Read: TypeAlias = Callable[[], Awaitable[Buffer | None]]
"""Reads a part; none if its round is over."""


@dataclass(frozen=True)
class StoredPart:
    """A client's public part that its carrier has stored.

    Attributes:
        round_id: the round, and `number` its number.
        key: the request.
        part: the digest of the part.
        over: set when the round is over.
    """

    round_id: bytes
    number: int
    key: RequestKey
    part: bytes
    over: trio.Event

    @property
    def message(self) -> Forward:
        """What is said of it over the link between the servers."""
        key = self.key
        return Forward(round_id=self.round_id, client=key.client, purpose=key.purpose, query=key.query)


class ForwardWay(Protocol):
    """Brings parts to the other server."""

    def forward(self, stored: StoredPart, read: Read) -> None:
        """Bring a part there; again, if it was on its way before.

        Args:
            stored: the part.
            read: reads it.
        """


class ByLink:
    """Over the link between the servers, which drops what is posted while it does not stand.

    Args:
        link: the link.
    """

    def __init__(self, link: PeerLink) -> None:
        self._link = link

    def forward(self, stored: StoredPart, read: Read) -> None:
        """See `ForwardWay.forward`."""
        self._link.post_stored(stored.message, read)


class Forwards:
    """The way that a server's parts take.

    Args:
        way: the way, for as long as nobody gives another one.

    Attributes:
        way: as given.
    """

    def __init__(self, way: ForwardWay) -> None:
        self.way = way
