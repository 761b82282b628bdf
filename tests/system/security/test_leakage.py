"""What anybody sees of a client: for two inputs of one shape the same messages, and bytes that look like chance.

Shape is what the protocol makes public: the task, which calls a client makes, and the union where there is one.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, RingIntegers, Sparse, Task
from fsl_async.client.planting import MasterSeeds, plant
from fsl_async.client.upload import retrieval_part, submission_bulk
from fsl_async.derivation import dense_mask
from fsl_async.digests import Domain
from fsl_async.errors import FslError
from fsl_async.protocols import psu
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.messages import Message, Submit
from fsl_async.wire.public_part import ForestKey, Layout, Part, Trees, forests_of
from parties import Client, simulate
from parties.simulation.network import Network
from tests.support.shop import Shop, meddled
from tests.transport.endpoints import NO_FAULT, Tap
from transport import TcpTransport

from .forgeries import round_of

ROWS = 200
SHAPE: dict[str, Any] = {
    "name": "seen",
    "blocks": (Sparse("words", rows=ROWS, select=6, width=2), Sparse("tags", rows=40, select=3), Dense("head", size=4)),
    "ring": Ring(64, fraction_bits=16),
    "min_clients": 2,
    "max_clients": 4,
}
COVER = {"words": np.arange(0, 60, 10), "tags": np.arange(0, 30, 10)}

INPUTS = {
    "full and large": (COVER["words"], COVER["tags"], 1e9),
    "full and zero": (COVER["words"][::-1], COVER["tags"], 0.0),
    "other rows": (COVER["words"][[5, 3, 1, 0, 2, 4]], COVER["tags"][::-1], -3.5),
    "few": (COVER["words"][:1], COVER["tags"][2:], 1e-4),
    "none": (COVER["words"][:0], COVER["tags"][:0], 5.0),
    "one block alone": (COVER["words"][:2], None, 1.0),
}

Input = tuple[np.ndarray, np.ndarray | None, float]
Flow = Callable[[Network, Client, Input], Awaitable[None]]


def wanted(given: Input) -> dict[str, Any]:
    words, tags, _ = given
    return {"words": words} if tags is None else {"words": words, "tags": tags}


def update(given: Input) -> dict[str, Any]:
    _, _, value = given
    widths = {"words": 2, "tags": 1}
    return {name: (rows, np.full((len(rows), widths[name]), value)) for name, rows in wanted(given).items()}


async def neighbour(network: Network, name: str, *, retrieves: bool) -> None:
    """Everybody else: always the same."""
    async with network.client(name) as client:
        if retrieves:
            await client.retrieve(COVER)
        await client.submit({"words": (COVER["words"], np.ones((6, 2))), "head": np.ones(4)})


async def retrieve_and_submit(network: Network, alice: Client, given: Input) -> None:
    await alice.retrieve(wanted(given) | {"head": ...})
    await alice.submit(update(given))
    await neighbour(network, "ben", retrieves=True)
    await network.finish_round()
    await alice.outcome()


async def submit_alone(network: Network, alice: Client, given: Input) -> None:
    await alice.submit(update(given) | {"head": np.full(4, given[2])})
    await neighbour(network, "ben", retrieves=False)
    await network.finish_round()
    await alice.outcome()


async def three_rounds(network: Network, alice: Client, given: Input) -> None:
    async with network.client("ben") as ben:
        for _ in range(3):
            for client, rows, values in ((alice, wanted(given), update(given)), (ben, COVER, {})):
                await client.retrieve(rows)
                await client.submit(values)
            await network.finish_round()


async def union_and_round(network: Network, alice: Client, given: Input) -> None:
    async with network.client("ben") as ben:
        await ben.unite(COVER)
        await alice.unite(wanted(given))
        await network.finish_union()
        for client, rows, values in ((alice, wanted(given), update(given)), (ben, COVER, {})):
            await client.retrieve(rows)
            await client.submit(values)
        await network.finish_round()


FLOWS: dict[str, tuple[dict[str, Any], Flow]] = {
    "retrieve and submit": ({}, retrieve_and_submit),
    "retrieve and submit, semi-honest": (
        {"security": "semi-honest", "ring": Ring(32, fraction_bits=8)},
        retrieve_and_submit,
    ),
    "updates of their own trees": ({"updates": "any"}, retrieve_and_submit),
    "submit alone": ({}, submit_alone),
    "a session": ({"selection": "fixed"}, three_rounds),
    "a union": ({"alignment": "union"}, union_and_round),
    "a union over a session": ({"alignment": "union", "selection": "fixed"}, union_and_round),
}


async def seen(task: Task, flow: Flow, given: Input, seed: int) -> dict[str, list[tuple[str, ...]]]:
    """Everything but the content: Alice's calls to her transport, and every message between anybody, in order."""
    calls: list[tuple[str, ...]] = []

    def noting(direction: str):
        async def note(address, message, data):
            calls.append((direction, address, type(message).__name__, str(len(data))))
            return data

        return note

    model = {
        "words": np.random.default_rng(seed).normal(size=(ROWS, 2)).astype(np.float32),
        "tags": np.arange(40.0),
        "head": np.zeros(4),
    }
    async with simulate(task, model, seed) as network:
        async with meddled(network.client("alice"), outgoing=noting("send"), incoming=noting("receive")) as alice:
            await flow(network, alice, given)
        messages = [(n.sender, n.receiver, type(n.message).__name__, str(n.bulk)) for n in network.transcript]
    return {"calls": calls, "messages": messages}


