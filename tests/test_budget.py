"""Memory lent to messages: never more than there is, first come first served, one message a client."""

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async.errors import MisuseError
from parties.budget import Budget


class Book:
    """Clients that take room as soon as they can; notes in which order they got it."""

    def __init__(self, limit, nursery):
        self.moves = []
        self.budget = Budget(limit, lambda used, limit: self.moves.append((used, limit)))
        self.nursery = nursery
        self.served = []

    async def want(self, client, size):
        """Starts wanting room; returns when it has it or waits."""
        self.nursery.start_soon(self._take, client, size)
        await wait_all_tasks_blocked()

    async def done(self, client):
        self.budget.give_back(client)
        await wait_all_tasks_blocked()

    async def _take(self, client, size):
        await self.budget.take(client, size)
        self.served.append(client)


async def test_room_is_taken_while_there_is_some_and_told(nursery):
    book = Book(100, nursery)
    await book.want("a", 60)
    await book.want("b", 40)
    await book.want("c", 1)
    assert book.served == ["a", "b"]
    assert book.budget.used == 100
    await book.done("a")
    assert book.served == ["a", "b", "c"]
    await book.done("b")
    await book.done("c")
    assert book.moves == [(60, 100), (100, 100), (40, 100), (41, 100), (1, 100), (0, 100)]


async def test_nobody_overtakes_a_large_message(nursery):
    book = Book(100, nursery)
    await book.want("a", 60)
    await book.want("large", 100)
    await book.want("small", 1)
    assert book.served == ["a"]
    await book.done("a")
    assert book.served == ["a", "large"]
    await book.done("large")
    assert book.served == ["a", "large", "small"]


async def test_a_client_has_room_for_one_message_at_a_time_and_keeps_nobody_waiting(nursery):
    book = Book(100, nursery)
    for client, size in (("greedy", 10), ("greedy", 10), ("greedy", 10), ("b", 10)):
        await book.want(client, size)
    assert book.served == ["greedy", "b"]
    await book.done("greedy")
    assert book.served == ["greedy", "b", "greedy"]
    assert book.budget.used == 20


async def test_who_gives_up_waiting_has_taken_nothing_and_lets_the_next_one_in(nursery, autojump_clock):
    book = Book(100, nursery)
    await book.want("a", 60)
    with trio.move_on_after(1) as scope:
        async with trio.open_nursery() as waiting:
            waiting.start_soon(book.budget.take, "large", 100)
            await wait_all_tasks_blocked()
            await book.want("small", 40)
            assert book.served == ["a"]
    assert scope.cancelled_caught
    await wait_all_tasks_blocked()
    assert book.served == ["a", "small"]
    assert book.budget.used == 100


async def test_a_cancelled_scope_takes_nothing(nursery):
    budget = Budget(100)
    with trio.CancelScope() as scope:
        scope.cancel()
        await budget.take("a", 10)
    assert budget.used == 0


async def test_more_than_there_ever_is_cannot_be_taken():
    with pytest.raises(MisuseError, match="101 bytes wanted of a budget of 100"):
        await Budget(100).take("a", 101)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_the_budget_holds_and_comes_back(seed, autojump_clock):
    draw = random.Random(seed)
    budget = Budget(100)
    held = []

    async def client(name):
        for _ in range(10):
            with trio.move_on_after(draw.uniform(0, 5)) as scope:
                await budget.take(name, draw.randint(1, 100))
            if scope.cancelled_caught:
                continue
            held.append(name)
            assert 0 < budget.used <= 100, f"seed {seed}"
            assert held.count(name) == 1, f"seed {seed}"
            await trio.sleep(draw.uniform(0, 3))
            held.remove(name)
            budget.give_back(name)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            for _ in range(2):  # each on two connections
                nursery.start_soon(client, f"client {number}")
    assert (budget.used, held, len(budget._queue)) == (0, [], 0), f"seed {seed}"
