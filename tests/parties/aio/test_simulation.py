"""Simulations on an asyncio loop: the transcript that trio gives, and waits that end or say why they cannot."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
import trio

import parties
from fsl_async.errors import MisuseError
from parties import NotDrawnError, simulate
from tests.support.shop import TASK, Basket, assert_exact, model


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name == "fsl-async simulation"] == []


async def two_rounds(front, seed: int) -> str:
    """The same program for both fronts."""
    async with front(TASK, model(), seed) as net:
        for _ in (1, 2):
            for name in ("anna", "ben"):
                async with net.client(name) as client:
                    basket = Basket(name)
                    await client.retrieve({"items": basket.rows, "head": ...})
                    await client.submit(basket.update)
            assert_exact(await net.finish_round(), "anna", "ben")
        assert len(net.transcript) > 20
        return net.transcript_digest()


@pytest.mark.parametrize("seed", range(3))
def test_one_seed_gives_the_transcript_that_it_gives_under_trio(seed):
    assert asyncio.run(two_rounds(parties.aio.simulate, seed)) == trio.run(two_rounds, simulate, seed)


def test_clients_at_the_same_time_and_simulations_at_the_same_time():
    async def visit(net: parties.aio.Network, name: str) -> bool:
        async with net.client(name) as client:
            await client.submit(Basket(name).update)
            submitted[client.name].set()
            return (await client.outcome()).counted

    async def whole(seed: int) -> None:
        async with parties.aio.simulate(TASK, model(), seed) as net, asyncio.TaskGroup() as group:
            visits = [group.create_task(visit(net, name)) for name in ("anna", "ben")]
            for event in submitted.values():
                await event.wait()
            assert_exact(await net.finish_round(), "anna", "ben")
            assert all(await asyncio.gather(*visits))
            assert not np.array_equal(net.model["items"], model()["items"])

    submitted = {name: asyncio.Event() for name in ("anna", "ben")}
    asyncio.run(whole(1))

    async def several() -> list[str]:
        return await asyncio.gather(*(two_rounds(parties.aio.simulate, 5) for _ in range(3)))

    assert len(set(asyncio.run(several()))) == 1


def test_a_wait_that_nobody_can_end_is_an_error():
    async def main() -> None:
        async with parties.aio.simulate(TASK, model(), 1) as net, net.client("anna") as anna:
            await anna.submit(Basket("anna").update)
            with pytest.raises(MisuseError, match=r"closed by `net\.finish_round\(\)`"):
                await anna.outcome()

    asyncio.run(main())


def test_who_was_drawn_and_trains_in_a_thread_is_waited_for():
    """The draw waits for a task that has yet to ask, and the close for training that ends after it was asked for."""
    names, closing = ("anna", "ben", "carol"), threading.Event()

    async def visit(net: parties.aio.Network, name: str) -> bool:
        async with net.client(name) as client:
            basket = Basket(name)
            try:
                await client.retrieve({"items": basket.rows, "head": ...})
            except NotDrawnError:
                return False
            assert await asyncio.to_thread(closing.wait, 30)  # it trains
            await client.submit(basket.update)
            return (await client.outcome()).counted

    async def main(*, draws: bool) -> None:
        closing.clear()
        task = msgspec.structs.replace(TASK, sample=2)
        async with parties.aio.simulate(task, model(), 1) as net, asyncio.TaskGroup() as group:
            visits = {name: group.create_task(visit(net, name)) for name in names}
            if draws:
                assert await net.draw() == 1
            finishing = group.create_task(net.finish_round())
            asyncio.get_running_loop().call_later(0.1, closing.set)
            outcome = await finishing
            told = {name: await visited for name, visited in visits.items()}
            assert_exact(outcome, *sorted(name for name in names if told[name]))
            assert sum(told.values()) == 2

    for draws in (True, False):
        asyncio.run(main(draws=draws))


def test_a_cancelled_wait_and_clients_left_in_any_order():
    async def main() -> None:
        async with parties.aio.simulate(TASK, model(), 1) as net:
            anna, ben = await net.client("anna"), await net.client("ben")
            for client in (anna, ben):
                await client.submit(Basket(client.name).update)
            asleep = asyncio.create_task(asyncio.sleep(60))  # it might finish the round
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anna.outcome()
            asleep.cancel()
            await net.finish_round()
            assert (await anna.outcome()).counted
            await anna.aclose()
            assert (await ben.outcome()).counted
        with pytest.raises(MisuseError, match="the simulation is over; begin another one"):
            await ben.outcome()
        await ben.aclose()
        await net.aclose()

    asyncio.run(main())


def test_errors_and_the_wrong_door():
    with pytest.raises(AttributeError, match=r"parties\.aio\.simulate\(\.\.\.\) is not open, and so has no 'client'"):
        parties.aio.simulate(TASK, model(), 1).client  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"parties\.simulate\(\.\.\.\) is not open, and so has no 'client'"):
        simulate(TASK, model(), 1).client  # type: ignore[attr-defined]  # noqa: B018

    async def main() -> None:
        with pytest.raises(MisuseError, match="items"):
            await parties.aio.simulate(TASK, {"items": np.zeros((1, 1))}, 1)

    asyncio.run(main())
    with pytest.raises(MisuseError, match=r"use `async with parties\.simulate\(\.\.\.\)`"):
        trio.run(two_rounds, parties.aio.simulate, 1)
    with pytest.raises(MisuseError, match=r"use `async with parties\.aio\.simulate\(\.\.\.\)`"):
        asyncio.run(two_rounds(simulate, 1))


def test_a_simulation_in_several_loops_one_after_the_other():
    """Who waits is not told that nobody is left, as long as another task of its loop may end the wait."""

    async def begin() -> tuple[parties.aio.Network, parties.aio.Client]:
        net = await parties.aio.simulate(TASK, model(), seed=1)
        return net, await net.client("anna")

    async def go_on(net: parties.aio.Network, anna: parties.aio.Client) -> None:
        await anna.submit({})
        waiting = asyncio.create_task(anna.outcome())
        for name in ("ben", "carol"):
            await (await net.client(name)).submit({})
        await asyncio.sleep(0.2)
        await net.finish_round()
        assert (await waiting).counted
        await net.aclose()

    asyncio.run(go_on(*asyncio.run(begin())))
