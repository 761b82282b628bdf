"""The faults that only worlds of rounds have, beside those of processes: what clients, servers and operators do."""

from __future__ import annotations

from typing import TypeAlias

from parties.testing.faults import (
    AtTime,
    AtTransition,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    FullDisk,
    Partition,
    PartyFault,
    SkewedClock,
    SlowDisk,
    SpoiltBlobs,
)

__all__ = [
    "AbortRound",
    "CloseNow",
    "Fault",
    "Late",
    "MaliciousClient",
    "MaliciousServer",
    "OldCopy",
    "StoppedWorker",
    "Straggle",
]


class Late(PartyFault, frozen=True):
    """A client waits for `seconds` before its n-th submission."""

    submission: int
    seconds: float


class Straggle(PartyFault, frozen=True):
    """A client's n-th submission, and all that it sends to that server afterwards, arrives `seconds` late."""

    submission: int
    server: str
    seconds: float

    def parties(self) -> tuple[str, ...]:
        """The client and the server."""
        return self.party, self.server


class OldCopy(PartyFault, frozen=True):
    """After its n-th submission a client is restarted with the state in which it stored that one, and resends it."""

    submission: int


class StoppedWorker(PartyFault, frozen=True):
    """A server's worker answers nobody for a while; then it does what it was told, as if nothing had been."""

    begin: float
    seconds: float


class AbortRound(PartyFault, frozen=True):
    """A server's operator aborts the running round."""

    point: AtTime | AtTransition


class CloseNow(PartyFault, frozen=True):
    """A server's operator closes the open round, if it can reach its sum."""

    point: AtTime | AtTransition


class MaliciousClient(PartyFault, frozen=True):
    """A client sends malformed submissions, in a way that a catalogue names."""

    name: str


class MaliciousServer(PartyFault, frozen=True):
    """A server deviates from the protocol, in a way that a catalogue names."""

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
    | SpoiltBlobs
    | Late
    | Straggle
    | OldCopy
    | AbortRound
    | CloseNow
    | MaliciousClient
    | MaliciousServer
    | StoppedWorker
)
