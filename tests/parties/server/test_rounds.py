"""Rounds with real parties: who is counted and who is told why not, and what an abort reveals."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import trio
import trio.testing

from fsl_async.bin_count import planned
from fsl_async.errors import FslError, PeerViolationError
from fsl_async.ring import Ring
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Answer, Commitment, Enter, FromClient, Message, Receipt, Share, Submit
from fsl_async.wire.public_part import Layout, Trees
from parties import AlreadyCountedError, RoundClosedError, simulate
from parties.compute import InlineLane
from parties.events import MessageReceived, MessageSent, ServerEvent
from parties.schedule import Schedule
from parties.server.setup import ServerSetup
from parties.simulation.network import Network as Simulation
from parties.simulation.scheduling import seeded_scheduling
from tests.support.cases import one_in
from tests.support.hand_made import name_of
from tests.support.shop import (
    ROWS,
    TASK,
    Basket,
    Meddler,
    Shop,
    all_take_part,
    assert_exact,
    honest_round,
    meddled,
    model,
    opened,
    plain_sum,
    take_part,
)
from transport import ConnectionLostError

# ---- rounds


@pytest.mark.parametrize(
    ("bits", "security", "updates"), one_in(3, (32, 64, 128), ("verified", "semi-honest"), ("retrieved", "any"))
)
async def test_every_kind_of_round_is_exact(bits, security, updates):
    task = msgspec.structs.replace(TASK, ring=Ring(bits, fraction_bits=16), security=security, updates=updates)
    names = ("anna", "ben", "carol")
    async with simulate(task, model(), seed=bits) as network:
        for round_number in (1, 2):
            async with opened(*map(network.client, names)) as clients:
                for client in clients:
                    await take_part(client, retrieves=client.name != "carol")
                outcome = await network.finish_round()
                assert outcome.number == round_number
                assert_exact(outcome, *names)
                assert outcome.excluded == {}


async def test_a_second_round_retrieves_the_model_that_the_first_has_changed():
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        rows = Basket("carol").rows
        first = await carol.retrieve({"items": rows, "head": ...})
        np.testing.assert_array_equal(first["items"], model()["items"][rows])
        await carol.submit(Basket("carol").update)
        await honest_round(network, "carol")
        second = await carol.retrieve({"items": rows, "head": ...})
        changed = plain_sum(["anna", "ben", "carol"])
        np.testing.assert_array_equal(second["items"], (model()["items"] + changed["items"]).astype(np.float32)[rows])
        np.testing.assert_array_equal(second["head"], (model()["head"] + changed["head"]).astype(np.float32))
        np.testing.assert_array_equal(second["items"], network.model["items"][rows])
        assert second["items"].dtype == np.float32
        assert not np.array_equal(first["items"], second["items"])


class Told(Simulation):
    """A network whose servers' events are kept."""

    def __init__(self, *args: Any) -> None:
        self.told: tuple[list[ServerEvent], list[ServerEvent]] = ([], [])
        super().__init__(*args)

    def _server_setup(self, index: int, model: dict[str, Any]) -> ServerSetup:
        return replace(super()._server_setup(index, model), observe=self.told[index].append)


async def test_both_servers_tell_of_the_same_messages_with_the_same_sizes():
    """A size is the whole message's; the transcript has the bulk alone."""
    net = Told(TASK, model(), 31, InlineLane())
    with seeded_scheduling(31):
        async with trio.open_nursery() as nursery:
            await nursery.start(net.run)
            await honest_round(net)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    names = ("S0", "S1")
    for sender, receiver in (names, names[::-1]):
        out = [
            (event.kind, event.size)
            for event in net.told[names.index(sender)]
            if isinstance(event, MessageSent) and event.receiver == receiver
        ]
        came = [
            (event.kind, event.size)
            for event in net.told[names.index(receiver)]
            if isinstance(event, MessageReceived) and event.sender == sender
        ]
        notes = [note for note in net.transcript if (note.sender, note.receiver) == (sender, receiver)][-len(out) :]
        assert out == came
        assert [kind for kind, _ in out] == [type(note.message).__name__ for note in notes]
        for (_, size), note in zip(out, notes, strict=True):
            assert size == sum(map(len, encode(note.message, bytes(note.bulk))))
    submissions = [h for h in net.told[0] if isinstance(h, MessageReceived) and h.kind == "Submit"]
    assert {event.sender for event in submissions} == {"anna", "ben"}


