"""What a client does in sight of its servers does not depend on whether its rows lie in a set of their choice.

A server that leaves a client out of the union round, and then sees it stay away from the next, would learn that some of
its rows are outside the union; with a union of a malicious client's choice, which ones. The same holds for a placement.
"""

from dataclasses import replace

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.wire.messages import Message
from parties import Client, Network, simulate
from parties.storage.store import MemoryStore
from tests.support.shop import interrupt_submissions

MODEL = {"items": np.arange(800.0).reshape(400, 2), "head": np.zeros(3)}
UNION = np.arange(0, 64, 2)
"""Rows of the others: carol has been left out."""

INSIDE, ASTRIDE, OUTSIDE = [2, 4, 6], [2, 4, 7], [3, 5, 7]


def task_of(**changes: str) -> Task:
    return Task(
        name="united",
        blocks=[Sparse("items", rows=400, width=2, select=16), Dense("head", size=3)],
        ring=Ring(64, fraction_bits=24),
        alignment="union",
        min_clients=2,
        max_clients=4,
        **changes,
    )


async def left_out(network: Network) -> None:
    """A union round without carol."""
    async with network.client("ada") as ada, network.client("bob") as bob:
        await ada.unite({"items": UNION[:16]})
        await bob.unite({"items": UNION[16:]})
        assert (await network.finish_union())["items"].tolist() == UNION.tolist()


@pytest.mark.parametrize("updates", ["retrieved", "any"])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_rows_outside_a_union_change_nothing_that_is_seen(selection: str, updates: str) -> None:
    sent: dict[str, list[tuple[str, str, int]]] = {}
    for rows in (INSIDE, ASTRIDE, OUTSIDE):
        seen = sent[str(rows)] = []

        def watch(sender: str, receiver: str, message: Message, bulk: int, seen=seen) -> None:
            seen.append((receiver, type(message).__name__, bulk))

        async with simulate(task_of(selection=selection, updates=updates), MODEL, seed=1) as network:
            await left_out(network)
            async with Client(replace(network.client("carol").setup, watch=watch)) as carol:
                await took_part(network, carol, rows)
    first, *others = sent.values()
    assert all(sorted(seen) == sorted(first) for seen in others)


async def took_part(network: Network, carol: Client, rows: list[int]) -> None:
    """Carol is told which of her rows are not in the union; the others are exact."""
    there = np.isin(rows, UNION)
    outside = np.array(rows)[~there].tolist()
    found = (await carol.retrieve({"items": rows}))["items"]
    assert np.array_equal(found[there], MODEL["items"][rows][there])
    assert not found[~there].any()
    assert carol.deferred.get("items", np.zeros(0)).tolist() == outside
    receipt = await carol.submit({"items": (rows, np.full((3, 2), 0.5)), "head": np.ones(3)})
    assert receipt.left_out == ({"items": outside} if outside else {})
    assert "left_out" not in repr(receipt)
    async with network.client("ada") as ada:
        await ada.submit({})
    outcome = await network.finish_round()
    assert outcome.clients == ("ada", "carol")
    expected = np.zeros((400, 2))
    expected[np.array(rows)[there]] = 0.5
    assert np.array_equal(outcome.update["items"], expected)


async def test_what_was_left_out_is_told_after_a_restart_too() -> None:
    store = MemoryStore()
    async with simulate(task_of(), MODEL, seed=1) as network:
        await left_out(network)
        setup = replace(network.client("carol").setup, store=store)
        async with Client(replace(setup, watch=interrupt_submissions)) as stopped:
            with pytest.raises(KeyboardInterrupt):
                await stopped.submit({"items": (ASTRIDE, np.ones((3, 2)))})
        async with Client(setup) as carol:
            assert carol.pending == 2
            assert (await carol.resume()).left_out == {"items": [7]}
