"""Safety checks of servers and clients.

Of servers: one report, one sum and one model for each round, on both servers and in all lives.
Of clients: what they are told and acknowledged, and what they reveal to servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.union import describe_union
from fsl_async.wire.messages import Opened, Receipt, Share
from parties.errors import RequestDeniedError
from parties.events import RoundOpened, Warned
from parties.outcome import Aborted, RoundReport
from parties.server.round.run import PARTS_APART
from parties.simulation.network import SERVERS
from parties.testing.processes import Ended
from parties.testing.trials.case import Case


def one_part_per_request(case: Case) -> Iterator[str]:
    """A server keeps one part of each request, whatever the other one forwards."""
    for at, server, event in case.world.events:
        if isinstance(event, Warned) and PARTS_APART in event.explanation and server in SERVERS:
            index = SERVERS.index(server)
            if index in case.honest:
                yield f"{server} told after {at:.2f} s: {event.explanation}"


def every_sum_is_charged(case: Case) -> Iterator[str]:
    """Where servers add noise, each honest one has charged every round whose sum was opened, and keeps it charged."""
    if case.world.task.privacy is None:
        return
    for index in sorted(case.honest):
        opened = sum(1 for report in case.world.settled[index].values() if report.ended != "aborted")
        charged = sum(note.figures.get("privacy_rounds", 0) for note in case.world.servers[index].status().notes)
        if charged < opened:
            yield f"{SERVERS[index]} has charged {charged} rounds, and {opened} sums were opened"


def nobody_fails(case: Case) -> Iterator[str]:
    """No honest party ends with an error, unless it rightly accuses a malicious server."""
    for ended in case.world.ended:
        honest = ended.party in case.ledgers or (ended.party in SERVERS and SERVERS.index(ended.party) in case.honest)
        if honest and not _accuses_rightly(case, ended):
            yield f"{ended.party} ended after {ended.at:.2f} s: {type(ended.error).__name__}: {ended.error}"


def _accuses_rightly(case: Case, ended: Ended) -> bool:
    """Whether an honest party ended because of the malicious server, which its error names."""
    if len(case.honest) == 2:
        return False
    malicious, error = SERVERS[1 - min(case.honest)], ended.error
    if isinstance(error, PeerViolationError):
        return malicious in error.peer
    return isinstance(error, MisuseError | RequestDeniedError) and malicious in str(error)


def one_account(case: Case) -> Iterator[str]:
    """A server never changes what it has reported of a round, even after it was killed."""
    honest = tuple(SERVERS[index] for index in case.honest)
    yield from (text for text in case.world.contradictions if text.startswith(honest))


def one_round_per_number(case: Case) -> Iterator[str]:
    """A number belongs to one round, on both servers and in all their lives."""
    names: dict[int, bytes] = {}
    for at, server, event in case.world.events:
        if isinstance(event, RoundOpened) and SERVERS.index(server) in case.honest and len(case.honest) == 2:
            before = names.setdefault(event.number, event.round_id)
            if before != event.round_id:
                yield f"{server} opened round {event.number} as another one than before, after {at:.2f} s"


def those_drawn_take_part(case: Case) -> Iterator[str]:
    """Where clients are drawn, both servers tell each the same, as many are drawn as announced, and no others count."""
    told: dict[bytes, dict[str, dict[str, bool]]] = {}
    sizes: dict[bytes, int] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Opened) and SERVERS.index(note.sender) in case.honest:
            config = RoundConfig.parse(note.message.config, note.sender)
            if config.sample is not None:
                sizes[config.round_id()] = config.sample.size
                answers = told.setdefault(config.round_id(), {}).setdefault(note.receiver, {})
                if answers.setdefault(note.sender, note.message.drawn) != note.message.drawn:
                    yield f"{note.sender} told {note.receiver} first that it was drawn for a round, and then not"
    reports = {report.round_id: report for report in case.world.settled[min(case.honest)].values()}
    for round_id, clients in told.items():
        drawn = {client for client, answers in clients.items() if all(answers.values())}
        for client, answers in clients.items():
            if len(set(answers.values())) > 1:
                yield f"{client} was told {answers} by the two servers for round {round_id.hex()[:16]}"
        if len(drawn) > sizes[round_id]:
            yield f"{sorted(drawn)} were told that they were drawn, as {sizes[round_id]} clients"
        listed = {*reports[round_id].clients, *reports[round_id].excluded} if round_id in reports else set()
        if len(case.honest) == 2 and not listed <= drawn:
            yield f"{sorted(listed - drawn)} are on the list of a round for which only {sorted(drawn)} were drawn"


def same_outcomes(case: Case) -> Iterator[str]:
    """Both servers report every round that both have settled in the same way, and have the same model after it."""
    if len(case.honest) < 2:
        return
    (first, second), models = case.world.settled, case.world.models
    for number in sorted(first.keys() & second.keys()):
        if _comparable(first[number]) != _comparable(second[number]):
            yield f"round {number}: S0 reports {first[number]}, S1 reports {second[number]}"
    for number in sorted(models[0].keys() & models[1].keys()):
        for name, array in models[0][number].items():
            if not np.array_equal(array, models[1][number][name]):
                yield f"the two models differ in block {name!r} after round {number}"


def _comparable(report: RoundReport) -> tuple[Any, ...]:
    return (
        report.round_id,
        Aborted if isinstance(report.ending, Aborted) else report.ending,
        report.clients,
        report.excluded,
        report.model,
        report.union,
    )


def one_sum_per_round(case: Case) -> Iterator[str]:
    """A server reveals one share in a round, however often it sends that."""
    nonces: dict[tuple[str, bytes], set[bytes]] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            nonces.setdefault((note.sender, note.message.round_id), set()).add(note.message.nonce)
    for (server, round_id), seen in nonces.items():
        if len(seen) > 1:
            yield f"{server} revealed {len(seen)} different shares in round {round_id.hex()[:16]}"


def nothing_below_the_minimum(case: Case) -> Iterator[str]:
    """No server commits to the sum of fewer clients than the minimum."""
    rosters: dict[tuple[str, bytes], set[frozenset[str]]] = {}
    for step in case.world.steps:
        name = step.life.process.name
        if isinstance(step.after, ssa.Committed) and SERVERS.index(name) in case.honest:
            clients = frozenset(step.after.counted)
            rosters.setdefault((name, step.after.nonce), set()).add(clients)
            if len(clients) < case.world.task.quorum:
                yield f"{name} committed to the sum of {sorted(clients)}, which is fewer than the minimum"


def shares_as_committed(case: Case) -> Iterator[str]:
    """No server accepts a share that is not the one to which its peer has committed."""
    for step in case.world.steps:
        match step.state, step.event:
            case ssa.Revealed() as state, ssa.PeerShare() as share:
                name = step.life.process.name
                if SERVERS.index(name) in case.honest and not _is_as_committed(case, name, state, share):
                    yield f"{name} accepted a share that is not the one to which its peer has committed"


def _is_as_committed(case: Case, name: str, state: ssa.Revealed, share: ssa.PeerShare) -> bool:
    """Whether the share opens the commitment, in any of the rounds that the server has opened."""
    task, server = case.world.task, SERVERS.index(name)
    rounds = {
        event.round_id
        for _, reporter, event in case.world.events
        if reporter == name and isinstance(event, RoundOpened)
    }
    expected = (
        ssa.share_commitment(
            ssa.Terms(round_id, server, task.quorum, task.verified),
            1 - server,
            state.counted,
            share.share,
            share.nonce,
            state.counts,
        )
        for round_id in rounds
    )
    return state.peer_commitment in expected


def revealed_means_done(case: Case) -> Iterator[str]:
    """No server aborts a round in which it has revealed its share."""
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            for report in case.world.settled[SERVERS.index(note.sender)].values():
                if report.round_id == note.message.round_id and isinstance(report.ending, Aborted):
                    explanation = report.ending.explanation
                    yield f"{note.sender} revealed its share in round {report.number}, and aborted it: {explanation}"


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
