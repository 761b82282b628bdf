"""Rounds of learning, through the real protocol and in the clear, compared bit for bit.

Both do the same training by themselves: a client's `Trainer` gets what the client retrieved, or what stands in the
clear model, and says what to submit. After every round the models of both runs must be equal in all bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import FslError, Task
from parties import History, Retrieved, Turn, run_experiment

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

Wanted: TypeAlias = Mapping[str, "npt.NDArray[np.int64] | EllipsisType"]
"""By block, the rows to retrieve, or all of it."""

Update: TypeAlias = Mapping[str, "npt.NDArray[Any] | tuple[npt.NDArray[np.int64], npt.NDArray[Any]]"]
"""By block, what `Client.submit` takes: values, or rows and their values."""

Report: TypeAlias = Callable[[int, float], None]
"""Is told each round's number and, where it was measured, the accuracy in percent."""


class UnequalError(FslError):
    """The model after a round is not that of the clear run."""


class Trainer(Protocol):
    """What the clients of a run do, equally from equal models; it holds what they remember between rounds."""

    def clients(self, number: int) -> Sequence[int]:
        """Who takes part in a round."""

    def wanted(self, client: int, number: int) -> Wanted:
        """What a client retrieves."""

    def update(self, client: int, number: int, found: Arrays) -> Update:
        """Train on what was retrieved, and return what to submit."""

    def accuracy(self, model: Mapping[str, npt.NDArray[Any]]) -> float:
        """Of a model, in percent."""


@dataclass
class Course:
    """What came of a run.

    Attributes:
        accuracies: after a round, by its number, in percent.
        equal: rounds after which both models were equal; 0 in a run in the clear.
        party_seconds: processor seconds of all parties, local training included; 0 in a run in the clear.
        clear_seconds: processor seconds of the same training in the clear.
        bytes_up: what a client sent in a round.
        bytes_down: what it received.
    """

    accuracies: dict[int, float]
    equal: int = 0
    party_seconds: float = 0.0
    clear_seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def accuracy(self) -> float:
        """After the last round."""
        return self.accuracies[max(self.accuracies)]


def learn_clear(task: Task, model: Arrays, trainer: Trainer, rounds: int, every: int, report: Report) -> Course:
    """Learn in the clear alone.

    Args:
        task: its ring rounds what clients submit, and its rule changes the model.
        model: to begin with.
        trainer: the clients.
        rounds: how many.
        every: after how many rounds the accuracy is measured.
        report: is told of each round.
    """
    history = _history(task, model, trainer, rounds, every, report, clear=True)
    return Course(_accuracies(history), clear_seconds=sum(history.curve("seconds.processor")))


def learn_securely(
    task: Task, model: Arrays, trainers: tuple[Trainer, Trainer], rounds: int, every: int, report: Report, seed: int = 1
) -> Course:
    """Learn through both servers, and then in the clear; all parties are in this process.

    Args:
        task: what is learnt.
        model: to begin with.
        trainers: the same clients twice, for the protocol and for the clear, so that neither remembers for the other.
        rounds: how many.
        every: after how many rounds the accuracy is measured.
        report: is told of each round.
        seed: of the simulation: keys, trees and order.

    Raises:
        UnequalError: the protocol's result is not that of the clear.
    """
    idle = {str(n): ({b.name: [0] for b in task.blocks if b.shape[1:]}, _nothing) for n in range(task.quorum)}
    run_experiment(task, model, idle, 1, seed=0)  # so that what is compiled once is in nobody's seconds
    secure = _history(task, model, trainers[0], rounds, every, report, seed=seed)
    clear = _history(task, model, trainers[1], rounds, every, lambda number, accuracy: None, seed=seed, clear=True)
    for ours, theirs in zip(secure.records, clear.records, strict=True):
        if ours["model"] != theirs["model"]:
            raise UnequalError(f"round {ours['round']}: the servers hold another model than the clear run")
    clients = sum(secure.curve("selected"))
    return Course(
        _accuracies(clear),
        equal=rounds,
        party_seconds=sum(secure.curve("seconds.processor")),
        clear_seconds=sum(clear.curve("seconds.processor")),
        bytes_up=round(sum(secure.curve("bytes_up")) / clients),
        bytes_down=round(sum(secure.curve("bytes_down")) / clients),
    )


def _history(
    task: Task, model: Arrays, trainer: Trainer, rounds: int, every: int, report: Report, **settings: Any
) -> History:
    def client(one: int) -> Any:
        def train(found: Retrieved, turn: Turn) -> Update:
            return trainer.update(one, turn.number, found)

        return (lambda turn: trainer.wanted(one, turn.number)), train

    def tell(record: Mapping[str, Any]) -> None:
        if record["failed"] or record["aborted"]:
            raise UnequalError(f"round {record['round']}: {record['failed'] or record['aborted']}")
        report(record["round"], record.get("accuracy", float("nan")))

    return run_experiment(
        task,
        model,
        {str(one): client(one) for one in {one for number in range(1, rounds + 1) for one in trainer.clients(number)}},
        rounds,
        select=lambda number: [str(one) for one in trainer.clients(number)],
        evaluate=lambda held: {"accuracy": round(trainer.accuracy(held), 2)},
        every=every,
        on_round=tell,
        **settings,
    )


def _accuracies(history: History) -> dict[int, float]:
    return {record["round"]: record["accuracy"] for record in history.records if "accuracy" in record}


def _nothing(found: Retrieved, turn: Turn) -> Update:
    return {}
