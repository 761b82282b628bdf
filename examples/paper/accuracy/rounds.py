"""Rounds of learning, through the real protocol and beside it in the clear, compared bit for bit.

Both do the same training by themselves: a client's `Trainer` gets what the client retrieved, or what stands in the
clear model, and says what to submit. After every round the ring sums of both and the models of both servers and of the
clear run must be equal in all bits. The clear run knows the task's rule from its formulae, not from the servers' code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import Adam, FslError, Momentum, Sgd, Task
from parties import Network, simulate

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

Wanted: TypeAlias = Mapping[str, "npt.NDArray[np.int64] | EllipsisType"]
"""By block, the rows to retrieve, or all of it."""

Update: TypeAlias = Mapping[str, "npt.NDArray[Any] | tuple[npt.NDArray[np.int64], npt.NDArray[Any]]"]
"""By block, what `Client.submit` takes: values, or rows and their values."""

Report: TypeAlias = Callable[[int, float], None]
"""Is told each round's number and, where it was measured, the accuracy in percent."""


class UnequalError(FslError):
    """A round's sum, or a server's model after it, is not that of the clear run."""


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
        equal: rounds after which all three models and both sums were equal; 0 in a run in the clear.
        party_seconds: processor seconds of all parties, local training included; 0 in a run in the clear.
        clear_seconds: processor seconds of the same training in the clear.
        bytes_up: the most that a client sent in one round.
        bytes_down: the most that it received.
    """

    accuracies: dict[int, float] = field(default_factory=dict)
    equal: int = 0
    party_seconds: float = 0.0
    clear_seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def accuracy(self) -> float:
        """After the last round."""
        return self.accuracies[max(self.accuracies)]


class Clear:
    """The task without any protocol: sums of integers, and the rule of the task on them.

    Attributes:
        model: by block, as the servers hold it.
    """

    def __init__(self, task: Task, model: Arrays, trainer: Trainer) -> None:
        self.model = {name: np.array(array) for name, array in model.items()}
        self._task = task
        self._trainer = trainer
        self._state: Arrays = {}

    def round(self, number: int) -> dict[str, npt.NDArray[np.int64]]:
        """Train all of a round's clients, change the model, and return the round's sum in ring integers."""
        sums = {block.name: np.zeros(block.shape, dtype=np.int64) for block in self._task.blocks}
        clients = self._trainer.clients(number)
        for client in clients:
            wanted = self._trainer.wanted(client, number)
            found = {name: self.model[name] if ids is ... else self.model[name][ids] for name, ids in wanted.items()}
            for name, values in self._trainer.update(client, number, found).items():
                ids, values = values if isinstance(values, tuple) else (slice(None), values)
                sums[name][ids] += self._integers(values)
        self.model = {name: self._changed(name, array, sums, len(clients)) for name, array in self.model.items()}
        return sums

    def _integers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.rint(np.ldexp(np.asarray(values, dtype=np.float64), self._task.ring.fraction_bits)).astype(np.int64)

    def _changed(self, name: str, weights: npt.NDArray[Any], sums: Arrays, clients: int) -> npt.NDArray[Any]:
        """A block after the round, by the formulae of docs/server-rules.md."""
        change = np.ldexp(sums[name].astype(np.float64), -self._task.ring.fraction_bits)
        if self._task.apply == "mean":
            change = change / clients
        elif self._task.apply == "weighted-mean":
            change = change / np.ldexp(float(sums[str(self._task.weights)][0]), -self._task.ring.fraction_bits)
        return (weights.astype(np.float64) + self._step(name, change)).astype(weights.dtype)

    def _step(self, name: str, change: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        match self._task.optimizer:
            case None:
                return change
            case Sgd(rate=rate):
                return np.asarray(rate * change)
            case Momentum(rate=rate, momentum=momentum):
                velocity = momentum * self._state.get(name, np.zeros_like(change)) + change
                self._state[name] = velocity
                return np.asarray(rate * velocity)
            case Adam(rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon):
                fresh = np.stack([np.zeros_like(change), np.full_like(change, epsilon * epsilon)])
                first, second = self._state.get(name, fresh)
                first = beta1 * first + (1 - beta1) * change
                second = beta2 * second + (1 - beta2) * (change * change)
                self._state[name] = np.stack([first, second])
                return np.asarray((rate * first) / (np.sqrt(second) + epsilon))


def learn_clear(task: Task, model: Arrays, trainer: Trainer, rounds: int, every: int, report: Report) -> Course:
    """Learn in the clear alone.

    Args:
        task: its ring rounds what clients submit, and its rule changes the model.
        model: to begin with.
        trainer: the clients.
        rounds: how many.
        every: after how many rounds the accuracy is measured; it always is after the last.
        report: is told of each round.
    """
    course, clear = Course(), Clear(task, model, trainer)
    for number in range(1, rounds + 1):
        start = time.process_time()
        clear.round(number)
        course.clear_seconds += time.process_time() - start
        _measure(course, clear, trainer, number, rounds, every)
        report(number, course.accuracies.get(number, float("nan")))
    return course


async def learn_securely(
    task: Task, model: Arrays, trainers: tuple[Trainer, Trainer], rounds: int, every: int, report: Report, seed: int = 1
) -> Course:
    """Learn through both servers, and beside it in the clear; all parties are in this process.

    Args:
        task: what is learnt.
        model: to begin with.
        trainers: the same clients twice, for the protocol and for the clear, so that neither remembers for the other.
        rounds: how many.
        every: after how many rounds the accuracy is measured; it always is after the last.
        report: is told of each round.
        seed: of the simulation: keys, trees and order.

    Raises:
        UnequalError: the protocol's result is not that of the clear.
    """
    await _compile_kernels(task, model)
    secure, beside = trainers
    course, clear = Course(), Clear(task, model, beside)
    async with simulate(task, model, seed=seed) as net:
        for number in range(1, rounds + 1):
            start = time.process_time()
            sums = await _secure_round(net, secure, number, course)
            course.party_seconds += time.process_time() - start
            start = time.process_time()
            expected = clear.round(number)
            course.clear_seconds += time.process_time() - start
            _compare(net, number, sums, expected, clear.model)
            course.equal += 1
            _measure(course, clear, beside, number, rounds, every)
            report(number, course.accuracies.get(number, float("nan")))
    return course


async def _secure_round(net: Network, trainer: Trainer, number: int, course: Course) -> Arrays:
    """One round through both servers; returns its sum in ring integers."""
    for client in trainer.clients(number):
        async with net.client(f"client-{client}") as party:
            found = await party.retrieve(trainer.wanted(client, number))
            receipt = await party.submit(trainer.update(client, number, found))
            if any(len(rows) for rows in receipt.left_out.values()):
                raise UnequalError(f"round {number}: rows of client {client} found no place; the clear run has them")
            course.bytes_up = max(course.bytes_up, party.bytes_sent)
            course.bytes_down = max(course.bytes_down, party.bytes_received)
    outcome = await net.finish_round()
    net.transcript.clear()  # nobody reads it
    return outcome.elements


def _compare(net: Network, number: int, sums: Arrays, expected: Arrays, model: Arrays) -> None:
    for name, array in expected.items():
        if not np.array_equal(sums[name].reshape(array.shape), array):
            raise UnequalError(f"round {number}: the servers' sum of {name!r} is not the sum in the clear")
    for name, array in model.items():
        for index, server in enumerate(net.servers):
            if server.model[name].tobytes() != array.tobytes():
                raise UnequalError(f"round {number}: S{index} holds another {name!r} than the clear run")


def _measure(course: Course, clear: Clear, trainer: Trainer, number: int, rounds: int, every: int) -> None:
    if number % every == 0 or number == rounds:
        course.accuracies[number] = round(trainer.accuracy(clear.model), 2)


async def _compile_kernels(task: Task, model: Arrays) -> None:
    """Run a round that changes nothing, so that what is compiled once per installation is in nobody's seconds."""
    async with simulate(task, model, seed=0) as net:
        for client in range(task.quorum):
            async with net.client(f"client-{client}") as party:
                if task.updates == "retrieved":
                    await party.retrieve({block.name: [0] for block in task.blocks if block.shape[1:]})
                await party.submit({})
        await net.finish_round()
