"""Liveness checks: once no fault strikes any more, every round ends, and nobody waits without a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from fsl_async.wire.messages import Enter, Receipt, Refused
from parties.events import ClientLeft, MessageReceived, RoundOpened, RoundSettled, SubmissionIn
from parties.outcome import Aborted, RoundReport
from parties.simulation.network import SERVERS
from parties.testing.faults import CALM, Delay, FullDisk, Partition, SlowDisk, SpoiltBlobs
from parties.testing.round_faults import Fault, StoppedWorker
from parties.testing.story import Began, Failed, Killed
from parties.testing.trials.case import Case
from parties.watch import Note

IN_VAIN = 10
"""So many successive lives that fail at once show that a server does not start any more."""

AT_ONCE = 5.0
"""The longest time in seconds that an answer may take without faults."""


def comes_up_again(case: Case) -> Iterator[str]:
    """An honest server that was killed starts again, whatever a malicious peer has made it store."""
    for name in (SERVERS[index] for index in case.honest):
        events = [entry.event for entry in case.world.story if entry.party == name]
        lives = list(takewhile(lambda entry: isinstance(entry, Began | Failed), reversed(events)))
        errors = [str(entry.error) for entry in lives if isinstance(entry, Failed)]
        if len(errors) >= IN_VAIN:
            yield f"{name} was started {len(errors)} times in vain, last: {errors[0]}"


def everybody_ends(case: Case) -> Iterator[str]:
    """Once all faults are over, every round ends within a bound, and every client learns its outcome."""
    for index in sorted(case.honest) if len(case.honest) == 2 else ():
        missing = [number for number in range(1, case.rounds + 1) if number not in case.world.settled[index]]
        if missing:
            yield f"S{index} has not settled rounds {missing} (it is at {case.world.servers[index].state_name()!r})"
    for client in sorted(case.stranded):
        yield f"{client} never learnt the outcome of a round to which it submitted"


def nobody_is_awaited_in_vain(case: Case) -> Iterator[str]:
    """A server aborts a round because the other does not answer only if a fault has kept the other from answering."""
    patience = case.world.schedule.patience
    for at, server, event in case.world.events if len(case.honest) == 2 else ():
        match event:
            case RoundSettled(past=past) if _impatient(server, past.report):
                if not _was_disturbed(case, at - patience / 2, at):
                    yield f"{server} aborted round {past.report.number} after {at:.2f} s without a fault: " + (
                        past.report.explanation
                    )


def _impatient(server: str, report: RoundReport) -> bool:
    """Whether this server aborted a round because it no longer waited for the other."""
    match report.ending:
        case Aborted(explanation=explanation):
            return explanation.startswith(f"{server} gave up: S") and "was awaited in state" in explanation
        case _:
            return False


def _was_disturbed(case: Case, begin: float, end: float) -> bool:
    """Whether a fault kept the servers from each other or from their disks in a period."""
    for at, party, told in case.world.story:
        if party in SERVERS and begin <= at <= end and isinstance(told, Fault | Began | Killed | Failed):
            return True
    return any(start < end and begin < stop for start, stop in _spells(case.faults))


def _spells(faults: Iterable[Fault]) -> Iterator[tuple[float, float]]:
    """The periods in which a server is slow, or cut off from the other one or from its disk."""
    for fault in faults:
        match fault:
            case Delay(party="S1"):
                yield 0.0, CALM
            case Partition(sender="S0", receiver="S1") | Partition(sender="S1", receiver="S0"):
                yield fault.begin, fault.begin + fault.seconds
            case SlowDisk(party="S0" | "S1") | FullDisk(party="S0" | "S1") | SpoiltBlobs() | StoppedWorker():
                yield fault.begin, fault.begin + fault.seconds


def nobody_asks_in_vain(case: Case) -> Iterator[str]:
    """Without faults, no request is refused, and a client that waits for a round enters it when it opens."""
    if case.faults:
        return
    for at, note in case.world.transcript:
        if isinstance(note.message, Refused) and note.message.reason != "round-closed":
            yield f"{note.sender} refused {note.receiver} after {at:.2f} s: {note.message.explanation}"
    waiting = _waiting(case)
    opened = [(at, server, told.number) for at, server, told in case.world.events if isinstance(told, RoundOpened)]
    left = [(at, told.client, server) for at, server, told in case.world.events if isinstance(told, ClientLeft)]
    end = case.world.story[-1].at
    for (client, asked), (since, after) in waiting.items():
        gone = min((at for at, who, server in left if (who, server) == (client, asked) and at >= since), default=end)
        for at, server, number in opened:
            if server == asked and number > after and since < at < min(end, gone) - 1:
                yield f"{client} waits for a round at {server} since {since:.2f} s, but round {number} has opened"


def _waiting(case: Case) -> dict[tuple[str, str], tuple[float, int]]:
    """By client and server, since when it waits there for a round, and after which; as servers have heard it.

    A client that cancels its call while it sends has cut its request short: it does not wait.
    """
    asked: dict[tuple[str, str], int] = {}
    waiting: dict[tuple[str, str], tuple[float, int]] = {}
    for at, party, told in case.world.story:
        match told:
            case Note(sender=client, receiver=server, message=Enter(after=after)):
                asked[client, server] = after
            case MessageReceived(sender=client, kind="Enter"):
                waiting[client, party] = at, asked[client, party]
            case Note(sender=server, receiver=client) if server in SERVERS:
                waiting.pop((client, server), None)
    return waiting


def nobody_waits_for_a_receipt(case: Case) -> Iterator[str]:
    """Without faults, a client whose submission is on a server's list gets its receipt at once, not by asking again.

    Who is told by the other server meanwhile that the round has closed waits for none: it asks for the outcome.
    """
    told_at = [(at, note) for at, note in case.world.transcript if isinstance(note.message, Receipt | Refused)]
    for at, server, told in case.world.events if not case.faults else ():
        if isinstance(told, SubmissionIn) and at < case.world.story[-1].at - AT_ONCE:
            near = [
                (then, note) for then, note in told_at if note.receiver == told.client and abs(then - at) <= AT_ONCE
            ]
            receipts = (
                at <= then and isinstance(note.message, Receipt) for then, note in near if note.sender == server
            )
            over = (getattr(note.message, "reason", "") == "round-closed" for _, note in near if note.sender != server)
            if not any(receipts) and not any(over):
                yield f"{server} has had {told.client}'s submission since {at:.2f} s, and has sent no receipt"
