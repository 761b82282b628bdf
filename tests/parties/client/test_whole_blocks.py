"""Sparse blocks downloaded whole: what a client has then, what it may submit, and what the servers are told."""

import itertools

import msgspec
import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.wire import pieces
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Block, Download, FromServer, Hint, Message, Recall, Refused, Retrieve, Submit
from parties import RequestDeniedError, simulate
from parties.client.client import Client
from parties.simulation.network import Network
from tests.parties.server.test_protocols_alone import PSR, PSU, asked
from tests.parties.server.test_restart import MODEL
from tests.support.shop import HEAD, ROWS, TASK, WIDTH, meddled, model, opened

TABLE = model()["items"]
TWO = Task(
    name="two tables",
    blocks=(Sparse("items", rows=40, select=3), Sparse("words", rows=30, select=2, width=2), Dense("head", size=1)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=4,
)
TWO_MODEL = {
    "items": np.arange(40, dtype=np.float32)[:, None],
    "words": np.arange(60, dtype=np.float64).reshape(30, 2),
    "head": np.zeros(1),
}


def asks_privately(network: Network, name: str) -> bool:
    """Whether a client has had rows selected by the servers."""
    return any(note.sender == name and isinstance(note.message, Retrieve | Recall) for note in network.transcript)


def sent(network: Network, name: str, kind: type[Message]) -> list[Message]:
    return [note.message for note in network.transcript if note.sender == name and isinstance(note.message, kind)]


async def add_one(client: Client, *rows: int) -> None:
    await client.submit({"items": (list(rows), np.ones((len(rows), WIDTH))), "head": np.ones(HEAD)})


def with_ones(*rows: int) -> np.ndarray:
    """What a round adds in which one is added to those rows, as often as they are named."""
    added = np.zeros((ROWS, WIDTH))
    np.add.at(added, list(rows), 1)
    return added


# ---- what a client has then


@pytest.mark.parametrize(
    ("selection", "updates", "security"),
    list(itertools.product(("adaptive", "fixed"), ("retrieved", "any"), ("verified", "semi-honest"))),
)
async def test_a_table_is_the_model_s_bit_for_bit_and_any_of_its_rows_is_updated(selection, updates, security) -> None:
    task = msgspec.structs.replace(TASK, selection=selection, updates=updates, security=security)
    async with simulate(task, model(), seed=1) as net, opened(net.client("anna"), net.client("ben")) as (anna, ben):
        for number in range(2):
            for client, row in ((anna, 7), (ben, ROWS - 1)):
                found = await client.retrieve({"items": ..., "head": ...})
                assert (found["items"].dtype, found["items"].shape) == (np.float32, (ROWS, WIDTH))
                np.testing.assert_array_equal(found["items"], TABLE + number * with_ones(7, ROWS - 1))
                np.testing.assert_array_equal(found["head"], model()["head"] + 2 * number)
                found["items"][0] = 0  # the caller's own
                await add_one(client, row)
            np.testing.assert_array_equal((await net.finish_round()).update["items"], with_ones(7, ROWS - 1))
        assert not asks_privately(net, "anna")
        assert bool(sent(net, "anna", Hint)) == (selection == "fixed")


async def test_a_round_on_a_union_has_the_rows_of_the_whole_model() -> None:
    for security in ("verified", "semi-honest"):  # the union's rows move with trees, or plainly
        task = msgspec.structs.replace(TASK, alignment="union", security=security)
        async with simulate(task, model(), seed=2) as net, opened(net.client("anna"), net.client("ben")) as (anna, ben):
            await anna.unite({"items": [1, 2]})
            await ben.unite({"items": [2, 9]})
            await net.finish_union()
            for client in (anna, ben):
                np.testing.assert_array_equal((await client.retrieve({"items": ...}))["items"], TABLE)
                rows = await client.retrieve({"items": [2, 9]})
                np.testing.assert_array_equal(rows["items"], TABLE[[2, 9]])
                np.testing.assert_array_equal((await client.retrieve({"items": ...}))["items"], TABLE)
                await add_one(client, 1, 9)
            np.testing.assert_array_equal((await net.finish_round()).update["items"], with_ones(1, 1, 9, 9))


async def test_a_task_that_only_retrieves_has_whole_blocks_without_end() -> None:
    async with simulate(PSR, MODEL, seed=1) as net, net.client("ada") as ada:
        for _ in range(2 * PSR.retrievals):
            np.testing.assert_array_equal((await ada.retrieve({"items": ...}))["items"], MODEL["items"])
        await net.finish_round()
        assert not asks_privately(net, "ada")


async def test_rows_and_whole_blocks_come_in_one_call() -> None:
    """The trees of its retrieval have dummies in the other block, so the submission brings trees of its own."""
    async with simulate(TWO, TWO_MODEL, seed=1) as net, opened(net.client("anna"), net.client("ben")) as (anna, ben):
        for client in (anna, ben):
            found = await client.retrieve({"items": [39, 4], "words": ..., "head": ...})
            assert list(found) == ["items", "words", "head"]
            np.testing.assert_array_equal(found["items"], [[39], [4]])
            np.testing.assert_array_equal(found["words"], TWO_MODEL["words"])
            await client.submit({"items": ([4], [[1]]), "words": ([29], [[1, 2]])})
        update = (await net.finish_round()).update
        assert update["items"][4, 0] == 2
        np.testing.assert_array_equal(update["words"][29], [2, 4])
        assert [message.query for message in sent(net, "anna", Submit)] == [0, 0]


async def test_the_last_call_decides_which_rows_can_be_updated() -> None:
    async with simulate(TASK, model(), seed=1) as net, net.client("carol") as carol:
        await carol.retrieve({"items": [5]})
        await carol.retrieve({"items": ...})
        await carol.retrieve({"items": [5]})
        with pytest.raises(MisuseError, match="row 6 was not retrieved in this round"):
            await add_one(carol, 6)
        await carol.retrieve({"items": ...})
        await carol.submit({"head": np.zeros(HEAD)})
        assert [message.query for message in sent(net, "carol", Submit)] == [0, 0]


async def test_a_session_keeps_its_rows() -> None:
    task = msgspec.structs.replace(TASK, selection="fixed")
    async with simulate(task, model(), seed=1) as net, opened(net.client("anna"), net.client("ben")) as (anna, ben):
        for client in (anna, ben):
            await client.retrieve({"items": [5, 6]})
            await add_one(client, 5)
        await net.finish_round()
        await anna.retrieve({"items": ...})
        with pytest.raises(MisuseError, match=r"row 7 (is not among the session's rows|was not retrieved)"):
            await add_one(anna, 7)
        await add_one(anna, 6)
        await add_one(ben, 6)
        np.testing.assert_array_equal((await net.finish_round()).update["items"], with_ones(6, 6))


# ---- what the servers are told


async def test_one_server_sends_it_and_is_told_its_name_alone() -> None:
    async with simulate(TASK, model(), seed=1) as net, net.client("carol") as carol:
        await carol.retrieve({"items": ...})
        (wanted,) = sent(net, "carol", Download)
        assert wanted == Download(round_id=net.servers[0].running.round_id, block="items", whole=True)
        before = carol.bytes_received
        await carol.retrieve({"items": ...})
        assert TABLE.nbytes < carol.bytes_received - before < TABLE.nbytes + 300


# ---- what goes wrong


@pytest.mark.parametrize(
    "change",
    [lambda content: bytes([content[0] ^ 1]) + content[1:], lambda content: content[:-1], lambda content: b""],
    ids=["another", "shorter", "nothing"],
)
async def test_another_content_is_the_violation_of_the_server_that_sent_it(change) -> None:
    async def lie(address: str, message: Message, data: bytes) -> bytes:
        if not isinstance(message, Block):
            return data
        lying.append(address)
        return b"".join(encode(message, change(bytes(decode(data, FromServer, "the test").bulk))))

    lying: list[str] = []
    async with simulate(TASK, model(), seed=1) as net:
        async with meddled(net.client("carol"), incoming=lie) as carol:
            with pytest.raises(
                PeerViolationError, match="sent a block 'items' that is not the announced one"
            ) as caught:
                await carol.retrieve({"items": ...})
            assert [caught.value.peer] == lying
        async with net.client("dora") as dora:
            np.testing.assert_array_equal((await dora.retrieve({"items": ...}))["items"], TABLE)


async def test_a_block_moves_in_parts_that_are_counted_one_by_one(monkeypatch) -> None:
    monkeypatch.setattr(pieces, "LONGEST_PART", 1000)
    async with simulate(TASK, model(), seed=1) as net, net.client("carol") as carol:
        for _ in range(16):
            np.testing.assert_array_equal((await carol.retrieve({"items": ...}))["items"], TABLE)
        assert [wanted.part for wanted in sent(net, "carol", Download)] == [0, 1, 2, 3] * 16
        with pytest.raises(RequestDeniedError, match="at most 16 downloads of one block"):
            await carol.retrieve({"items": ...})
        await carol.retrieve({"items": [1], "head": ...})


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        (TASK, {"block": "head", "whole": True}),
        (TASK, {"block": "items", "whole": True, "union": True}),
        (TASK, {"block": "tail", "whole": True}),
        (TASK, {"block": "items"}),
        (TASK, {"block": "items", "union": True, "part": 1}),
        (PSU, {"block": "items", "whole": True}),
    ],
)
async def test_a_server_sends_no_whole_block_that_there_is_not(task, wanted) -> None:
    async with simulate(task, {} if task is PSU else model(), seed=1) as net:
        run = await net.servers[0].next_round(0)
        refused, _ = await asked(net.servers[0], "carol", Download(round_id=run.round_id, **wanted))
        assert isinstance(refused, Refused)
        assert refused.reason == "malformed"
