"""What can go wrong in a simulated world, as values: drawn from a seed, printed in full, replayed and shrunk.

A fault says where it strikes: at a time, at the n-th commit or write of a process, or at a transition of a protocol
machine. All of them are over at `CALM`; from then on nothing goes wrong any more, and what was begun must end.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CALM",
    "AtCommit",
    "AtPeerTransition",
    "AtSend",
    "AtTime",
    "AtTransition",
    "AtWrite",
    "BrokenWrite",
    "Crash",
    "Cut",
    "Delay",
    "Fault",
    "FaultPoint",
    "FullDisk",
    "GiveUp",
    "Late",
    "MaliciousClient",
    "MaliciousServer",
    "Moment",
    "OldCopy",
    "Partition",
    "SkewedClock",
    "SlowDisk",
    "Straggle",
    "parties_of",
    "party_of",
]

CALM = 120.0
"""Virtual seconds after the beginning of a world, when its last fault is over."""

Moment: TypeAlias = Literal["before write", "before sync", "after write", "before send", "after send"]


class _Value(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Compared, printed and stored by its fields."""


class AtTime(_Value, frozen=True):
    """So many seconds after the beginning."""

    seconds: float


class AtCommit(_Value, frozen=True):
    """At the process's n-th commit, counted over all its lives from 1."""

    number: int
    moment: Moment


class AtSend(_Value, frozen=True):
    """At the n-th time the process writes to a connection, counted likewise."""

    number: int
    moment: Moment


class AtTransition(_Value, frozen=True):
    """At a transition of one of a server's machines: around its commit, or around the first write to the peer since.

    Attributes:
        machine: round or toss.
        state: the state's name; `event` and `after` are the event's and the next state's.
        occurrence: the n-th time that the process takes it.
    """

    machine: str
    state: str
    event: str
    after: str
    moment: Moment
    occurrence: int = 1


class AtPeerTransition(_Value, frozen=True):
    """When the other server has recorded a transition of one of its machines, and not yet acted on it.

    Attributes:
        machine: round or toss; `state`, `event`, `after` and `occurrence` are as in `AtTransition`.
    """

    machine: str
    state: str
    event: str
    after: str
    occurrence: int = 1


class AtWrite(_Value, frozen=True):
    """At the n-th commit of the process in which something is changed whose name contains some words.

    Attributes:
        words: of the name of a journal, a blob or a value.
        number: from 1, counted over all its lives.
    """

    words: str
    number: int
    moment: Moment


FaultPoint: TypeAlias = AtTime | AtCommit | AtSend | AtTransition | AtPeerTransition | AtWrite


class Crash(_Value, frozen=True):
    """A process dies, with what its disk has not synced, and begins its next life after `down` seconds.

    An infinite `down` (clients only) means that it has vanished.
    """

    party: str
    place: FaultPoint
    down: float


class Cut(_Value, frozen=True):
    """The n-th connection that a process makes breaks after so many bytes, which may be in the middle of a frame.

    Attributes:
        party: the dialler.
        connection: its number, from 1.
        outward: whether bytes are counted that the dialler sends, or that it receives.
        after: bytes that get through.
        lost: whether what is on its way then is lost as well.
    """

    party: str
    connection: int
    outward: bool
    after: int
    lost: bool


class Delay(_Value, frozen=True):
    """The n-th connection that a process makes is slow: everything on it takes so many seconds more."""

    party: str
    connection: int
    seconds: float


class Partition(_Value, frozen=True):
    """What one party sends to another in this time arrives after it; the other direction works."""

    sender: str
    receiver: str
    begin: float
    seconds: float


class SkewedClock(_Value, frozen=True):
    """A server's wall clock is wrong by so many seconds from some time on, until calm."""

    party: str
    begin: float
    seconds: float


class SlowDisk(_Value, frozen=True):
    """Every commit of a party in this time takes so many seconds."""

    party: str
    begin: float
    seconds: float
    each: float


class FullDisk(_Value, frozen=True):
    """Every commit of a party in this time finds no room."""

    party: str
    begin: float
    seconds: float


class BrokenWrite(_Value, frozen=True):
    """The n-th commit of a party fails with an input/output error."""

    party: str
    number: int


class Late(_Value, frozen=True):
    """A client dawdles so many seconds before its n-th submission."""

    party: str
    submission: int
    seconds: float


class Straggle(_Value, frozen=True):
    """A client's n-th submission, and all that it sends there then, reaches one server so many seconds late."""

    party: str
    submission: int
    server: str
    seconds: float


class OldCopy(_Value, frozen=True):
    """After its n-th submission a client is started again with its state as it was when that was kept: it resends."""

    party: str
    submission: int


class GiveUp(_Value, frozen=True):
    """A server's operator gives up whatever round is running."""

    party: str
    place: AtTime | AtTransition


class MaliciousClient(_Value, frozen=True):
    """A client spoils its submissions in a way that a catalogue names."""

    party: str
    name: str


class MaliciousServer(_Value, frozen=True):
    """A server does one step otherwise, as a catalogue names it."""

    party: str
    name: str


Fault: TypeAlias = (
    Crash
    | Cut
    | Delay
    | Partition
    | SkewedClock
    | SlowDisk
    | FullDisk
    | BrokenWrite
    | Late
    | Straggle
    | OldCopy
    | GiveUp
    | MaliciousClient
    | MaliciousServer
)


def parties_of(fault: Fault) -> tuple[str, ...]:
    """Everybody whom it names."""
    match fault:
        case Partition(sender=sender, receiver=receiver):
            return sender, receiver
        case Straggle(party=party, server=server):
            return party, server
        case _:
            return (party_of(fault),)


def party_of(fault: Fault) -> str:
    """Whom it strikes; of a partition, whose messages it holds up."""
    return fault.sender if isinstance(fault, Partition) else fault.party
