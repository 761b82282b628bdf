"""What must hold whatever goes wrong, checked from what was seen and not from what the parties say of themselves.

safety       at most one sum per round, nobody counted twice, nobody lost whose submission was acknowledged, nothing
             revealed below the minimum, never two different hints for one tree and epoch, both servers the same
liveness     once nothing goes wrong any more, every round ends, and every client learns how
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import Dense
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import round as protocol
from fsl_async.wire.messages import Enter, Receipt, Refused, Share
from parties.errors import RequestDeniedError
from parties.events import ClientLeft, RoundOpened, RoundSettled, SubmissionIn
from parties.outcome import Aborted, RoundReport
from parties.simulation.network import SERVERS
from parties.testing.faults import CALM, Delay, Fault, FullDisk, Partition, SlowDisk
from parties.testing.story import Began, Failed, Killed
from parties.testing.trials.members import Ledger, Plan
from parties.testing.world import Ended, World

__all__ = ["CHECKS", "Case", "Violation", "check_all"]

IN_VAIN = 10
"""Lives, one after the other, that end before anything has happened in them: the next one will, too."""

AT_ONCE = 5.0
"""Seconds that an answer may take where nothing goes wrong."""


@dataclass(frozen=True)
class Violation:
    """Something that must not be: which check says so, and what it saw."""

    check: str
    words: str

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


@dataclass(frozen=True)
class Case:
    """A world that has ended, and what is known of it.

    Attributes:
        world: as it was.
        rounds: how many there were to be.
        ledgers: by client, of those that are honest.
        honest: the servers that are.
        stranded: clients that waited in vain until the end.
        faults: what was to go wrong.
        spoiled: by malicious client, the rounds to which it sent what must not be counted, by their names.
    """

    world: World
    rounds: int
    ledgers: Mapping[str, Ledger]
    honest: frozenset[int] = frozenset({0, 1})
    stranded: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    spoiled: Mapping[str, frozenset[bytes]] = field(default_factory=dict)


Check: TypeAlias = Callable[[Case], Iterator[str]]


def check_all(case: Case) -> list[Violation]:
    """Everything that is wrong; nothing, where all is well."""
    return [Violation(name, words) for name, check in CHECKS.items() for words in check(case)]


# ---- servers


def _nobody_fails(case: Case) -> Iterator[str]:
    """No honest party ends with an error; but who meets a malicious server may halt, and say that it was that one."""
    for ended in case.world.ended:
        honest = ended.party in case.ledgers or (ended.party in SERVERS and SERVERS.index(ended.party) in case.honest)
        if honest and not _accuses_rightly(case, ended):
            yield f"{ended.party} ended after {ended.at:.2f} s: {type(ended.error).__name__}: {ended.error}"


def _accuses_rightly(case: Case, ended: Ended) -> bool:
    """Whether an honest party ended because of the malicious server, which it names, or which runs another task."""
    if len(case.honest) == 2:
        return False
    malicious, error = SERVERS[1 - min(case.honest)], ended.error
    if isinstance(error, PeerViolationError):
        return malicious in error.peer
    return isinstance(error, MisuseError | RequestDeniedError) and malicious in str(error)


def _comes_up_again(case: Case) -> Iterator[str]:
    """An honest server that was killed comes up again, whatever a malicious peer has made it store."""
    for name in (SERVERS[index] for index in case.honest):
        told = [entry.told for entry in case.world.story if entry.party == name]
        lives = list(takewhile(lambda entry: isinstance(entry, Began | Failed), reversed(told)))
        errors = [str(entry.error) for entry in lives if isinstance(entry, Failed)]
        if len(errors) >= IN_VAIN:
            yield f"{name} was started {len(errors)} times in vain, last: {errors[0]}"


def _one_account(case: Case) -> Iterator[str]:
    """What a server has once told of a round it tells for ever, also after it was killed."""
    told = tuple(SERVERS[index] for index in case.honest)
    yield from (words for words in case.world.contradictions if words.startswith(told))


def _one_round_per_number(case: Case) -> Iterator[str]:
    """A number names one round, on both servers and in all their lives."""
    names: dict[int, bytes] = {}
    for at, server, happening in case.world.happenings:
        if isinstance(happening, RoundOpened) and SERVERS.index(server) in case.honest and len(case.honest) == 2:
            before = names.setdefault(happening.number, happening.round_id)
            if before != happening.round_id:
                yield f"{server} opened round {happening.number} as another one than before, after {at:.2f} s"


def _same_outcomes(case: Case) -> Iterator[str]:
    """Both servers tell the same of every round that both have settled, and hold the same model after it."""
    if len(case.honest) < 2:
        return
    (first, second), models = case.world.settled, case.world.models
    for number in sorted(first.keys() & second.keys()):
        if _comparable(first[number]) != _comparable(second[number]):
            yield f"round {number}: S0 tells {first[number]}, S1 tells {second[number]}"
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


def _one_sum_per_round(case: Case) -> Iterator[str]:
    """A server reveals one share in a round, however often it sends it."""
    nonces: dict[tuple[str, bytes], set[bytes]] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            nonces.setdefault((note.sender, note.message.round_id), set()).add(note.message.nonce)
    for (server, round_id), seen in nonces.items():
        if len(seen) > 1:
            yield f"{server} revealed {len(seen)} different shares in round {round_id.hex()[:16]}"


def _nothing_below_the_minimum(case: Case) -> Iterator[str]:
    """No server commits to the sum of fewer clients than the minimum, or of two different sets of them."""
    rosters: dict[tuple[str, bytes], set[frozenset[str]]] = {}
    for step in case.world.steps:
        name = step.life.process.name
        if isinstance(step.after, protocol.Committed) and SERVERS.index(name) in case.honest:
            clients = frozenset(step.after.counted)
            rosters.setdefault((name, step.after.nonce), set()).add(clients)
            if len(clients) < case.world.task.min_clients:
                yield f"{name} committed to the sum of {sorted(clients)}, which is fewer than the minimum"


def _shares_as_committed(case: Case) -> Iterator[str]:
    """No server goes on with a share that is not what its peer had committed to."""
    for step in case.world.steps:
        match step.state, step.event:
            case protocol.Revealed() as state, protocol.PeerShare() as share:
                name = step.life.process.name
                if SERVERS.index(name) in case.honest and not _is_as_committed(case, name, state, share):
                    yield f"{name} went on with a share that is not the one that its peer had committed to"


def _is_as_committed(case: Case, name: str, state: protocol.Revealed, share: protocol.PeerShare) -> bool:
    """Whether the commitment is that to the share, in any of the rounds that the server has opened."""
    task, server = case.world.task, SERVERS.index(name)
    rounds = {
        happening.round_id
        for _, teller, happening in case.world.happenings
        if teller == name and isinstance(happening, RoundOpened)
    }
    expected = (
        protocol.share_commitment(
            protocol.Terms(round_id, server, task.min_clients, task.verified),
            1 - server,
            state.counted,
            share.share,
            share.nonce,
        )
        for round_id in rounds
    )
    return state.peer_commitment in expected


def _revealed_means_done(case: Case) -> Iterator[str]:
    """No server calls a round aborted in which it has revealed its share."""
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            for report in case.world.settled[SERVERS.index(note.sender)].values():
                if report.round_id == note.message.round_id and isinstance(report.ending, Aborted):
                    explanation = report.ending.explanation
                    yield f"{note.sender} revealed its share in round {report.number}, and aborted it: {explanation}"


# ---- clients


def _one_receipt_per_round(case: Case) -> Iterator[str]:
    """A server acknowledges one content of a client in a round; whoever has two servers' for two is not counted."""
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


