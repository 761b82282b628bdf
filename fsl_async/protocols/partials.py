"""The sum of a round on several workers: who is given to which of them, and which partial sums count.

A partial is a value: a list of clients, and their sum. A worker adds clients to one partial at a time, and refuses a
client twice in one. When a partial is sealed, its list and its sum come to the server, and it counts, by its own list,
if that is disjoint from the lists that count already; otherwise it is forgotten. So whatever workers do, die or say
late, a client is in the sum once, or not yet. Whoever is in no partial that counts and in no open one of a worker that
answers is given out, perhaps again. What is given out twice costs time and nothing else.

Once it is known who is to be counted, the sum is that of all partials that count, less that of their clients who are
not to be: these go through the same machine once more, in negative partials. Then it has settled.

A worker that is slow is doubted: its clients are given to others as well, and the partial that is sealed first counts.
One that is needed elsewhere, for another slice of the round, leaves: it gets nothing more, and is gone when its partial
is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, TypeVar, assert_never

import msgspec

from fsl_async.protocols.machine import Event, Machine, State

Sign: TypeAlias = Literal[1, -1]

ORDERS_AHEAD = 2
"""Orders that a worker has at a time: while it adds one, it reads the bulk of the next."""


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clients that a worker is to add to its open partial."""

    number: int
    clients: tuple[str, ...]


class Partial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partial that a worker adds to.

    Attributes:
        number: names it; none has the number of another.
        sign: -1 where it is taken off the sum.
        clients: who is in it, or in an order for it.
        closing: whether it gets no further client, and is sealed when its orders are done.
    """

    number: int
    sign: Sign
    clients: frozenset[str] = frozenset()
    closing: bool = False


class Worker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker that is there.

    Attributes:
        size: how many clients its next order has, at most.
        partial: what it adds to; None where it has nothing.
        orders: what it has been given and has not done yet.
        doubted: whether its clients are given to others as well.
        leaving: whether it is gone as soon as its partial is sealed.
    """

    size: int
    partial: Partial | None = None
    orders: tuple[Order, ...] = ()
    doubted: bool = False
    leaving: bool = False


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """What all states hold.

    Attributes:
        seal: a partial with so many clients is sealed.
        arrived: all clients that were put, in order.
        waiting: those whom no worker has, in the order in which they are given out.
        workers: by name.
        aside: those whom a worker could not add; nobody is given them until they are put again.
        chosen: the clients of the partials that count.
        taken: the clients of the negative partials that count.
        counting: the numbers of the partials that count, of either sign.
        given_again: how many clients were given out again.
        next_number: of a partial or an order.
    """

    seal: int
    arrived: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    workers: dict[str, Worker] = msgspec.field(default_factory=dict)
    aside: frozenset[str] = frozenset()
    chosen: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    counting: tuple[int, ...] = ()
    given_again: int = 0
    next_number: int = 1


class Adding(Sum, State, frozen=True, kw_only=True, tag="Adding"):
    """Clients come; it is not known yet who is to be counted."""


class Settling(Sum, State, frozen=True, kw_only=True, tag="Settling"):
    """It is known who is to be counted: what is missing is added, and what is too much taken off."""

    counted: frozenset[str]


class Settled(Sum, State, frozen=True, kw_only=True, tag="Settled"):
    """The partials that count are the sum of exactly those who are to be counted; whatever is said now is too late."""

    counted: frozenset[str]


PartialSum: TypeAlias = Adding | Settling | Settled
SumT = TypeVar("SumT", bound=Adding | Settling | Settled)


class Put(Event, frozen=True, tag="Put"):
    """Clients whose submissions are stored."""

    clients: tuple[str, ...]


class Joined(Event, frozen=True, tag="Joined"):
    """A worker is there, with nothing in hand."""

    worker: str
    size: int


class Lost(Event, frozen=True, tag="Lost"):
    """A worker is gone, with all that it had."""

    worker: str


