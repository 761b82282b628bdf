"""One seed, one transcript, also where things go wrong: in this process, in others, whatever order sets have there."""

import hashlib
import os
import subprocess
import sys
from functools import cache

import pytest

from parties.testing import (
    AtCommit,
    AtSend,
    AtTime,
    BrokenWrite,
    Chart,
    Crash,
    Cut,
    Delay,
    Fault,
    FullDisk,
    Partition,
    SkewedClock,
    SlowDisk,
    World,
)
from parties.testing.trials import draw, run
from tests.parties.testing import small_world

PLANS: dict[str, list[Fault]] = {
    "crashes": [
        Crash("S0", AtTime(0.3), down=1.5),
        Crash("S1", AtCommit(9, "before sync"), down=0.5),
        Crash("client 0", AtSend(5, "after send"), down=2.0),
        Crash("client 2", AtCommit(2, "after write"), down=float("inf")),
    ],
    "network": [
        Cut("client 1", connection=2, outward=True, after=300, lost=True),
        Cut("S1", connection=2, outward=False, after=120, lost=False),
        Delay("client 0", connection=1, seconds=1.3),
        Partition("S0", "S1", begin=0.5, seconds=4.0),
    ],
    "disks": [
        SlowDisk("S0", begin=0.0, seconds=9.0, each=0.4),
        FullDisk("client 0", begin=0.0, seconds=2.0),
        BrokenWrite("S1", number=6),
        SkewedClock("S1", begin=0.0, seconds=-1000.0),
        Crash("S0", AtCommit(6, "before sync"), down=0.1),
    ],
}
DRAWN = range(3)


@cache
def told(name: str, seed: int) -> str:
    """Everything that can be told of a world: every message, event, fault and life, with its time."""
    return digest(small_world.one_round(seed, PLANS[name], clients=3))


@cache
def told_of_trial(seed: int) -> str:
    return digest(run(draw(seed)).case.world)


def digest(world: World) -> str:
    lines = "\n".join(f"{at!r} {party} {told!r}" for at, party, told in world.story)
    models = "\n".join(repr(model) for server in world.models for model in server.values())
    return hashlib.sha256(f"{lines}\n{models}\n{Chart.of(world).text()}".encode()).hexdigest()


@pytest.mark.parametrize("name", PLANS)
def test_a_seed_and_a_plan_decide_everything(name: str) -> None:
    assert told(name, 1) == told.__wrapped__(name, 1)
    assert told(name, 1) != told(name, 2)


@pytest.mark.parametrize("name", PLANS)
def test_the_faults_of_these_plans_strike(name: str) -> None:
    struck = small_world.one_round(1, PLANS[name], clients=3).injector.fired
    assert set(struck) == set(PLANS[name])


def test_worlds_do_not_remember_each_other() -> None:
    before = told_of_trial.__wrapped__(DRAWN[-1])
    told_of_trial.__wrapped__(DRAWN[0])
    assert told_of_trial.__wrapped__(DRAWN[-1]) == before


IN_ANOTHER_PROCESS = f"""
import logging; logging.disable()
import {__name__} as here
print([here.told(name, 1) for name in here.PLANS] + [here.told_of_trial(seed) for seed in here.DRAWN])
"""


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_other_processes_and_hash_seeds_give_the_same(hash_seed: str) -> None:
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    other = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, capture_output=True, text=True, check=False
    )
    assert other.returncode == 0, other.stderr
    expected = [told(name, 1) for name in PLANS] + [told_of_trial(seed) for seed in DRAWN]
    assert other.stdout.strip() == repr(expected), f"plans {list(PLANS)} with seed 1, then trials {list(DRAWN)}"
