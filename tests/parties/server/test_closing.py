"""An operator closes a round: with those who have submitted, on both servers, and only if it can reach its sum."""

import pytest
import trio

from fsl_async.errors import MisuseError
from fsl_async.wire.messages import Message, Submit
from parties import RoundClosedError, simulate
from parties.schedule import Schedule
from parties.testing import AtTransition, Crash
from parties.testing.faults import Moment
from tests.parties.server.test_protocols_alone import PSR
from tests.parties.server.test_restart import MODEL, TASK, restarted, take_part, update
from tests.support.shop import Shop, assert_exact, meddled, opened
from tests.support.shop import take_part as shop_with

CLOSES = ("ssa", "Open", "CloseRound", "Closed")

# ---- the other server follows


@pytest.mark.parametrize("asked", [0, 1])
async def test_three_of_four_clients_are_counted_and_the_fourth_enters_the_next_round(nursery, asked):
    shop = await Shop(nursery).open()
    async with opened(*map(shop.client, ("anna", "ben", "carol", "dora"))) as (*in_time, late):
        await late.retrieve({"items": [1]})
        for client in in_time:
            await shop_with(client, retrieves=False)
        runs = [await server.next_round(0) for server in shop.servers]
        assert await shop.servers[asked].close_now(1) == 3
        for server, run in zip(shop.servers, runs, strict=True):
            assert_exact(await server.settled_outcome(run), "anna", "ben", "carol")
        with pytest.raises(RoundClosedError):
            await late.submit({"items": ([1], [[1, 1, 1]])})
        await late.submit({"items": ([1], [[1, 1, 1]])})
        assert late.round_number == 2


async def test_a_round_of_retrievals_is_closed_as_well() -> None:
    async with simulate(PSR, MODEL, seed=1) as net, net.client("ada") as ada:
        await ada.retrieve({"items": [3]})
        run = await net.servers[1].next_round(0)
        assert await net.servers[0].close_now(1) == 0
        await run.settled.wait()
        assert run.report().ended == "done"


# ---- what cannot be closed


async def test_a_round_with_too_few_clients_stays_open() -> None:
    async with simulate(TASK, MODEL, seed=1) as net, net.client("anna") as anna, net.client("ben") as ben:
        await anna.submit(update(0))
        with pytest.raises(MisuseError, match="round 1 has 1 of the 2 submissions that it needs at S0"):
            await net.servers[0].close_now(1)
        await ben.submit(update(1))
        assert await net.servers[0].close_now(1) == 2
        assert (await anna.outcome()).counted


async def test_a_round_that_was_aborted_or_is_to_come_is_not_closed() -> None:
    async with simulate(TASK, MODEL, seed=1) as net:
        server = net.servers[0]
        await server.next_round(0)
        with pytest.raises(MisuseError, match="round 2 is not open; S0 is at: round 1: Open"):
            await server.close_now(2)
        await server.abort_round(1, "a trial")
        with pytest.raises(MisuseError, match="round 1 was aborted: S0 gave up: a trial"):
            await server.close_now(1)


async def test_a_round_is_not_closed_while_the_other_server_could_not_follow(autojump_clock: trio.abc.Clock) -> None:
    crash = Crash("S1", AtTransition(*CLOSES, "before write"), down=1000.0)
    async with restarted(crash) as (made, (anna, ben, _)):
        await anna.submit(update(0))
        await ben.submit(update(1))
        with pytest.raises(MisuseError, match="S1 ends before it has closed round 1"):
            await made.servers[1].close_now(1)
        await trio.sleep(0.5)
        assert made.injector.fired == [crash]
        with pytest.raises(MisuseError, match=r"S1 is not connected to S0: .* close it when S1 is back"):
            await made.servers[0].close_now(1)
        await trio.sleep(2000)
        assert await made.servers[0].close_now(1) == 2
        assert (await anna.outcome()).counted


# ---- asked again, and killed


async def test_a_round_that_has_closed_is_left_as_it_is() -> None:
    async with simulate(TASK, MODEL, seed=1) as net, net.client("anna") as anna, net.client("ben") as ben:
        await anna.submit(update(0))
        await ben.submit(update(1))
        run = await net.servers[0].next_round(0)
        assert await net.servers[0].close_now(1) == await net.servers[1].close_now(1) == 2
        await net.servers[0].settled_outcome(run)
        assert await net.servers[0].close_now(1) == 2
        assert (await net.servers[0].next_round(1)).is_open


@pytest.mark.parametrize(("moment", "recorded"), [("before write", False), ("after write", True)])
async def test_a_server_killed_as_it_closes_has_closed_the_round_or_is_asked_again(
    moment: Moment, recorded: bool, autojump_clock: trio.abc.Clock
) -> None:
    crash = Crash("S0", AtTransition(*CLOSES, moment), down=1.0)
    async with restarted(crash) as (made, (anna, ben, _)):
        told: dict[str, bool] = {}
        async with trio.open_nursery() as nursery:
            for place, client in enumerate((anna, ben)):
                nursery.start_soon(take_part, client, place, False, told)
            await trio.sleep(10)
            with pytest.raises(MisuseError, match="S0 ends before it has closed round 1: ask again when it is back"):
                await made.servers[0].close_now(1)
            await trio.sleep(20)
            assert made.injector.fired == [crash]
            assert made.servers[0].status().rounds_done == int(recorded)
            assert await made.servers[0].close_now(1) == 2
        assert told == {"anna": True, "ben": True}


# ---- by the number of submissions


async def test_half_a_submission_closes_no_round(nursery, autojump_clock):
    """Only its carrier has it, and the round needs both of the clients that close it."""
    shop = await Shop.in_memory(nursery, schedule=Schedule(clients=2)).open()

    async def to_the_carrier_alone(address: str, message: Message, data: bytes) -> bytes | None:
        if not isinstance(message, Submit):
            return data
        return data if address == f"S{shop.servers[0].running.config.carrier('mallory')}" else None

    mallory = meddled(shop.client("mallory"), outgoing=to_the_carrier_alone)
    async with opened(mallory, *map(shop.client, ("anna", "ben"))) as (_, anna, ben), trio.open_nursery() as vain:
        vain.start_soon(shop_with, mallory)
        await trio.sleep(1)
        await shop_with(anna)
        runs = [await server.next_round(0) for server in shop.servers]
        await trio.sleep(10)
        assert sorted(run.driver.submissions for run in runs) == [1, 2]
        assert all(run.is_open for run in runs)
        await shop_with(ben)
        for server, run in zip(shop.servers, runs, strict=True):
            assert_exact(await server.settled_outcome(run), "anna", "ben")
        vain.cancel_scope.cancel()
