"""Memory lent to messages: as they move, never more than there is, and so that all that have begun can end."""

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async.errors import MisuseError
from parties.server.clients.memory_budget import GRACE, PRESSURE, SPARED, Budget, Reservation
from tests.support.cases import in_turn, often


class Book:
    """Clients that take room as soon as they can; notes in which order they got it."""

    def __init__(self, limit, nursery):
        self.moves = []
        self.budget = Budget(limit, lambda: self.moves.append((self.budget.used, self.budget.limit)))
        self.nursery = nursery
        self.served = []
        self.ends = {}

    async def want(self, client, *sizes, total=0):
        """Starts wanting room, more and more of it; returns when it has it or waits."""
        self.ends[client] = trio.Event()
        self.nursery.start_soon(self._take, client, sizes, total or max(sizes))
        await wait_all_tasks_blocked()

    async def done(self, client):
        self.ends[client].set()
        await wait_all_tasks_blocked()

    async def _take(self, client, sizes, total):
        async with self.budget.reservation(client, total) as reservation:
            for size in sizes:
                await self.budget.reserve(reservation, size)
                self.served.append((client, size))
            await self.ends[client].wait()


async def test_room_is_lent_while_there_is_some_and_told(nursery):
    book = Book(100, nursery)
    await book.want("a", 60)
    await book.want("b", 40)
    await book.want("c", 1)
    assert book.served == [("a", 60), ("b", 40)]
    await book.done("a")
    assert book.served[2:] == [("c", 1)]
    await book.done("b")
    await book.done("c")
    assert book.moves == [(60, 100), (100, 100), (40, 100), (41, 100), (1, 100), (0, 100)]


async def test_what_is_declared_and_does_not_come_holds_nothing(nursery):
    book = Book(100, nursery)
    for name in range(20):
        await book.want(f"loud {name}", 1, total=70)
    assert book.budget.used == 20
    await book.want("honest", 10, 30, 60, 80)
    assert book.served[20:] == [("honest", size) for size in (10, 30, 60, 80)]


async def test_no_room_is_lent_that_would_keep_all_that_have_begun_from_ending(nursery):
    book = Book(100, nursery)
    await book.want("a", 50, 100)
    await book.want("b", 30, 80)  # begins, if 50 are free for a; they are not
    await book.want("small", 10)
    assert book.served == [("a", 50), ("a", 100)]
    await book.done("a")
    assert [served for served in book.served[2:] if served != ("small", 10)] == [("b", 30), ("b", 80)]
    assert ("small", 10) in book.served  # as soon as there is room beside b


async def test_who_has_begun_goes_on_before_others_begin(nursery):
    book = Book(100, nursery)
    await book.want("a", 40)
    await book.want("b", 30, 70)
    await book.want("new", 30)  # there would be room
    assert book.served == [("a", 40), ("b", 30)]
    await book.done("a")
    assert set(book.served[2:]) == {("b", 70), ("new", 30)}


async def test_nobody_overtakes_a_large_message(nursery):
    book = Book(100, nursery)
    await book.want("a", 60)
    await book.want("large", 100)
    await book.want("small", 1)
    assert book.served == [("a", 60)]
    await book.done("a")
    assert book.served[1:] == [("large", 100)]
    await book.done("large")
    assert book.served[2:] == [("small", 1)]


async def test_who_gives_up_waiting_has_taken_nothing_and_lets_the_next_one_in(nursery, autojump_clock):
    book = Book(100, nursery)
    await book.want("a", 60)
    with trio.move_on_after(1) as scope:
        async with book.budget.reservation("large", 100) as large:
            nursery.start_soon(book.want, "small", 40)
            await book.budget.reserve(large, 100)
    assert scope.cancelled_caught
    await wait_all_tasks_blocked()
    assert book.served == [("a", 60), ("small", 40)]


async def test_more_than_there_ever_is_cannot_be_taken():
    with pytest.raises(MisuseError, match="101 bytes wanted of a budget of 100"):
        async with Budget(100).reservation("a", 101):
            pytest.fail("lent")


async def test_under_pressure_the_slowest_gives_its_room_up_and_nobody_else_does(autojump_clock):
    budget, ended = Budget(100), {}

    async def upload(name, rate):
        """A message of 40 bytes that moves at so many bytes a second."""
        async with budget.reservation(name, 40) as reservation:
            await budget.reserve(reservation, 40)
            with reservation.moving():
                while reservation.moved < 40:
                    await trio.sleep(1)
                    reservation.moved += rate
                ended[name] = trio.current_time()
                return
            ended[name] = -trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(upload, "slow", 0.1)
        await trio.sleep(0.1)
        nursery.start_soon(upload, "quick", 2)
        await trio.sleep(30)
        nursery.start_soon(upload, "third", 2)
        nursery.start_soon(upload, "fourth", 2)
        await trio.sleep(30)
    assert ended["quick"] == pytest.approx(20.1)
    assert ended["slow"] == pytest.approx(-30.1 - PRESSURE)
    assert sorted((ended["third"], ended["fourth"])) == pytest.approx([50.1, 50.1 + PRESSURE])


