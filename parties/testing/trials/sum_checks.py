"""Safety checks of the sums: every acknowledged submission counts once, and no values are in two opened sums.

Of rounds that count contributors: which rows they opened, and what clients were told of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from fsl_async import Dense
from fsl_async.geometry import SEGMENTS
from fsl_async.protocols import ssa
from fsl_async.union import describe_union, unpack_union
from fsl_async.wire.messages import Share
from parties.outcome import RoundReport
from parties.simulation.network import SERVERS
from parties.testing.trials.case import Case
from parties.testing.trials.members import Ledger, Plan


def opened_rows(case: Case, report: RoundReport) -> Mapping[str, frozenset[int]]:
    """By sparse block, the rows that a round opened; empty where contributors are not counted."""
    sizes = {block.name: block.rows for _, block in case.world.task.sparse_blocks()}
    return {
        name: frozenset(unpack_union(packed, sizes[name], "a report").tolist())
        for name, packed in report.opened_rows.items()
    }


def contributors(case: Case) -> Iterator[str]:
    """Every row with enough contributors is opened and no other is, unless a server lies; clients hear the same.

    A malicious client counts at most once in every segment and stash slot.
    """
    least = case.world.task.min_contributors
    if least is None:
        return
    for number, report in sorted(case.world.settled[min(case.honest)].items()):
        opened = opened_rows(case, report)
        for client, ledger in sorted(case.ledgers.items()):
            for outcome in ledger.outcomes.get(number, ()):
                told = {name: frozenset(rows.tolist()) for name, rows in outcome.opened_rows.items()}
                if told != opened and len(case.honest) == 2:
                    yield f"round {number} told {client} of other opened rows than its report has"
        exact = case.world.task.privacy is None
        if exact and report.ended != "aborted" and len(case.honest) == 2:
            yield from _wrongly_opened(case, report, opened, least)


def _wrongly_opened(case: Case, report: RoundReport, opened: Mapping[str, frozenset[int]], least: int) -> Iterator[str]:
    honest = [case.ledgers[client] for client in report.clients if client in case.ledgers]
    for _, block in case.world.task.sparse_blocks():
        malicious = (len(report.clients) - len(honest)) * (SEGMENTS + block.stash)
        sure, possible = np.zeros(block.rows, dtype=int), np.full(block.rows, malicious)
        for ledger in honest:
            sure[list(_updated(ledger, report, block.name))] += 1
            possible[list(_updated(ledger, report, block.name) | _seen(case, ledger, block.name))] += 1
        for row in range(block.rows):
            if row in opened[block.name] and possible[row] < least:
                yield f"round {report.number} opened row {row} of {block.name!r} with {possible[row]} contributors"
            if row not in opened[block.name] and sure[row] >= least:
                yield f"round {report.number} withheld row {row} of {block.name!r} with {sure[row]} contributors"


def _updated(ledger: Ledger, report: RoundReport, block: str) -> set[int]:
    """The rows that a client has updated in a round."""
    plans = (ledger.all_plans[plan] for plan in ledger.plans.get(report.round_id, ()))
    return {row for plan in plans for row in plan.rows.get(block, ())}


def _seen(case: Case, ledger: Ledger, block: str) -> set[int]:
    """The rows on which a client's trees may stand that it has not updated: a retrieval's, or a session's."""
    task = case.world.task
    if task.selection == "adaptive" and task.updates == "any":
        return set()
    rows = {row for found in ledger.retrieved if found.block == block for row in found.rows}
    return rows | {row for plan in ledger.all_plans for row in plan.rows.get(block, ())}


def digits(case: Case) -> Iterator[str]:
    """In base 4, every weight that a round added has digit 1 for each counted client that chose it, otherwise 0.

    Of a row that was not opened, nothing was added.
    Where servers add noise, no digit can be told.
    Of a task that averages or has an optimizer, the check of rules finds the same.
    """
    if not case.world.task.adds or case.world.task.privacy is not None:
        return
    models = case.world.models[min(case.honest)]
    for number, report in sorted(case.world.settled[min(case.honest)].items()):
        if number in models and number - 1 in models:
            for block in case.world.task.model_blocks:
                added = models[number][block.name] - models[number - 1][block.name]
                yield from _wrong_digits(case, report, block.name, isinstance(block, Dense), added)


