"""A server that answers one retrieval wrongly: the client hands out nothing, whichever rows were wanted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from fsl_async import MisuseError, WrongAnswerError
from fsl_async.task import Sparse, Task
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Answer, FromServer, Hint, Message, Submit
from parties import Client, simulate
from parties.commands.demo.corpus import load
from parties.commands.demo.learner import Learner, initial_model
from parties.commands.demo.taking_part import Summary, demo_task, take_part
from parties.commands.report import ExitCode, exit_code
from parties.simulation.network import Network
from parties.storage.store import MemoryStore
from tests.support.shop import TASK, WIDTH, Hook, honest_round, meddled, model, pass_on

CLIENTS = 2
ROWS = {"items": np.array([1, 2])}
ONES = {"items": (ROWS["items"], np.ones((2, WIDTH)))}
SESSIONS = msgspec.structs.replace(TASK, selection="fixed", retrievals=2)


def spoils(spoil: Callable[[bytearray], Any], server: str = "S0", once: bool = False) -> Hook:
    """The hook that changes the answers of one server."""
    told = []

    async def hook(address: str, message: Message, data: bytes) -> bytes | None:
        if address != server or not isinstance(message, Answer) or (once and told):
            return data
        told.append(message)
        bulk = bytearray(decode(data, FromServer, server).bulk)
        spoil(bulk)
        return b"".join(encode(message, bytes(bulk)))

    return hook


def first_bit(bulk: bytearray) -> None:
    bulk[0] ^= 1


def last_bit(bulk: bytearray) -> None:
    bulk[-1] ^= 0x80


def everything(bulk: bytearray) -> None:
    bulk[:] = bytes(byte ^ 0x7F for byte in bulk)


def nothing(bulk: bytearray) -> None:
    bulk[:] = bytes(len(bulk))


async def an_honest_round_follows(network: Network) -> None:
    await network.servers[0].abort_round(1, "the test wants the next one")
    await honest_round(network)


@pytest.mark.parametrize("spoil", [first_bit, last_bit, everything, nothing])
@pytest.mark.parametrize("server", ["S0", "S1"])
async def test_a_wrong_answer_hands_out_no_row(spoil, server, autojump_clock) -> None:
    async with simulate(TASK, model(), seed=1) as network:
        async with meddled(network.client("carol"), incoming=spoils(spoil, server)) as carol:
            with pytest.raises(WrongAnswerError, match="answered the retrieval wrongly: no row is returned"):
                await carol.retrieve({**ROWS, "head": ...})
        await an_honest_round_follows(network)


@pytest.mark.parametrize("rows", [[], [0], [7], list(range(8)), [299, 3]], ids=str)
async def test_it_fails_the_same_whichever_rows_were_wanted(rows, autojump_clock) -> None:
    said, sent = [], []

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        sent.append((type(message).__name__, sender, receiver, bulk))

    async with simulate(TASK, model(), seed=1) as network:
        client = network.client("carol")
        async with meddled(Client(replace(client.setup, watch=watch)), incoming=spoils(first_bit)) as carol:
            with pytest.raises(WrongAnswerError) as failed:
                await carol.retrieve({"items": np.array(rows, dtype=np.int64)})
            said.append(str(failed.value))
    assert said == [str(WrongAnswerError())]
    assert [bulk for kind, sender, _, bulk in sent if kind == "Retrieve"]
    assert {kind for kind, sender, _, _ in sent if sender == "carol"} == {"Enter", "Retrieve"}


async def test_the_next_call_retrieves_with_fresh_trees_and_a_submission_rides_on_those(autojump_clock) -> None:
    task, submitted = msgspec.structs.replace(TASK, retrievals=2), []

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if isinstance(message, Submit):
            submitted.append(message.query)

    async with simulate(task, model(), seed=1) as network, network.client("anna") as anna:
        client = network.client("carol")
        async with meddled(Client(replace(client.setup, watch=watch)), incoming=spoils(first_bit, once=True)) as carol:
            with pytest.raises(WrongAnswerError):
                await carol.retrieve(ROWS)
            found = await carol.retrieve(ROWS)
            np.testing.assert_array_equal(found["items"], network.model["items"][ROWS["items"]])
            await carol.submit(ONES)
        await anna.submit({})
        outcome = await network.finish_round()
    assert submitted == [2, 2]
    assert outcome.clients == ("anna", "carol")
    assert outcome.update["items"][ROWS["items"]].sum() == 2 * WIDTH


@pytest.mark.parametrize("updates", ["retrieved", "any"])
async def test_no_submission_rides_on_the_trees_of_a_wrong_answer(updates, autojump_clock) -> None:
    task, submitted = msgspec.structs.replace(TASK, retrievals=1, updates=updates), []

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if isinstance(message, Submit):
            submitted.append((receiver, message.query))

    async with simulate(task, model(), seed=1) as network, network.client("anna") as anna:
        client = network.client("carol")
        async with meddled(Client(replace(client.setup, watch=watch)), incoming=spoils(last_bit)) as carol:
            with pytest.raises(WrongAnswerError):
                await carol.retrieve(ROWS)
            with pytest.raises(MisuseError, match="retrieval"):
                await carol.retrieve(ROWS)
            if updates == "retrieved":
                await carol.submit({})
            else:
                await carol.submit(ONES)
        await anna.submit({})
        outcome = await network.finish_round()
    assert sorted(submitted) == [("S0", 0), ("S1", 0)]
    assert outcome.clients == ("anna", "carol")


async def test_a_session_that_was_answered_wrongly_is_dropped_for_good(autojump_clock) -> None:
    store, sent = MemoryStore(), []

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if sender == "carol" and receiver == "S0":
            sent.append(message)

    async def round_of(carol: Client, anna: Client, network: Network) -> None:
        await carol.submit({})
        await anna.submit({})
        await network.finish_round()
        await carol.outcome()
        await anna.outcome()

    async with simulate(SESSIONS, model(), seed=1) as network, network.client("anna") as anna:
        setup = replace(network.client("carol").setup, store=store, watch=watch)
        async with Client(setup) as carol:
            await carol.retrieve(ROWS)
            await round_of(carol, anna, network)
        async with meddled(Client(setup), incoming=spoils(first_bit)) as carol:
            with pytest.raises(WrongAnswerError):
                await carol.retrieve(ROWS)
        sent.clear()
        async with Client(setup) as carol:  # as after a kill: what was dropped is not in the store
            found = await carol.retrieve({"items": np.array([5, 6])})
            np.testing.assert_array_equal(found["items"], network.model["items"][[5, 6]])
            await round_of(carol, anna, network)
        kinds = [type(message).__name__ for message in sent]
    assert "Recall" not in kinds
    assert not any(isinstance(message, Hint) for message in sent)
    assert kinds.count("Retrieve") == 1


async def test_rounds_of_retrievals_alone_fail_the_same(autojump_clock) -> None:
    task = Task(name="shop", blocks=TASK.blocks[:1], protocol="psr", max_clients=6)
    async with simulate(task, {"items": model()["items"]}, seed=1) as network:
        async with meddled(network.client("carol"), incoming=spoils(first_bit, "S1")) as carol:
            with pytest.raises(WrongAnswerError):
                await carol.retrieve(ROWS)
        async with network.client("carol") as carol:
            found = await carol.retrieve(ROWS)
            np.testing.assert_array_equal(found["items"], network.model["items"][ROWS["items"]])


async def test_where_leaves_cover_several_rows_a_wrong_answer_is_not_noticed(autojump_clock) -> None:
    """As docs/security.md says; whoever wants it noticed has no semi-honest task."""
    blocks = (Sparse(name="items", rows=2000, width=1, select=8),)
    task = Task(name="shop", blocks=blocks, ring=TASK.ring, security="semi-honest", min_clients=2, max_clients=6)
    weights = np.arange(2000, dtype=np.float32).reshape(-1, 1)
    async with simulate(task, {"items": weights}, seed=1) as network:
        hostile = meddled(network.client("carol"), incoming=spoils(everything))
        async with hostile as carol:
            assert (await carol.retrieve(ROWS))["items"].any()
            await carol.submit({})


def test_commands_say_that_a_party_broke_the_protocol() -> None:
    assert exit_code(WrongAnswerError()) is ExitCode.PEER
    assert not WrongAnswerError().in_doubt


# ---- the demo's client


async def test_the_demo_s_client_learns_nothing_from_a_wrong_answer(autojump_clock) -> None:
    corpus = load(CLIENTS, 1)
    async with simulate(demo_task(CLIENTS), initial_model(), seed=1) as network:
        hostile = meddled(network.client("client-00"), incoming=spoils(everything))
        async with hostile as carol:
            with pytest.raises(WrongAnswerError):
                await take_part(carol, Learner(corpus.shards[0], CLIENTS), 0, Summary({}))


@pytest.mark.parametrize("error", [0, 1000], ids=["a sound model", "a marked model"])
async def test_the_demo_s_client_submits_whatever_it_retrieved(error: int) -> None:
    corpus, sent = load(CLIENTS, 1), []
    weights = initial_model()
    weights["words"] = weights["words"] + np.float32(error)

    def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
        if isinstance(message, Submit):
            sent.append((receiver, bulk, message.query))

    async with simulate(demo_task(CLIENTS), weights, seed=1) as network:
        client = network.client("client-00")
        async with meddled(Client(replace(client.setup, watch=watch)), incoming=pass_on) as carol:
            summary = Summary({})
            await take_part(carol, Learner(corpus.shards[0], CLIENTS), 0, summary)
        async with network.client("client-01") as other:
            await other.submit({})
        outcome = await network.finish_round()
    assert outcome.clients == ("client-00", "client-01")
    assert [(receiver, query) for receiver, _, query in sorted(sent)] == [("S0", 1), ("S1", 1)]
    assert max(bulk for _, bulk, _ in sent) > 0
    assert len(summary.doubts) == bool(error)
    assert outcome.update["words"].any() == (not error)


def test_what_is_plausible_grows_with_the_rounds() -> None:
    learner = Learner(load(CLIENTS, 1).shards[0], CLIENTS)
    zeros, ones = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    assert learner.plausible(0, zeros)
    assert not learner.plausible(0, zeros, ones)
    assert learner.plausible(1, zeros, ones)
    assert not learner.plausible(9, np.full(2, np.nan, np.float32))
    assert not learner.plausible(9, np.full(2, np.inf, np.float32))