def _nobody_asks_in_vain(case: Case) -> Iterator[str]:
    """Where nothing goes wrong, nobody is put off, and whoever waits for a round is let in when one opens."""
    if case.faults:
        return
    for at, note in case.world.transcript:
        if isinstance(note.message, Refused) and note.message.reason != "round-closed":
            yield f"{note.sender} refused {note.receiver} after {at:.2f} s: {note.message.explanation}"
    waiting: dict[tuple[str, str], tuple[float, int]] = {}
    for at, note in case.world.transcript:
        if isinstance(note.message, Enter):
            waiting[note.sender, note.receiver] = at, note.message.after
        elif note.sender in SERVERS:
            waiting.pop((note.receiver, note.sender), None)
    opened = [(at, server, told.number) for at, server, told in case.world.happenings if isinstance(told, RoundOpened)]
    left = [(at, told.client, server) for at, server, told in case.world.happenings if isinstance(told, ClientLeft)]
    end = case.world.story[-1].at
    for (client, asked), (since, after) in waiting.items():
        gone = min((at for at, who, server in left if (who, server) == (client, asked) and at >= since), default=end)
        for at, server, number in opened:
            if server == asked and number > after and since < at < min(end, gone) - 1:
                yield f"{client} waits for a round at {server} since {since:.2f} s; round {number} has opened"


def _nobody_waits_for_a_receipt(case: Case) -> Iterator[str]:
    """Where nothing goes wrong, whoever is in a server's list hears so at once, and not by asking again."""
    told_at = [(at, note) for at, note in case.world.transcript if isinstance(note.message, Receipt)]
    for at, server, told in case.world.happenings if not case.faults else ():
        if isinstance(told, SubmissionIn) and at < case.world.story[-1].at - AT_ONCE:
            receipts = (then for then, note in told_at if (note.sender, note.receiver) == (server, told.client))
            if not any(at <= then <= at + AT_ONCE for then in receipts):
                yield f"{server} has had {told.client}'s submission since {at:.2f} s, and does not say so"


