"""What happened, in the few words that a sequence chart has room for."""

from __future__ import annotations

from typing import assert_never

from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Block, Download, Forward, Message, Refused
from parties import events as told_by_servers
from parties.events import ServerEvent
from parties.outcome import Aborted, Done, SumRefused
from parties.simulation.network import Note
from parties.status import PastRound
from parties.testing import faults
from parties.testing.chart.rows import Arrow, Look, Mark
from parties.testing.story import Began, Failed, Killed, Left, Told

__all__ = ["arrow", "cut", "mark", "plain", "shown", "size_in_words"]

_NOT_SHOWN = (
    told_by_servers.BudgetMoved,
    told_by_servers.ClientMet,
    told_by_servers.Evaluated,
    told_by_servers.MessageReceived,
    told_by_servers.MessageSent,
    told_by_servers.RequestRefused,
    told_by_servers.SubmissionIn,
)
"""What the messages of a chart say already."""

_BULK_HEADER = 5


def shown(told: Told) -> bool:
    """Whether it has a row of its own."""
    return not isinstance(told, _NOT_SHOWN)


def size_in_words(size: int) -> str:
    """Bytes, to two or three digits."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 100 * unit else f"{size / unit:.1f} {name}"
    return f"{size} B"


def plain(words: str) -> str:
    """Words without line ends and control characters: what peers say may be anything."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in words)


def cut(words: str, room: int) -> str:
    """The beginning of plain words, of so many letters at most."""
    return plain(words if len(words) <= room else f"{words[: max(room - 1, 0)]}…")


def arrow(note: Note) -> Arrow:
    """A message's."""
    head = sum(len(part) for part in encode(note.message))
    size = head + note.bulk + (_BULK_HEADER if note.bulk else 0)
    return Arrow(note.sender, note.receiver, _label(note.message), size)


def mark(party: str, told: Told) -> Mark:
    """That of anything but a message."""
    match told:
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
            return Mark(party, *_happening(told))
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


def _happening(happening: ServerEvent) -> tuple[Look, str]:
    match happening:
        case told_by_servers.RoundOpened(number=number, phase=phase):
            return Look.ROUND, f"round {number} opens" if phase == "main" else f"round {number} opens, {phase}"
        case told_by_servers.RoundMoved(number=number, state=state):
            return Look.STATE, state
        case told_by_servers.Resumed(number=number, state=state):
            return Look.ROUND, f"resumes round {number}, {state}"
        case told_by_servers.RoundSettled(past=past):
            return Look.ROUND, _settled(past)
        case told_by_servers.ClientLeft(client=client):
            return Look.PEOPLE, f"{client} is gone"
        case told_by_servers.ConnectionFailed(kind=kind):
            return Look.PEOPLE, f"a connection ends: {kind}"
        case told_by_servers.PeerMet():
            return Look.PEOPLE, "servers connected"
        case told_by_servers.PeerLost():
            return Look.PEOPLE, "servers disconnected"
        case told_by_servers.Enrolled(client=client):
            return Look.PEOPLE, f"enrols {client}"
        case told_by_servers.Revoked(client=client):
            return Look.PEOPLE, f"revokes {client}"
        case told_by_servers.Violated(about=about, kind=kind):
            return Look.FAULT, f"{about} broke the protocol: {kind}"
        case told_by_servers.Warned(explanation=explanation):
            return Look.PEOPLE, explanation
        case _:
            return Look.PEOPLE, type(happening).__name__


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
        case faults.Crash(place=place):
            return f"crash {_place(place)}"
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
        case faults.GiveUp(place=place):
            return f"operator gives the round up {_place(place)}"
        case _:
            return type(fault).__name__


def _place(place: faults.FaultPoint) -> str:
    match place:
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
        case faults.AtWrite(words=words, number=number, moment=moment):
            return f"when {words!r} is written, time {number}, {moment}"