async def test_rows_come_in_the_order_asked_and_bit_for_bit():
    weights = np.random.default_rng(2).integers(0, 2**32, size=(ROWS, 3), dtype=np.uint32).view(np.float32)
    weights[~np.isfinite(weights)] = -0.0
    async with simulate(TASK, model() | {"items": weights}, seed=2) as network, network.client("carol") as carol:
        for rows in ([7, 3, 299, 0], [5], []):
            found = (await carol.retrieve({"items": rows}))["items"]
            assert found.tobytes() == weights[rows].tobytes()


async def test_an_error_of_the_caller_leaves_a_simulation_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        async with simulate(TASK, model(), seed=3) as network, network.client("carol"):
            raise KeyError("mine")


BOUNDED = msgspec.structs.replace(TASK, bound=128.0, bound_proof="projected")


@pytest.mark.parametrize("task", [TASK, BOUNDED], ids=["as it is", "with a bound"])
async def test_two_rounds_over_tcp_are_exact_and_leave_both_servers_with_one_model(task, nursery):
    shop = await Shop(nursery, task=task).open()
    names = ("anna", "ben", "carol")
    async with opened(*map(shop.client, names)) as clients:
        for _ in range(2):
            await all_take_part(*clients)
            assert_exact(await shop.finish_round(), *names)
            for client in clients:
                outcome = await client.outcome()
                assert (outcome.counted, outcome.participants, outcome.names) == (True, 3, ())
    first, second = (server.model for server in shop.servers)
    for block in first:
        np.testing.assert_array_equal(first[block], second[block])


# ---- when rounds close


async def test_rounds_close_by_count_or_by_time_and_end_after_as_many_as_asked(nursery, autojump_clock):
    shop = await Shop.in_memory(nursery, schedule=Schedule(clients=2, seconds=60, rounds=2)).open()
    async with opened(*map(shop.client, ("anna", "ben"))) as (anna, ben):
        await take_part(anna)
        await take_part(ben)  # the second of two: the round closes at once
        assert (await anna.outcome()).counted
        assert trio.current_time() < 60
        await take_part(anna)
        outcome = await anna.outcome()  # alone: the round closes a minute after it opened
        assert not outcome.counted
        assert trio.current_time() >= 60
    settled = [report async for report in shop.servers[0].settlements()]
    assert [report.ended for report in settled] == ["done", "aborted"]


# ---- who is counted, and who is told why not


async def test_too_few_clients_reveal_nothing_and_the_next_round_opens():
    async with simulate(TASK, model(), seed=5) as network, network.client("carol") as carol:
        await take_part(carol)
        with pytest.raises(FslError, match=r"round 1 was aborted: .*1 client is in with both servers, at least 2"):
            await network.finish_round()
        outcome = await carol.outcome()
        assert not outcome.counted
        assert "at least 2 are needed" in outcome.reason
        assert outcome.participants == 0
        spoken = {type(note.message) for note in network.transcript}
        assert not spoken & {Share, Commitment}
        np.testing.assert_array_equal(network.model["items"], model()["items"])
        await take_part(carol)
        assert (await honest_round(network, "carol")).number == 2