def _acknowledged_means_counted(case: Case) -> Iterator[str]:
    """Whoever has both receipts is in the sum, if there is one."""
    reports = case.world.settled[min(case.honest)]
    if len(case.honest) < 2:
        return
    for client, ledger in case.ledgers.items():
        for number in sorted(ledger.acknowledged):
            report = reports.get(number)
            if report is not None and not isinstance(report.ending, Aborted) and client not in report.clients:
                yield f"{client} had both receipts in round {number}, which counts {report.clients} ({report.excluded})"


def _told_the_truth(case: Case) -> Iterator[str]:
    """What clients are told is what the servers' accounts say, each time."""
    reports = case.world.settled[min(case.honest)]
    for client, ledger in case.ledgers.items():
        for number, told in ledger.told.items():
            report = reports.get(number)
            for outcome in told:
                if report is None or outcome.counted != (client in report.clients) or outcome.clients != report.clients:
                    yield f"{client} was told {outcome} of round {number}; the account is {report}"


def _spoiled_is_not_counted(case: Case) -> Iterator[str]:
    """Nobody is counted who sent what is not well formed, or not the same to both servers."""
    for client, rounds in case.spoiled.items():
        for number, report in sorted(case.world.settled[min(case.honest)].items()):
            if report.round_id in rounds and client in report.clients:
                yield f"round {number} counts {client}, whose submission was spoiled"


def _one_submission_per_epoch(case: Case) -> Iterator[str]:
    """A client sends a server one content in a round, whatever it forgets: never two hints for one tree and epoch."""
    for client, ledger in case.ledgers.items():
        for (round_id, server), contents in ledger.contents.items():
            if len(contents) > 1:
                yield f"{client} sent {server} {len(contents)} different submissions in round {round_id.hex()[:16]}"


def _everybody_ends(case: Case) -> Iterator[str]:
    """Once nothing goes wrong any more, every round ends within a bound, and every client learns how."""
    for index in sorted(case.honest) if len(case.honest) == 2 else ():
        missing = [number for number in range(1, case.rounds + 1) if number not in case.world.settled[index]]
        if missing:
            yield f"S{index} has not settled rounds {missing} (it is at {case.world.servers[index].state_name()!r})"
    for client in sorted(case.stranded):
        yield f"{client} never learnt how a round ended in which it submitted"


def _nobody_is_awaited_in_vain(case: Case) -> Iterator[str]:
    """A server that gives a round up for want of the other has had a reason to be without it."""
    patience = case.world.schedule.patience
    for at, server, happening in case.world.happenings if len(case.honest) == 2 else ():
        match happening:
            case RoundSettled(past=past) if _impatient(server, past.report):
                if not _had_trouble(case, at - patience / 2, at):
                    yield f"{server} gave round {past.report.number} up after {at:.2f} s, and nothing was wrong: " + (
                        past.report.explanation
                    )


def _impatient(server: str, report: RoundReport) -> bool:
    """Whether it was this server that would not wait for the other any more."""
    match report.ending:
        case Aborted(explanation=explanation):
            return explanation.startswith(f"{server} gave up: S") and "was awaited in state" in explanation
        case _:
            return False


def _had_trouble(case: Case, begin: float, end: float) -> bool:
    """Whether something was wrong in a time that keeps servers from each other, or from their disks."""
    for at, party, told in case.world.story:
        if party in SERVERS and begin <= at <= end and isinstance(told, Fault | Began | Killed | Failed):
            return True
    return any(start < end and begin < stop for start, stop in _spells(case.faults))


def _spells(faults: Iterable[Fault]) -> Iterator[tuple[float, float]]:
    """The times in which servers are slow, or without the other or a disk."""
    for fault in faults:
        match fault:
            case Delay(party="S1"):
                yield 0.0, CALM
            case Partition(sender="S0", receiver="S1") | Partition(sender="S1", receiver="S0"):
                yield fault.begin, fault.begin + fault.seconds
            case SlowDisk(party="S0" | "S1") | FullDisk(party="S0" | "S1"):
                yield fault.begin, fault.begin + fault.seconds


# ---- sums


def _digits(case: Case) -> Iterator[str]:
    """In base 4, every weight that a round added has a 1 for every counted client that chose it, and else zeros."""
    models = case.world.models[min(case.honest)]
    for number, report in sorted(case.world.settled[min(case.honest)].items()):
        if number in models and number - 1 in models:
            for block in case.world.task.blocks:
                added = models[number][block.name] - models[number - 1][block.name]
                yield from _wrong_digits(case, report, block.name, isinstance(block, Dense), added)


