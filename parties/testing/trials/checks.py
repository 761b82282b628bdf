"""The rules that hold whatever goes wrong, checked from what was observed, not from what the parties say.

safety       at most one sum per round, nobody counted twice, no acknowledged submission lost, nothing revealed below
             the minimum, never two different hints for one tree and epoch, both servers report the same
liveness     once all faults are over, every round ends, and every client learns its outcome
"""

from __future__ import annotations

from parties.testing.trials import liveness_checks, rules, safety_checks, sum_checks
from parties.testing.trials.case import Case, Check, Violation

CHECKS: dict[str, Check] = {
    "nobody fails": safety_checks.nobody_fails,
    "comes up again": liveness_checks.comes_up_again,
    "one account": safety_checks.one_account,
    "one round per number": safety_checks.one_round_per_number,
    "those drawn take part": safety_checks.those_drawn_take_part,
    "same outcomes": safety_checks.same_outcomes,
    "one sum per round": safety_checks.one_sum_per_round,
    "nothing below the minimum": safety_checks.nothing_below_the_minimum,
    "shares as committed": safety_checks.shares_as_committed,
    "one part per request": safety_checks.one_part_per_request,
    "every sum is charged": safety_checks.every_sum_is_charged,
    "revealed means done": safety_checks.revealed_means_done,
    "one receipt per round": safety_checks.one_receipt_per_round,
    "nobody asks in vain": liveness_checks.nobody_asks_in_vain,
    "nobody waits for a receipt": liveness_checks.nobody_waits_for_a_receipt,
    "nobody is awaited in vain": liveness_checks.nobody_is_awaited_in_vain,
    "acknowledged means counted": safety_checks.acknowledged_means_counted,
    "told the truth": safety_checks.told_the_truth,
    "one submission per epoch": safety_checks.one_submission_per_epoch,
    "spoiled is not counted": safety_checks.spoiled_is_not_counted,
    "honest answers are right": safety_checks.honest_answers_are_right,
    "one plan per round": sum_checks.one_plan_per_round,
    "values in one sum": sum_checks.values_in_one_sum,
    "refused means not counted": sum_checks.refused_means_not_counted,
    "retrieved the model": sum_checks.retrieved_the_model,
    "digits": sum_checks.digits,
    "contributors": sum_checks.contributors,
    "unions": sum_checks.unions,
    "read the last union": safety_checks.read_the_last_union,
    "rules": rules.rules,
    "everybody ends": liveness_checks.everybody_ends,
}


def check_all(case: Case) -> list[Violation]:
    """All violations; an empty list if there are none."""
    return [Violation(name, explanation) for name, check in CHECKS.items() for explanation in check(case)]
