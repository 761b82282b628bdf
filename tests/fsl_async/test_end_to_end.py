"""Whole parties in memory: what clients retrieve and what servers sum, against the same in plain numpy.

Every message, handshake and record is the deployed one. A failure's seed is in the test's name.
"""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, FslError, MisuseError, Ring, RingIntegers, Sparse, Task, kernels
from fsl_async.bin_count import planned
from fsl_async.client.planting import ClientTrees
from fsl_async.client.upload import read_answers
from fsl_async.config import RoundConfig
from fsl_async.errors import WrongAnswerError
from fsl_async.wire.public_part import Layout, Trees
from parties import simulate
from parties.client import actor as actors
from parties.client import retrieval as retrieving
from parties.client import submission as drafts
from parties.client.client import Client
from parties.client.trees import MadeTrees, TreeMaker
from parties.simulation.network import Network
from tests.support.cases import one_in
from tests.support.rounds import Draw, Plaintext

PATIENCE = 60.0
"""Seconds after which a simulation counts as stuck."""


def finite_model(draw: Draw, task: Task) -> dict[str, np.ndarray]:
    """A model to which updates can be added: of numbers that the ring has, not close to their dtype's ends."""
    model = draw.model(task)
    for name, array in model.items():
        if task.ring.fraction_bits:
            dtype = draw.chance.choice(("f2", "f4", "f8"))
            model[name] = (draw.numbers.integers(-(2**9), 2**9, array.shape) / 4).astype(dtype)
        else:
            dtype = draw.chance.choice(("i2", "i4", "i8", "u2", "u4", "u8"))
            model[name] = draw.numbers.integers(10_000, 20_000, array.shape).astype(dtype)
    return model


def small(task: Task) -> Task:
    """The same task, with values that even a half float has room for."""
    return msgspec.structs.replace(task, largest=min(task.largest_value, 64.0, 2.0 ** (53 - task.ring.fraction_bits)))


def as_numbers(task: Task, update: Mapping[str, Any]) -> dict[str, Any]:
    """An update of ring integers as the numbers that they stand for."""

    def numbers(integers: np.ndarray) -> np.ndarray:
        fraction = task.ring.fraction_bits
        return np.ldexp(integers.astype(np.float64), -fraction) if fraction else integers

    return changed(update, numbers)


def as_ring_integers(update: Mapping[str, Any]) -> dict[str, Any]:
    """An update of ring integers, said to be that."""
    return changed(update, RingIntegers)


