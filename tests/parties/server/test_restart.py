"""Servers that are killed and started again: what was acknowledged is there, and the round resumes."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import StorageError
from fsl_async.protocols import ssa
from fsl_async.wire import pieces
from parties.client.client import Client
from parties.compute import InlineLane
from parties.events import Resumed, ServerEvent
from parties.server.evidence import EvidenceBook
from parties.server.server import Server
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling
from parties.storage.store import Change, MemoryStore, Record, Store
from tests.support.cases import MANY

FEW = 3 if MANY == 1 else 1
"""Of how many commits one is that at which a server dies, in the slow tests."""

TASK = Task(
    name="restart",
    blocks=(Sparse("items", rows=64, select=3, width=2), Dense("head", size=3)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=6,
)
NAMES = ("anna", "ben", "carol")
MODEL = {"items": np.zeros((64, 2), dtype=np.float32), "head": np.zeros(3)}


class KilledError(BaseException):
    """The process of a server ends here, as if by SIGKILL."""


class Disk(Store):
    """A store whose process can be killed right before a commit is made, by number or by event, or right after."""

    def __init__(self) -> None:
        self.kept = MemoryStore()
        self.commits = 0
        self.kill_at = 0
        self.kill_at_event = b""
        self.kill_after = False

    async def commit(self, *changes: Change) -> None:
        self.commits += 1
        entries = [change.entry for change in changes if isinstance(change, Record)]
        last = self.commits == self.kill_at or (self.kill_at_event and any(self.kill_at_event in e for e in entries))
        if last and not self.kill_after:
            raise KilledError
        await self.kept.commit(*changes)
        if last:
            raise KilledError

    async def entries(self, journal: str) -> list[bytes]:
        return await self.kept.entries(journal)

    async def blob(self, key: str) -> memoryview:
        return await self.kept.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        return await self.kept.keys(prefix)

    async def aclose(self) -> None:
        """There is nothing to close."""


@dataclass
class House:
    """Two servers that are started again when they are killed."""

    network: Network
    disks: tuple[Disk, Disk]
    kills: list[int] = field(default_factory=list)
    events: list[ServerEvent] = field(default_factory=list)
    started: list[trio.Event] = field(default_factory=lambda: [trio.Event(), trio.Event()])
    away: list[float] = field(default_factory=lambda: [1.0, 1.0])

    async def keep(self, index: int) -> None:
        while True:
            server = self._server(index)
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run)
                    self.started[index].set()
                    await self.live(index, server)
            except* KilledError:
                self.kills.append(index)
                self.disks[index].kill_at, self.disks[index].kill_at_event = 0, b""
                await trio.sleep(self.away[index])

    async def live(self, index: int, server: Server) -> None:
        """What else happens in a server's process."""

    def _server(self, index: int) -> Server:
        servers = list(self.network.servers)
        setup = replace(servers[index].setup, store=self.disks[index], observe=self.events.append)
        servers[index] = Server(setup)
        self.network.servers = tuple(servers)
        return servers[index]

    @property
    def server(self) -> tuple[Server, ...]:
        return self.network.servers


@asynccontextmanager
async def house(seed: int, task: Task = TASK, **schedule: float) -> AsyncIterator[House]:
    network = Network(task, MODEL, seed, InlineLane())
    setups = [server.setup for server in network.servers]
    schedules = [msgspec.structs.replace(setup.schedule, clients=len(NAMES), **schedule) for setup in setups]
    network.servers = tuple(Server(replace(a, schedule=b)) for a, b in zip(setups, schedules, strict=True))
    home = House(network, (Disk(), Disk()))
    with seeded_scheduling(seed):
        async with trio.open_nursery() as nursery:
            for index in (0, 1):
                nursery.start_soon(home.keep, index)
            for event in home.started:
                await event.wait()
            yield home
            nursery.cancel_scope.cancel()


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


@asynccontextmanager
async def clients(home: House) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(home.network.client(name)) for name in NAMES]


async def one_round(home: House, joined: list[Client], number: int, retrieve: bool = False) -> None:
    """Every client takes part; the sum is exact on both servers."""
    told: dict[str, bool] = {}
    async with trio.open_nursery() as nursery:
        for place, client in enumerate(joined):
            nursery.start_soon(take_part, client, place, retrieve, told)
    assert told == dict.fromkeys(NAMES, True)
    for index in (0, 1):
        while len(await home.server[index].past_rounds()) < number:  # noqa: ASYNC110 - servers come and go
            await trio.sleep(0.5)
        assert [past.report.number for past in await home.server[index].past_rounds()] == list(range(1, number + 1))
        for name, expected in total(range(len(NAMES))).items():
            np.testing.assert_array_equal(home.server[index].model[name], number * expected)


async def rounds(home: House, joined: list[Client], count: int, retrieve: bool) -> None:
    for number in range(1, count + 1):
        await one_round(home, joined, number, retrieve)


async def commits_of(seed: int, task: Task, retrieve: bool) -> list[tuple[int, int]]:
    """How many commits each server has made when its clients have connected, and after two rounds."""
    async with house(seed, task) as home, clients(home) as joined:
        before = [disk.commits for disk in home.disks]
        await rounds(home, joined, 2, retrieve)
        return [(first, disk.commits) for first, disk in zip(before, home.disks, strict=True)]


