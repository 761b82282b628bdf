"""How a chart calls what happens. This legend knows no protocol; one that does overrides what it says better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsl_async.wire.codec import Message
from parties.testing import faults
from parties.testing.chart.rows import Look, Mark
from parties.testing.faults import FaultBase
from parties.testing.story import Began, Entry, Failed, Killed, Left


class Legend:
    """Names messages after their types, and writes out what parties tell.

    Args:
        parties: the first columns, from left to right.

    Attributes:
        edges: parties that stand at the edges of a chart, because every message begins or ends there; none if any two
            may talk.
    """

    edges: tuple[str, ...] = ()

    def __init__(self, parties: Iterable[str] = ()) -> None:
        self._parties = tuple(parties)

    def columns(self, parties: Iterable[str]) -> tuple[str, ...]:
        """All parties from left to right; they are given in the order in which they appear."""
        return tuple(dict.fromkeys((*self._parties, *parties)))

    def message(self, message: Message) -> str:
        """The label of a message's arrow: its type's name, or what its own `__str__` says."""
        described = type(message).__str__ is not object.__str__
        return str(message) if described else type(message).__name__

    def told(self, event: object) -> tuple[Look, str]:
        """The mark of what a party has told, and its text."""
        return Look.ROUND, str(event)

    def fault(self, fault: FaultBase) -> str:
        """What a fault does, without its party."""
        match fault:
            case faults.Crash(point=point):
                return f"crash {point_text(point)}"
            case faults.Cut(connection=connection, outward=outward, after=after):
                return f"connection {connection} cut after {after} B {'out' if outward else 'in'}"
            case faults.Delay(connection=connection, seconds=seconds):
                return f"connection {connection} slow by {seconds:g} s"
            case faults.Partition(receiver=receiver, seconds=seconds):
                return f"cannot reach {receiver} for {seconds:g} s"
            case faults.SkewedClock(seconds=seconds):
                return f"clock wrong by {seconds:+g} s"
            case faults.SlowDisk(seconds=seconds, each=each):
                return f"disk slow for {seconds:g} s, {each:g} s a commit"
            case faults.FullDisk(seconds=seconds):
                return f"disk full for {seconds:g} s"
            case faults.SpoiltBlobs(seconds=seconds, harm=harm):
                return f"blobs {harm} for {seconds:g} s"
            case faults.BrokenWrite(number=number):
                return f"commit {number} fails"
            case _:
                return type(fault).__name__

    def shown(self, event: object) -> bool:
        """Whether an event has a row of its own."""
        return True

    def numbers(self, story: Sequence[Entry]) -> list[int]:
        """For each entry the number of the round that it concerns; 0 if it concerns none."""
        return [0] * len(story)

    def mark(self, party: str, event: object) -> Mark:
        """The mark of any event but a message."""
        match event:
            case Began(life=1):
                return Mark(party, Look.BIRTH, "starts")
            case Began(life=life):
                return Mark(party, Look.BIRTH, f"starts again, life {life}")
            case Killed(down=down):
                back = "for good" if down == float("inf") else f"for {down:g} s"
                return Mark(party, Look.DEATH, f"killed, {back}")
            case Failed(error=error):
                return Mark(party, Look.DEATH, f"ends: {type(error).__name__}: {error}")
            case Left():
                return Mark(party, Look.PEOPLE, "leaves")
            case FaultBase():
                return Mark(party, Look.FAULT, self.fault(event))
            case _:
                return Mark(party, *self.told(event))


def point_text(point: faults.FaultPoint) -> str:
    """Where it strikes."""
    match point:
        case faults.AtTime(seconds=seconds):
            return f"at {seconds:g} s"
        case faults.AtCommit(number=number, moment=moment):
            return f"at commit {number}, {moment}"
        case faults.AtSend(number=number, moment=moment):
            return f"at write {number}, {moment}"
        case faults.AtTransition(state=state, event=event, moment=moment):
            return f"at {state} + {event}, {moment}"
        case faults.AtPeerTransition(state=state, event=event):
            return f"at a peer's {state} + {event}"
        case faults.AtWrite(name_part=name_part, number=number, moment=moment):
            return f"when {name_part!r} is written, time {number}, {moment}"
