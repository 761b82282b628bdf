"""The paper's scenarios in memory, over random tasks: each round is exactly what it would be in the clear."""

import re
import runpy
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, FslError, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.errors import leaves
from fsl_async.protocols import epochs
from fsl_async.server.aggregation import Submission
from fsl_async.union import union_rows
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import FromClient, Hint, Message, Submit
from fsl_async.wire.public_part import Layout, Part, Trees
from parties import Client, Network, RequestDeniedError, RoundClosedError, simulate
from parties.events import ServerEvent
from parties.server.replies import RequestRefusedError
from parties.server.round import combining
from parties.server.sessions import Sessions
from parties.storage.blobs.blobs import DamagedBlobError
from parties.storage.store import MemoryStore
from tests import ROOT
from tests.support.cases import one_in
from tests.support.plaintext import (
    Clear,
    Rows,
    Update,
    random_model,
    random_rows,
    random_task,
    random_update,
    shape_of,
    some,
)
from tests.support.rounds import few_bins
from tests.support.shop import Shop, copy_of, meddled, opened

EXAMPLES = ROOT / "examples"
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

    def __init__(self, rng: np.random.Generator, network: Network | Shop, clear: Clear) -> None:
        self._rng = rng
        self._network = network
        self._clear = clear
        self._task = clear.task
        self._clients = [network.client(name) for name in NAMES[: rng.integers(2, len(NAMES) + 1)]]
        self._rows = self._selections()

    async def run(self) -> None:
        async with opened(*self._clients):
            for number in range(ROUNDS):
                if number and self._task.selection == "adaptive":
                    self._rows = self._selections()
                if self._task.alignment == "union" and (number == 0 or self._task.selection == "adaptive"):
                    await self._unite()
                await self._round(first=number == 0)

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