class Doubted(Event, frozen=True, tag="Doubted"):
    """A worker has not answered for long."""

    worker: str


class Leaving(Event, frozen=True, tag="Leaving"):
    """A worker is to go elsewhere, as soon as what it has is sealed; `Joined` brings it back."""

    worker: str


class Added(Event, frozen=True, tag="Added"):
    """A worker has done an order.

    Attributes:
        worker: which.
        order: its number.
        clients: those whom it has added; the others it could not, and whoever puts them again gives them out again.
        size: how many clients its next order may have.
    """

    worker: str
    order: int
    clients: tuple[str, ...]
    size: int


class Sealed(Event, frozen=True, tag="Sealed"):
    """A partial has come, with its sum.

    Attributes:
        worker: from which worker.
        partial: its number.
        sign: -1 where it is taken off the sum.
        clients: its own list.
    """

    worker: str
    partial: int
    sign: Sign
    clients: frozenset[str]


class Wanted(Event, frozen=True, tag="Wanted"):
    """It is known who is to be counted; all of them have been put."""

    counted: frozenset[str]


SumEvent: TypeAlias = Put | Joined | Lost | Doubted | Leaving | Added | Sealed | Wanted


class Give(msgspec.Struct, frozen=True):
    """Have a worker add clients to its partial."""

    worker: str
    partial: int
    sign: Sign
    order: Order


class Seal(msgspec.Struct, frozen=True):
    """Have a worker seal its partial, and send it."""

    worker: str
    partial: int
    sign: Sign


class Forget(msgspec.Struct, frozen=True):
    """Have a worker throw away every partial but one; 0: all."""

    worker: str
    but: int


Effect: TypeAlias = Give | Seal | Forget