def changed(update: Mapping[str, Any], by: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    return {
        name: (values[0], by(values[1])) if isinstance(values, tuple) else by(values) for name, values in update.items()
    }


def updated(array: np.ndarray, summed: np.ndarray) -> np.ndarray:
    """A block of the model after a sum of real numbers was added."""
    summed = summed.reshape(array.shape)
    if array.dtype.kind == "f":
        return (array.astype(np.float64) + summed).astype(array.dtype)
    whole = [int(value) % 2 ** (8 * array.dtype.itemsize) for value in np.rint(summed).flat]
    unsigned = array.view(f"u{array.dtype.itemsize}") + np.array(whole, dtype=f"u{array.dtype.itemsize}").reshape(
        array.shape
    )
    return unsigned.view(array.dtype)


async def live_through(draw: Draw, client: Client, model: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """One client's part of a round, of some kind; what it submitted, or None."""
    task, rows = client.task, draw.rows(client.task)
    kind = draw.chance.choice(("both", "both", "twice", "submits", "retrieves"))
    dense: dict[str, Any] = {block.name: ... for _, block in task.dense_blocks() if draw.chance.random() < 0.5}
    for wanted in {"submits": (), "twice": (draw.rows(task), rows)}.get(kind, (rows,)):
        found = await client.retrieve(dict(wanted) | dense)
        assert set(found) == set(wanted) | set(dense)
        for name, array in found.items():
            expected = model[name][wanted[name]] if name in wanted else model[name]
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
            assert array.tobytes() == expected.tobytes()
    assert not client.deferred
    if kind == "retrieves":
        return None
    update = draw.update(task, rows)
    if kind == "submits" or task.updates == "any":
        update = draw.update(task, draw.rows(task))
    await client.submit(as_numbers(task, update) if draw.chance.random() < 0.5 else as_ring_integers(update))
    return update


async def one_round(draw: Draw, net: Network, number: int) -> None:
    """Some clients, at the same time, and the sum of what they submitted."""
    plaintext, submitted, model = Plaintext(net.task), set[str](), net.model
    names = [f"client {place}" for place in range(draw.chance.randint(2, 3))] + ["always one", "always two"]

    async def one(name: str) -> None:
        async with net.client(name) as client:
            if name.startswith("always"):
                update: dict[str, Any] | None = draw.update(net.task, draw.rows(net.task))
                await client.submit(as_ring_integers(update or {}))
            else:
                update = await live_through(draw, client, model)
            if update is not None:
                plaintext.add(update)
                submitted.add(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    outcome = await net.finish_round()
    assert (outcome.number, outcome.clients, outcome.excluded) == (number, tuple(sorted(submitted)), {})
    ring = net.task.ring
    for name, expected in plaintext.elements().items():
        assert ring.encode(RingIntegers(outcome.elements[name]), 2 ** (ring.bits - 1)).tobytes() == expected
        real = ring.decode(ring.from_bytes(expected, *outcome.update[name].shape))
        assert (outcome.update[name] == real).all()
        assert net.model[name].tobytes() == updated(model[name], real).tobytes()


@pytest.mark.parametrize(("bits", "security", "seed"), one_in(6, (32, 64, 128), ("verified", "semi-honest"), range(6)))
async def test_random_tasks(bits: int, security: str, seed: int) -> None:
    draw = Draw(seed, bits, security, most_weights=2**13)
    task = small(draw.task(max_clients=10))
    with trio.fail_after(PATIENCE):
        async with simulate(task, finite_model(draw, task), seed) as net:
            for number in (1, 2):
                await one_round(draw, net, number)


@pytest.mark.parametrize(("bits", "updates", "seed"), one_in(3, (32, 64, 128), ("retrieved", "any"), range(3)))
async def test_sessions(bits: int, updates: str, seed: int) -> None:
    """Rows stay, values change; from the second round on only hints are uploaded."""
    draw = Draw(seed, bits, "verified", most_weights=2**12)
    task = small(draw.task(selection="fixed", updates=updates, max_clients=10))
    clients = {name: draw.rows(task) for name in ("alice", "bob")}
    with trio.fail_after(PATIENCE):
        async with (
            simulate(task, finite_model(draw, task), seed) as net,
            net.client("alice") as alice,
            net.client("bob") as bob,
        ):
            for number in (1, 2, 3):
                plaintext = Plaintext(task)
                for client in (alice, bob):
                    if number > 1:
                        found = await client.retrieve(clients[client.name])
                        for name, rows in clients[client.name].items():
                            assert found[name].tobytes() == net.model[name][rows].tobytes()
                    update = {
                        name: (rows, draw.integers(task, (len(rows), task.block(name).width)))  # type: ignore[union-attr]
                        for name, rows in clients[client.name].items()
                    }
                    plaintext.add(update)
                    receipt = await client.submit(as_ring_integers(update))
                    trees = Trees.OWN if number == 1 else Trees.SESSION
                    assert receipt.bytes_sent - Layout.submission(planned(task), trees).size < 1500 + dense_size(task)
                outcome = await net.finish_round()
                assert outcome.clients == ("alice", "bob")
                for name, expected in plaintext.elements().items():
                    elements = RingIntegers(outcome.elements[name])
                    assert task.ring.encode(elements, 2 ** (bits - 1)).tobytes() == expected


def dense_size(task: Task) -> int:
    return sum(block.size for _, block in task.dense_blocks()) * task.ring.element_bytes


# ---- single stories

SHOP = Task(
    name="shop",
    blocks=[Sparse("items", rows=500, width=3, select=20), Dense("head", size=7)],
    ring=Ring(64, fraction_bits=24),
    min_clients=2,
    max_clients=10,
)
MODEL = {"items": np.arange(1500, dtype=np.float32).reshape(500, 3), "head": np.arange(7.0)}


async def test_every_dtype_comes_back_bit_for_bit() -> None:
    """Whatever the bytes of a finite number, subnormals and a negative zero included."""
    dtypes = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
    blocks = [Sparse(dtype, rows=100, width=3, select=10) for dtype in dtypes] + [Dense("head", size=4)]
    task = Task(name="dtypes", blocks=blocks, ring=Ring(32, 8), security="semi-honest")
    draw = np.random.default_rng(5)
    model = {
        dtype: np.frombuffer(draw.bytes(300 * np.dtype(dtype).itemsize), dtype).reshape(100, 3).copy()
        for dtype in dtypes
    }
    for array in model.values():
        array[~np.isfinite(array)] = -0.0
        array[0, 0] = np.nextafter(array.dtype.type(0), array.dtype.type(1)) if array.dtype.kind == "f" else 0
    rows = {dtype: draw.choice(100, 10, replace=False) for dtype in dtypes}
    with trio.fail_after(PATIENCE):
        async with simulate(task, model | {"head": np.full(4, -0.0)}, 1) as net, net.client("alice") as alice:
            found = await alice.retrieve(rows | {"head": ...})
            for dtype in dtypes:
                assert found[dtype].dtype == np.dtype(dtype)
                assert found[dtype].tobytes() == model[dtype][rows[dtype]].tobytes()
            assert found["head"].tobytes() == np.full(4, -0.0).tobytes()


async def test_a_model_of_single_weights_may_be_flat() -> None:
    task = msgspec.structs.replace(SHOP, blocks=(Sparse("items", rows=50, select=5),))
    with trio.fail_after(PATIENCE):
        async with simulate(task, {"items": np.arange(50.0)}, 1) as net:
            for name in ("alice", "bob"):
                async with net.client(name) as client:
                    assert (await client.retrieve({"items": [3, 49]}))["items"].tolist() == [[3.0], [49.0]]
                    await client.submit({"items": ([3, 49], [1.5, -2.0])})
            outcome = await net.finish_round()
            assert outcome.update["items"].shape == (50, 1)
            assert net.model["items"][[3, 49]].tolist() == [6.0, 45.0]


async def test_dense_blocks_alone_make_a_task() -> None:
    task = msgspec.structs.replace(SHOP, blocks=(Dense("head", size=7),))
    with trio.fail_after(PATIENCE):
        async with simulate(task, {"head": np.zeros(7)}, 1) as net:
            for name in ("alice", "bob"):
                async with net.client(name) as client:
                    assert (await client.retrieve({"head": ...}))["head"].tolist() == [0.0] * 7
                    await client.submit({"head": np.arange(7.0)})
            assert (await net.finish_round()).update["head"].tolist() == (2 * np.arange(7.0)).tolist()


async def test_everybody_is_told_whether_it_counts() -> None:
    with trio.fail_after(PATIENCE):
        async with simulate(SHOP, MODEL, 1) as net, net.client("alice") as alice, net.client("bob") as bob:
            receipts = [await client.submit({"head": np.ones(7)}) for client in (alice, bob)]
            assert len({receipt.digest for receipt in receipts}) == 2
            await net.finish_round()
            for client in (alice, bob):
                outcome = await client.outcome()
                assert (outcome.number, outcome.counted, outcome.reason) == (1, True, "")
                assert outcome.participants == 2


async def test_a_round_with_too_few_is_aborted_and_the_next_one_opens() -> None:
    with trio.fail_after(PATIENCE):
        async with simulate(SHOP, MODEL, 1) as net, net.client("alice") as alice, net.client("bob") as bob:
            await alice.submit({"head": np.ones(7)})
            with pytest.raises(FslError, match=r"round 1 was aborted: 1 client is in with both servers"):
                await net.finish_round()
            outcome = await alice.outcome()
            assert not outcome.counted
            assert outcome.reason == "1 client is in with both servers, at least 2 are needed"
            for client in (alice, bob):
                await client.submit({"head": np.ones(7)})
            second = await net.finish_round()
            assert (second.number, second.clients) == (2, ("alice", "bob"))
            assert second.update["head"].tolist() == [2.0] * 7


async def test_rows_that_were_not_retrieved_may_not_be_updated_unless_the_task_says_so() -> None:
    for updates in ("retrieved", "any"):
        task = msgspec.structs.replace(SHOP, updates=updates)
        with trio.fail_after(PATIENCE):
            async with simulate(task, MODEL, 1) as net, net.client("alice") as alice, net.client("bob") as bob:
                await alice.retrieve({"items": [1, 2, 3]})
                update = {"items": ([2, 400], np.ones((2, 3)))}
                if updates == "retrieved":
                    with pytest.raises(MisuseError, match="block 'items': row 400 was not retrieved in this round"):
                        await alice.submit(update)
                    update = {"items": ([2], np.ones((1, 3)))}
                await alice.submit(update)
                await bob.submit({})
                outcome = await net.finish_round()
                touched = np.flatnonzero(outcome.update["items"].any(axis=1))
                assert touched.tolist() == ([2] if updates == "retrieved" else [2, 400])


# ---- clients that cheat


def damaged_trees(client_trees: ClientTrees, kind: str) -> ClientTrees:
    """The same trees with one bit changed; the proof will be made for what is sent."""
    (key, planted), *_ = client_trees.planted.items()
    words = planted.tree.words.copy()
    match kind:
        case "seed correction":
            words[0, 0, 1] ^= np.uint64(4)
        case "control bit":
            words[0, 0, 0] ^= np.uint64(1)
    changed = dataclasses.replace(planted, tree=kernels.Tree(words))
    return dataclasses.replace(client_trees, planted=client_trees.planted | {key: changed})


def a_cheat(monkeypatch: pytest.MonkeyPatch, net: Network, kind: str) -> Client:
    """A client that damages its trees, or else its tag corrections; both servers get the same bytes."""
    honest_bulk = drafts.submission_bulk

    class Damager(TreeMaker):
        async def plant(self, config: RoundConfig, rows: Any) -> MadeTrees:
            planting = await super().plant(config, rows)
            return dataclasses.replace(planting, client_trees=damaged_trees(planting.client_trees, kind))

    def submission_bulk(
        config: RoundConfig, client: str, client_trees: ClientTrees, updates: Any, trees: Trees, *also: Any
    ) -> tuple[memoryview, bytes]:
        part, share = honest_bulk(config, client, client_trees, updates, trees, *also)
        if client == "mallory" and kind == "tag correction":
            pieces = Layout.submission(config.shape, trees).pieces
            part[next(piece.start for piece in pieces if piece.kind == "proof")] ^= 1
        return part, share

    monkeypatch.setattr(drafts, "submission_bulk", submission_bulk)
    with monkeypatch.context() as here:
        here.setattr(actors, "TreeMaker", Damager)
        return net.client("mallory")


def unchecked(config: RoundConfig, client_trees: ClientTrees, answers: tuple[memoryview, memoryview]) -> dict[int, Any]:
    """The rows of answers that a cheat's own trees have spoiled: a cheat does not mind."""
    with suppress(WrongAnswerError):
        return read_answers(config, client_trees, answers)
    return {index: np.zeros((len(rows), 3), np.float32) for index, rows in client_trees.rows.items()}


@pytest.mark.parametrize("retrieves", [True, False])
@pytest.mark.parametrize("kind", ["seed correction", "control bit", "tag correction"])
async def test_a_cheat_is_left_out_and_the_others_sum_is_exact(
    monkeypatch: pytest.MonkeyPatch, retrieves: bool, kind: str
) -> None:
    rows, values = np.array([2, 77, 499]), np.full((3, 3), 1.25)
    with trio.fail_after(PATIENCE):
        async with (
            simulate(SHOP, MODEL, 1) as net,
            a_cheat(monkeypatch, net, kind) as mallory,
            net.client("alice") as alice,
            net.client("bob") as bob,
        ):
            monkeypatch.setattr(retrieving, "read_answers", unchecked)
            for client in (mallory, alice, bob):
                if retrieves:
                    await client.retrieve({"items": rows})
                await client.submit({"items": (rows, values), "head": np.ones(7)})
            outcome = await net.finish_round()
            assert outcome.clients == ("alice", "bob")
            assert outcome.excluded == {"mallory": "proof"}
            assert outcome.update["items"][rows].tolist() == (2 * values).tolist()
            assert outcome.update["items"].sum() == 2 * values.sum()
            assert outcome.update["head"].tolist() == [2.0] * 7
            told = await mallory.outcome()
            assert (told.counted, told.reason) == (False, "proof")
            assert (await alice.outcome()).counted


async def test_too_few_honest_clients_abort_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    with trio.fail_after(PATIENCE):
        async with (
            simulate(SHOP, MODEL, 1) as net,
            a_cheat(monkeypatch, net, "tag correction") as mallory,
            net.client("alice") as alice,
        ):
            for client in (mallory, alice):
                await client.submit({"head": np.ones(7)})
            with pytest.raises(FslError, match="1 client is left after verification, at least 2 are needed"):
                await net.finish_round()
            assert not any(note.message.__class__.__name__ in ("Commitment", "Share") for note in net.transcript)
            for client in (mallory, alice):
                outcome = await client.outcome()
                assert not outcome.counted
                assert "left after verification" in outcome.reason
