"""Trials of what servers do with a sum: tasks with averages, optimizers and rules of their own, and their oracle.

A ruled trial is drawn beside the one of its seed: the same scenario and faults, with a rule in the task. The oracle
computes every model and state anew from the counted clients' plans, with Python's own floats, one weight at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async import Adam, Dense, Momentum, Ring, RoundFacts, Sgd, Sparse, Task
from fsl_async.server_rules import OwnRule
from parties.outcome import Model, RoundReport
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import SERVERS
from parties.testing.trials.case import Case
from parties.testing.trials.scenario import NAMES, Trial

WEIGHTS = "examples"

OFTEN = 0.3
"""How often an unsteady rule gives something else than the other server's."""


def steady(model: Model, update: Model, facts: RoundFacts) -> Model:
    """An own rule that both servers run alike: half of the sum, and a count of rounds."""
    facts.state["rounds"] = facts.state.get("rounds", np.zeros(1, dtype=np.int64)) + 1
    return {name: model[name] + update[name].reshape(model[name].shape) / 2 for name in model}


def unsteady(model: Model, update: Model, facts: RoundFacts) -> Model:
    """The name of a rule that `_unsteady_rule` stands for: no two servers run the same."""
    return steady(model, update, facts)


def _unsteady_rule(seed: int, server: int) -> OwnRule:
    """`steady`, except that each call may add a number of this server's own: by chance, and not by its arguments."""
    rng = Random(f"{seed}/unsteady/{server}")

    def rule(model: Model, update: Model, facts: RoundFacts) -> Model:
        made = steady(model, update, facts)
        return {name: array + (1.0 + server) for name, array in made.items()} if rng.random() < OFTEN else made

    return rule


RULES: Mapping[str, Mapping[str, Any]] = {
    "mean": {"apply": "mean"},
    "weighted mean": {"apply": "weighted-mean", "weights": WEIGHTS},
    "row mean": {
        "apply": "row-mean",
        "security": "verified",
        "selection": "adaptive",
        "updates": "any",  # so that trees stand on the updated rows and on no other
        "alignment": "all",
    },
    "server rate": {"optimizer": Sgd(0.3)},
    "FedAvgM": {"apply": "mean", "optimizer": Momentum(0.7, momentum=0.9)},
    "FedAdam": {"apply": "weighted-mean", "weights": WEIGHTS, "optimizer": Adam(0.1)},
    "own, steady": {"apply": steady},
    "own, unsteady": {"apply": unsteady},
}
"""What a ruled task says, by the rule's name."""


def ruled(trial: Trial) -> Trial:
    """The same trial with a rule in its task, which the seed decides; as it is where nothing is summed."""
    if trial.scenario.task.protocol != "ssa":
        return trial
    rule = Random(f"{trial.seed}/rules").choice(list(RULES))
    task = with_rule(trial.scenario.task, rule)
    return msgspec.structs.replace(trial, scenario=msgspec.structs.replace(trial.scenario, task=task))


def with_rule(task: Task, rule: str) -> Task:
    """The same task with a rule, and with fractions in its ring."""
    fields = RULES[rule]
    weights = (Dense(WEIGHTS, size=1),) if fields.get("weights") else ()
    ring = Ring(task.ring.bits, fraction_bits=8)
    return msgspec.structs.replace(task, blocks=(*task.blocks, *weights), ring=ring, **fields)


def initial_model(task: Task) -> Model:
    """Zeros: integers where sums are added, or floats where the task has a rule."""
    dtype = np.int64 if task.adds else np.float64
    return {block.name: np.zeros(block.shape, dtype=dtype) for block in task.model_blocks}


def made_for(trial: Trial, server: int) -> Callable[[ServerSetup], Server]:
    """What makes an honest server of a trial: `Server`, with a rule of its own where that is unsteady."""
    if not str(trial.scenario.task.apply).endswith(":unsteady"):
        return Server
    rule = _unsteady_rule(trial.seed, server)  # one over all of the server's lives
    return lambda setup: Server(replace(setup, apply=rule))


# ---- the oracle

Sums: TypeAlias = dict[str, npt.NDArray[np.float64]]