@pytest.mark.parametrize("name", FLOWS)
async def test_two_inputs_of_one_shape_are_seen_alike(name: str, seed: int, autojump_clock) -> None:
    changes, flow = FLOWS[name]
    task = Task(**SHAPE | changes)
    value = {"full and large": 100.0} if "semi-honest" in name else {}
    views = {}
    for kind, (words, tags, amount) in INPUTS.items():
        views[kind] = await seen(task, flow, (words, tags, value.get(kind, amount)), seed)
    first = views["full and large"]
    assert len(first["calls"]) > 8
    assert {"Submit", "Receipt"} <= {call[2] for call in first["calls"]}
    for kind, view in views.items():
        assert view == first, f"{name}: {kind!r} is seen otherwise than 'full and large'"


# ---- the others


OTHERS = ("benedict of the north", "carolina of the south")
LATE = "dorothea who reached one server"


async def received(changes: dict[str, Any], seed: int, *, aborted: bool = False) -> list[bytes]:
    """Everything that is sent to one client over two rounds with others, one of whom is left out with a reason."""
    task, got = Task(**SHAPE | changes), []

    async def note(address: str, message: Message, data: bytes) -> bytes:
        got.append(data)
        return data

    async def stall(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Submit) and address == "S1":
            await trio.sleep_forever()
        return data

    model = {"words": np.zeros((ROWS, 2)), "tags": np.zeros(40), "head": np.zeros(4)}
    async with (
        simulate(task, model, seed) as network,
        meddled(network.client("alice"), incoming=note) as alice,
        network.client(OTHERS[0]) as ben,
        network.client(OTHERS[1]) as carol,
        meddled(network.client(LATE), outgoing=stall) as late,
    ):
        for _ in range(2):
            if "alignment" in changes and isinstance(
                network.servers[0].sequence.lasting.progress.alignment, psu.Seeking
            ):
                for client in (alice, ben, carol):
                    await client.unite(COVER)
                await network.finish_union()
            with trio.move_on_after(1):
                await late.submit({})
            for client in (alice,) if aborted else (ben, alice, carol):
                await client.retrieve(COVER)
                await client.submit({"words": (COVER["words"], np.ones((6, 2)))})
            with suppress(FslError):
                await network.finish_round()
            assert (await alice.outcome()).counted is not aborted
    return got


WORLDS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "semi-honest": {"security": "semi-honest"},
    "a session": {"selection": "fixed"},
    "a union": {"alignment": "union"},
}


