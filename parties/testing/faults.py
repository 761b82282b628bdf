"""The faults of simulated processes, as values: drawn from a seed, printed in full, replayed and shrunk.

A fault names the point at which it strikes: a time, the n-th commit or write of a process, or a transition of a
protocol machine. All faults are over at `CALM`; from then on whatever is unfinished must come to its end. What only
rounds have, such as a late submission, is in `parties.testing.round_faults`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

CALM = 120.0
"""Virtual seconds after the beginning of a world at which its last fault is over."""

Moment: TypeAlias = Literal["before write", "before sync", "after write", "before send", "after send"]


class _Value(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A value that is compared, printed and stored by its fields."""


class FaultBase(_Value, frozen=True):
    """The base of all faults."""

    def parties(self) -> tuple[str, ...]:
        """The parties that it names, the one that it strikes first."""
        raise NotImplementedError


class PartyFault(FaultBase, frozen=True):
    """The base of faults that strike one party."""

    party: str

    def parties(self) -> tuple[str, ...]:
        """That party."""
        return (self.party,)


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
    """A transition of a machine: around the commit of its event, or around the first write to a peer after it.

    Attributes:
        machine: the machine's name.
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
    """The moment at which another party has committed a transition of a machine, before it acts on it.

    Attributes:
        machine: the machine's name; `state`, `event`, `after` and `occurrence` are as in `AtTransition`.
    """

    machine: str
    state: str
    event: str
    after: str
    occurrence: int = 1


class AtWrite(_Value, frozen=True):
    """The n-th commit of the process that changes anything whose name contains a given text, or put of such a blob.

    Attributes:
        name_part: a part of the name of a journal, a blob or a value; an erasure of blobs is called `erase/…`.
        number: counted from 1 over all lives of the process.
        moment: the moment around the commit.
    """

    name_part: str
    number: int
    moment: Moment


FaultPoint: TypeAlias = AtTime | AtCommit | AtSend | AtTransition | AtPeerTransition | AtWrite


class Crash(PartyFault, frozen=True):
    """A process dies, loses what its disk has not synced, and starts again after `down` seconds.

    If `down` is infinite, it never starts again; in a round's world that is for clients only.
    """

    point: FaultPoint
    down: float


class Cut(PartyFault, frozen=True):
    """The n-th connection that a process makes breaks after a number of bytes, possibly in the middle of a frame.

    Attributes:
        party: the dialler.
        connection: its number among those that the dialler makes, from 1.
        outward: True to count the bytes that the dialler sends, False to count those that it receives.
        after: the number of bytes that arrive.
        lost: whether bytes that are still in transit are lost as well.
    """

    connection: int
    outward: bool
    after: int
    lost: bool


class Delay(PartyFault, frozen=True):
    """The n-th connection that a process makes is slow: everything on it takes `seconds` longer."""

    connection: int
    seconds: float


class Partition(FaultBase, frozen=True):
    """What one party sends to another in this period arrives only after it; the other direction works."""

    sender: str
    receiver: str
    begin: float
    seconds: float

    def parties(self) -> tuple[str, ...]:
        """The sender, whose messages are delayed, and the receiver."""
        return self.sender, self.receiver


class SkewedClock(PartyFault, frozen=True):
    """A party's wall clock is off by `seconds` from `begin` until `CALM`."""

    begin: float
    seconds: float


class SlowDisk(PartyFault, frozen=True):
    """Every commit of a party in this period takes `each` seconds."""

    begin: float
    seconds: float
    each: float


class FullDisk(PartyFault, frozen=True):
    """Every commit of a party in this period fails because the disk is full."""

    begin: float
    seconds: float


class SpoiltBlobs(PartyFault, frozen=True):
    """Every blob that a party reads in this period has a wrong byte, or cannot be found.

    Attributes:
        begin: when it begins.
        seconds: how long it lasts.
        harm: what a read finds.
    """

    begin: float
    seconds: float
    harm: Literal["altered", "missing"]


class BrokenWrite(PartyFault, frozen=True):
    """The n-th commit of a party fails with an input/output error."""

    number: int


def party_of(fault: FaultBase) -> str:
    """The party that a fault strikes; of a partition, the one whose messages are delayed."""
    return fault.parties()[0]
