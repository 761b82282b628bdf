"""Safety checks of what clients are told and acknowledged, and of what they reveal to servers."""

from __future__ import annotations

from collections.abc import Iterator

from fsl_async.union import describe_union
from fsl_async.wire.messages import Receipt
from parties.outcome import Aborted, RoundReport
from parties.simulation.network import SERVERS
from parties.testing.trials.case import Case


def one_receipt_per_round(case: Case) -> Iterator[str]:
    """A server acknowledges one submission of a client in a round; a client with receipts for two is not counted."""
    signed: dict[tuple[bytes, str], set[bytes]] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Receipt) and SERVERS.index(note.sender) in case.honest:
            digests = signed.setdefault((note.message.round_id, note.receiver), set())
            digests.add(note.message.digest)
    reports = {report.round_id: report for report in case.world.settled[min(case.honest)].values()}
    for (round_id, client), digests in signed.items():
        if len(digests) > len(case.honest):
            yield f"{client} has receipts for {len(digests)} contents in round {round_id.hex()[:16]}"
        elif len(digests) > 1 and round_id in reports and client in reports[round_id].clients:
            yield f"round {reports[round_id].number} counts {client}, of whom the servers have different contents"


def acknowledged_means_counted(case: Case) -> Iterator[str]:
    """A client with both receipts is in the sum, if there is one."""
    reports = case.world.settled[min(case.honest)]
    if len(case.honest) < 2:
        return
    for client, ledger in case.ledgers.items():
        for number in sorted(ledger.acknowledged):
            report = reports.get(number)
            if report is not None and not isinstance(report.ending, Aborted) and client not in report.clients:
                yield f"{client} had both receipts in round {number}, which counts {report.clients} ({report.excluded})"


def told_the_truth(case: Case) -> Iterator[str]:
    """The outcome that a client gets is always the one that the servers report."""
    reports = case.world.settled[min(case.honest)]
    for client, ledger in case.ledgers.items():
        for number, outcomes in ledger.outcomes.items():
            report = reports.get(number)
            for outcome in outcomes:
                if report is None or (outcome.counted, outcome.participants, outcome.names) != _told(
                    case, report, client
                ):
                    yield f"{client} got the outcome {outcome} of round {number}; the report is {report}"
        for number in sorted(ledger.refused_sums):
            if number not in reports or reports[number].ended != "refused":
                yield f"{client} was told that round {number}'s sum was refused; the report is {reports.get(number)}"


def _told(case: Case, report: RoundReport, client: str) -> tuple[bool, int, tuple[str, ...]]:
    """What a report means for one client."""
    names = tuple(report.clients) if case.world.task.participants == "names" else ()
    return client in report.clients, len(report.clients), names


def honest_answers_are_right(case: Case) -> Iterator[str]:
    """No retrieval of two honest servers is refused, whatever dies meanwhile."""
    for client, ledger in case.ledgers.items():
        if ledger.wrong_answers and len(case.honest) == 2:
            yield f"{client} refused {ledger.wrong_answers} answers of honest servers"


def spoiled_is_not_counted(case: Case) -> Iterator[str]:
    """A malicious client that sent a malformed submission, or different ones to the two servers, is not counted."""
    for client, rounds in case.spoiled.items():
        for number, report in sorted(case.world.settled[min(case.honest)].items()):
            if report.round_id in rounds and client in report.clients:
                yield f"round {number} counts {client}, whose submission was spoiled"


def one_submission_per_epoch(case: Case) -> Iterator[str]:
    """A client never sends a server two submissions in a round: that would be two hints for one tree and epoch."""
    for client, ledger in case.ledgers.items():
        for (round_id, server), contents in ledger.contents.items():
            if len(contents) > 1:
                yield f"{client} sent {server} {len(contents)} different submissions in round {round_id.hex()[:16]}"


def read_the_last_union(case: Case) -> Iterator[str]:
    """A union that a client reads is that of a round, and of none before the last one whose outcome it knew."""
    reports = case.world.settled[min(case.honest)]
    unions = {number: report.union for number, report in reports.items() if report.ended == "done" and report.union}
    rows = {block.name: block.rows for _, block in case.world.task.sparse_blocks()}
    for client, ledger in case.ledgers.items():
        for read in ledger.read:
            seen = tuple(describe_union(name, found, rows[name]) for name, found in read.union.items())
            last = max((number for number in unions if number <= read.known), default=0)
            if seen not in [union for number, union in unions.items() if number >= last]:
                yield f"{client}, which knew the outcome of round {read.known}, read {read.union} as the last union"
