"""How a world ends that went otherwise than its test meant: with the test's own mistake, or at its horizon."""

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pytest
import trio

from fsl_async import MisuseError
from parties import Client
from parties.schedule import Schedule
from parties.testing import (
    AbortRound,
    AtTime,
    BrokenWrite,
    CloseNow,
    Crash,
    Delay,
    Fault,
    HorizonError,
    Partition,
    SkewedClock,
)
from parties.testing.round_faults import Straggle
from parties.testing.world import world
from tests.parties.testing.small_world import MODEL, TASK, take_part

SEED = 4
ONE_ROUND = Schedule(clients=2, rounds=1)


async def play(
    behaviour: Callable[[Client], Awaitable[None]], schedule: Schedule | None = ONE_ROUND, horizon: float = 3_600.0
) -> float:
    """A round of two clients; how old the world was in the end."""
    async with world(TASK, MODEL, SEED, schedule=schedule, horizon=horizon) as made:
        for name in ("ada", "bob"):
            made.start(name, behaviour)
        await made.wait_settled(1)
        return made.now


# ---- a mistake of the test's own


async def submits_to_no_block(client: Client) -> None:
    await client.submit({"itmes": ([1], np.ones((1, 1), np.int64))})


async def misuses_in_a_nursery(client: Client) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(submits_to_no_block, client)


@pytest.mark.parametrize("behaviour", [submits_to_no_block, misuses_in_a_nursery])
async def test_a_mistake_in_a_behaviour_ends_the_world_with_it(behaviour, autojump_clock) -> None:
    with pytest.raises(MisuseError, match="has no block 'itmes'; it has"):
        await play(behaviour)


async def test_whoever_expects_a_mistake_may_catch_it(autojump_clock) -> None:
    async def tries(client: Client) -> None:
        with pytest.raises(MisuseError):
            await submits_to_no_block(client)
        await take_part(client)

    assert await play(tries) < 60


async def test_where_mistakes_are_judged_they_are_kept(autojump_clock) -> None:
    async with world(TASK, MODEL, SEED, schedule=ONE_ROUND) as made:
        made.start("ada", submits_to_no_block, judged=True)
        await trio.sleep(10)
        ((party, error),) = [(ended.party, ended.error) for ended in made.ended]
        assert (party, type(error)) == ("ada", MisuseError)


# ---- a test that waits for ever


async def test_a_forgotten_schedule_ends_at_the_horizon_and_shows_what_happened(autojump_clock) -> None:
    """By default a round closes with as many clients as the task allows; here these are five."""
    with pytest.raises(HorizonError) as error:
        await play(take_part, schedule=None)
    words = str(error.value)
    assert "the world is 3600 s old, and the test still waits (S0: round 1: Open, S1: round 1: Open)" in words
    assert "A round closes with 5 submissions" in words
    for of_the_chart in ("seconds", "ada", "Receipt"):
        assert of_the_chart in words
    assert trio.current_time() >= 3_600


async def test_another_horizon_may_be_set(autojump_clock) -> None:
    with pytest.raises(HorizonError, match="the world is 20 s old"):
        await play(take_part, schedule=None, horizon=20.0)


# ---- a fault that could never strike

UNKNOWN: Sequence[tuple[Fault, str]] = [
    (Crash("S2", AtTime(1.0), down=1.0), "S2"),
    (Crash("s0", AtTime(1.0), down=1.0), "s0"),
    (Delay("aba", connection=1, seconds=1.0), "aba"),
    (Partition("S0", "aba", begin=1.0, seconds=1.0), "aba"),
    (Partition("aba", "S0", begin=1.0, seconds=1.0), "aba"),
    (Straggle("ada", 1, "S3", 1.0), "S3"),
    (SkewedClock("aba", 1.0, 1.0), "aba"),
    (AbortRound("aba", AtTime(1.0)), "aba"),
    (CloseNow("aba", AtTime(1.0)), "aba"),
    (BrokenWrite("aba", 1), "aba"),
]


@pytest.mark.parametrize(("fault", "stranger"), UNKNOWN, ids=str)
async def test_a_fault_of_an_unknown_party_is_refused_at_once(fault: Fault, stranger: str, autojump_clock) -> None:
    words = rf"there is no party '{stranger}', only S0, S1, ada, bob; name the clients that faults strike in clients="
    with pytest.raises(MisuseError, match=words):
        async with world(TASK, MODEL, SEED, [fault], ONE_ROUND, clients=("ada", "bob")):
            pass
