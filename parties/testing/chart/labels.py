"""The short labels of what happened, for which a sequence chart has room."""

from __future__ import annotations

from typing import assert_never

from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Block, Download, Forward, Message, Refused
from parties import events as server_events
from parties.events import ServerEvent
from parties.outcome import Aborted, Done, SumRefused
from parties.simulation.network import Note
from parties.status import PastRound
from parties.testing import faults
from parties.testing.chart.rows import Arrow, Look, Mark
from parties.testing.story import Began, Failed, Killed, Left, StoryEvent

__all__ = ["arrow", "cut", "mark", "plain", "shown", "size_text"]

_NOT_SHOWN = (
    server_events.BudgetMoved,
    server_events.ClientMet,
    server_events.Evaluated,
    server_events.MessageReceived,
    server_events.MessageSent,
    server_events.RequestRefused,
    server_events.SubmissionIn,
)
"""Events that repeat what a message of the chart says."""

_BULK_HEADER = 5


def shown(event: StoryEvent) -> bool:
    """Whether an event has a row of its own."""
    return not isinstance(event, _NOT_SHOWN)


def size_text(size: int) -> str:
    """A number of bytes, as text with two or three digits."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 100 * unit else f"{size / unit:.1f} {name}"
    return f"{size} B"


def plain(text: str) -> str:
    """Text without line ends and control characters, because text from peers may contain anything."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def cut(text: str, room: int) -> str:
    """The beginning of a text, at most `room` characters long and without control characters."""
    return plain(text if len(text) <= room else f"{text[: max(room - 1, 0)]}…")


def arrow(note: Note) -> Arrow:
    """The arrow of a message."""
    head = sum(len(part) for part in encode(note.message))
    size = head + note.bulk + (_BULK_HEADER if note.bulk else 0)
    return Arrow(note.sender, note.receiver, _label(note.message), size)


def mark(party: str, event: StoryEvent) -> Mark:
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
        case ServerEvent():
            return Mark(party, *_server_event(event))
        case Note():
            raise TypeError("a message has an arrow, not a mark")
        case fault:
            return Mark(party, Look.FAULT, _fault(fault))


def _label(message: Message) -> str:
    name = type(message).__name__
    match message:
        case Forward(client=client):
            return f"{name} {client}"
        case Refused(reason=reason):
            return f"{name} {reason}"
        case Download(block=block) | Block(block=block):
            return f"{name} {block}"
        case _:
            return name


def _server_event(event: ServerEvent) -> tuple[Look, str]:
    match event:
        case server_events.RoundOpened(number=number, protocol=protocol):
            return Look.ROUND, f"round {number} opens" if protocol == "ssa" else f"round {number} opens, {protocol}"
        case server_events.RoundMoved(number=number, state=state):
            return Look.STATE, state
        case server_events.Resumed(number=number, state=state):
            return Look.ROUND, f"resumes round {number}, {state}"
        case server_events.RoundSettled(past=past):
            return Look.ROUND, _settled(past)
        case server_events.ClientLeft(client=client):
            return Look.PEOPLE, f"{client} is gone"
        case server_events.ConnectionFailed(kind=kind):
            return Look.PEOPLE, f"a connection ends: {kind}"
        case server_events.PeerMet():
            return Look.PEOPLE, "servers connected"
        case server_events.PeerLost():
            return Look.PEOPLE, "servers disconnected"
        case server_events.Enrolled(client=client):
            return Look.PEOPLE, f"enrols {client}"
        case server_events.Revoked(client=client):
            return Look.PEOPLE, f"revokes {client}"
        case server_events.Violated(about=about, kind=kind):
            return Look.FAULT, f"{about} broke the protocol: {kind}"
        case server_events.Warned(explanation=explanation):
            return Look.PEOPLE, explanation
        case _:
            return Look.PEOPLE, type(event).__name__


def _settled(past: PastRound) -> str:
    report = past.report
    match report.ending:
        case Done():
            return f"round {report.number} settled: {', '.join(report.clients)}"
        case Aborted(explanation=explanation):
            return f"round {report.number} aborted: {explanation}"
        case SumRefused(explanation=explanation):
            return f"round {report.number}, sum refused: {explanation}"
        case _:
            assert_never(report.ending)


def _fault(fault: faults.Fault) -> str:
    match fault:
        case faults.Crash(point=point):
            return f"crash {_point(point)}"
        case faults.Cut(connection=connection, outward=outward, after=after):
            return f"connection {connection} cut after {after} B {'out' if outward else 'in'}"
        case faults.Delay(connection=connection, seconds=seconds):
            return f"connection {connection} slow by {seconds:g} s"
        case faults.Partition(receiver=receiver, seconds=seconds):
            return f"cannot reach {receiver} for {seconds:g} s"
        case faults.Straggle(submission=submission, server=server, seconds=seconds):
            return f"submission {submission} reaches {server} {seconds:g} s late"
        case faults.SkewedClock(seconds=seconds):
            return f"clock wrong by {seconds:+g} s"
        case faults.SlowDisk(seconds=seconds, each=each):
            return f"disk slow for {seconds:g} s, {each:g} s a commit"
        case faults.FullDisk(seconds=seconds):
            return f"disk full for {seconds:g} s"
        case faults.BrokenWrite(number=number):
            return f"commit {number} fails"
        case faults.AbortRound(point=point):
            return f"operator aborts the round {_point(point)}"
        case _:
            return type(fault).__name__


def _point(point: faults.FaultPoint) -> str:
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
            return f"at the other server's {state} + {event}"
        case faults.AtWrite(name_part=name_part, number=number, moment=moment):
            return f"when {name_part!r} is written, time {number}, {moment}"
