"""The faults that only worlds of rounds have, beside those of processes: what clients, servers and operators do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fsl_async.wire.codec import Message
from fsl_async.wire.messages import Hint, Submit
from parties.testing.faults import (
    CALM,
    AtTime,
    AtTransition,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    FaultBase,
    FullDisk,
    Partition,
    PartyFault,
    SkewedClock,
    SlowDisk,
    SpoiltBlobs,
)
from parties.testing.injector import Injector


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


class Stragglers:
    """Holds back what a client sends to one server, from its n-th submission on.

    Args:
        injector: of the network that delays it.
        faults: the plan; only `Straggle` concerns it.
    """

    def __init__(self, injector: Injector, faults: Sequence[FaultBase]) -> None:
        self._injector = injector
        self._faults = [fault for fault in faults if isinstance(fault, Straggle)]
        self._submitted: dict[str, list[bytes]] = {}

    def watch(self, sender: str, receiver: str, message: Message) -> None:
        """Observe a message that is about to leave; a client's submission may be one that a fault delays."""
        if not isinstance(message, Submit | Hint):
            return
        rounds = self._submitted.setdefault(sender, [])
        if message.round_id not in rounds:
            rounds.append(message.round_id)
        for fault in self._faults:
            due = (fault.party, fault.submission, fault.server) == (sender, len(rounds), receiver)
            if due and fault not in self._injector.fired:
                self._injector.hold(sender, receiver, min(self._injector.now + fault.seconds, CALM))
                self._injector.strike(fault)