@pytest.mark.parametrize("name", WORLDS)
async def test_no_client_is_sent_the_name_of_another(name: str, seed: int, autojump_clock) -> None:
    messages = await received(WORLDS[name], seed)
    statements = [message for message in messages if b"participants" in message and b"seat" in message]
    assert len(statements) == 4  # both servers' of two rounds
    for message in messages:
        for other in (*OTHERS, LATE):
            assert other.encode() not in message


async def test_nor_where_the_round_is_aborted(seed: int, autojump_clock) -> None:
    messages = await received({}, seed, aborted=True)
    assert not any(other.encode() in message for message in messages for other in (*OTHERS, LATE))


async def test_a_task_that_asks_for_names_gets_those_of_the_counted_alone(seed: int, autojump_clock) -> None:
    messages = await received({"participants": "names"}, seed)
    assert [sum(other.encode() in message for message in messages) for other in (*OTHERS, LATE)] == [4, 4, 0]


# ---- bytes


def chi_square(data: bytes) -> float:
    """How far bytes are from uniform, in standard deviations of χ² with 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return float((((counts - expected) ** 2).sum() / expected - 255) / np.sqrt(2 * 255))


def monobits(data: bytes, row: int) -> float:
    """How far the most biased bit of all rows of so many bytes is from even, in standard deviations."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, row), axis=1)
    return float(np.abs((bits.sum(axis=0) - len(bits) / 2) / np.sqrt(len(bits) / 4)).max())


def looks_random(data: bytes, row: int = 16) -> bool:
    """Six standard deviations: a fair source fails once in 10⁹ looks, and there are fewer than 10³ here."""
    return abs(chi_square(data)) < 6 and monobits(data, row) < 6


def gathered(security: str, bits: int, seed: int) -> dict[str, bytes]:
    """What servers get of many clients that all select the same rows and submit the same values, kind by kind."""
    rng = np.random.default_rng(seed)
    blocks = (Sparse("words", rows=3000, select=6, width=2 if bits == 64 else 1), Dense("head", size=64))
    config = round_of(Task(**SHAPE | {"ring": Ring(bits), "security": security, "blocks": blocks}), 1)
    task, rows = config.shape, np.arange(6, dtype=np.uint32)
    model = {"words": rng.integers(0, 2**32, (3000, blocks[0].width), dtype=np.uint32)}
    shelves = [PermutedModel(config, server, model) for server in (0, 1)]
    found: dict[str, bytearray] = {}

    def add(kind: str, data: bytes) -> None:
        found.setdefault(kind, bytearray()).extend(data)

    for _ in range(120):
        client_trees = plant(config, {0: rows}, MasterSeeds.fresh(rng.bytes), rng.bytes)
        ones = task.ring.encode(RingIntegers(np.ones((6, blocks[0].width), dtype=np.int64)), 2**20, "ones")
        head = task.ring.encode(RingIntegers(np.full(64, 5)), 2**20, "head")
        part, share = submission_bulk(config, "alice", client_trees, {0: (rows, ones)}, Trees.OWN, {0: head})
        pieces = Layout.submission(task, Trees.OWN).split(memoryview(part))
        for key, _ in forests_of(task):
            add("correction words", bytes(pieces[key, "tree"]))
            add("hints", bytes(pieces[key, "hint"]))
            if security == "verified":
                add("tag corrections", bytes(pieces[key, "proof"]))
        add("dense shares", share)
        add("salts and digests", bytes(pieces[None, "salt"]) + bytes(pieces[None, "dense"]))
        retrieval = Part(Layout.retrieval(task), memoryview(retrieval_part(config, client_trees)))
        select = retrieval.layout.split(retrieval.data)[ForestKey(0, 0), "select"]
        if select:
            add("selection hints", bytes(select[:-1]))  # the last byte may be padded
        for server, shelf in enumerate(shelves):
            query = Query(client_trees.seeds.msk[server], retrieval)
            work = shelf.begin([query], 1)
            run(work.selecting)
            run(work.answering)
            add(f"answers of S{server}", work.finish().tobytes())
    return {kind: bytes(data) for kind, data in found.items()}


