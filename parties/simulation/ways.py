"""Two ways for an experiment's round: through both servers, and the same in the clear.

Both take the same updates, refuse the same ones, and change the model by the same rule; in the clear the updates are
rounded to the task's ring as clients round them, and added up in the open. So where nothing that protects changes the
sum (noise, `min_contributors`), both give the same model, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import trio

from fsl_async.errors import FslError, MisuseError
from fsl_async.model_numbers import with_sum
from fsl_async.server.contributors import Counts
from fsl_async.server.rules import average_and_step, own_step
from fsl_async.server_rules import Arrays, OwnRule, RoundFacts
from fsl_async.task import Task
from parties.client.arguments import encoded_updates, wanted_rows
from parties.client.client import Client
from parties.compiling import watched
from parties.compute import ComputeLane, ResultT
from parties.outcome import Model, Retrieved
from parties.server.round.own_rule import own_rule
from parties.simulation.blocking import BlockingNetwork
from parties.simulation.stage import Stage

T = TypeVar("T")

TOGETHER = 32
"""So many clients do something at the same time."""

ROOM = 2**26
"""Bytes that these clients' updates may take together, were each of all weights; of a larger model, fewer take part."""


@dataclass(frozen=True)
class Standing:
    """What servers hold between two rounds.

    Attributes:
        model: by block.
        state: what the task's optimizer or own rule keeps beside it.
    """

    model: Model
    state: Model


@dataclass(frozen=True)
class Ended:
    """How a round ended.

    Attributes:
        counted: whose updates are in the sum.
        excluded: whose are not, and why.
        aborted: why nothing was summed; empty where it was.
        bytes_up: what all clients sent.
        bytes_down: what they received.
        standing: after the round.
    """

    counted: tuple[str, ...]
    excluded: Mapping[str, str]
    aborted: str
    bytes_up: int
    bytes_down: int
    standing: Standing


class _AtOnce(ComputeLane):
    """Computes at once, where others are let go first elsewhere: an experiment's calls come one at a time.

    None of them waits for a round, so none is watched for whether its wait can end.
    """

    threads = 1

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        return watched(work)

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """See `ComputeLane.run_all`."""
        for piece in work:
            watched(piece)


