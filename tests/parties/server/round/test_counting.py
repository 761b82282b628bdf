"""Rounds that count contributors, whole: rows come out when enough clients share them, and everybody is told which."""

from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Momentum, Privacy, Ring, Sparse, Task
from parties import simulate
from parties.simulation.network import Network

ROWS = 30


def task_of(**changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "counted",
        "blocks": (Sparse("items", rows=ROWS, select=4, width=2, stash=1), Dense("head", size=2)),
        "ring": Ring(64, fraction_bits=16),
        "updates": "any",
        "min_clients": 2,
        "min_contributors": 2,
        "lying_clients": 0,
        "max_clients": 20,
    }
    return Task(**(fields | changes))


def model() -> dict[str, Any]:
    return {"items": np.zeros((ROWS, 2)), "head": np.zeros(2)}


async def submitted(net: Network, rows: dict[str, list[int]], told: dict[str, dict[str, list[int]]]) -> Any:
    """One round in which each client adds 1 to its rows; what its outcome withholds is put in `told`."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(net.client(name)) for name in rows]
        for client in clients:
            own = rows[client.name]
            await client.submit({"items": (own, np.ones((len(own), 2))), "head": [1.0, 1.0]})
        outcome = await net.finish_round()
        for client in clients:
            heard = await client.outcome()
            assert lists(heard.opened_rows) == lists(outcome.opened_rows)
            told[client.name] = lists(heard.withheld({"items": rows[client.name]}))
    return outcome


def lists(rows: dict[str, Any]) -> dict[str, list[int]]:
    return {name: found.tolist() for name, found in rows.items()}


@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_a_row_with_too_few_is_withheld_and_may_come_again(selection: str, autojump_clock: object) -> None:
    updates = "any" if selection == "adaptive" else "retrieved"
    async with simulate(task_of(selection=selection, updates=updates), model(), seed=5) as net:
        told: dict[str, dict[str, list[int]]] = {}
        first = await submitted(net, {"anna": [1, 5], "ben": [1, 7], "carol": [29]}, told)
        assert first.opened_rows["items"].tolist() == [1]
        assert told == {"anna": {"items": [5]}, "ben": {"items": [7]}, "carol": {"items": [29]}}
        assert first.update["items"][1].tolist() == [2, 2]
        assert first.update["head"].tolist() == [3, 3]
        second = await submitted(net, {"anna": [1, 5], "ben": [1, 7], "dora": [5, 7]}, told)
        assert second.opened_rows["items"].tolist() == [1, 5, 7]
        assert {name: withheld["items"] for name, withheld in told.items()} == {
            "anna": [],
            "ben": [],
            "carol": [29],
            "dora": [],
        }
        assert np.flatnonzero(net.model["items"][:, 0]).tolist() == [1, 5, 7]


async def test_where_no_row_has_enough_the_round_is_done_all_the_same(autojump_clock: object) -> None:
    async with simulate(task_of(min_contributors=3, lying_clients=0), model(), seed=5) as net:
        outcome = await submitted(net, {"anna": [1], "ben": [2]}, {})
        assert outcome.opened_rows["items"].tolist() == []
        assert not net.model["items"].any()
        assert net.model["head"].tolist() == [2, 2]


@pytest.mark.parametrize("rule", [{"apply": "mean"}, {"optimizer": Momentum(0.5, momentum=0.9)}])
async def test_averages_and_optimizers_see_a_withheld_row_as_one_that_nobody_touched(
    rule: dict[str, Any], autojump_clock: object
) -> None:
    async with simulate(task_of(**rule), model(), seed=5) as net:
        await submitted(net, {"anna": [1, 5], "ben": [1]}, {})
        assert np.flatnonzero(net.model["items"][:, 0]).tolist() == [1]


async def test_a_task_that_does_not_count_tells_of_no_rows(autojump_clock: object) -> None:
    async with simulate(task_of(min_contributors=None, lying_clients=1), model(), seed=5) as net:
        told: dict[str, dict[str, list[int]]] = {}
        outcome = await submitted(net, {"anna": [1], "ben": [2]}, told)
        assert outcome.opened_rows == {}
        assert told == {"anna": {"items": []}, "ben": {"items": []}}


async def test_with_noise_counts_and_opened_rows_are_noised_and_nothing_else_is(autojump_clock: object) -> None:
    privacy = Privacy(noise=0.05, delta=1e-6, budget=1e9)
    task = task_of(min_contributors=6, bound=8.0, privacy=privacy, min_clients=2)
    assert task.doses.counts == 1
    async with simulate(task, model(), seed=5) as net:
        rows = {f"client-{number:02}": [3, 4, 8 + number] for number in range(16)}
        outcome = await submitted(net, rows, {})
        opened = outcome.opened_rows["items"].tolist()
        assert {3, 4} <= set(opened) < set(range(ROWS))
        assert np.flatnonzero(outcome.update["items"].any(axis=1)).tolist() == opened
        assert np.allclose(outcome.update["items"][[3, 4]], 16, atol=10)
        assert not np.array_equal(outcome.update["items"][[3, 4]], np.full((2, 2), 16.0))
