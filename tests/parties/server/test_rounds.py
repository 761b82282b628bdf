"""Rounds with real parties: who is counted and who is told why not, and what an abort reveals."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import trio
import trio.testing

from fsl_async.errors import FslError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import Commitment, Message, Share, Submit
from parties import simulate
from parties.compute import InlineLane
from parties.events import MessageReceived, MessageSent, ServerEvent
from parties.schedule import Schedule
from parties.server.setup import ServerSetup
from parties.simulation.network import Network as Simulation
from parties.simulation.scheduling import seeded_scheduling
from tests.support.shop import (
    TASK,
    Shop,
    all_take_part,
    assert_exact,
    honest_round,
    meddled,
    model,
    opened,
    take_part,
)

# ---- rounds


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


# ---- clients that go away


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


async def test_a_block_is_the_one_with_which_its_round_began_also_when_the_sum_is_open():
    async with simulate(TASK, model(), seed=1) as network, network.client("anna") as anna:
        for server in network.servers:
            known = SimpleNamespace(model={"head": model()["head"] + 1}, union={})  # until it is settled
            (await server.next_round(0)).driver._computation.opened = known
        assert np.array_equal((await anna.retrieve({"head": ...}))["head"], model()["head"])