MACHINE: Machine[PartialSum] = Machine(PartialSum, SumEvent, initial=(Adding,), final=(Settled,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts
step = MACHINE.step


def begin(seal: int) -> Adding:
    """Begin with nobody; a partial with `seal` clients is sealed."""
    return Adding(seal=seal)


def effects(state: PartialSum) -> tuple[Effect, ...]:
    """What every worker is to do, in order; what it does already is among it."""
    return tuple(effect for name, worker in state.workers.items() for effect in _of_worker(name, worker))


def _of_worker(name: str, worker: Worker) -> Iterable[Effect]:
    partial = worker.partial
    yield Forget(name, partial.number if partial is not None else 0)
    if partial is not None:
        yield from (Give(name, partial.number, partial.sign, order) for order in worker.orders)
        if partial.closing and not worker.orders:
            yield Seal(name, partial.number, partial.sign)


# ---- the rules


@MACHINE.transition
def _put(state: Adding, event: Put) -> Adding:
    known = _placed(state) | frozenset(state.waiting)
    fresh = tuple(client for client in dict.fromkeys(event.clients) if client not in known)
    return _deal(_with(_arrived(state, fresh), waiting=state.waiting + fresh))


@MACHINE.transition
def _put_late(state: Settling, event: Put) -> Settling:
    """Of use are those who are to be counted: such as could not be added before."""
    return _deal(_recalled(_arrived(state, event.clients)))


@MACHINE.transition
def _take(state: Adding, event: Joined | Lost | Doubted | Leaving | Added | Sealed) -> Adding:
    return _deal(_taken(state, event))


@MACHINE.transition
def _take_late(state: Settling, event: Joined | Lost | Doubted | Leaving | Added) -> Settling:
    return _deal(_taken(state, event))


@MACHINE.transition
def _take_partial(state: Settling, event: Sealed) -> Settling | Settled:
    return _go_on(_taken(state, event), state.counted)


@MACHINE.transition
def _want(state: Adding, event: Wanted) -> Settling | Settled:
    return _go_on(state, event.counted)


MACHINE.complete()


# ---- what they are made of


def _fields(state: PartialSum) -> dict[str, Any]:
    return {name: getattr(state, name) for name in Sum.__struct_fields__}


def _with(state: SumT, **changes: Any) -> SumT:
    return msgspec.structs.replace(state, **changes)


def _arrived(state: SumT, clients: tuple[str, ...]) -> SumT:
    seen, aside = frozenset(state.arrived), state.aside.difference(clients)
    return _with(state, arrived=state.arrived + tuple(client for client in clients if client not in seen), aside=aside)


def _taken(state: SumT, event: Joined | Lost | Doubted | Leaving | Added | Sealed) -> SumT:
    """What an event says of a worker."""
    match event:
        case Joined(worker=name, size=size):
            return _replaced(state, name, {name: Worker(max(1, size))})
        case Lost(worker=name):
            return _replaced(state, name, {})
        case Doubted(worker=name):
            worker = state.workers.get(name)
            if worker is None or worker.partial is None:
                return state
            return _given_again(_changed(state, name, msgspec.structs.replace(worker, doubted=True)))
        case Leaving(worker=name):
            worker = state.workers.get(name)
            if worker is None or worker.partial is None:
                return _replaced(state, name, {})
            closing = msgspec.structs.replace(worker.partial, closing=True)
            return _changed(state, name, msgspec.structs.replace(worker, partial=closing, leaving=True))
        case Added():
            return _done(state, event)
        case Sealed():
            return _judged(state, event)
        case _:
            assert_never(event)


def _replaced(state: SumT, name: str, by: dict[str, Worker]) -> SumT:
    """Without a worker and all that it had, or with another one in its place."""
    workers = {other: worker for other, worker in state.workers.items() if other != name}
    return _given_again(_with(state, workers=workers | by))


def _freed(state: SumT, name: str) -> SumT:
    """A worker has nothing in hand any more."""
    worker = state.workers[name]
    workers = {other: held for other, held in state.workers.items() if other != name}
    return _with(state, workers=workers) if worker.leaving else _changed(state, name, Worker(worker.size))


def _changed(state: SumT, name: str, worker: Worker) -> SumT:
    return _with(state, workers={**state.workers, name: worker})


def _done(state: SumT, event: Added) -> SumT:
    """An order is done, and its worker is not doubted; of an order that nobody waits for nothing is learnt."""
    worker = state.workers.get(event.worker)
    order = next((order for order in worker.orders if order.number == event.order), None) if worker else None
    if worker is None or order is None or worker.partial is None:
        return state
    left = frozenset(order.clients) - frozenset(event.clients)
    partial = msgspec.structs.replace(worker.partial, clients=worker.partial.clients - left)
    orders = tuple(other for other in worker.orders if other is not order)
    done = Worker(max(1, event.size), partial, orders, leaving=worker.leaving)
    state = _changed(state, event.worker, done)
    out = partial.clients | left
    waiting = tuple(client for client in state.waiting if client not in out)
    return _with(state, waiting=waiting, aside=state.aside | left)


def _judged(state: SumT, event: Sealed) -> SumT:
    """A partial counts if it is of the sign that is made now, of some use, and disjoint from those that count."""
    worker = state.workers.get(event.worker)
    if worker is not None and worker.partial is not None and worker.partial.number == event.partial:
        state = _freed(state, event.worker)
    before = state
    if _counts(state, event):
        state = _with(state, counting=(*state.counting, event.partial))
        if event.sign == 1:
            state = _with(state, chosen=state.chosen | event.clients)
        else:
            state = _with(state, taken=state.taken | event.clients)
    return state if _counts(before, event) else _given_again(state)


def _counts(state: PartialSum, event: Sealed) -> bool:
    if event.sign != _sign(state) or event.partial in state.counting or not event.clients:
        return False
    if isinstance(state, Adding):
        return event.clients.isdisjoint(state.chosen)
    if event.sign == 1:
        return event.clients.isdisjoint(state.chosen) and not event.clients.isdisjoint(state.counted)
    return event.clients <= state.chosen - state.counted - state.taken


def _sign(state: PartialSum) -> Sign:
    """The sign of the partials that are made now: negative ones when all who are to be counted are in."""
    return 1 if isinstance(state, Adding) or not state.counted <= state.chosen else -1


def _missing(state: PartialSum) -> Iterable[str]:
    """Who must still come into a partial that counts, in order, whether a worker has them or not."""
    if isinstance(state, Adding):
        return (client for client in state.arrived if client not in state.chosen)
    if _sign(state) == 1:
        return sorted(state.counted - state.chosen)
    return sorted(state.chosen - state.counted - state.taken)


def _placed(state: PartialSum) -> frozenset[str]:
    """Who is in a partial that counts, or in an open one of a worker that is not doubted."""
    sign = _sign(state)
    of_workers = (
        worker.partial.clients
        for worker in state.workers.values()
        if worker.partial is not None and worker.partial.sign == sign and not worker.doubted
    )
    return frozenset().union(state.chosen if sign == 1 else state.taken, *of_workers)


def _recalled(state: SumT) -> SumT:
    """With everyone waiting who is missing, whom no worker has, and who is not put aside."""
    placed = _placed(state) | state.aside
    return _with(state, waiting=tuple(client for client in _missing(state) if client not in placed))


def _given_again(state: SumT) -> SumT:
    """The same; those who did not wait are given out again."""
    after = _recalled(state)
    again = len(frozenset(after.waiting) - frozenset(state.waiting))
    return _with(after, given_again=after.given_again + again)


def _go_on(state: PartialSum, counted: frozenset[str]) -> Settling | Settled:
    """Throw away partials that are of no use any more, and deal out what is missing, or be done."""
    after = Settling(**_fields(state), counted=counted)
    sign, missing = _sign(after), frozenset(_missing(after))
    for name, worker in state.workers.items():
        if not _is_of_use(worker, sign, missing):
            after = _freed(after, name)
    return _deal(_recalled(after)) if missing else Settled(**_fields(_with(after, waiting=())), counted=counted)


def _is_of_use(worker: Worker, sign: Sign, missing: frozenset[str]) -> bool:
    partial = worker.partial
    return partial is not None and partial.sign == sign and not partial.clients.isdisjoint(missing)


def _deal(state: SumT) -> SumT:
    """Give those who wait to workers with room, to those with the fewest orders first; close what is to be sealed."""
    while state.waiting:
        free = {name: len(worker.orders) for name, worker in state.workers.items() if _has_room(worker)}
        if not free:
            break
        idle = [name for name, orders in free.items() if orders == min(free.values())]
        state = _given(state, idle[0], -(-len(state.waiting) // len(idle)))
    hurry = not isinstance(state, Adding) and not state.waiting
    workers = {
        name: msgspec.structs.replace(worker, partial=msgspec.structs.replace(worker.partial, closing=True))
        if worker.partial is not None and (hurry or len(worker.partial.clients) >= state.seal)
        else worker
        for name, worker in state.workers.items()
    }
    return _with(state, workers=workers)


def _has_room(worker: Worker) -> bool:
    closing = worker.partial is not None and worker.partial.closing
    return not worker.doubted and not worker.leaving and not closing and len(worker.orders) < ORDERS_AHEAD


def _given(state: SumT, name: str, share: int) -> SumT:
    """One order for a worker: its share of those who wait, as many as it takes at once and as fit its partial."""
    worker, number = state.workers[name], state.next_number
    partial = worker.partial or Partial(number, _sign(state))
    room = max(1, min(worker.size, share, state.seal - len(partial.clients)))
    order = Order(number + 1, state.waiting[:room])
    members = partial.clients | frozenset(order.clients)
    partial = msgspec.structs.replace(partial, clients=members, closing=len(members) >= state.seal)
    state = _changed(state, name, Worker(worker.size, partial, (*worker.orders, order)))
    return _with(state, waiting=state.waiting[room:], next_number=number + 2)
