"""What a client can learn of unions: described by both servers, compared with their digest, and read as row numbers."""

import numpy as np
import pytest
import trio
from msgspec.structs import replace

from fsl_async import MisuseError, PeerViolationError, Ring, Sparse, Task
from fsl_async.digests import Domain
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Block, Download, Enter, Finished, Message, Refused, Retrieve
from parties import NoUnionError, RoundClosedError, simulate
from parties.statement import Statement
from tests.support.shop import meddled

BLOCKS = (Sparse("items", rows=64, select=4), Sparse("shops", rows=16, select=2))
ALIGNED = Task(name="united", blocks=BLOCKS, ring=Ring(64), alignment="union", min_clients=2, max_clients=4)
START = {"items": np.zeros(64, dtype=np.int64), "shops": np.zeros(16, dtype=np.int64)}


async def unite(network, *clients) -> None:
    for number, client in enumerate(clients):
        await client.unite({"items": [number, 9, 20], "shops": []})
    await network.finish_round()


async def test_a_client_reads_the_union_of_the_round_that_it_is_in() -> None:
    async with simulate(ALIGNED, START, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        with pytest.raises(NoUnionError, match=r"round 1 is finding a union, .* take part with `unite`"):
            await ada.union()
        await unite(net, ada, bob)
        found = await ada.union()
        assert {name: rows.tolist() for name, rows in found.items()} == {"items": [0, 1, 9, 20], "shops": []}
        assert {rows.dtype for rows in found.values()} == {np.dtype(np.uint32)}
        found["items"][:] = 63  # the caller's own copy
        downloads = sum(isinstance(note.message, Download) for note in net.transcript)
        assert (await ada.union())["items"].tolist() == [0, 1, 9, 20]
        await ada.submit({})
        assert (await ada.union())["items"].tolist() == [0, 1, 9, 20]
        assert sum(isinstance(note.message, Download) for note in net.transcript) == downloads
        async with net.client("eve") as eve:  # who has not taken part
            assert (await eve.union())["items"].tolist() == [0, 1, 9, 20]


async def test_the_last_union_stays_known_while_the_next_one_is_found() -> None:
    async with simulate(ALIGNED, START, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await unite(net, ada, bob)
        for client in (ada, bob):
            await client.submit({})
        await net.finish_round()
        assert (await ada.union())["items"].tolist() == [0, 1, 9, 20]
        async with net.client("eve") as eve:
            with pytest.raises(NoUnionError, match="round 3 is finding a union"):
                await eve.union()
        await ada.unite({"items": [5], "shops": [3]})
        with pytest.raises(MisuseError, match="round 3 is open, and this client has submitted to it: `outcome` waits"):
            await ada.union()
        await bob.unite({"items": [], "shops": []})
        await net.finish_round()
        assert (await ada.union())["shops"].tolist() == [3]


async def test_a_union_is_waited_for_if_that_is_asked_for(autojump_clock) -> None:
    async with simulate(ALIGNED, START, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await ada.unite({"items": [7], "shops": []})
        await bob.unite({"items": [8], "shops": []})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(net.finish_round)
            assert (await ada.union(wait=True))["items"].tolist() == [7, 8]


# ---- tasks of one protocol alone

SEEN = Task(name="seen", blocks=BLOCKS, protocol="psu", min_clients=2, max_clients=4)
SHOWN = Task(name="shown", blocks=BLOCKS, protocol="psr", retrievals=2)
ROWS = {"items": np.arange(64.0), "shops": np.arange(16.0)}


async def test_a_task_that_only_finds_unions_is_read_by_everybody() -> None:
    async with simulate(SEEN, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        with pytest.raises(NoUnionError, match="round 1 is finding a union"):
            await ada.union()
        await unite(net, ada, bob)
        assert (await ada.outcome()).counted
        assert (await ada.union())["items"].tolist() == [0, 1, 9, 20]
        async with net.client("eve") as eve:  # who has not taken part
            assert (await eve.union())["items"].tolist() == [0, 1, 9, 20]
        await unite(net, bob, ada)
        await net.servers[0].next_round(2)
        async with net.client("eve") as eve:
            found = await eve.union()
        assert {name: rows.tolist() for name, rows in found.items()} == {"items": [0, 1, 9, 20], "shops": []}


@pytest.mark.parametrize(("task", "start"), [(ALIGNED, START), (SEEN, {})], ids=["aligned", "found alone"])
async def test_another_union_than_both_servers_describe_is_refused(task: Task, start: dict[str, np.ndarray]) -> None:
    async def change(address: str, said: Message, data: bytes) -> bytes:
        return b"".join(encode(said, b"\x01\x05")) if isinstance(said, Block) else data

    async with simulate(task, start, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await unite(net, ada, bob)
        async with meddled(net.client("eve"), incoming=change) as eve:
            with pytest.raises(PeerViolationError, match=r"^S[01]: sent a union of .items. that is not"):
                await eve.union()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda old: {"union": (replace(old.union[0], size=2**62), old.union[1])}, "^S0 and S1: describe different"),
        (lambda old: {"union": (replace(old.union[0], digest=bytes(32)), old.union[1])}, "^S0 and S1: describe diff"),
        (lambda old: {"union": old.union[:1]}, "^S0: has signed no union for a round that has found one"),
        (lambda old: {"union": ()}, "^S0: has signed no union for a round that has found one"),
        (lambda old: {"union": old.union * 50}, "^S0: has signed no union for a round that has found one"),
        (lambda old: {"union": old.union[::-1]}, "^S0: has signed no union for a round that has found one"),
        (lambda old: {"round_id": bytes(32)}, "^S0: answered with another round's outcome"),
    ],
    ids=["huge", "another", "too few blocks", "none", "too many blocks", "another order", "of another round"],
)
async def test_a_server_that_signs_another_union(change, error) -> None:
    """It has its own key; S1 has signed what was found."""

    async def lie(address: str, said: Message, data: bytes) -> bytes:
        if address != "S0" or not isinstance(said, Finished):
            return data
        true = Statement.parse(decode(data, Finished, address).bulk, SEEN, "eve", address)
        lies = replace(true, **change(true)).canonical()
        return b"".join(
            encode(Finished(round_id=said.round_id, signature=net._identities[0].sign(Domain.STATEMENT, lies)), lies)
        )

    async with simulate(SEEN, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await unite(net, ada, bob)
        async with meddled(net.client("eve"), incoming=lie) as eve:
            with pytest.raises(PeerViolationError, match=error):
                await eve.union()
        async with net.client("eve") as eve:
            assert (await eve.union())["items"].tolist() == [0, 1, 9, 20]


async def test_a_union_is_forgotten_with_its_rounds() -> None:
    async with simulate(SEEN, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await unite(net, ada, bob)
        await ada.outcome()
        await ada.union()
        await ada.forget_rounds()
        assert ada._actor._unions.found() == {}  # what else would be told where the new servers have found none
        assert (await ada.union())["items"].tolist() == [0, 1, 9, 20]


async def test_other_calls_are_refused_by_name_before_anything_is_sent() -> None:
    async with simulate(SEEN, {}, seed=1) as net, net.client("ada") as ada:
        for call in (ada.retrieve, ada.submit):
            with pytest.raises(MisuseError, match=r"only find a union: call `unite`, .*\(protocol='psu'\)$"):
                await call({"items": [1]})
        assert [note for note in net.transcript if note.sender == "ada"] == []


@pytest.mark.parametrize("kind", [Enter, Retrieve], ids=["which announces nothing", "which serves nothing"])
async def test_a_server_that_always_says_that_the_round_is_over(kind: type[Message]) -> None:
    """A retrieval goes on in the next round, and not with a server that has none."""
    asked: list[Message] = []

    async def note(address: str, said: Message, data: bytes) -> bytes:
        asked.append(said)
        return data

    async def refuse(address: str, said: Message, data: bytes) -> bytes:
        over = Refused(reason="round-closed", explanation="gone")
        return b"".join(encode(over)) if asked and isinstance(asked[-1], kind) else data

    async with simulate(SHOWN, ROWS, seed=1) as net:
        async with meddled(net.client("ada"), outgoing=note, incoming=refuse) as ada:
            with pytest.raises((RoundClosedError, MisuseError), match=r"gone|no other task is left that could end"):
                await ada.retrieve({"items": [1]})
        assert len(asked) < 20


async def test_a_task_that_only_serves_retrievals() -> None:
    async with simulate(SHOWN, ROWS, seed=1) as net, net.client("ada") as ada:
        for call in (lambda: ada.submit({}), lambda: ada.unite({"items": [1]}), ada.union):
            with pytest.raises(MisuseError, match=r"only serve retrievals: nothing is submitted|find no union"):
                await call()
        for row in (5, 7):
            assert (await ada.retrieve({"items": [row]}))["items"].tolist() == [[row]]
        with pytest.raises(
            MisuseError, match="2 retrievals in one round are the most in this task; ask again in the next"
        ):
            await ada.retrieve({"items": [1]})
        with pytest.raises(MisuseError, match="nothing has been submitted"):
            await ada.outcome()
        await net.finish_round()
        assert (await ada.retrieve({"items": [9]}))["items"].tolist() == [[9]]
        assert ada.round_number == 2
