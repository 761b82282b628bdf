"""How charts of rounds call what happens: S0 and S1 at the edges, messages by what they carry, rounds by number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from fsl_async.wire.codec import Message
from fsl_async.wire.messages import Block, Download, Forward, Refused
from parties import events as server_events
from parties.events import RoundOpened, ServerEvent
from parties.outcome import Aborted, Done, SumRefused
from parties.simulation.network import SERVERS
from parties.status import PastRound
from parties.testing.chart.legend import Legend, point_text
from parties.testing.chart.rows import Look
from parties.testing.faults import FaultBase
from parties.testing.round_faults import AbortRound, CloseNow, StoppedWorker, Straggle
from parties.testing.story import Entry
from parties.watch import Note

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


class RoundLegend(Legend):
    """Every message begins or ends at a server, so these stand at the edges, and the clients between them."""

    edges = SERVERS

    def columns(self, parties: Iterable[str]) -> tuple[str, ...]:
        """See `Legend.columns`."""
        return (SERVERS[0], *sorted(set(parties).difference(SERVERS)), SERVERS[1])

    def message(self, message: Message) -> str:
        """See `Legend.message`."""
        name = type(message).__name__
        match message:
            case Forward(client=client):
                return f"{name} {client}"
            case Refused(reason=reason):
                return f"{name} {reason}"
            case Download(block=block, whole=True):
                return f"{name} {block} whole"
            case Download(block=block) | Block(block=block):
                return f"{name} {block}"
            case _:
                return name

    def told(self, event: object) -> tuple[Look, str]:
        """See `Legend.told`."""
        return _server_event(event) if isinstance(event, ServerEvent) else super().told(event)

    def fault(self, fault: FaultBase) -> str:
        """See `Legend.fault`."""
        match fault:
            case Straggle(submission=submission, server=server, seconds=seconds):
                return f"submission {submission} reaches {server} {seconds:g} s late"
            case StoppedWorker(seconds=seconds):
                return f"answers nobody for {seconds:g} s"
            case AbortRound(point=point):
                return f"operator aborts the round {point_text(point)}"
            case CloseNow(point=point):
                return f"operator closes the round {point_text(point)}"
            case _:
                return super().fault(fault)

    def shown(self, event: object) -> bool:
        """See `Legend.shown`."""
        return not isinstance(event, _NOT_SHOWN)

    def numbers(self, story: Sequence[Entry]) -> list[int]:
        """See `Legend.numbers`."""
        known = {entry.event.round_id: entry.event.number for entry in story if isinstance(entry.event, RoundOpened)}
        subjects = (entry.event.message if isinstance(entry.event, Note) else entry.event for entry in story)
        return [
            int(getattr(subject, "number", known.get(getattr(subject, "round_id", b""), 0))) for subject in subjects
        ]


def _server_event(event: ServerEvent) -> tuple[Look, str]:
    match event:
        case server_events.RoundOpened(number=number, protocol=protocol):
            return Look.ROUND, f"round {number} opens" if protocol == "ssa" else f"round {number} opens, {protocol}"
        case server_events.ClientsDrawn(asked=asked, drawn=drawn):
            return Look.ROUND, f"{drawn} of {asked} clients are drawn"
        case server_events.PrivacyCharged(rounds=rounds, epsilon=epsilon):
            return Look.ROUND, f"{rounds} rounds have spent ε = {epsilon:.3g}"
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
