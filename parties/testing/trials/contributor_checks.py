"""Safety checks of rounds that count contributors: which rows they opened, and what clients were told of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fsl_async.geometry import SEGMENTS
from fsl_async.union import unpack_union
from parties.outcome import RoundReport
from parties.testing.trials.case import Case
from parties.testing.trials.members import Ledger

__all__ = ["contributors", "opened_rows"]


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