async def test_a_client_without_a_valid_proof_is_left_out_and_told_so():
    announced, ready = [], trio.Event()

    async def forge(address: str, message: Message, data: bytes) -> bytes:
        """Spoil one proof, and announce the spoiled part to both servers."""
        if not isinstance(message, Submit):
            return data
        bulk = bytearray(decode(data, FromClient, "the test").bulk)
        if bulk:
            layout = Layout.submission(planned(TASK), Trees.RETRIEVAL if message.query else Trees.OWN)
            bulk[next(piece.start for piece in layout.pieces if piece.kind == "proof")] ^= 1
            announced.append(name_of(layout, bulk[: layout.size]))
            ready.set()
        await ready.wait()
        return b"".join(encode(msgspec.structs.replace(message, public_digest=announced[0]), bulk))

    async with (
        simulate(TASK, model(), seed=6) as network,
        meddled(network.client("mallory"), outgoing=forge) as mallory,
    ):
        with pytest.raises(PeerViolationError, match="acknowledged another submission"):
            await take_part(mallory)
        outcome = await honest_round(network)
        assert outcome.excluded == {"mallory": "proof"}
        told = await mallory.outcome()
        assert (told.counted, told.reason, told.participants) == (False, "proof", 2)


@pytest.fixture
async def shop(nursery) -> Shop:
    """Two servers in memory."""
    return await Shop.in_memory(nursery).open()


async def carried_by(shop: Shop, server: int) -> str:
    """A client's name whose public part goes to that server in the open round."""
    config = (await shop.servers[0].next_round(0)).config
    return next(name for name in map("dora {}".format, range(64)) if config.carrier(name) == server)


@pytest.mark.parametrize("carrier", [0, 1])
@pytest.mark.parametrize("reached", [0, 1])
async def test_a_submission_that_reached_one_server_alone_is_left_out_with_the_reason(
    shop, autojump_clock, carrier, reached
):
    async def stall(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Submit) and address != f"S{reached}":
            await trio.sleep_forever()
        return data

    name = await carried_by(shop, carrier)
    others = map(shop.client, ("anna", "ben"))
    async with opened(*others, meddled(shop.client(name), outgoing=stall)) as (*honest, dora):
        with trio.move_on_after(1) as scope:
            await take_part(dora)
        assert scope.cancelled_caught
        await all_take_part(*honest)
        before = trio.current_time()
        outcome = await shop.finish_round()
        waited = trio.current_time() - before
        assert_exact(outcome, "anna", "ben")
        # The other server has the public part from the carrier, but not the client's own word for it; where the
        # carrier was not reached, nobody has the part, and no server lists the client.
        listed = reached == carrier
        assert outcome.excluded == ({name: f"only_s{carrier}"} if listed else {})
        # S0 closed first and froze its list: S1 waits for what S0 has, S0 does not wait for what S1 has.
        assert (waited >= shop.schedule.grace) == (listed and carrier == 0)
        told = await dora.outcome()
        assert (told.counted, told.participants) == (False, 2)
        assert told.reason == (f"only_s{carrier}" if listed else "not submitted in time")


async def test_a_straggler_that_the_first_server_has_is_waited_for(shop, autojump_clock):
    """S0 closes while the submission is still on its way to S1; within the grace period it is taken there."""

    async def delay(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Submit) and address == "S1":
            await trio.sleep(2)
        return data

    name = await carried_by(shop, 0)
    clients = [*map(shop.client, ("anna", "ben")), meddled(shop.client(name), outgoing=delay)]
    async with opened(*clients), trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(take_part, client)
        await trio.sleep(1)
        outcome = await shop.finish_round()
        assert_exact(outcome, "anna", "ben", name)
        assert 2 <= trio.current_time() < 3


async def test_a_submission_after_the_round_closed_is_told_and_counts_in_the_next(shop, autojump_clock):
    gate = trio.Event()

    async def hold(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Submit):
            await gate.wait()
        return data

    async def submit_late(client) -> None:
        with pytest.raises(RoundClosedError):
            await take_part(client)

    late = meddled(shop.client("carol"), outgoing=hold)
    async with opened(*map(shop.client, ("anna", "ben")), late) as clients:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit_late, late)
            await all_take_part(*clients[:2])
            assert_exact(await shop.finish_round(), "anna", "ben")
            gate.set()
        await all_take_part(*clients)
        assert_exact(await shop.finish_round(), "anna", "ben", "carol")


