"""The paper's scenarios in memory, over random tasks: each round is exactly what it would be in the clear."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from plaintext import Clear, Rows, Update, random_model, random_rows, random_task, random_update, some

from fsl_async import MisuseError, PeerViolationError, Ring, Sparse, Task, geometry
from parties import Client, Network, simulate

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = ("ada", "bob", "cyd", "dan")
ROUNDS = 3

SCENARIOS: dict[str, dict[str, Any]] = {
    "basic": {},
    "fixed": {"selection": "fixed"},
    "union": {"alignment": "union"},
    "union and fixed": {"alignment": "union", "selection": "fixed"},
    "mega-elements": {"widths": (5, 40)},
    "fixed mega-elements": {"widths": (5, 40), "selection": "fixed"},
    "stash": {"stash": 2},
    "stash, union and fixed": {"stash": 1, "alignment": "union", "selection": "fixed"},
}


@dataclass(frozen=True)
class Plan:
    """What one client does in one round."""

    client: Client
    retrieve: Mapping[str, Any]
    update: Update


async def carry_out(plan: Plan, model: dict[str, np.ndarray]) -> None:
    """Retrieve, compare bit for bit, submit."""
    if plan.retrieve:
        found = await plan.client.retrieve(plan.retrieve)
        assert found.keys() == plan.retrieve.keys()
        for name, rows in plan.retrieve.items():
            expected = model[name] if rows is ... else model[name][rows]
            assert found[name].dtype == expected.dtype
            assert found[name].tobytes() == expected.tobytes(), name
    assert not plan.client.deferred
    await plan.client.submit(plan.update)


class Play:
    """A scenario, played by several clients for several rounds beside its counterpart in the clear."""

    def __init__(self, rng: np.random.Generator, network: Network, clear: Clear) -> None:
        self._rng = rng
        self._network = network
        self._clear = clear
        self._task = clear.task
        self._clients = [network.client(name) for name in NAMES[: rng.integers(2, len(NAMES) + 1)]]
        self._rows = self._selections()

    async def run(self) -> None:
        for client in self._clients:
            await client.open()
        for number in range(ROUNDS):
            if number and self._task.selection == "adaptive":
                self._rows = self._selections()
            if self._task.alignment == "union" and (number == 0 or self._task.selection == "adaptive"):
                await self._unite()
            await self._round(first=number == 0)
        for client in self._clients:
            await client.aclose()

    def _selections(self) -> dict[str, Rows]:
        return {client.name: random_rows(self._rng, self._task) for client in self._clients}

    async def _unite(self) -> None:
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                nursery.start_soon(client.unite, self._rows[client.name])
        found = await self._network.finish_union()
        for _, block in self._task.sparse_blocks():
            expected = np.unique(np.concatenate([rows[block.name] for rows in self._rows.values()]))
            assert np.array_equal(found[block.name], expected), block.name

    async def _round(self, *, first: bool) -> None:
        present = [client for client in self._clients if first or self._rng.random() < 0.8]
        present = present if len(present) >= 2 else self._clients
        plans = [self._plan(client, first=first) for client in present]
        async with trio.open_nursery() as nursery:
            for plan in plans:
                nursery.start_soon(carry_out, plan, dict(self._clear.model))
                self._clear.add(plan.update)
        outcome = await self._network.finish_round()
        assert outcome.clients == tuple(client.name for client in present)
        sums, update = self._clear.settle()
        for name in sums:
            assert np.array_equal(outcome.elements[name], sums[name]), name
            assert np.array_equal(outcome.update[name], update[name]), name
            assert self._network.model[name].tobytes() == self._clear.model[name].tobytes(), name

    def _plan(self, client: Client, *, first: bool) -> Plan:
        """A session begins with all rows; otherwise some are retrieved, some updated, or none."""
        rng, rows = self._rng, self._rows[client.name]
        begins = first and self._task.selection == "fixed"
        wanted = rows if begins else some(rng, rows)
        retrieve: dict[str, Any] = dict(wanted) if begins or rng.random() < 0.7 else {}
        if retrieve:
            retrieve |= {block.name: ... for _, block in self._task.dense_blocks() if rng.random() < 0.5}
        rides = retrieve and self._task.updates == "retrieved" and self._task.selection == "adaptive"
        return Plan(client, retrieve, random_update(rng, self._task, some(rng, wanted if rides else rows)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_scenario_is_what_it_would_be_in_the_clear(scenario: str, seed: int) -> None:
    rng = np.random.default_rng([seed, *scenario.encode()])
    task = random_task(rng, **SCENARIOS[scenario])
    clear = Clear(task, random_model(rng, task))
    async with simulate(task, clear.model, seed=seed) as network:
        await Play(rng, network, clear).run()