def run(jobs) -> None:
    for job in jobs:
        job()


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("security", ["verified", "semi-honest"])
def test_what_a_server_gets_looks_like_chance(security: str, bits: int, seed: int) -> None:
    found = gathered(security, bits, seed)
    assert len(found) == 6 + (security == "verified") + (security == "semi-honest" and bits == 32)
    for kind, data in found.items():
        row = 1 if kind.split()[0] in ("right", "selection", "answers", "salts") else bits // 8
        assert len(data) > 5000, kind
        assert looks_random(data, row), f"{kind}: χ² {chi_square(data):.1f} σ, bits {monobits(data, row):.1f} σ"


def test_no_mask_and_no_conversion_serves_two_epochs() -> None:
    task = Task(**SHAPE)
    rounds = [round_of(task, number, session=1) for number in (1, 2, 3)]
    masks = [dense_mask(task, bytes(16), config.epoch, b"").tobytes() for config in rounds]
    keys = [config.convert_key(block, b"") for config in rounds for block in (0, 1)]
    assert len(set(masks)) == 3
    assert len(set(keys)) == 6
    assert len({config.tree_key(Domain.EXPAND) for config in rounds}) == 1


def test_the_statistics_see_what_is_not_chance(seed: int) -> None:
    """A payload in the clear, one bit in fifty that sticks, and a counter all fail the test above."""
    rng = np.random.default_rng(seed)
    fair = rng.bytes(100_000)
    assert looks_random(fair)
    values = np.frombuffer(fair, "<u8").copy()
    stuck = np.where(rng.random(len(values)) < 0.1, values | np.uint64(1), values)
    assert not looks_random(stuck.tobytes())
    assert not looks_random(np.arange(10_000, dtype="<u8").tobytes())
    assert not looks_random(bytes(50_000) + fair[:50_000])


# ---- the wire


class Recording(TcpTransport):
    """TCP that keeps a copy of every byte of the connections it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.taps: list[Tap] = []

    async def connect(self, address: str) -> trio.abc.Stream:
        self.taps.append(Tap(await super().connect(address), NO_FAULT))
        return self.taps[-1]


async def test_nothing_of_a_client_is_in_a_recorded_stream(nursery) -> None:
    name = "alice-of-the-recorded-stream"
    wire = Recording()
    shop = Shop(nursery, transports=(Recording(), wire))
    await shop.open()
    drawn: list[bytes] = []

    def randomness(size: int) -> bytes:
        drawn.append(np.random.default_rng(len(drawn)).bytes(size))
        return drawn[-1]

    async with shop.client(name, transport=wire, randomness=randomness) as alice, shop.client("ben") as ben:
        await alice.retrieve({"items": [3, 5]})
        await alice.submit({"items": ([3, 5], np.ones((2, 3)))})
        await ben.submit({})
        await shop.finish_round()
        assert (await alice.outcome()).counted
    identity = shop.known[name]
    secret = {
        "name": name.encode(),
        "channel key": identity.public.channel,
        "statement key": identity.public.statement,
        "channel secret": identity.channel_secret,
        "statement secret": identity.statement_secret,
        "noise secret": identity.noise_secret,
        "server's key": shop.identities[0].public.channel,
        "task's name": shop.task.name.encode() + b"\xa6blocks",
        "task's digest": shop.task.digest(),
        "round": shop.servers[0].rounds.past[0].report.round_id,
        **{f"random draw {i}": data for i, data in enumerate(drawn) if len(data) in (16, 32)},
    }
    recorded = b"".join(bytes(data) for tap in wire.taps for data in (tap.sent, tap.received))
    assert len(recorded) > 20_000
    assert sum(kind.startswith("random") for kind in secret) >= 3
    for kind, data in secret.items():
        for form in (data, data.hex().encode()):
            assert form not in recorded, f"the {kind} is on the wire"
    nursery.cancel_scope.cancel()
