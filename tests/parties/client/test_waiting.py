"""Waits have an end: a call that would wait for the next round says so, and a simulation names a wait that has none."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trio

from fsl_async import MisuseError, Ring, Sparse, Task
from fsl_async.wire.messages import Message, Retrieve
from parties import Client, Network, simulate
from parties.compute import InlineLane
from tests.support.shop import TASK, all_take_part, honest_round, meddled, model, take_part

UNITED = Task(
    name="united",
    blocks=[Sparse("items", rows=64, select=4)],
    ring=Ring(64, fraction_bits=24),
    alignment="union",
    min_clients=2,
    max_clients=4,
)

CALLS = {
    "retrieve": lambda client, **wait: client.retrieve({"items": [1]}, **wait),
    "submit": lambda client, **wait: client.submit({}, **wait),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_in_a_round_that_has_its_submission_says_what_to_call(
    call, autojump_clock: trio.abc.Clock
) -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        await take_part(carol)
        with pytest.raises(
            MisuseError, match=r"round 1 is open, .* `outcome` waits for its end, .* wait=True for the round after it"
        ):
            await call(carol)
        await honest_round(network, "carol")
        await call(carol)
        assert carol.round_number == 2


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_the_next_round_is_waited_for_if_that_is_asked_for(call, autojump_clock: trio.abc.Clock) -> None:
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        await take_part(carol)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call(carol, wait=True))
            await trio.sleep(3600)
            assert carol.round_number == 0
            await honest_round(network, "carol")
        assert carol.round_number == 2


async def test_a_union_is_not_waited_for_unless_that_is_asked_for(autojump_clock: trio.abc.Clock) -> None:
    start = {"items": np.zeros(64)}
    async with simulate(UNITED, start, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await unite(net, ada, bob)
        with pytest.raises(MisuseError, match=r"round 2 finds no union: .*`unite\(rows, wait=True\)` waits"):
            await ada.unite({"items": [1]})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ada.unite({"items": [3]}, wait=True))
            await trio.sleep(60)
            with pytest.raises(Exception, match="no clients are in"):
                await net.finish_round()
        assert ada.round_number == 3


async def test_a_round_that_this_client_has_skipped_is_not_held_against_its_next_call() -> None:
    """It has retrieved in round 2, which finds no union, and the others have gone on to round 3, which does."""
    start = {"items": np.zeros(64)}
    async with (
        simulate(UNITED, start, seed=1) as net,
        net.client("ada") as ada,
        net.client("bob") as bob,
        net.client("cyd") as cyd,
    ):
        await unite(net, ada, bob, cyd)
        await cyd.retrieve({"items": [1]})
        for client in (ada, bob):
            await client.submit({})
        await net.finish_round()
        assert (await cyd.unite({"items": [3]})).number == 3
        await ada.unite({"items": [1]})
        await net.finish_union()
        await bob.retrieve({"items": [1]})  # round 4
        for client in (ada, cyd):
            await client.submit({})
        await net.finish_round()
        with pytest.raises(MisuseError, match="round 5 finds the union first"):
            await bob.retrieve({"items": [1]})
        for client in (ada, cyd):
            await client.unite({"items": [1]})
        await net.finish_union()
        await bob.retrieve({"items": [1]})
        assert bob.round_number == 6


async def test_two_clients_of_one_name_are_told_so_when_the_second_connects(network) -> None:
    async with network.client("carol"):
        with pytest.raises(MisuseError, match="'carol' is connected already, and is one client"):
            await network.client("carol").__aenter__()
    async with network.client("carol") as carol:
        await take_part(carol)


async def unite(net: Network, *clients: Client) -> None:
    for client in clients:
        await client.unite({"items": [1, 2]})
    await net.finish_union()


async def test_a_wait_that_nobody_can_end_is_named() -> None:
    """By the clock of the wall, at once, and with another client connected who asks for nothing."""
    started = time.monotonic()
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol, network.client("dora"):
        await take_part(carol)
        for call in (carol.outcome, lambda: carol.submit({}, wait=True), lambda: carol.retrieve({}, wait=True)):
            with pytest.raises(
                MisuseError, match=r"no other task is left that could end this wait; .*`net.finish_round\(\)`"
            ):
                await call()
        await honest_round(network, "carol")
        assert (await carol.outcome()).counted
    assert time.monotonic() - started < 30


async def test_a_wait_that_somebody_can_end_is_none_of_those(autojump_clock: trio.abc.Clock) -> None:
    """A task that sleeps may yet close the round, and so may a thread."""
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        await take_part(carol)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carol.outcome)
            await trio.sleep(7200)
            await honest_round(network, "carol")
        await take_part(carol)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carol.outcome)
            await trio.to_thread.run_sync(lambda: time.sleep(0.2))
            await honest_round(network, "carol")


class Busy(InlineLane):
    """A machine on which every computation takes two minutes."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock

    async def run(self, work: Callable[[], Any]) -> Any:
        self._clock.jump(120)
        return await super().run(work)


async def test_a_slow_machine_fails_no_simulated_call_and_changes_no_transcript(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def transcript(lane: InlineLane) -> str:
        async with simulate(TASK, model(), seed=1, lane=lane) as network:
            async with network.client("carol") as carol, network.client("dora") as dora:
                await all_take_part(carol, dora)
                await network.finish_round()
                assert (await carol.outcome()).counted
            return network.transcript_digest()

    assert await transcript(Busy(autojump_clock)) == await transcript(InlineLane())


async def test_an_answer_that_nothing_can_bring_any_more_is_named() -> None:
    async def lost(address: str, said: Message, data: bytes) -> bytes:
        return data if not isinstance(said, Retrieve) or address == "S1" else await trio.sleep_forever()

    async with simulate(TASK, model(), seed=1) as network, meddled(network.client("carol"), outgoing=lost) as carol:
        with pytest.raises(MisuseError, match="no other task is left that could end this wait"):
            await carol.retrieve({"items": [1]})