# ---- clients that go away


async def test_a_client_that_vanishes_after_retrieving_is_not_missed():
    async with simulate(TASK, model(), seed=7) as network:
        async with network.client("carol") as carol:
            await carol.retrieve({"items": Basket("carol").rows})
        outcome = await honest_round(network)
        assert outcome.excluded == {}


async def test_a_client_that_comes_back_may_retrieve_again_and_counts_once():
    async with simulate(TASK, model(), seed=8) as network:
        async with network.client("carol") as carol:
            await carol.retrieve({"items": Basket("carol").rows})
        async with network.client("carol") as carol:
            await take_part(carol)
        await honest_round(network, "carol")


async def test_waiting_for_the_next_round_can_be_cancelled_and_tried_again(autojump_clock):
    async with simulate(TASK, model(), seed=9) as network, network.client("carol") as carol:
        await take_part(carol)
        for _ in range(6):  # more often than one key may have connections
            with trio.move_on_after(1) as scope:
                await carol.retrieve({"items": [1]}, wait=True)
            assert scope.cancelled_caught
        await honest_round(network, "carol")
        await take_part(carol)
        await honest_round(network, "carol")


@pytest.mark.parametrize("kind", [Answer, Receipt, Enter, Submit])
async def test_a_client_cancelled_in_the_middle_goes_on_with_the_next_round(shop, autojump_clock, kind):
    """Whatever a cancelled call has left on its way, no later call takes it for its own reply."""
    stalled = []

    async def stall_once(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, kind) and not stalled:
            stalled.append(address)
            await trio.sleep_forever()
        return data

    carol = meddled(shop.client("carol"), outgoing=stall_once, incoming=stall_once)
    async with opened(*map(shop.client, ("anna", "ben")), carol) as (anna, ben, carol):
        with trio.move_on_after(1) as scope:
            await take_part(carol)
        assert scope.cancelled_caught
        assert stalled
        await all_take_part(anna, ben)
        both = kind is Receipt  # both servers had the submission; only the client does not know
        assert_exact(await shop.finish_round(), "anna", "ben", *(["carol"] if both else []))
        if both:
            with pytest.raises(AlreadyCountedError):
                await take_part(carol)
        await all_take_part(anna, ben, carol)
        assert_exact(await shop.finish_round(), "anna", "ben", "carol")
        assert (await carol.outcome()).counted


async def test_a_client_whose_connection_broke_connects_again(shop, autojump_clock):
    broken = []

    async def break_once(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Answer) and not broken:
            broken.append(address)
            raise ConnectionLostError("the cable was pulled")
        return data

    meddler = Meddler(shop.transports[0], incoming=break_once)
    others = map(shop.client, ("anna", "ben"))
    async with opened(*others, shop.client("carol", transport=meddler, patience=0)) as (anna, ben, carol):
        with pytest.raises(ConnectionLostError):
            await take_part(carol)
        await all_take_part(anna, ben)
        assert_exact(await shop.finish_round(), "anna", "ben")
        await all_take_part(anna, ben, carol)
        assert_exact(await shop.finish_round(), "anna", "ben", "carol")
        assert len(meddler.channels) in (3, 4)  # the other request may have been under way
        assert carol.bytes_sent == sum(channel.bytes_sent for channel in meddler.channels)


async def test_a_block_is_the_one_with_which_its_round_began_also_when_the_sum_is_open():
    async with simulate(TASK, model(), seed=1) as network, network.client("anna") as anna:
        for server in network.servers:
            known = SimpleNamespace(model={"head": model()["head"] + 1}, union={})  # until it is settled
            (await server.next_round(0)).driver._computation.opened = known
        assert np.array_equal((await anna.retrieve({"head": ...}))["head"], model()["head"])
