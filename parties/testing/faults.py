"""The faults of a simulated world, as values: drawn from a seed, printed in full, replayed and shrunk.

A fault names the point at which it strikes: a time, the n-th commit or write of a process, or a transition of a
protocol machine. All faults are over at `CALM`; from then on every unfinished round must come to its end.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CALM",
    "AbortRound",
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
"""Virtual seconds after the beginning of a world at which its last fault is over."""

Moment: TypeAlias = Literal["before write", "before sync", "after write", "before send", "after send"]


class _Value(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A value that is compared, printed and stored by its fields."""


class AtTime(_Value, frozen=True):
    """A time in seconds since the world began."""

    seconds: float


class AtCommit(_Value, frozen=True):
    """The n-th commit of the process, counted from 1 over all its lives."""

    number: int
    moment: Moment


class AtSend(_Value, frozen=True):
    """The n-th write of the process to a connection, counted from 1 over all its lives."""

    number: int
    moment: Moment


class AtTransition(_Value, frozen=True):
    """A transition of one of a server's machines: around its commit, or around the first write to the peer after it.

    Attributes:
        machine: round or toss.
        state: the name of the state before the transition.
        event: the name of the event.
        after: the name of the state after the transition.
        moment: the moment around the commit or the write.
        occurrence: the n-th time that the process takes the transition.
    """

    machine: str
    state: str
    event: str
    after: str
    moment: Moment
    occurrence: int = 1


class AtPeerTransition(_Value, frozen=True):
    """The moment at which the other server has committed a transition of one of its machines, before it acts on it.

    Attributes:
        machine: round or toss; `state`, `event`, `after` and `occurrence` are as in `AtTransition`.
    """

    machine: str
    state: str
    event: str
    after: str
    occurrence: int = 1


class AtWrite(_Value, frozen=True):
    """The n-th commit of the process that changes anything whose name contains a given text.

    Attributes:
        name_part: a part of the name of a journal, a blob or a value.
        number: counted from 1 over all lives of the process.
        moment: the moment around the commit.
    """

    name_part: str
    number: int
    moment: Moment


FaultPoint: TypeAlias = AtTime | AtCommit | AtSend | AtTransition | AtPeerTransition | AtWrite


class Crash(_Value, frozen=True):
    """A process dies, loses what its disk has not synced, and starts again after `down` seconds.

    If `down` is infinite (clients only), it never starts again.
    """

    party: str
    point: FaultPoint
    down: float


class Cut(_Value, frozen=True):
    """The n-th connection that a process makes breaks after a number of bytes, possibly in the middle of a frame.

    Attributes:
        party: the dialler.
        connection: its number among those that the dialler makes, from 1.
        outward: True to count the bytes that the dialler sends, False to count those that it receives.
        after: the number of bytes that arrive.
        lost: whether bytes that are still in transit are lost as well.
    """

    party: str
    connection: int
    outward: bool
    after: int
    lost: bool


class Delay(_Value, frozen=True):
    """The n-th connection that a process makes is slow: everything on it takes `seconds` longer."""

    party: str
    connection: int
    seconds: float


class Partition(_Value, frozen=True):
    """What one party sends to another in this period arrives only after it; the other direction works."""

    sender: str
    receiver: str
    begin: float
    seconds: float


class SkewedClock(_Value, frozen=True):
    """A server's wall clock is off by `seconds` from `begin` until `CALM`."""

    party: str
    begin: float
    seconds: float


class SlowDisk(_Value, frozen=True):
    """Every commit of a party in this period takes `each` seconds."""

    party: str
    begin: float
    seconds: float
    each: float


class FullDisk(_Value, frozen=True):
    """Every commit of a party in this period fails because the disk is full."""

    party: str
    begin: float
    seconds: float


class BrokenWrite(_Value, frozen=True):
    """The n-th commit of a party fails with an input/output error."""

    party: str
    number: int


class Late(_Value, frozen=True):
    """A client waits for `seconds` before its n-th submission."""

    party: str
    submission: int
    seconds: float


class Straggle(_Value, frozen=True):
    """A client's n-th submission, and all that it sends to that server afterwards, arrives `seconds` late."""

    party: str
    submission: int
    server: str
    seconds: float


class OldCopy(_Value, frozen=True):
    """After its n-th submission a client is restarted with the state in which it stored that one, and resends it."""

    party: str
    submission: int


class AbortRound(_Value, frozen=True):
    """A server's operator aborts the running round."""

    party: str
    point: AtTime | AtTransition


class MaliciousClient(_Value, frozen=True):
    """A client sends malformed submissions, in a way that a catalogue names."""

    party: str
    name: str


class MaliciousServer(_Value, frozen=True):
    """A server deviates from the protocol, in a way that a catalogue names."""

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
    | AbortRound
    | MaliciousClient
    | MaliciousServer
)


def parties_of(fault: Fault) -> tuple[str, ...]:
    """The parties that a fault names."""
    match fault:
        case Partition(sender=sender, receiver=receiver):
            return sender, receiver
        case Straggle(party=party, server=server):
            return party, server
        case _:
            return (party_of(fault),)


def party_of(fault: Fault) -> str:
    """The party that a fault strikes; of a partition, the one whose messages are delayed."""
    return fault.sender if isinstance(fault, Partition) else fault.party
