"""The sum of a round on several workers: whatever they do, die or say late, it is that of exactly the counted."""

import os
import random
from dataclasses import dataclass, field

import pytest

from fsl_async.protocols import partials
from fsl_async.protocols.partials import (
    Added,
    Doubted,
    Forget,
    Give,
    Joined,
    Leaving,
    Lost,
    Put,
    Seal,
    Sealed,
    Settled,
    Wanted,
)
from tests.support.cases import often

SCHEDULES = int(os.environ.get("SCHEDULES", "1500"))


def value(client: str) -> int:
    """What a client adds: no two sets of clients have the same sum."""
    return 1 << int(client)


@dataclass
class Life:
    """One life of a worker: its partials, as it has them itself, and what it has still to do."""

    name: str
    orders: list[partials.Effect] = field(default_factory=list)
    sums: dict[int, set[str]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class World:
    """A server that performs what the machine asks for, and workers that a seed has die, dawdle and repeat."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state: partials.PartialSum = partials.begin(seal=self.random.randint(1, 6))
        self.sum = 0
        self.lives: dict[str, Life] = {}
        self.said: list[partials.SumEvent] = []
        self.asked: set[partials.Effect] = set()
        self.late: list[partials.SumEvent] = []
        self.names = 0

    def take(self, event: partials.SumEvent) -> None:
        if isinstance(self.state, Settled):
            return
        before, self.state = self.state, partials.step(self.state, event)
        if isinstance(event, Sealed) and self.state.counting != before.counting:
            self.sum += event.sign * sum(map(value, event.clients))
        for effect in partials.effects(self.state):
            life = self.lives.get(effect.worker)
            if life is not None and effect not in self.asked:
                self.asked.add(effect)
                life.orders.append(effect)

    def join(self) -> None:
        self.names += 1
        name = f"w{self.names}"
        self.lives[name] = Life(name)
        self.said.append(Joined(name, self.random.randint(1, 4)))

    def lose(self) -> None:
        name = self.random.choice(sorted(self.lives))
        life = self.lives.pop(name)
        if self.random.random() < 0.5:  # stopped, and woken later: it does what it was told, and says so
            while life.orders:
                self.late += self.act(life)
        self.said.append(Lost(name))

    def act(self, life: Life) -> list[partials.SumEvent]:
        """A worker does the next thing that it was told."""
        effect = life.orders.pop(0)
        match effect:
            case Give(worker=name, partial=number, order=order):
                held = life.sums.setdefault(number, set())
                added = [client for client in order.clients if self.random.random() > 0.1]
                assert held.isdisjoint(added), "a worker refuses a client twice in one partial"
                held.update(added)
                return [Added(name, order.number, tuple(added), self.random.randint(1, 4))]
            case Seal(worker=name, partial=number, sign=sign):
                held = life.sums.pop(number, set())
                return [Sealed(name, number, sign, frozenset(held))]
            case Forget(but=number):
                life.sums = {kept: clients for kept, clients in life.sums.items() if kept == number}
                return []

    def away(self) -> list[str]:
        """The workers that have left, and may come back."""
        there = self.state.workers.keys() | {word.worker for word in self.said if isinstance(word, Joined)}
        return sorted(self.lives.keys() - there)

    def first_words(self) -> list[int]:
        """Where the next word of each worker is: what one says comes in order, what several say does not."""
        return list({event.worker: place for place, event in reversed(list(enumerate(self.said)))}.values())

    def step(self) -> None:
        """One thing happens."""
        busy = [life for life in self.lives.values() if life.orders]
        chance = self.random.random()
        if self.said and chance < 0.45:
            event = self.said.pop(self.random.choice(self.first_words()))
            self.take(event)
            if isinstance(event, Added | Sealed) and self.random.random() < 0.1:
                self.late.append(event)
        elif self.late and chance < 0.5:
            self.take(self.late.pop())
        elif busy and chance < 0.9:
            self.said += self.act(self.random.choice(busy))
        elif self.lives and chance < 0.93:
            self.take(Doubted(self.random.choice(sorted(self.lives))))
        elif self.lives and chance < 0.94:
            self.take(Leaving(self.random.choice(sorted(self.lives))))
        elif len(self.lives) > 1 and chance < 0.95:
            self.lose()
        elif self.away() and chance < 0.97:
            self.said.append(Joined(self.random.choice(self.away()), self.random.randint(1, 4)))
        elif len(self.lives) < 3:
            self.join()
        elif self.state.aside:
            self.take(Put(tuple(self.state.aside)))


def settle(world: World) -> None:
    """Until the sum has settled."""
    for _ in range(20_000):
        if isinstance(world.state, Settled):
            return
        world.step()
    raise AssertionError(f"not settled: {world.state}")


def run(seed: int) -> World:
    world = World(seed)
    clients = [str(number) for number in range(world.random.randint(1, 24))]
    counted = frozenset(client for client in clients if world.random.random() < 0.8)
    world.join()
    while clients:
        some = world.random.randint(1, 5)
        world.take(Put(tuple(clients[:some])))
        clients = clients[some:]
        for _ in range(world.random.randint(0, 30)):
            world.step()
    world.take(Wanted(counted))
    settle(world)
    assert world.sum == sum(map(value, counted))
    return world


@pytest.mark.parametrize("part", often(2, range(6)))
def test_every_schedule_ends_in_the_sum_of_exactly_the_counted(part: int) -> None:
    for seed in range(part * SCHEDULES // 6, (part + 1) * SCHEDULES // 6):
        run(seed)


def test_schedules_have_what_they_are_for() -> None:
    """Losses, partials that are refused, negative partials, and clients that are put aside come about."""
    worlds = [run(seed) for seed in range(60)]
    assert sum(world.state.given_again for world in worlds) > 100
    assert sum(world.names for world in worlds) > 200
    assert sum(len(world.state.taken) for world in worlds) > 60


# ---- what a server does, step by step


def test_two_workers_share_a_round_and_a_stranger_is_taken_off() -> None:
    state: partials.PartialSum = partials.begin(seal=3)
    for event in (Joined("a", 2), Joined("b", 2), Put(("1", "2", "3", "4"))):
        state = partials.step(state, event)
    gives = [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    assert [(give.worker, give.order.clients) for give in gives] == [("a", ("1", "2")), ("b", ("3", "4"))]
    first, second = gives
    for event in (
        Added("a", first.order.number, ("1", "2"), 2),
        Added("b", second.order.number, ("3", "4"), 2),
        Wanted(frozenset({"1", "2", "3"})),
    ):
        state = partials.step(state, event)
    assert [effect for effect in partials.effects(state) if isinstance(effect, Seal)] == [
        Seal("a", first.partial, 1),
        Seal("b", second.partial, 1),
    ]
    state = partials.step(state, Sealed("a", first.partial, 1, frozenset({"1", "2"})))
    state = partials.step(state, Sealed("b", second.partial, 1, frozenset({"3", "4"})))
    (negative,) = [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    assert (negative.sign, negative.order.clients) == (-1, ("4",))
    state = partials.step(state, Added(negative.worker, negative.order.number, ("4",), 2))
    state = partials.step(state, Sealed(negative.worker, negative.partial, -1, frozenset({"4"})))
    assert isinstance(state, Settled)
    assert (state.chosen, state.taken, state.given_again) == (frozenset("1234"), frozenset("4"), 0)


def test_a_partial_that_comes_after_its_clients_were_given_again_counts_once() -> None:
    state: partials.PartialSum = partials.begin(seal=2)
    for event in (Joined("a", 2), Put(("1", "2"))):
        state = partials.step(state, event)
    (give,) = [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    for event in (Lost("a"), Joined("b", 2)):
        state = partials.step(state, event)
    (again,) = [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    assert (again.worker, again.order.clients, state.given_again) == ("b", ("1", "2"), 2)
    late = Sealed("a", give.partial, 1, frozenset({"1", "2"}))
    state = partials.step(state, late)
    assert state.chosen == frozenset({"1", "2"})
    assert partials.step(state, late) == state
    after = partials.step(state, Sealed("b", again.partial, 1, frozenset({"1", "2"})))
    assert (after.chosen, after.counting) == (state.chosen, state.counting)


def test_a_worker_in_doubt_gets_nothing_and_whoever_seals_first_counts() -> None:
    state: partials.PartialSum = partials.begin(seal=2)
    for event in (Joined("a", 2), Put(("1", "2")), Joined("b", 2), Doubted("a")):
        state = partials.step(state, event)
    gives = {effect.worker: effect for effect in partials.effects(state) if isinstance(effect, Give)}
    assert gives["b"].order.clients == ("1", "2")
    state = partials.step(state, Put(("3",)))
    assert "3" in {client for order in state.workers["b"].orders for client in order.clients} | set(state.waiting)
    state = partials.step(state, Sealed("b", gives["b"].partial, 1, frozenset({"1", "2"})))
    state = partials.step(state, Sealed("a", gives["a"].partial, 1, frozenset({"1", "2"})))
    assert state.counting == (gives["b"].partial,)
    assert not state.workers["a"].doubted


def test_a_worker_that_leaves_is_gone_when_its_partial_is_sealed() -> None:
    state: partials.PartialSum = partials.begin(seal=5)
    for event in (Joined("a", 2), Joined("b", 2), Put(("1", "2")), Leaving("a"), Leaving("b"), Put(("3",))):
        state = partials.step(state, event)
    (give,) = [effect for effect in partials.effects(state) if isinstance(effect, Give) and effect.worker == "a"]
    state = partials.step(state, Added("a", give.order.number, give.order.clients, 2))
    assert Seal("a", give.partial, 1) in partials.effects(state)
    state = partials.step(state, Sealed("a", give.partial, 1, frozenset(give.order.clients)))
    assert "a" not in state.workers
    assert state.chosen == frozenset(give.order.clients)
    assert "3" in state.waiting
    state = partials.step(state, Joined("a", 2))
    assert [order.clients for order in state.workers["a"].orders] == [("3",)]


def test_whom_a_worker_could_not_add_is_given_out_again_when_put_again() -> None:
    state: partials.PartialSum = partials.begin(seal=5)
    for event in (Joined("a", 2), Put(("1", "2"))):
        state = partials.step(state, event)
    (give,) = [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    state = partials.step(state, Added("a", give.order.number, ("1",), 2))
    assert (state.aside, state.waiting) == (frozenset({"2"}), ())
    state = partials.step(state, Wanted(frozenset({"1", "2"})))
    assert not [effect for effect in partials.effects(state) if isinstance(effect, Give)]
    state = partials.step(state, Put(("2",)))
    assert (state.aside, state.waiting) == (frozenset(), ("2",))
    state = partials.step(state, Sealed("a", give.partial, 1, frozenset({"1"})))
    assert "2" in {client for worker in state.workers.values() for order in worker.orders for client in order.clients}
