"""Whether a client takes part, and what its messages look like, tells nothing of its rows, whatever a server does."""

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import pytest

from fsl_async import FslError
from parties.client.client import Client
from tests.support.cases import often

from .byzantine import VICTIM, Byzantine
from .client_attacks import MARKED, DropsFromTheUnion, MarksARow
from .repetition import TASK, Caller, Play, play

ELSEWHERE = 50
IMPLAUSIBLE = 2**30


class Learner(Caller):
    """Retrieves a row of its own, and stays away where what it is given makes no sense."""

    def __init__(self, name: str, row: int) -> None:
        super().__init__(name)
        self.row = row if name == VICTIM else self.place + 1

    async def _once(self, client: Client) -> None:
        found = await client.retrieve({"items": [self.row]})
        if np.abs(found["items"]).max() > IMPLAUSIBLE:
            raise FslError(f"{self.name} cannot train on {found}")
        await client.submit({"items": ([self.row], np.full((1, 2), 5)), "head": np.full(3, self.plan)})
        await client.outcome()
        self.plan += 1


class Uniter(Learner):
    """Takes part in a union, and in the round on it."""

    async def _once(self, client: Client) -> None:
        await client.unite({"items": [self.row]})
        await client.outcome()
        await client.submit({"items": ([self.row], np.full((1, 2), 5)), "head": np.full(3, self.plan)})
        await client.outcome()
        self.plan += 1


def seen(told: Play) -> dict[str, dict[str, list[int]]]:
    """What the malicious server sees of who takes part: each client's submissions, by size."""
    return {name: dict(caller.present) for name, caller in told.callers.items()}


async def unequal(
    mutant: type[Byzantine], index: int, make: Callable[[int], Callable[[str], Caller]], rows, task, seed
):
    told = [await play(mutant, index, seed, make(row), task) for row in rows]
    assert all(play.mutant.fired for play in told), "the mutated step was never reached"
    return [seen(play) for play in told]


@pytest.mark.parametrize("index", often(1, [0, 1]), ids="by S{}".format)
async def test_an_error_at_one_row_does_not_tell_who_holds_it(index: int, seed: int, autojump_clock) -> None:
    holder, other = await unequal(
        MarksARow, index, lambda row: partial(Learner, row=row), (MARKED, ELSEWHERE), TASK, seed
    )
    assert holder == other


@pytest.mark.parametrize("index", often(1, [1, 0]), ids="by S{}".format)
async def test_a_union_without_a_client_does_not_tell_its_rows(index: int, seed: int, autojump_clock) -> None:
    task = msgspec.structs.replace(TASK, alignment="union")
    others_row = 1
    inside, outside = await unequal(
        DropsFromTheUnion, index, lambda row: partial(Uniter, row=row), (others_row, ELSEWHERE), task, seed
    )
    assert inside == outside