def rules(case: Case) -> Iterator[str]:
    """With a rule, every model and state is what the counted clients' values give, on every honest server."""
    if case.world.task.adds or len(case.honest) < 2:
        return
    for server in sorted(case.honest):
        models, states = case.world.models[server], case.world.states[server]
        for number, report in sorted(case.world.settled[server].items()):
            known = number in models and number - 1 in models and set(report.clients) <= case.ledgers.keys()
            if known:
                before = models[number - 1], states[number - 1]
                expected = _after(case, report, *before)
                for kind, found, wanted in zip(("model", "state"), (models, states), expected, strict=True):
                    for name in sorted(found[number].keys() | wanted.keys()):
                        has, must = found[number].get(name), wanted.get(name)
                        if has is None or must is None or has.tobytes() != must.tobytes():
                            yield f"{SERVERS[server]}, {kind} {name!r} after round {number} is not what it must be"


def _after(case: Case, report: RoundReport, model: Model, state: Model) -> tuple[Model, Model]:
    """The model and the state after a round."""
    if report.ended != "done" or report.union:
        return model, state
    task, sums = case.world.task, _sums(case, report)
    if task.rule == "own":
        return (
            {name: model[name] + sums[name] / 2 for name in model},
            {"rounds": state.get("rounds", np.zeros(1, dtype=np.int64)) + 1},
        )
    divisors = _divisors(case, report, sums)
    after: Model = {}
    kept: Model = {}
    for name, array in model.items():
        changes = [float(x) / float(y) for x, y in zip(sums[name].flat, divisors[name].flat, strict=True)]
        moments = _moments(task, name, array, state)
        stepped = [
            _step(task, float(weight), change, tuple(float(moment.flat[place]) for moment in moments.values()))
            for place, (weight, change) in enumerate(zip(array.flat, changes, strict=True))
        ]
        after[name] = np.array([step[0] for step in stepped]).reshape(array.shape)
        for place, moment in enumerate(moments, start=1):
            kept[moment] = np.array([step[place] for step in stepped]).reshape(array.shape)
    return after, kept


def _divisors(case: Case, report: RoundReport, sums: Sums) -> Sums:
    """By block, what each weight's sum is divided by: 1 where it is added as it is."""
    task, by = case.world.task, {name: np.ones_like(total) for name, total in sums.items()}
    match task.rule:
        case "mean" | "row-mean":
            by = {name: np.full_like(total, len(report.clients)) for name, total in sums.items()}
        case "weighted-mean":
            weight = max(float(sums[WEIGHTS][0]), task.largest_weight or 0.0)
            by = {name: np.full_like(total, weight) for name, total in sums.items()}
    for _, block in task.sparse_blocks() if task.rule == "row-mean" else ():
        by[block.name][:] = 0
        for client in report.clients:
            for plan in case.ledgers[client].plans.get(report.round_id, set()):
                by[block.name][list(case.ledgers[client].all_plans[plan].rows.get(block.name, ()))] += 1
        by[block.name][by[block.name] == 0] = 1
    return by


def _moments(task: Task, name: str, array: npt.NDArray[Any], state: Model) -> Model:
    """What the optimizer keeps of a block, before the round."""
    match task.optimizer:
        case Momentum():
            fresh = {f"velocity/{name}": 0.0}
        case Adam(epsilon=epsilon):
            fresh = {f"first/{name}": 0.0, f"second/{name}": epsilon * epsilon}
        case _:
            fresh = {}
    return {moment: state.get(moment, np.full_like(array, value)) for moment, value in fresh.items()}


def _step(task: Task, weight: float, change: float, moments: tuple[float, ...]) -> tuple[float, ...]:
    """One weight after one step, and its moments."""
    match task.optimizer:
        case None:
            return (weight + change,)
        case Sgd(rate=rate):
            return (weight + rate * change,)
        case Momentum(rate=rate, momentum=momentum):
            velocity = momentum * moments[0] + change
            return weight + rate * velocity, velocity
        case Adam(rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon):
            first = beta1 * moments[0] + (1 - beta1) * change
            second = beta2 * moments[1] + (1 - beta2) * (change * change)
            return weight + (rate * first) / (math.sqrt(second) + epsilon), first, second


def _sums(case: Case, report: RoundReport) -> Sums:
    """By block, the sum of what the counted clients have planned."""
    sums = {block.name: np.zeros(block.shape) for block in case.world.task.blocks}
    for client in report.clients:
        ledger = case.ledgers[client]
        for plan in sorted(ledger.plans.get(report.round_id, set())):
            for block in case.world.task.blocks:
                if block.name == WEIGHTS:
                    sums[block.name] += 1 + NAMES.index(client)
                elif isinstance(block, Sparse):
                    sums[block.name][list(ledger.all_plans[plan].rows.get(block.name, ()))] += 4.0**ledger.digit
                else:
                    sums[block.name] += 4.0**ledger.digit
    return sums
