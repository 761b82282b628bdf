"""Rounds aligned on a union whose clients prove a bound, with trees and plainly: what is added is what is bounded."""

from contextlib import AsyncExitStack
from typing import Any, Literal

import numpy as np
import pytest

from fsl_async import BoundExceededError, Dense, Ring, Sparse, Task
from parties import simulate

RINGS = {"exact": Ring(64, 16), "projected": Ring(32, 8)}
UNITED = {"ada": [3, 7, 250], "bob": [3, 7, 40], "cyd": [50, 60, 70]}
"""Seven rows: few enough to move plainly where a client selects 12, too many where it selects 3."""
NONE: dict[str, Any] = {}


@pytest.mark.parametrize("method", RINGS)
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
@pytest.mark.parametrize(("select", "with_trees"), [(3, True), (12, False)])
async def test_bounded_updates_are_summed_exactly_over_a_union(
    method: Literal["exact", "projected"], selection: Literal["adaptive", "fixed"], select: int, with_trees: bool
) -> None:
    task = Task(
        name="bounded union",
        blocks=(Sparse("words", rows=300, select=select, width=3), Dense("head", size=5)),
        ring=RINGS[method],
        selection=selection,
        updates="retrieved",
        alignment="union",
        bound=4.0,
        bound_proof=method,
        min_clients=2,
        max_clients=4,
    )
    model = {"words": np.zeros((300, 3)), "head": np.zeros(5)}
    async with simulate(task, model, seed=2) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in UNITED}
        for number in (1, 2):
            if number == 1 or selection == "adaptive":
                for name, client in joined.items():
                    await client.unite({"words": UNITED[name]})
                await network.finish_union()
            shape = (await network.servers[0].next_round(0)).config.shape
            assert bool(list(shape.sparse_blocks())) == with_trees
            for name in ("ada", "bob"):
                await joined[name].retrieve({"words": UNITED[name], "head": ...})
                rows = UNITED[name][:2]
                if name == "bob" and number == 2:
                    with pytest.raises(BoundExceededError):
                        await joined[name].submit({"words": (rows, np.full((2, 3), 2.0)), "head": np.full(5, 1.0)})
                await joined[name].submit({"words": (rows, np.full((2, 3), 1.5)), "head": np.full(5, 0.5)})
            outcome = await network.finish_round()
            assert (outcome.clients, dict(outcome.excluded)) == (("ada", "bob"), NONE)
        expected = np.zeros((300, 3))
        expected[[3, 7]] = 6.0
        assert (network.model["words"] == expected).all()
        assert (network.model["head"] == 2.0).all()
