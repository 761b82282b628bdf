"""From the sum of a round to the new model; in a union round, which finds the union, the model stays."""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.model_numbers import with_sum
from fsl_async.server.rules import average_and_step, own_step
from fsl_async.server_rules import OwnRule
from parties.outcome import Model
from parties.server.round.combining import Sums
from parties.server.round.start import RoundStart


@dataclass(frozen=True)
class Result:
    """The model after a round, and what the task's optimizer or own rule keeps beside it."""

    model: Model
    state: Model


def apply_sum(begun: RoundStart, rule: OwnRule | None, sums: Sums) -> Result:
    """Apply a sum as the task says.

    Raises:
        BeyondDtypeError: a block of the model cannot hold the result.
        NoWeightError: the clients' weights sum to 0.
        ExcessError: they sum to less.
        OwnRuleError: the task's own rule failed.
    """
    config, task = begun.config, begun.config.task
    if config.protocol == "psu":
        return Result(begun.model, begun.state)
    if task.adds:
        model = begun.model
        added = {name: with_sum(sums.ring, name, model[name], total) for name, total in sums.totals.items()}
        return Result(model | added, {})
    update = dict(sums.update)
    if rule is not None:
        return Result(*own_step(task, rule, begun.model, update, begun.state, config.number, sums.clients))
    return Result(*average_and_step(task, begun.model, update, begun.state, sums.clients))