async def test_who_came_quickly_and_trickles_at_the_end_is_not_spared_for_long(autojump_clock):
    """Nine tenths in a second: by its mean rate it would be nearly there for a minute and a half."""
    budget = Budget(100)

    async def loud() -> None:
        async with budget.reservation("loud", 100) as reservation:
            await budget.reserve(reservation, 100)
            with reservation.moving():
                await trio.sleep(1)
                reservation.moved = 90
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loud)
        await trio.sleep(0.1)
        async with budget.reservation("honest", 100) as reservation:
            await budget.reserve(reservation, 100)
    assert trio.current_time() < GRACE + SPARED + 2 * PRESSURE


async def test_thousands_that_wait_do_not_each_look_at_all_messages(autojump_clock, monkeypatch):
    looks, judged = 0, Reservation.judged

    def counted(reservation: Reservation, now: float) -> float:
        nonlocal looks
        looks += 1
        return judged(reservation, now)

    monkeypatch.setattr(Reservation, "judged", counted)
    budget = Budget(100)

    async def want(number: int) -> None:
        async with budget.reservation(f"client {number}", 20) as reservation:
            await budget.reserve(reservation, 20)
            with reservation.moving():
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for number in range(1_000):
            nursery.start_soon(want, number)
        await trio.sleep(10 * PRESSURE)
        nursery.cancel_scope.cancel()
    assert 0 < looks <= 5 * 10 * 10  # five have begun, at most ten looks each time


@pytest.mark.parametrize("seed", often(10, range(20)))
async def test_whatever_happens_the_budget_holds_nobody_waits_for_ever_and_all_comes_back(seed, autojump_clock):
    draw = random.Random(seed)
    budget = Budget(100)
    ended = []

    async def client(name):
        for _ in range(10):
            total = draw.randint(1, 100)
            with trio.move_on_after(draw.choice([draw.uniform(0, 5), 100_000])) as scope:
                async with budget.reservation(name, total) as reservation:
                    for size in sorted({*(draw.randint(1, total) for _ in range(3)), total}):
                        await budget.reserve(reservation, size)
                        assert 0 < budget.used <= 100, f"seed {seed}"
                        await trio.sleep(draw.uniform(0, 3))
            ended.append(scope.cancelled_caught)

    with trio.fail_after(50_000):
        async with trio.open_nursery() as nursery:
            for number in range(8):
                for _ in range(2):  # each on two connections
                    nursery.start_soon(client, f"client {number}")
    assert (budget.used, len(ended)) == (0, 160), f"seed {seed}"
    with trio.fail_after(1):
        async with budget.reservation("the last", 100) as reservation:
            await budget.reserve(reservation, 100)  # at once: nobody is in the queue any more
            assert budget.used == 100, f"seed {seed}"
    assert budget.used == 0, f"seed {seed}"


@in_turn("seed", range(20))
def test_what_is_safe_is_what_the_bankers_algorithm_says(seed):
    """Against the algorithm as it is written down: all that have begun can be finished one after the other."""
    draw, budget = random.Random(seed), Budget(100)
    for _ in range(200):
        reservation = Reservation("a", draw.randint(1, 100), length=1)
        if budget._begun and draw.random() < 0.5:
            reservation = draw.choice(sorted(budget._begun, key=id))
        reservation.wants = draw.randint(reservation.held, reservation.total)
        if reservation.wants == reservation.held or draw.random() < 0.2:
            budget._begun.discard(reservation)
            budget.used -= reservation.held
            budget._order = None
        elif budget._is_safe(reservation) == finished(budget, reservation):
            lent = budget._is_granted(reservation, {reservation: None})
            assert lent == (reservation in budget._begun and reservation.held == reservation.wants)
        else:
            raise AssertionError(f"{reservation} of {budget._begun}")


def finished(budget, asking):
    free = budget.limit - budget.used - (asking.wants - asking.held)
    left = [
        (reservation.total - reservation.held, reservation.held)
        for reservation in budget._begun
        if reservation is not asking
    ]
    left.append((asking.total - asking.wants, asking.wants))
    while free >= 0 and (able := [entry for entry in left if entry[0] <= free]):
        left.remove(able[0])
        free += able[0][1]
    return free >= 0 and not left
