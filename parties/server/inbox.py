"""What an actor takes, one after the other; see `parties.server.actor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import trio

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
class Met:
    """The servers are connected (again)."""


@dataclass(frozen=True)
class Ours:
    """An event of our own for a round."""

    round_id: bytes
    event: Event


@dataclass(frozen=True)
class Entering:
    """Submissions are stored, and wait to be entered in their round's list: all that do by then."""


@dataclass(frozen=True)
class Gathered:
    """The clients that have asked for that round by now are to be listed."""

    number: int


@dataclass(frozen=True)
class Mark:
    """What was posted before it has been taken when it is."""

    taken: trio.Event = field(default_factory=trio.Event)


Item: TypeAlias = Heard | Forwarded | Met | Ours | Entering | Gathered | Mark