def _wrong_digits(
    case: Case, report: RoundReport, block: str, dense: bool, added: npt.NDArray[np.int64]
) -> Iterator[str]:
    left = added.reshape(len(added), -1).astype(np.int64)
    for client, ledger in sorted(case.ledgers.items(), key=lambda item: item[1].place):
        digit = left // 4**ledger.place % 4
        expected = np.zeros_like(digit)
        for plan in _counted_plans(client, ledger, report):
            if not plan.union:
                expected[slice(None) if dense else list(plan.rows.get(block, ()))] = 1
        for row in np.unique(np.nonzero(digit != expected)[0])[:3]:
            yield (
                f"round {report.number}, block {block!r}, row {row}: {client}'s digit is {digit[row].tolist()}, "
                f"and {expected[row].tolist()} was to be expected (0 is a loss, 2 a double count)"
            )


def _counted_plans(client: str, ledger: Ledger, report: RoundReport) -> list[Plan]:
    plans = ledger.plans.get(report.round_id, set()) if client in report.clients else set()
    return [ledger.all_plans[plan] for plan in sorted(plans)]


def _one_plan_per_round(case: Case) -> Iterator[str]:
    """No plan of a client counts in two rounds, and no two plans in one."""
    for client, ledger in case.ledgers.items():
        counted: dict[int, int] = {}
        for number, report in sorted(case.world.settled[min(case.honest)].items()):
            plans = sorted(ledger.plans.get(report.round_id, set())) if client in report.clients else []
            if client in report.clients and len(plans) != 1:
                yield f"round {number} counts {client}, who sent {len(plans)} submissions in it"
            for plan in plans:
                before = counted.setdefault(plan, number)
                if before != number:
                    yield f"{client}'s submission {plan} counts in rounds {before} and {number}"


def _values_in_one_sum(case: Case) -> Iterator[str]:
    """No plan of an honest client is in two sums that an honest server has opened, whoever was told what of them."""
    counted: dict[tuple[str, bytes], frozenset[str]] = {}
    for step in case.world.steps:
        if isinstance(step.after, protocol.Committed):
            counted[step.life.process.name, step.after.nonce] = frozenset(step.after.counted)
    opened: dict[bytes, frozenset[str]] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            opened[note.message.round_id] = counted.get((note.sender, note.message.nonce), frozenset())
    for client, ledger in case.ledgers.items():
        sums = Counter(plan for name, who in opened.items() if client in who for plan in ledger.plans.get(name, ()))
        for plan, times in sorted(sums.items()):
            if times > 1:
                yield f"{client}'s submission {plan} is in {times} sums that were opened: their differences tell"


def _refused_means_not_counted(case: Case) -> Iterator[str]:
    """A submission of which its client was told that it counts nowhere counts nowhere."""
    for client, ledger in case.ledgers.items():
        for number, report in sorted(case.world.settled[min(case.honest)].items()):
            if ledger.refused[report.round_id] and client in report.clients:
                yield f"round {number} counts {client}, who was told that this submission counts nowhere"


def _retrieved_the_model(case: Case) -> Iterator[str]:
    """What clients retrieve is the model before their round, bit for bit."""
    models = case.world.models[min(case.honest)]
    for client, ledger in case.ledgers.items():
        for found in ledger.retrieved:
            if found.number - 1 in models:
                model = models[found.number - 1][found.block]
                expected = model[list(found.rows)] if found.rows else model
                if not np.array_equal(np.asarray(found.values).reshape(expected.shape), expected):
                    yield f"{client} retrieved other rows of {found.block!r} in round {found.number} than {found.rows}"


CHECKS: dict[str, Check] = {
    "nobody fails": _nobody_fails,
    "comes up again": _comes_up_again,
    "one account": _one_account,
    "one round per number": _one_round_per_number,
    "same outcomes": _same_outcomes,
    "one sum per round": _one_sum_per_round,
    "nothing below the minimum": _nothing_below_the_minimum,
    "shares as committed": _shares_as_committed,
    "revealed means done": _revealed_means_done,
    "one receipt per round": _one_receipt_per_round,
    "nobody asks in vain": _nobody_asks_in_vain,
    "nobody waits for a receipt": _nobody_waits_for_a_receipt,
    "nobody is awaited in vain": _nobody_is_awaited_in_vain,
    "acknowledged means counted": _acknowledged_means_counted,
    "told the truth": _told_the_truth,
    "one submission per epoch": _one_submission_per_epoch,
    "spoiled is not counted": _spoiled_is_not_counted,
    "one plan per round": _one_plan_per_round,
    "values in one sum": _values_in_one_sum,
    "refused means not counted": _refused_means_not_counted,
    "retrieved the model": _retrieved_the_model,
    "digits": _digits,
    "everybody ends": _everybody_ends,
}
