"""What an actor takes, one after the other; see `parties.server.actor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from fsl_async.protocols.machine import Event
from fsl_async.wire.codec import Received
from parties.server.peer.forwarding import Forwarded

__all__ = ["FromPeer", "Item", "Mark", "Met", "Ours"]


@dataclass(frozen=True)
class FromPeer:
    """A message of the peer's."""

    received: Received


@dataclass(frozen=True)
class Met:
    """The servers are connected (again)."""


@dataclass(frozen=True)
class Ours:
    """An event of our own for a round."""

    round_id: bytes
    event: Event


@dataclass(frozen=True)
class Mark:
    """What was posted before it has been taken when it is."""

    taken: trio.Event = field(default_factory=trio.Event)


Item: TypeAlias = FromPeer | Forwarded | Met | Ours | Mark
