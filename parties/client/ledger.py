"""What a client has spent of its privacy budget: the rounds to which it has submitted.

Rules: a round is charged by the commit that stores a submission, before its first byte is sent, because from then on
only both servers' signatures say that it does not count; with these it is given back, unless something of the round's
sum may have been opened. A submission beyond the budget is refused before anything is sent. The client trusts nobody
with this: servers have a ledger of their own, which may say less.
"""

from __future__ import annotations

from collections.abc import Set

from fsl_async.task import Task
from parties.errors import BudgetSpentError
from parties.outcome import ClientOutcome, PrivacySpent


def privacy_spent(task: Task, charged: Set[bytes]) -> PrivacySpent | None:
    """What the charged rounds have spent; None in a task without noise."""
    if task.privacy is None:
        return None
    rounds = len(charged)
    return PrivacySpent(
        rounds=rounds,
        epsilon=task.privacy.epsilon(rounds),
        next_epsilon=task.privacy.epsilon(rounds + 1),
        budget=task.privacy.budget,
        delta=task.privacy.delta,
    )


def check_budget(task: Task, charged: Set[bytes]) -> None:
    """Check that the budget lasts for one more submission.

    Raises:
        BudgetSpentError: it does not.
    """
    spent = privacy_spent(task, charged)
    if spent is not None and task.privacy is not None and spent.rounds >= task.privacy.rounds:
        raise BudgetSpentError(spent)


def is_given_back(task: Task, outcome: ClientOutcome) -> bool:
    """Whether a round costs a client nothing, as both servers have signed: nothing of what it submitted was opened."""
    aborted = outcome.participants == 0
    counts_were_opened = task.min_contributors is not None and aborted
    return not outcome.counted and not outcome.opened and not counts_were_opened