def _wrong_digits(
    case: Case, report: RoundReport, block: str, dense: bool, added: npt.NDArray[np.int64]
) -> Iterator[str]:
    left = added.reshape(len(added), -1).astype(np.int64)
    opened = opened_rows(case, report).get(block, frozenset(range(len(left))))
    for client, ledger in sorted(case.ledgers.items(), key=lambda item: item[1].digit):
        digit = left // 4**ledger.digit % 4
        expected = np.zeros_like(digit)
        for plan in _counted_plans(client, ledger, report):
            if not plan.union:
                expected[slice(None) if dense else [row for row in plan.rows.get(block, ()) if row in opened]] = 1
        for row in np.unique(np.nonzero(digit != expected)[0])[:3]:
            yield (
                f"round {report.number}, block {block!r}, row {row}: {client}'s digit is {digit[row].tolist()}, "
                f"expected {expected[row].tolist()} (0 is a loss, 2 a double count)"
            )


def _counted_plans(client: str, ledger: Ledger, report: RoundReport) -> list[Plan]:
    plans = ledger.plans.get(report.round_id, set()) if client in report.clients else set()
    return [ledger.all_plans[plan] for plan in sorted(plans)]


def unions(case: Case) -> Iterator[str]:
    """A union is of the rows that its clients have sent; what a malicious one of them has sent is unknown."""
    for number, report in sorted(case.world.settled[min(case.honest)].items()):
        if not (report.ended == "done" and report.union and case.ledgers.keys() >= set(report.clients)):
            continue
        sent = [plan for name in report.clients for plan in _counted_plans(name, case.ledgers[name], report)]
        for _, block in case.world.task.sparse_blocks():
            rows = sorted({row for plan in sent for row in plan.rows.get(block.name, ())})
            if describe_union(block.name, np.array(rows, dtype=np.uint32), block.rows) not in report.union:
                yield f"round {number} has found another union of {block.name!r} than {rows}"


def one_plan_per_round(case: Case) -> Iterator[str]:
    """No plan of a client counts in two rounds, and no two plans count in one round."""
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


def values_in_one_sum(case: Case) -> Iterator[str]:
    """No plan of an honest client is in two sums that an honest server has opened, whatever was reported of them."""
    counted: dict[tuple[str, bytes], frozenset[str]] = {}
    for step in case.world.steps:
        if isinstance(step.after, ssa.Committed):
            counted[step.life.process.name, step.after.nonce] = frozenset(step.after.counted)
    opened: dict[bytes, frozenset[str]] = {}
    for _, note in case.world.transcript:
        if isinstance(note.message, Share) and SERVERS.index(note.sender) in case.honest:
            opened[note.message.round_id] = counted.get((note.sender, note.message.nonce), frozenset())
    for client, ledger in case.ledgers.items():
        sums = Counter(plan for name, who in opened.items() if client in who for plan in ledger.plans.get(name, ()))
        for plan, times in sorted(sums.items()):
            if times > 1:
                yield f"{client}'s submission {plan} is in {times} opened sums: their difference exposes it"


def refused_means_not_counted(case: Case) -> Iterator[str]:
    """A submission that was refused for good is never counted."""
    for client, ledger in case.ledgers.items():
        for number, report in sorted(case.world.settled[min(case.honest)].items()):
            if ledger.refused[report.round_id] and client in report.clients:
                yield f"round {number} counts {client}, whose submission was refused"


def retrieved_the_model(case: Case) -> Iterator[str]:
    """What clients retrieve is the model before their round, bit by bit."""
    models = case.world.models[min(case.honest)]
    for client, ledger in case.ledgers.items():
        for found in ledger.retrieved:
            if found.number - 1 in models:
                model = models[found.number - 1][found.block]
                expected = model[list(found.rows)] if found.rows else model
                if not np.array_equal(np.asarray(found.values).reshape(expected.shape), expected):
                    yield f"{client} retrieved other rows of {found.block!r} in round {found.number} than {found.rows}"
