"""Servers that are killed and started again: what was acknowledged is there, and the round resumes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import StorageError
from fsl_async.protocols import ssa
from fsl_async.wire import pieces
from parties import simulate
from parties.client.client import Client
from parties.events import Resumed
from parties.server.evidence import EvidenceBook
from parties.server.server import Server
from parties.simulation.network import SERVERS
from parties.testing import AtCommit, AtTransition, AtWrite, Crash, Fault, World
from parties.testing.faults import Moment
from parties.testing.processes import KilledError
from tests.parties.testing.small_world import listening, present
from tests.support.cases import MANY

MOMENTS = get_args(Moment)[:3]
SEED = 20261121
TASK = Task(
    name="restart",
    blocks=(Sparse("items", rows=64, select=3, width=2), Dense("head", size=3)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=6,
)
NAMES = ("anna", "ben", "carol")
MODEL = {"items": np.zeros((64, 2), dtype=np.float32), "head": np.zeros(3)}


@asynccontextmanager
async def restarted(
    *faults: Fault, seed: int = SEED, task: Task = TASK, computing: float = 0.0, **schedule: float
) -> AsyncIterator[tuple[World, list[Client]]]:
    """Two servers that are started again when they are killed, with rounds that close with all three clients."""
    usual = {"rounds": 0, "seconds": float("inf"), "patience": float("inf")}
    more: dict[str, Any] = {"schedule": usual | schedule, "computing": computing}
    async with listening(task, MODEL, NAMES, *faults, seed=seed, **more) as made:
        yield made, await present(made, NAMES)


def update(place: int) -> dict[str, object]:
    return {"items": ([1, place + 2], np.full((2, 2), place + 1.0)), "head": np.full(3, place + 1.0)}


def total(places: range) -> dict[str, np.ndarray]:
    items, head = np.zeros((64, 2)), np.zeros(3)
    for place in places:
        items[[1, place + 2]] += place + 1
        head += place + 1
    return {"items": items, "head": head}


async def take_part(client: Client, place: int, retrieve: bool, told: dict[str, bool]) -> None:
    if retrieve:
        await client.retrieve({"items": [1, place + 2]})
    await client.submit(update(place))
    told[client.name] = (await client.outcome()).counted


async def one_round(made: World, joined: list[Client], number: int, retrieve: bool = False) -> None:
    """Every client takes part; the sum is exact on both servers."""
    told: dict[str, bool] = {}
    async with trio.open_nursery() as nursery:
        for place, client in enumerate(joined):
            nursery.start_soon(take_part, client, place, retrieve, told)
    assert told == dict.fromkeys(NAMES, True)
    await made.wait_settled(number)
    for settled, models in zip(made.settled, made.models, strict=True):
        assert sorted(settled) == list(range(1, number + 1))
        for name, expected in total(range(len(NAMES))).items():
            np.testing.assert_array_equal(models[number][name], number * expected)


async def two_rounds(task: Task, retrieve: bool, *faults: Fault) -> World:
    """The world in which both were exact, whatever it went through."""
    async with restarted(*faults, task=task) as (made, joined):
        for number in (1, 2):
            await one_round(made, joined, number, retrieve)
        await trio.sleep(1)  # the last commit comes when the clients have heard
    assert (made.contradictions, made.ended) == ([], [])
    return made


FIXED = {"selection": "fixed"}
PROVED = {"bound": 16.0, "bound_proof": "projected"}


@pytest.mark.parametrize(
    ("index", "fields", "retrieve", "longest", "first", "every"),
    [
        (1, {}, True, 64, 1, 20),
        pytest.param(1, {}, True, 64, 1, 6, marks=pytest.mark.slow),
        pytest.param(0, {}, True, 64, 2, 6, marks=pytest.mark.slow),
        pytest.param(0, FIXED, False, 1_000, 3, 6, marks=pytest.mark.slow),
        pytest.param(1, FIXED, False, 1_000, 4, 6, marks=pytest.mark.slow),
        pytest.param(0, FIXED | {"bound": 16.0}, False, 1_000, 5, 6, marks=pytest.mark.slow),
        pytest.param(1, PROVED, False, 1_000, 6, 6, marks=pytest.mark.slow),
    ],
)
async def test_a_server_killed_at_any_commit_goes_on(
    index: int,
    fields: dict[str, Any],
    retrieve: bool,
    longest: int,
    first: int,
    every: int,
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the middle of a share: each piece of it that is formed or taken is a commit of its own."""
    monkeypatch.setattr(pieces, "LONGEST_PIECE", longest)
    task, name = msgspec.structs.replace(TASK, **fields), SERVERS[index]
    last = (await two_rounds(task, retrieve)).process(name).commits
    assert last > (2 * 2 * 17 if longest == 64 else 30)
    numbers, struck = range(first, last + 1, every if MANY == 1 else 1), []
    for number in numbers:
        crash = Crash(name, AtCommit(number, MOMENTS[number // every % 3]), down=1.0)
        print(f"seed {SEED}: {crash}, of {last} commits")
        struck += (await two_rounds(task, retrieve, crash)).injector.fired
    assert len(struck) > 0.8 * len(numbers), "where two are on their way, that of the first has no later moment"


async def test_a_restarted_server_says_where_it_goes_on(autojump_clock: trio.abc.Clock) -> None:
    crash = Crash("S0", AtTransition("ssa", "Open", "Submitted", "Open", "before write", occurrence=2), down=1.0)
    async with restarted(crash) as (made, joined):
        await one_round(made, joined, 1)
        assert made.injector.fired == [crash]
        assert Resumed(number=1, state="Open") in [told for _, _, told in made.events]


async def test_what_an_event_shows_about_a_client_is_stored_before_the_event(autojump_clock: trio.abc.Clock) -> None:
    """A recorded event is not judged again after a restart."""
    crash = Crash("S0", AtWrite("round-00000001/events", 2, "after write"), down=1.0)
    async with restarted(crash) as (made, (anna, *_)):
        await anna.submit(update(0))
        with pytest.raises(KilledError):
            await made.servers[0].running.take(ssa.PeerRoster({"anna": bytes(32)}))
        await trio.sleep(2)
        (entry,) = await EvidenceBook(made.servers[0].setup.store).entries()
        assert (entry.kind, entry.about) == ("two-digests", "anna or S1")


@pytest.mark.parametrize(("away", "counted"), [(10.0, True), (40.0, False)])
async def test_what_was_on_loan_is_waited_for_until_patience_ends(
    away: float, counted: bool, autojump_clock: trio.abc.Clock
) -> None:
    """Both servers are killed as they evaluate, and S0 is away for longer: S1 lacks what S0 has carried."""
    evaluated = AtTransition("ssa", "Rostered", "Evaluated", "Proved", "before write")
    crashes = [Crash("S0", evaluated, down=away), Crash("S1", evaluated, down=1.0)]
    async with restarted(*crashes, computing=0.5, patience=20.0) as (made, joined):
        told: dict[str, bool] = {}
        async with trio.open_nursery() as nursery:
            for place, client in enumerate(joined):
                nursery.start_soon(take_part, client, place, False, told)
            await trio.sleep(8)
            assert {*made.injector.fired} == {*crashes}
            run = made.servers[1].running
            stored = {key.client for key, _ in await run.records.parts()}
            assert stored == {name for name in NAMES if run.config.carrier(name) == 1} < {*NAMES}
            assert run.status().state == "Rostered"
            assert run.status().waiting_for == "submissions that S0 forwards again"
        assert told == dict.fromkeys(NAMES, counted)
        explanation = "" if counted else "S1 gave up: S0 was awaited in state Rostered for 20 s"
        await made.wait_settled(1)
        assert [settled[1].explanation for settled in made.settled] == [explanation] * 2


async def test_shares_seeds_and_submissions_are_erased_after_the_retention(autojump_clock: trio.abc.Clock) -> None:
    async with restarted(retention=1) as (made, joined):
        for number in (1, 2, 3):
            await one_round(made, joined, number)
            await trio.sleep(5)
            for name, server in zip(SERVERS, made.servers, strict=True):
                kept = [*await server.setup.store.keys("round-"), *made.blob_disks[name].blobs]
                left = {key.split("/")[0] for key in kept}
                assert f"round-{number:08}" in left
                assert f"round-{number - 1:08}" not in left


async def test_a_store_is_one_servers_and_one_tasks() -> None:
    async with simulate(TASK, MODEL, 3) as net:
        setup, other = (server.setup for server in net.servers)
        with pytest.raises(StorageError, match=r"belongs to S1 .* and this is S0"):
            await Server(replace(setup, store=other.store)).run()
        changed = replace(setup, task=msgspec.structs.replace(TASK, min_clients=3))
        with pytest.raises(StorageError, match="belongs to another task: min_clients is 2 there, 3 in the task file"):
            await Server(changed).run()
