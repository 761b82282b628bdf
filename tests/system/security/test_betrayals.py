"""A malicious server that makes callers call again: no two sums that were opened have one client's same values."""

import pytest

from parties.client.client import Client
from tests.support.cases import often, sides

from .byzantine import CLIENTS, VICTIM, Byzantine
from .client_attacks import LIES_TO_CLIENTS, DropsLater
from .repetition import Caller, Play, betrayals, play

OPENS_NOTHING = "gives up after the hints"


@pytest.mark.parametrize(("name", "index"), sides(LIES_TO_CLIENTS))
async def test_no_values_are_in_two_opened_sums(name: str, index: int, seed: int, autojump_clock) -> None:
    told = await play(LIES_TO_CLIENTS[name], index, seed)
    assert told.mutant.fired, "the mutated step was never reached"
    assert told.opened, "no sum was opened: there was nothing to betray"
    assert list(betrayals(told)) == []
    assert told.halts == {}


@pytest.mark.parametrize("index", [0, 1], ids="without a lie, S{}".format)
async def test_without_a_lie_all_values_are_counted(index: int, seed: int, autojump_clock) -> None:
    told = await play(Byzantine, index, seed)
    assert not told.mutant.fired
    assert {name: caller.counted for name, caller in told.callers.items()} == {name: [0, 1] for name in CLIENTS}
    assert len(told.opened) == len(told.mutant.sums) == 2
    assert (told.heard, told.waiting, told.halts) == ([], [], {})


class Careless(Caller):
    """Submits the same values in every round, whatever it is told."""

    async def _once(self, client: Client) -> None:
        await client.submit(self.values(0), again=True)
        await client.outcome()


@pytest.mark.parametrize("index", often(1, [1, 0]), ids="by S{}".format)
async def test_the_books_show_what_a_careless_caller_betrays(index: int, seed: int, autojump_clock) -> None:
    told: Play = await play(DropsLater, index, seed, Careless)
    found = list(betrayals(told))
    assert "anna's values 0 are in 5 opened sums" in found
    assert f"two sums differ in {VICTIM}'s values 0" in found