@pytest.mark.parametrize(("scenario", "seed"), one_in(8, SCENARIOS, range(8)))
async def test_every_scenario_is_what_it_would_be_in_the_clear(scenario: str, seed: int) -> None:
    """Half of the seeds have either security; every run has each scenario with another seed."""
    rng = np.random.default_rng([seed, *scenario.encode()])
    task = random_task(rng, **SCENARIOS[scenario], security=("verified", "semi-honest")[seed // 4])
    clear = Clear(task, random_model(rng, task))
    async with simulate(task, clear.model, seed=seed) as network:
        await Play(rng, network, clear).run()


@pytest.mark.parametrize("scenario", ["basic", "fixed", "union", "mega-elements"])
async def test_the_paper_s_scenarios_over_tcp_are_what_they_would_be_in_the_clear(scenario: str) -> None:
    rng = np.random.default_rng([1, *scenario.encode()])
    task = random_task(rng, **SCENARIOS[scenario])
    clear = Clear(task, random_model(rng, task))
    async with trio.open_nursery() as nursery:
        shop = await Shop(nursery, task, (dict(clear.model), dict(clear.model))).open()
        with trio.fail_after(120):
            await Play(rng, shop, clear).run()
        nursery.cancel_scope.cancel()


# ---- unions


UNIONS: dict[str, list[list[int]]] = {
    "all empty": [[], [], []],
    "one alone selects": [[], [17, 3], []],
    "all equal": [[1, 2, 3]] * 3,
    "disjoint": [[0, 1], [2, 3], [58, 59]],
    "one row of all": [[59]] * 3,
    "nested": [[4], [4, 5], [4, 5, 6]],
    "everything": [list(range(20)), list(range(20, 40)), list(range(40, 60))],
}


@pytest.mark.parametrize(("case", "selection"), one_in(2, UNIONS, ["adaptive", "fixed"]))
async def test_a_union_is_what_the_selections_have_together(case: str, selection: str) -> None:
    """And a round on it is exact; whoever names a row outside is told so, and sends what it would send without."""
    task = task_of(rows=60, select=20, alignment="union", selection=selection)
    clear = Clear(task, {"items": np.arange(120.0).reshape(60, 2)})
    async with simulate(task, clear.model, seed=1) as network:
        clients = [network.client(name) for name in NAMES[:3]]
        async with opened(*clients):
            for client, rows in zip(clients, UNIONS[case], strict=True):
                await client.unite({"items": rows})
            found = (await network.finish_union())["items"]
            assert found.tolist() == sorted({row for rows in UNIONS[case] for row in rows})
            for client, rows in zip(clients, UNIONS[case], strict=True):
                outside = next((row for row in range(60) if row not in found), None)
                if outside is not None:
                    retrieved = await client.retrieve({"items": [outside]})
                    assert not retrieved["items"].any()
                    assert retrieved.deferred["items"].tolist() == client.deferred["items"].tolist() == [outside]
                update = {"items": (np.array(rows, dtype=int), np.ones((len(rows), 2)))}
                await carry_out(Plan(client, {"items": np.array(rows, dtype=int)}, update), clear.model)
                clear.add(update)
        outcome = await network.finish_round()
    sums, _ = clear.settle()
    assert np.array_equal(outcome.elements["items"], sums["items"])
    assert np.array_equal(np.flatnonzero(sums["items"].any(axis=1)), found)


def task_of(*, rows: int = 60, select: int = 8, width: int = 2, stash: int = 0, **fields: Any) -> Task:
    """One block of items."""
    block = Sparse("items", rows=rows, select=select, width=width, stash=stash)
    return Task(name="items", blocks=(block,), ring=Ring(64, fraction_bits=16), min_clients=2, max_clients=6, **fields)


# ---- stash


@pytest.fixture
def six_bins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So few bins that nine rows never find one each: three go to the stash, or are deferred."""
    few_bins(monkeypatch, 2)
    yield
    planned.cache_clear()


@pytest.mark.usefixtures("six_bins")
@pytest.mark.parametrize(
    ("stash", "security", "selection"), one_in(2, [0, 1, 3, 5], ["verified", "semi-honest"], ["adaptive", "fixed"])
)
async def test_rows_without_a_bin_go_to_the_stash_and_the_rest_is_deferred_by_name(
    stash: int, security: str, selection: str
) -> None:
    task = task_of(select=9, stash=stash, security=security, selection=selection)
    rng = np.random.default_rng(stash)
    clear = Clear(task, {"items": rng.normal(size=(60, 2))})
    async with simulate(task, clear.model, seed=stash) as network:
        for name in NAMES[:2]:
            async with network.client(name) as client:
                rows = rng.permutation(60)[:9]
                found = await client.retrieve({"items": rows})
                left = np.isin(rows, client.deferred.get("items", []))
                assert left.sum() == max(0, 3 - stash)
                assert np.array_equal(found["items"][~left], clear.model["items"][rows[~left]])
                assert not found["items"][left].any()
                values = np.ones((9, 2))
                values[~left] = rng.normal(size=((~left).sum(), 2))
                receipt = await client.submit({"items": (rows, values)})
                assert receipt.left_out == ({"items": rows[left].tolist()} if left.any() else {})
                clear.add({"items": (rows[~left], values[~left])})
        outcome = await network.finish_round()
    sums, _ = clear.settle()
    assert np.array_equal(outcome.elements["items"], sums["items"])


# ---- bad input


@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize("request_kind", ["retrieve", "submit"])
async def test_without_a_session_neither_recall_nor_hint_is_of_use(
    server: int, request_kind: str, autojump_clock: trio.abc.Clock
) -> None:
    """One server has lost its sessions; the client is told so, and begins anew in the next round."""
    task = task_of(selection="fixed")
    async with parties(task) as (network, ada, bob):
        await begin_session(network, ada, bob)
        vars(network.servers[server].records.sessions).update(vars(Sessions(task, MemoryStore())))
        with pytest.raises(RequestDeniedError, match=rf"S{server} refused \(no-session\): you have no session here"):
            await (ada.retrieve({"items": [1]}) if request_kind == "retrieve" else ada.submit({}))
        with pytest.raises(FslError, match="no clients are in with both servers"):
            await network.finish_round()
        for client in (ada, bob):
            client.forget_session()
            await client.submit({"items": ([7, 8], [[1.0, 2.0], [0.0, 0.5]])})
        assert (await network.finish_round()).update["items"][7:9].tolist() == [[2.0, 4.0], [0.0, 1.0]]


async def test_a_client_restored_from_a_backup_gives_no_second_hint_for_an_epoch() -> None:
    """Another submission of the same session in the same round is refused, and the first one counts."""
    async with parties(task_of(selection="fixed")) as (network, ada, bob):
        await begin_session(network, ada, bob)
        backup = await copy_of(ada.setup.store)
        await ada.submit({"items": ([1], [[1.0, 2.0]])})
        await bob.submit({})
        async with Client(replace(ada.setup, store=backup)) as restored:
            with pytest.raises(RequestDeniedError, match=r"refused \(conflict\)"):
                await restored.submit({"items": ([1], [[5.0, 2.0]])})
        outcome = await network.finish_round()
        assert outcome.clients == ("ada", "bob")
        assert outcome.update["items"][1].tolist() == [1.0, 2.0]


async def test_a_hint_for_an_epoch_that_is_over_is_refused(autojump_clock: trio.abc.Clock) -> None:
    """The epoch is the round's number, and the round's name stands in the message: an old one is not open any more."""
    over: list[bytes] = []

    async def hook(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Submit):
            over.append(message.round_id)
        if not isinstance(message, Hint):
            return data
        bulk = decode(data, FromClient, "the test").bulk
        return b"".join(encode(msgspec.structs.replace(message, round_id=over[0]), bulk))

    async with parties(task_of(selection="fixed")) as (network, ada, bob), meddled(ada, outgoing=hook) as replaying:
        await begin_session(network, replaying, bob)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_without_anybody, network)
            with pytest.raises(RoundClosedError, match="round 2 has ended without this submission") as caught:
                await replaying.submit({"items": ([1], [[1.0, 2.0]])})
        assert "the round of this request is not open" in str(caught.value.__cause__)


async def _end_without_anybody(network: Network) -> None:
    await trio.sleep(1)
    with pytest.raises(FslError, match="no clients are in with both servers"):
        await network.finish_round()


async def a_submission(client: str) -> Submission:
    layout = Layout.submission(planned(task_of(selection="fixed")), Trees.OWN)
    part = Part(layout, memoryview(bytes(layout.size)))
    return Submission(client, bytes(16), (bytes(32), bytes(32)), bytes(32), part, part, memoryview(b""))


async def test_trees_that_are_lost_end_their_session_and_no_other() -> None:
    async def half_lost(client: str) -> Submission:
        if client == "ada":
            raise DamagedBlobError("the blob with ada's trees is missing")
        return await a_submission(client)

    warned: list[ServerEvent] = []
    store = MemoryStore()
    sessions = Sessions(task_of(selection="fixed"), store, warned.append)
    for client in ("ada", "bob"):
        sessions.take(client, epochs.Brought(4, b"first"))
    await store.commit(*await sessions.settle(4, "ssa", ["ada", "bob"], half_lost))
    assert [str(event) for event in warned if "the session of 'ada' ends here: the blob with ada's" in str(event)]
    assert len(warned) == 1
    with pytest.raises(RequestRefusedError, match="no session here"):
        await sessions.origin("ada")
    assert (await sessions.origin("bob")).msk == bytes(16)
    sessions.take("ada", epochs.Brought(5, b"second"))


async def test_a_selection_that_changed_in_a_session_is_refused_by_name() -> None:
    async with parties(task_of(selection="fixed")) as (network, ada, bob):
        await begin_session(network, ada, bob)
        with pytest.raises(MisuseError, match="row 9 is not among the session's rows"):
            await ada.retrieve({"items": [1, 9]})
        with pytest.raises(MisuseError, match="row 9 is not among the session's rows"):
            await ada.submit({"items": ([1, 9], np.ones((2, 2)))})
        found = await ada.retrieve({"items": [3, 1]})  # some of them, in another order
        assert found["items"].shape == (2, 2)
        for client in (ada, bob):
            await client.submit({"items": ([3], np.ones((1, 2)))})
        assert (await network.finish_round()).update["items"][3].tolist() == [2.0, 2.0]


async def test_servers_that_find_different_unions_end_with_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The union is part of the outcome that both must arrive at; one of the two drops a row of it."""
    calls = iter(range(2))

    def drops_a_row(sums: np.ndarray) -> np.ndarray:
        return union_rows(sums)[: -1 if next(calls) else None]

    monkeypatch.setattr(combining, "union_rows", drops_a_row)
    with pytest.raises(BaseExceptionGroup) as ended:
        await find_a_union()
    errors = leaves(ended.value)
    assert len(errors) == 2
    assert all(isinstance(error, PeerViolationError) for error in errors)
    assert {str(error) for error in errors} == {
        f"{peer}: arrived at another outcome from the same shares" for peer in ("S0", "S1")
    }


async def find_a_union() -> None:
    async with parties(task_of(alignment="union")) as (network, ada, bob):
        for client in (ada, bob):
            await client.unite({"items": [1, 2, 3]})
        await network.finish_union()


UNITED = [
    ({"itmes": [1]}, "has no block 'itmes'"),
    ({"head": [1]}, "'head' is dense"),
    ({"items": [60]}, "row 60 is outside 0 to 59"),
    ({"items": [1, 1]}, "row 1 is selected twice"),
    ({"items": list(range(9))}, "9 rows selected, the task allows 8"),
]


@pytest.mark.parametrize(("rows", "message"), UNITED)
async def test_bad_selections_are_refused_before_they_are_united(rows: dict[str, Any], message: str) -> None:
    async with parties(several_blocks(alignment="union")) as (network, ada, bob):
        before = len(network.transcript)
        with pytest.raises(MisuseError, match=message):
            await ada.unite(rows)
        assert len(network.transcript) == before
        for client in (ada, bob):
            await client.unite({"items": [5], "words": [6]})
        assert {name: rows.tolist() for name, rows in (await network.finish_union()).items()} == {
            "items": [5],
            "words": [6],
        }


async def test_union_rounds_and_other_rounds_are_told_apart() -> None:
    async with parties(task_of()) as (_, ada, _):
        with pytest.raises(MisuseError, match="the rounds of this task find no union"):
            await ada.unite({"items": [1]})
    async with parties(task_of(alignment="union", selection="fixed")) as (network, ada, bob):
        with pytest.raises(MisuseError, match="round 1 finds the union first: call `unite`"):
            await ada.retrieve({"items": [1]})
        with pytest.raises(MisuseError, match="round 1 finds the union first: call `unite`"):
            await ada.submit({})
        for client in (ada, bob):
            await client.unite({"items": [1, 2]})
        await network.finish_union()
        with pytest.raises(MisuseError, match="the union of this session has been found"):
            await ada.unite({"items": [1]})


def several_blocks(**fields: Any) -> Task:
    """Two sparse blocks of different widths, and a dense one."""
    blocks = (*task_of().blocks, Dense("head", size=3), Sparse("words", rows=30, select=4, width=5))
    return msgspec.structs.replace(task_of(**fields), blocks=blocks)


@asynccontextmanager
async def parties(task: Task) -> AsyncIterator[tuple[Network, Client, Client]]:
    """Servers with an empty model, and two clients."""
    model = {block.name: np.zeros(shape_of(block)) for block in task.blocks}
    async with simulate(task, model, seed=1) as network, network.client("ada") as ada, network.client("bob") as bob:
        yield network, ada, bob


async def begin_session(network: Network, *clients: Client) -> None:
    """A first round, whose trees stay."""
    for client in clients:
        await client.retrieve({"items": [1, 2, 3]})
        await client.submit({})
    await network.finish_round()
    for client in clients:
        assert (await client.outcome()).counted


# ---- examples


@pytest.mark.parametrize("name", ["epochs", "union", "mega_elements"])
def test_examples_run_and_show_what_they_promise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 45
    trio.run(runpy.run_path(str(path))["main"])
    figures = [
        int(figure.replace(",", "")) for figure in re.findall(r"([\d,]+) (?:bytes|from ada)", capsys.readouterr().out)
    ]
    assert len(figures) >= 2
    assert figures[-1] < figures[0]