@pytest.mark.parametrize(
    ("index", "selection", "retrieve", "more", "every"),
    [
        (1, "adaptive", True, {}, 15),
        pytest.param(1, "adaptive", True, {}, FEW, marks=pytest.mark.slow),
        pytest.param(0, "adaptive", True, {}, FEW, marks=pytest.mark.slow),
        pytest.param(0, "fixed", False, {}, FEW, marks=pytest.mark.slow),
        pytest.param(1, "fixed", False, {}, FEW, marks=pytest.mark.slow),
        pytest.param(0, "fixed", False, {"bound": 16.0}, FEW, marks=pytest.mark.slow),
        pytest.param(1, "adaptive", False, {"bound": 16.0, "bound_proof": "projected"}, FEW, marks=pytest.mark.slow),
    ],
)
async def test_a_server_killed_at_any_commit_goes_on(
    index: int,
    selection: Literal["adaptive", "fixed"],
    retrieve: bool,
    more: dict[str, Any],
    every: int,
    autojump_clock: trio.abc.Clock,
) -> None:
    seed, task = 20261121, msgspec.structs.replace(TASK, selection=selection, **more)
    first, last = (await commits_of(seed, task, retrieve))[index]
    assert last - first > 30
    for kill_at, after in list(itertools.product(range(first + 1, last + 1), (False, True)))[::every]:
        print(f"seed {seed}: S{index} killed {'after' if after else 'before'} its commit {kill_at} of {last}")
        async with house(seed, task) as home, clients(home) as joined:
            home.disks[index].kill_at, home.disks[index].kill_after = kill_at, after
            await rounds(home, joined, 2, retrieve)
            await trio.sleep(0.5)  # the last commit comes when the clients have heard, and dying takes a moment
            assert home.kills == [index]


@pytest.mark.parametrize(
    ("index", "every"), [(0, 7), *(pytest.param(index, FEW, marks=pytest.mark.slow) for index in (0, 1))]
)
async def test_a_share_of_many_pieces_goes_on_where_a_killed_server_has_left_it(
    index: int, every: int, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece that is formed or taken is a commit of its own: 17 of either server's share."""
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 64)
    seed = 20261123
    async with house(seed) as home, clients(home) as joined:
        before = home.disks[index].commits
        await one_round(home, joined, 1)
        last = home.disks[index].commits
    assert last - before > 2 * 17
    for kill_at in range(before + 1, last + 1, every):
        print(f"seed {seed}: S{index} killed before its commit {kill_at} of {last}")
        async with house(seed) as home, clients(home) as joined:
            home.disks[index].kill_at = kill_at
            await one_round(home, joined, 1)
            await trio.sleep(0.5)
            assert home.kills == [index]


async def test_a_restarted_server_says_where_it_goes_on(autojump_clock: trio.abc.Clock) -> None:
    async with house(1) as home, clients(home) as (anna, ben, carol):
        await anna.submit(update(0))
        home.disks[0].kill_at = home.disks[0].commits + 1
        told: dict[str, bool] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_part, ben, 1, False, told)
            while not home.kills:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            await take_part(carol, 2, False, told)
        assert told == {"ben": True, "carol": True}
        assert (await anna.outcome()).counted
        assert Resumed(number=1, state="Open") in home.events


async def test_what_an_event_shows_about_a_client_is_stored_before_the_event(autojump_clock: trio.abc.Clock) -> None:
    """A recorded event is not judged again after a restart."""
    async with house(1) as home, clients(home) as (anna, *_):
        await anna.submit(update(0))
        run, disk = home.server[0].running, home.disks[0]
        disk.kill_at_event, disk.kill_after = b"PeerRoster", True
        with pytest.raises(KilledError):
            await run.take(ssa.PeerRoster({"anna": bytes(32)}))
        (entry,) = await EvidenceBook(disk.kept).entries()
        assert (entry.kind, entry.about) == ("two-digests", "anna or S1")


@pytest.mark.parametrize(("away", "counted"), [(10.0, True), (40.0, False)])
async def test_what_was_on_loan_is_waited_for_until_patience_ends(
    away: float, counted: bool, autojump_clock: trio.abc.Clock
) -> None:
    """Both servers are killed as they evaluate, and S0 is away for longer: S1 lacks what S0 has carried."""
    async with house(1, patience=20.0) as home, clients(home) as joined:
        home.away[0] = away
        for disk in home.disks:
            disk.kill_at_event = b"Evaluated"
        told: dict[str, bool] = {}
        async with trio.open_nursery() as nursery:
            for place, client in enumerate(joined):
                nursery.start_soon(take_part, client, place, False, told)
            await trio.sleep(8)
            assert sorted(home.kills) == [0, 1]
            run = home.server[1].running
            stored = {key.client for key, _ in await run.records.parts()}
            assert stored == {name for name in NAMES if run.config.carrier(name) == 1} < {*NAMES}
            assert run.status().state == "Rostered"
            assert run.status().waiting_for == "submissions that S0 forwards again"
        assert told == dict.fromkeys(NAMES, counted)
        for server in home.server:
            (past,) = await server.past_rounds()
            assert past.report.explanation == (
                "" if counted else "S1 gave up: S0 was awaited in state Rostered for 20 s"
            )


async def test_shares_seeds_and_submissions_are_erased_after_the_retention(autojump_clock: trio.abc.Clock) -> None:
    async with house(2, retention=1) as home, clients(home) as joined:
        for number in (1, 2, 3):
            await one_round(home, joined, number)
            for disk in home.disks:
                left = {key.split("/")[0] for key in await disk.keys("round-")}
                assert f"round-{number:08}" in left
                assert f"round-{number - 1:08}" not in left


async def test_a_store_is_one_servers_and_one_tasks(autojump_clock: trio.abc.Clock) -> None:
    async with house(3) as home:
        setup, other = (server.setup for server in home.server)
        with pytest.raises(StorageError, match=r"belongs to S1 .* and this is S0"):
            await Server(replace(setup, store=other.store)).run()
        changed = replace(setup, task=msgspec.structs.replace(TASK, min_clients=3))
        with pytest.raises(StorageError, match="belongs to another task: min_clients is 2 there, 3 in the task file"):
            await Server(changed).run()