def at_a_time(task: Task, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The clients that do something at the same time, and then the next ones."""
    count = max(1, min(TOGETHER, ROOM // (task.ring.element_bytes * sum(block.weights for block in task.blocks))))
    return (names[first : first + count] for first in range(0, len(names), count))


class Secure:
    """A round through both servers, which begin where the last round has left them.

    Args:
        task: what is learnt.
        number: the round's, for the task's own rule.
        seed: of this round: keys, trees and order.
        before: what the servers hold.
    """

    def __init__(self, task: Task, number: int, seed: int, before: Standing) -> None:
        rule = own_rule(task)
        apply = None if rule is None else _numbered(rule, number)
        self._before = before
        self._network = BlockingNetwork(task, before.model, seed, _AtOnce(), state=before.state, apply=apply)
        self._clients: dict[str, Client] = {}
        self._moved = Counter(up=0, down=0)

    def unite(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Find the union of all clients' rows; the round then works on those alone.

        Args:
            wanted: by client, what it is going to retrieve.
        """
        sparse = {
            name: {block: each for block, each in rows.items() if each is not ...} for name, rows in wanted.items()
        }
        for outcome in self._each(sparse, lambda client, rows: client.unite(rows), leave=True).values():
            if isinstance(outcome, Exception):
                raise outcome
        self._network.finish_union()

    def retrieve(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Retrieved | Exception]:
        """What each client gets of the model, or why it gets nothing."""
        return self._each(wanted, lambda client, rows: client.retrieve(rows))

    def submit(self, updates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Add each client's update to the sum; by client, an error if it was refused. A client submits once."""
        return self._each(updates, lambda client, update: client.submit(update), leave=True)

    def finish(self) -> Ended:
        """Close the round."""
        self._network.carry_out(self._leave_all)
        moved = self._moved["up"], self._moved["down"]
        try:
            outcome = self._network.finish_round()
        except FslError as error:
            return Ended((), {}, str(error), *moved, self._before)
        after = Standing(self._network.model, dict(self._network.rule_state))
        return Ended(outcome.clients, outcome.excluded, "", *moved, after)

    def close(self) -> None:
        """End it."""
        self._network.close()

    def _each(
        self, given: Mapping[str, T], work: Callable[[Client, T], Awaitable[ResultT]], leave: bool = False
    ) -> dict[str, ResultT | Exception]:
        """Have every client do its part, many at the same time; then disconnect them, if they are to `leave`."""
        found: dict[str, ResultT | Exception] = {}

        async def one(stage: Stage, name: str) -> None:
            try:
                found[name] = await work(self._clients[name], given[name])
            except Exception as error:
                found[name] = error
            if leave:
                await self._leave(stage, name)

        async def all_of_them(stage: Stage) -> None:
            for names in at_a_time(self._network.task, list(given)):
                for name in names:  # in this order, which decides their randomness; no handshake waits for others' work
                    try:
                        self._clients[name] = self._clients.get(name) or await stage.enter(name)
                    except Exception as error:
                        found[name] = error
                async with trio.open_nursery() as nursery:
                    for name in names:
                        if name not in found:
                            nursery.start_soon(one, stage, name)

        self._network.carry_out(all_of_them)
        return {name: found[name] for name in given}

    async def _leave(self, stage: Stage, name: str) -> None:
        client = self._clients.pop(name)
        self._moved.update(up=client.bytes_sent, down=client.bytes_received)
        await stage.leave(client)

    async def _leave_all(self, stage: Stage) -> None:
        for name in list(self._clients):
            await self._leave(stage, name)


class Clear:
    """A round without any protection.

    Args:
        task: what is learnt.
        number: the round's, for the task's own rule.
        before: the model, and what belongs to it.
    """

    def __init__(self, task: Task, number: int, before: Standing) -> None:
        self._task, self._number, self._before = task, number, before
        self._totals = {block.name: task.ring.zeros(*block.shape) for block in task.blocks}
        self._contributors: dict[str, Counts] = {
            block.name: np.zeros(block.rows, dtype=np.int32) for _, block in task.sparse_blocks()
        }
        self._retrieved: dict[str, Mapping[int, Any]] = {}
        self._union: dict[int, Any] = {index: ... for index, _ in task.sparse_blocks()}
        self._counted: list[str] = []
        self._moved: Counter[str] = Counter()

    def unite(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """See `Secure.unite`."""
        if len(wanted) < self._task.quorum:
            raise FslError(f"{len(wanted)} clients have rows, and a union needs {self._task.quorum} clients")
        found = [wanted_rows(self._task, rows)[0] for rows in wanted.values()]
        none = np.zeros(0, dtype=np.uint32)
        self._union = {
            index: np.concatenate([none, *(rows.get(index, none) for rows in found)]) for index in self._union
        }
        self._moved["up"] += sum(numbers.nbytes for rows in found for numbers in rows.values())

    def retrieve(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Retrieved | Exception]:
        """See `Secure.retrieve`."""
        return {name: _outcome(partial(self._retrieve, name, rows)) for name, rows in wanted.items()}

    def submit(self, updates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """See `Secure.submit`."""
        return {name: _outcome(partial(self._submit, name, update)) for name, update in updates.items()}

    def _retrieve(self, name: str, wanted: Mapping[str, Any]) -> Retrieved:
        rows, _ = wanted_rows(self._task, wanted)
        self._retrieved[name] = rows
        places = {self._task.sparse(index).name: numbers for index, numbers in rows.items()}
        found = Retrieved()
        found.update({block: self._before.model[block][places.get(block, ...)].copy() for block in wanted})
        self._moved["down"] += sum(array.nbytes for array in found.values())
        return found

    def _submit(self, name: str, update: Mapping[str, Any]) -> None:
        task = self._task
        sparse, dense = encoded_updates(task, update)
        retrieved = self._retrieved.get(name, {}) if task.updates == "retrieved" else {}
        for index, (rows, values) in sparse.items():
            if task.updates == "retrieved" and not np.isin(rows, retrieved.get(index, ())).all():
                raise MisuseError(f"block {task.sparse(index).name!r}: only rows that were retrieved can be updated")
            if self._union[index] is not ...:
                inside = np.isin(rows, self._union[index])
                sparse[index] = rows[inside], values[inside]
        for index, (rows, values) in sparse.items():
            total = self._totals[task.sparse(index).name]
            total[rows] = task.ring.add(total[rows], values)
        for index, block in task.dense_blocks():
            if index in dense:
                self._totals[block.name] = task.ring.add(self._totals[block.name], dense[index])
        for index, rows in (retrieved or {index: rows for index, (rows, _) in sparse.items()}).items():
            self._contributors[task.sparse(index).name][rows] += 1
        self._moved["up"] += sum(values.nbytes for _, values in sparse.values())
        self._moved["up"] += sum(values.nbytes for values in dense.values())
        self._counted.append(name)

    def finish(self) -> Ended:
        """See `Secure.finish`."""
        moved = self._moved["up"], self._moved["down"]
        if len(self._counted) < self._task.quorum:
            few = f"{len(self._counted)} clients submitted, and the task needs {self._task.quorum}"
            return Ended((), {}, few, *moved, self._before)
        return Ended(tuple(sorted(self._counted)), {}, "", *moved, self._after())

    def close(self) -> None:
        """Nothing is open."""

    def _after(self) -> Standing:
        task, model, clients = self._task, self._before.model, len(self._counted)
        if task.adds:
            names = [block.name for block in task.model_blocks]
            added = {name: with_sum(task.ring, name, model[name], self._totals[name]) for name in names}
            return Standing(added, {})
        update = {name: task.ring.decode(total) for name, total in self._totals.items()}
        rule = own_rule(task)
        if rule is not None:
            return Standing(*own_step(task, rule, model, update, self._before.state, self._number, clients))
        counts = self._contributors if task.rule == "row-mean" else {}
        return Standing(*average_and_step(task, model, update, self._before.state, clients, counts))


def _outcome(work: Callable[[], ResultT]) -> ResultT | Exception:
    try:
        return work()
    except Exception as error:
        return error


def _numbered(rule: OwnRule, number: int) -> OwnRule:
    """The rule as the round of this number calls it; the servers of each round count from 1."""

    def apply(model: Arrays, update: Arrays, facts: RoundFacts) -> Arrays:
        return rule(model, update, replace(facts, number=number))

    return apply
