"""Threads that several lanes share: what one brings at once does not keep another waiting."""

import threading
from collections.abc import Callable
from functools import partial

import trio
import trio.lowlevel

from parties.compute import ComputeLane, InlineLane, SharedThreads


class Pieces:
    """Pieces of work of which a test decides when they end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Semaphore(0)

    def of(self, name: str) -> Callable[[], None]:
        def work() -> None:
            self.begun.append(name)
            self.may_end.acquire()

        return work


async def begun(pieces: Pieces, count: int) -> list[str]:
    with trio.fail_after(30):
        while len(pieces.begun) < count:  # noqa: ASYNC110 - threads
            await trio.sleep(0.001)
    await trio.sleep(0.01)  # no further one begins
    assert len(pieces.begun) == count
    return pieces.begun


async def test_a_free_thread_goes_to_the_lane_that_has_the_fewest():
    threads, pieces = SharedThreads(2), Pieces()
    shop, town = threads.lane(), threads.lane()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shop.run_all, [pieces.of("shop")] * 8)
        assert await begun(pieces, 2) == ["shop", "shop"], "all threads, while nobody else wants one"
        nursery.start_soon(town.run_all, [pieces.of("town")] * 2)
        await begun(pieces, 2)  # both wait for a thread now
        for count in range(3, 11):
            pieces.may_end.release()
            await begun(pieces, count)
        pieces.may_end.release(2)
    assert pieces.begun[2] == "town", "after one piece, and not after eight"
    assert pieces.begun[:6].count("town") == 2
    assert pieces.begun.count("shop") == 8


async def test_what_several_functions_return_comes_in_their_order():
    for lane in (SharedThreads(2).lane(), InlineLane()):
        assert await lane.run_each([partial(divmod, number, 3) for number in range(7)]) == [
            divmod(number, 3) for number in range(7)
        ]


async def test_a_piece_that_is_cancelled_leaves_its_thread_to_the_next():
    threads, pieces = SharedThreads(1), Pieces()
    shop, town = threads.lane(), threads.lane()

    async def until_cancelled(lane: ComputeLane, scope: trio.CancelScope) -> None:
        with scope:
            await lane.run(pieces.of("cancelled"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shop.run, pieces.of("shop"))
        await begun(pieces, 1)
        scope = trio.CancelScope()
        nursery.start_soon(until_cancelled, town, scope)
        await trio.lowlevel.checkpoint()
        scope.cancel()
        await trio.lowlevel.checkpoint()
        nursery.start_soon(town.run, pieces.of("town"))
        pieces.may_end.release()
        assert await begun(pieces, 2) == ["shop", "town"]
        pieces.may_end.release()
    async with trio.open_nursery() as nursery:  # the thread is there again
        nursery.start_soon(shop.run, pieces.of("again"))
        await begun(pieces, 3)
        pieces.may_end.release()


async def test_an_error_comes_out_and_the_thread_is_free_again():
    lane = SharedThreads(1).lane()

    def fails() -> None:
        raise ValueError("no")

    for _ in range(3):
        try:
            await lane.run(fails)
        except ValueError:
            continue
        raise AssertionError("no error")
    assert await lane.run(lambda: 7) == 7
