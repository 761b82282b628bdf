"""Small unions move plainly: exact sums, the same calls, bytes that tell nothing, and what is refused."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import trio
from msgspec.structs import replace as replaced

from fsl_async import Dense, MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Answer, Block, Download, FromServer, Message, Recall, Retrieve, Submit
from parties import Network, simulate
from parties.client.client import Client
from parties.simulation.network import SERVERS
from parties.storage.store import MemoryStore
from parties.testing import AtCommit, Crash, World
from tests.parties.server.test_restart import MOMENTS, NAMES, restarted
from tests.support.shop import meddled

ITEMS = Sparse("items", rows=400, select=12, width=3)
WORDS = Sparse("words", rows=300, select=3, width=2)
HEAD = Dense("head", size=5)
ROWS = {"ada": [7, 3, 250], "bob": [3, 399, 40]}
MORE = {"ada": [0, 10, 20], "bob": [30, 299, 1], "cyd": [50, 60, 70]}
"""Of items a union of 5 rows, which moves plainly; of words one of 9, which is more than the trees of three rows."""


def task_of(*blocks: Sparse | Dense, **fields: Any) -> Task:
    return Task(
        name="plain",
        blocks=blocks,
        ring=Ring(64, fraction_bits=16),
        alignment="union",
        min_clients=2,
        max_clients=4,
        **fields,
    )


MIXED = task_of(WORDS, HEAD, ITEMS)


def model() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(4)
    return {
        "items": draw.normal(size=(400, 3)).astype("f4"),
        "words": draw.integers(0, 999, (300, 2)).astype("f8"),
        "head": draw.normal(size=5),
    }


async def unite(network: Network, joined: dict[str, Client]) -> None:
    for name, client in joined.items():
        await client.unite({"items": ROWS.get(name, []), "words": MORE[name]})
    await network.finish_union()


async def kinds(network: Network) -> tuple[list[str], list[str]]:
    """Which blocks the open round moves with trees, and which plainly."""
    shape = (await network.servers[0].next_round(0)).config.shape
    return [block.name for _, block in shape.sparse_blocks()], [block.name for _, block in shape.plain_blocks()]


def updates(name: str, number: int) -> dict[str, Any]:
    return {
        "items": (ROWS[name][:2], np.full((2, 3), number + 0.5)),
        "words": (MORE[name][1:], np.full((2, 2), -1.25 * number)),
        "head": np.full(5, 1.0 * number),
    }


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("updating", ["retrieved", "any"])
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_a_block_with_trees_and_one_without_are_summed_and_retrieved_exactly(
    selection: Literal["adaptive", "fixed"], updating: Literal["retrieved", "any"], security: Any
) -> None:
    if selection == "fixed":
        updating = "retrieved"
    task = replaced(MIXED, selection=selection, updates=updating, security=security)
    held = model()
    async with simulate(task, held, seed=3) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in MORE}
        for number in (1, 2, 3):
            if selection == "adaptive" or number == 1:
                await unite(network, joined)
            expected = {key: array.copy() for key, array in held.items()}
            for name in ROWS:
                rows = ROWS[name]
                found = await joined[name].retrieve({"items": rows, "words": MORE[name], "head": ...})
                assert found["items"].tobytes() == held["items"][rows].tobytes()
                assert found["words"].tobytes() == held["words"][MORE[name]].tobytes()
                assert found["head"].tobytes() == held["head"].tobytes()
                if security == "verified" or selection == "fixed":
                    assert await kinds(network) == (["words"], ["items"])
                update = updates(name, number)
                await joined[name].submit(update)
                for block in ("items", "words"):
                    chosen, values = update[block]
                    expected[block][chosen] += values.astype(expected[block].dtype)
                expected["head"] += update["head"]
            outcome = await network.finish_round()
            assert outcome.clients == tuple(ROWS)
            changed = set(ROWS["ada"][:2] + ROWS["bob"][:2])
            assert set(np.flatnonzero(outcome.update["items"].any(axis=1))) == changed
            for block, array in expected.items():
                np.testing.assert_allclose(network.model[block], array, rtol=1e-6)
            held = {key: array.copy() for key, array in network.model.items()}


async def test_a_client_that_comes_later_to_a_session_plants_for_the_blocks_that_have_trees() -> None:
    """Its trees lie as that round has them, and the hints of its next round find them."""
    task = replaced(MIXED, selection="fixed")
    async with simulate(task, model(), seed=8) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in MORE}
        await unite(network, joined)
        late = await stack.enter_async_context(network.client("dan"))
        for number in (1, 2):
            before = network.model["items"][3].copy(), network.model["words"][60].copy()
            found = await late.retrieve({"items": [3], "words": [60]})
            assert await kinds(network) == (["words"], ["items"])
            assert (found["items"][0] == before[0]).all()
            assert (found["words"][0] == before[1]).all()
            with pytest.raises(MisuseError, match=r"row 7 is not among the session's rows|row 7 was not retrieved"):
                await late.submit({"items": ([7], np.ones((1, 3)))})
            await late.submit({"items": ([3], np.ones((1, 3))), "words": ([60], np.ones((1, 2)))})
            await joined["ada"].submit(updates("ada", number))
            outcome = await network.finish_round()
            assert outcome.clients == ("ada", "dan")
            assert outcome.update["words"][60].tolist() == [1.0, 1.0]
            assert outcome.update["items"][3].tolist() == [number + 1.5] * 3


@pytest.mark.parametrize("blocks", [(ITEMS,), (WORDS, ITEMS)], ids=["nothing but plain blocks", "trees beside it"])
async def test_an_update_outside_the_retrieved_rows_is_refused_though_the_whole_union_was_fetched(
    blocks: tuple[Sparse, ...],
) -> None:
    """Without a retrieval, or by a client that was started anew since, any row of the union may be updated."""
    task = task_of(*blocks)
    arrays = {block.name: model()[block.name] for block in blocks}
    store = MemoryStore()
    async with (
        simulate(task, arrays, seed=9) as network,
        network.client("ada") as ada,
        network.client("bob") as bob,
        network.client("cyd") as cyd,
    ):
        for client in (ada, bob, cyd):
            wanted = {"items": ROWS.get(client.name, []), "words": MORE[client.name]}
            await client.unite({block.name: wanted[block.name] for block in blocks})
        await network.finish_union()
        outside = {"items": ([7, 40], np.ones((2, 3)))}
        async with Client(replace(bob.setup, store=store)) as first:
            await first.retrieve({"items": [3, 40]})
            with pytest.raises(MisuseError, match=r"'items': row 7 was not retrieved in this round"):
                await first.submit(outside)
        await ada.submit(outside)
        async with Client(replace(bob.setup, store=store)) as anew:
            await anew.submit({"items": ([40, 3], np.ones((2, 3)))})
        outcome = await network.finish_round()
    assert outcome.clients == ("ada", "bob")
    assert np.flatnonzero(outcome.update["items"].any(axis=1)).tolist() == [3, 7, 40]
    assert outcome.update["items"][40].tolist() == [2.0] * 3


async def test_what_a_client_sends_and_is_sent_does_not_depend_on_its_rows() -> None:
    """The same messages of the same lengths, whichever block and rows it names."""

    async def spoken(retrieve: dict[str, Any], submit: dict[str, Any]) -> list[tuple[str, int]]:
        async with simulate(MIXED, model(), seed=5) as network, AsyncExitStack() as stack:
            joined = {name: await stack.enter_async_context(network.client(name)) for name in MORE}
            await unite(network, joined)
            begun = len(network.transcript)
            await joined["ada"].retrieve(retrieve)
            await joined["ada"].submit(submit)
            return sorted(
                (type(note.message).__name__, note.bulk)
                for note in network.transcript[begun:]
                if not isinstance(note.message, Block) or note.message.block != "head"
            )

    one = await spoken({"items": [7]}, {"items": ([7], np.ones((1, 3)))})
    assert ("Block", 5 * 3 * 4) in one
    assert one == await spoken({"words": [0, 10]}, {})
    assert one == await spoken({"items": [3, 250, 399], "words": [0, 299]}, updates_within({"items": [250]}))


def updates_within(rows: dict[str, list[int]]) -> dict[str, Any]:
    return {name: (chosen, np.ones((len(chosen), 3))) for name, chosen in rows.items()}


async def test_without_trees_nothing_is_asked_of_them() -> None:
    task = task_of(ITEMS, retrievals=20)
    async with simulate(task, {"items": model()["items"]}, seed=5) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in ROWS}
        for name, client in joined.items():
            await client.unite({"items": ROWS[name]})
        await network.finish_union()
        begun = len(network.transcript)
        for _ in range(20):
            await joined["ada"].retrieve({"items": [7]})
        await joined["ada"].submit({"items": ([7], np.ones((1, 3)))})
        said = [note.message for note in network.transcript[begun:]]
    assert not [message for message in said if isinstance(message, Retrieve | Recall | Answer)]
    assert {message.query for message in said if isinstance(message, Submit)} == {0}
    assert [message.union for message in said if isinstance(message, Download)] == [True] + [False] * 20


async def test_rows_that_are_not_the_announced_ones_are_a_violation() -> None:
    async def another_model(_address: str, message: Message, data: bytes) -> bytes:
        if not isinstance(message, Block) or message.block != "items" or message != seen.setdefault("union", message):
            return data
        if "bulk" not in seen:
            seen["bulk"] = True  # the union itself comes first
            return data
        received = decode(data, FromServer, "S0")
        changed = bytearray(received.bulk)
        changed[5] ^= 1
        return b"".join(bytes(part) for part in encode(received.message, changed))

    seen: dict[str, Any] = {}
    async with simulate(task_of(ITEMS), {"items": model()["items"]}, seed=5) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in ROWS}
        for name, client in joined.items():
            await client.unite({"items": ROWS[name]})
        await network.finish_union()
        async with meddled(network.client("ada"), incoming=another_model) as ada:
            with pytest.raises(PeerViolationError, match="sent a block 'items' that is not the announced one"):
                await ada.retrieve({"items": [7]})


async def test_an_empty_union_moves_one_row_of_zeros() -> None:
    async with simulate(task_of(ITEMS), {"items": model()["items"]}, seed=5) as network, AsyncExitStack() as stack:
        joined = {name: await stack.enter_async_context(network.client(name)) for name in ROWS}
        for client in joined.values():
            await client.unite({"items": []})
        assert (await network.finish_union())["items"].tolist() == []
        for client in joined.values():
            assert (await client.retrieve({"items": []}))["items"].shape == (0, 3)
            await client.submit({})
        outcome = await network.finish_round()
    assert not outcome.update["items"].any()
    assert np.array_equal(network.model["items"], model()["items"])


# ---- servers that are killed


UNITED = task_of(Sparse("items", rows=64, select=3, width=2), Dense("head", size=3))
CROWD = replaced(UNITED, max_clients=6)


async def take_part(client: Client, place: int, selection: str, number: int, told: dict[str, bool]) -> None:
    if number == 1 or selection == "adaptive":
        await client.unite({"items": [1, place + 2]})
        assert (await client.outcome()).counted
    await client.retrieve({"items": [1]})
    await client.submit({"items": ([1], np.full((1, 2), place + 1.0)), "head": np.full(3, place + 1.0)})
    told[client.name] = (await client.outcome()).counted


async def play(selection: str, *crashes: Crash) -> World:
    """Two main rounds with their unions; the sum is exact wherever a server dies."""
    task = replaced(CROWD, selection=selection)
    async with restarted(*crashes, seed=20261122, task=task) as (made, joined):
        for number in (1, 2):
            told: dict[str, bool] = {}
            async with trio.open_nursery() as nursery:
                for place, client in enumerate(joined):
                    nursery.start_soon(take_part, client, place, selection, number, told)
            assert told == dict.fromkeys(NAMES, True)
            await trio.sleep(2)
            for server in made.servers:
                assert server.model["items"][1].tolist() == [6.0 * number] * 2
                assert server.model["head"].tolist() == [6.0 * number] * 3
    return made


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_a_server_killed_on_its_way_through_plain_rounds_goes_on(
    selection: str, autojump_clock: trio.abc.Clock
) -> None:
    commits = (await play(selection)).process("S0").commits
    assert commits > 30
    for number in range(3, commits - 1, 5):
        crash = Crash(SERVERS[number % 2], AtCommit(number, MOMENTS[number % 3]), down=1.0)
        assert (await play(selection, crash)).injector.fired in ([crash], [])
