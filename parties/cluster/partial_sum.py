"""A round's sum on workers: the machine of `fsl_async.protocols.partials`, fed and obeyed.

Where a sum of all rows does not fit half of a worker's memory, the round is cut into slices of its bins; each has a
machine of its own, and a worker adds to one slice at a time.

Rules: one task takes events and changes the state; calls to workers run beside it and report what came. A partial is
checked against what its worker was given before the machine hears of it: its list, its round and its form. The state
that the machine is left in is not stored: a server that is started again begins its sum anew.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import msgspec
import trio

from fsl_async.errors import MisuseError, StorageError
from fsl_async.protocols import partials, ssa
from fsl_async.protocols.partials import (
    Added,
    Doubted,
    Forget,
    Give,
    Joined,
    Leaving,
    Lost,
    PartialSum,
    Put,
    Seal,
    Sealed,
    Settled,
    Wanted,
)
from fsl_async.server.aggregation import Aggregate, is_cut_by_bins
from fsl_async.server.batch import at_once
from fsl_async.server.slicing import Slice, cell_bytes, proof_digest, slices_within, whole
from fsl_async.server.sums import Content
from fsl_async.wire.public_part import Trees
from parties.cluster.assignments import next_join, next_leave
from parties.cluster.cluster import Reply, WorkerLostError
from parties.cluster.laying_out import LayingOut
from parties.cluster.orders import (
    AddedReport,
    AddOrder,
    Brief,
    DropOrder,
    SealedReport,
    SealOrder,
    SessionTrees,
    decoded,
    encoded,
    sealed,
)
from parties.cluster.worker_pool import PAUSE, PooledWorker, WorkerPool
from parties.compute import ComputeLane
from parties.concurrency import RecurringEvent
from parties.events import Warned
from parties.server.round.engine import RoundSum, RoundWork
from parties.server.round.reading import StoredSubmission

_log = logging.getLogger("parties.cluster")


FoundT = TypeVar("FoundT")

MOST_SEALED = 256
"""Clients in a partial: to send and merge it takes about as long as to evaluate a dozen of them."""

MOST_ORDERED = 1024

MOST_OF_MEMORY = 0.75
"""What the cells of a slice may take of a worker's memory, where the round cannot be cut finer."""


@dataclass(frozen=True)
class Pace:
    """How much a worker is told at a time.

    Attributes:
        task_seconds: about how long an order takes.
        patience: seconds after which a worker that does not answer is doubted.
        seal: a partial with so many clients is sealed.
    """

    task_seconds: float
    patience: float
    seal: int = MOST_SEALED


@dataclass(frozen=True)
class _Said:
    """An event for the ledger of a slice, or for all of them, and the sum that came with it; None to assign workers."""

    event: partials.SumEvent | None
    slice: int | None = None
    content: Content = field(default=(), repr=False)


@dataclass(eq=False)
class _Ledger:
    """What is known of the sum over one slice.

    Attributes:
        number: the slice's.
        some: the slice; None where the round is not cut.
        state: of the machine.
        under_way: what workers are doing already.
        given: by partial, all clients that a worker was ever given for it.
    """

    number: int
    some: Slice | None
    state: PartialSum
    under_way: frozenset[partials.Effect] = frozenset()
    given: dict[int, set[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _RoundContext:
    """What a sum needs while it works: a nursery for its calls, and what every worker must know of the round."""

    nursery: trio.Nursery
    brief: Brief


@dataclass
class _Proved:
    """What is known so far of a client's entry: by slice what it proves, and how long that took."""

    parts: dict[int, bytes] = field(default_factory=dict)
    seconds: float = 0.0


class ClusterSum(RoundSum):
    """The sum of one round.

    Args:
        work: the round.
        pool: the workers.
        lane: where partials are merged and shares are formed, in this process.
        brief: which round and sum it is, for workers; its slices and unions are not yet known.
        pace: how much a worker is told at a time.
        on_bytes: called with the bytes of each partial that comes.
    """

    def __init__(
        self,
        work: RoundWork,
        pool: WorkerPool,
        lane: ComputeLane,
        brief: Brief,
        pace: Pace,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._work = work
        self._pool = pool
        self._lane = lane
        self._brief = brief
        self._pace = pace
        self._laying = LayingOut(work.start.config, work.records)
        self._on_bytes = on_bytes
        self._say, self._said = trio.open_memory_channel[_Said](float("inf"))
        self._ledgers: tuple[_Ledger, ...] = ()
        self._present: dict[str, PooledWorker] = {}
        self._small: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._trees: dict[str, bytes] = {}
        self._proved: dict[str, _Proved] = {}
        self._entries: dict[str, bytes] = {}
        self._aggregate: Aggregate | None = None
        self._counted: frozenset[str] | None = None
        self._progress, self._moved = RecurringEvent(), RecurringEvent()
        self._merging = trio.Lock()
        self._closed = self._released = False
        self.seconds = 0.0

    # ---- what a round asks of it

    @property
    def added(self) -> int:
        """See `RoundSum.added`."""
        return len(self._entries)

    @property
    def states(self) -> tuple[PartialSum, ...]:
        """The ledger of each slice, as far as it is known how the round is cut."""
        return tuple(ledger.state for ledger in self._ledgers)

    @property
    def unheard(self) -> int:
        """How many clients wait for it to be known how the round is cut."""
        return 0 if self._ledgers else self._said.statistics().current_buffer_used

    def put(self, client: str) -> None:
        """See `RoundSum.put`."""
        self._tell(Put((client,)))

    async def work(self) -> None:
        """See `RoundSum.work`."""
        async with trio.open_nursery() as nursery:
            with self._pool.heard_by(self._hear_of, self._hear_of_loss):
                slices = await self._cut()
                begin = partials.begin(self._pace.seal)
                self._ledgers = tuple(_Ledger(number, some, begin) for number, some in enumerate(slices))
                unions = await self._laying.unions(self._work.start)
                brief = msgspec.structs.replace(self._brief, slices=len(slices), unions=unions)
                context = _RoundContext(nursery, brief)
                async for said in self._said:
                    for each in self._together(said):
                        await self._take(each, context)

    async def proofs(self, roster: frozenset[str]) -> dict[str, bytes]:
        """See `RoundSum.proofs`."""
        self._closed = True
        self._stir()
        clients = sorted(roster)
        for client in clients:
            while client not in self._entries:
                await self._progress.wait()
        return {client: self._entries[client] for client in clients}

    @asynccontextmanager
    async def settled(self, counted: frozenset[str]) -> AsyncIterator[Aggregate]:
        """See `RoundSum.settled`."""
        await self.proofs(counted)
        if self._counted is None:
            self._counted = counted
            self._tell(Wanted(counted))
        elif self._counted != counted:
            raise MisuseError("the sum of other clients has been asked for already")
        while not all(isinstance(state, Settled) for state in self.states):
            await self._moved.wait()
        async with self._merging:
            yield await self._sum()

    def release(self) -> None:
        """See `RoundSum.release`."""
        self._released = True
        if self._aggregate is not None:
            self._aggregate.release()
            self._aggregate = None

    # ---- slices

    async def _cut(self) -> tuple[Slice | None, ...]:
        """Cut the round so that a sum over a slice takes half of a worker's memory at most, as far as it can be cut."""
        config = self._work.start.config
        if not is_cut_by_bins(config):
            return (None,)
        while not self._present:
            await self._moved.wait()
        known = [pooled.memory for pooled in self._present.values() if pooled.memory]
        slices = slices_within(config.shape, min(known) // 2) if known else ()
        if len(slices) <= 1:
            return (None,)
        _log.info("the sum of round %d is cut into %d slices", config.number, len(slices))
        return slices

    @cached_property
    def _need(self) -> int:
        """The bytes of the cells of the largest slice."""
        shape = self._work.start.config.shape
        return max(cell_bytes(shape, ledger.some or whole(shape)) for ledger in self._ledgers)

    def _fit(self) -> list[str]:
        """The workers that have the memory for a slice."""
        need = self._need
        small = {name for name, pooled in self._present.items() if 0 < pooled.memory * MOST_OF_MEMORY < need}
        pieces = f", of which there are {len(self._ledgers)}" if len(self._ledgers) > 1 else ""
        for name in sorted(small - self._small):
            explanation = (
                f"worker {name} is not used for round {self._work.start.config.number}: it has "
                f"{self._present[name].memory >> 20} MiB, and the cells of a slice{pieces} take {need >> 20} MiB; give "
                "it more memory (compute.worker_memory_bytes)"
            )
            self._pool.observe(Warned(about="compute", explanation=explanation))
        self._small |= small
        return [name for name in self._present if name not in small]

    # ---- events

    def _tell(self, event: partials.SumEvent, slice_: int | None = None, content: Content = ()) -> None:
        self._say.send_nowait(_Said(event, slice_, content))

    def _stir(self) -> None:
        """Have it seen to that every slice has workers: there are others, or no further clients come."""
        self._say.send_nowait(_Said(None))

    def _hear_of(self, pooled: PooledWorker) -> None:
        self._present[pooled.name] = pooled
        self._sizes.setdefault(pooled.name, at_once(self._work.start.config.shape, pooled.threads))
        self._moved.set()
        self._stir()

    def _hear_of_loss(self, name: str) -> None:
        self._present.pop(name, None)
        self._tell(Lost(name))

    def _together(self, said: _Said) -> list[_Said]:
        """What has come by now, submissions that follow each other as one event."""
        found = [said]
        while self._said.statistics().current_buffer_used:
            following = self._said.receive_nowait()
            last = found[-1]
            if isinstance(following.event, Put) and isinstance(last.event, Put) and following.slice == last.slice:
                found[-1] = _Said(Put(last.event.clients + following.event.clients), last.slice)
            else:
                found.append(following)
        return found

    async def _take(self, said: _Said, context: _RoundContext) -> None:
        if said.event is not None:
            for ledger in self._ledgers if said.slice is None else (self._ledgers[said.slice],):
                await self._step(ledger, said.event, context, said.content)
        fit = self._fit()
        while True:
            if (join := next_join(self.states, fit)) is not None:
                await self._step(self._ledgers[join.slice], Joined(join.worker, self._sizes[join.worker]), context)
            elif (leave := next_leave(self.states, closed=self._closed)) is not None:
                await self._step(self._ledgers[leave.slice], Leaving(leave.worker), context)
            else:
                break
        self._moved.set()

    async def _step(
        self, ledger: _Ledger, event: partials.SumEvent, context: _RoundContext, content: Content = ()
    ) -> None:
        before = ledger.state
        if isinstance(before, Settled):
            return
        after = partials.step(before, event)
        if isinstance(event, Sealed) and after.counting != before.counting:
            async with self._merging:
                if self._released:
                    return
                aggregate = await self._sum()
                try:
                    jobs = aggregate.merging(content, event.sign, ledger.some)
                except MisuseError as error:
                    self._pool.dismiss(event.worker, str(error))
                    return
                await self._lane.run_all(jobs)
        ledger.state = after
        effects = partials.effects(after)
        for effect in effects:
            if effect not in ledger.under_way:
                context.nursery.start_soon(self._perform, effect, ledger, context)
        ledger.under_way = frozenset(effects)

    async def _sum(self) -> Aggregate:
        if self._aggregate is None:
            start = self._work.start
            make = partial(Aggregate, start.config, start.server, start.proof_key, start.union)
            self._aggregate = await self._lane.run(make)
        return self._aggregate

    # ---- calls to workers

    async def _perform(self, effect: partials.Effect, ledger: _Ledger, context: _RoundContext) -> None:
        pooled = self._pool.workers.get(effect.worker)
        if pooled is None:
            return
        try:
            match effect:
                case Give():
                    await self._give(effect, pooled, ledger, context)
                case Seal():
                    await self._take_partial(effect, ledger, context)
                case Forget(but=but):
                    drop = DropOrder(
                        life=context.brief.life,
                        sum=context.brief.sum,
                        slice=ledger.number,
                        but=but,
                        below=ledger.state.next_number,
                    )
                    await self._pool.cluster.call(pooled.name, "drop", encoded(drop))
        except (WorkerLostError, MisuseError) as error:
            self._pool.dismiss(pooled.name, str(error))

    async def _call(self, worker: str, action: str, order: bytes, ledger: _Ledger, context: _RoundContext) -> Reply:
        """Call a worker, and doubt it if it takes too long."""
        done = trio.Event()

        async def doubt() -> None:
            with trio.move_on_after(self._pace.patience):
                await done.wait()
            if not done.is_set():
                self._tell(Doubted(worker), ledger.number)

        context.nursery.start_soon(doubt)
        try:
            return await self._pool.cluster.call(worker, action, order)
        finally:
            done.set()

    async def _give(self, effect: Give, pooled: PooledWorker, ledger: _Ledger, context: _RoundContext) -> None:
        order = await self._order(effect, ledger, context.brief)
        if order is None:
            return
        ledger.given.setdefault(effect.partial, set()).update(effect.order.clients)
        reply = await self._call(pooled.name, "add", sealed(order, pooled.key), ledger, context)
        report = decoded(reply.report, AddedReport)
        if report.entries.keys() | report.damaged.keys() != frozenset(effect.order.clients):
            raise MisuseError("it has added others than it was told to")
        size = ssa.Terms.of(self._work.start.config, self._work.start.server).proof_bytes
        if len(self._ledgers) == 1 and any(len(entry) != size for entry in report.entries.values()):
            raise MisuseError(f"it says of a submission what is no proof: {size} bytes are")  # of a slice any digest is
        self._count(report, ledger)
        for client, why in report.damaged.items():
            context.nursery.start_soon(self._repair, client, why, ledger)
        size = self._sizes[pooled.name] = self._size(report, self._sizes[pooled.name])
        self._tell(Added(pooled.name, effect.order.number, tuple(report.entries), size), ledger.number)

    def _count(self, report: AddedReport, ledger: _Ledger) -> None:
        each = report.seconds / max(1, len(report.entries))
        self.seconds += report.seconds
        for client, part in report.entries.items():
            if client in self._entries:
                continue
            proved = self._proved.setdefault(client, _Proved())
            proved.parts[ledger.number] = part
            proved.seconds += each
            if len(proved.parts) == len(self._ledgers):
                self._entries[client] = self._entry(self._trees.pop(client), self._proved.pop(client))
                self._work.on_added(client, proved.seconds)
        self._progress.set()

    def _entry(self, tree: bytes, proved: _Proved) -> bytes:
        """A client's entry, of what was proved in every slice."""
        parts = [proved.parts[ledger.number] for ledger in self._ledgers]
        return parts[0] if len(parts) == 1 else proof_digest(tree, b"".join(parts))

    def _size(self, report: AddedReport, before: int) -> int:
        """How many clients take a worker about as long as an order should."""
        if not report.entries or report.seconds <= 0:
            return before
        fitting = self._pace.task_seconds * len(report.entries) / report.seconds  # infinite where that is next to 0
        return max(1, round(min(fitting, 2 * before, MOST_ORDERED)))

    async def _take_partial(self, effect: Seal, ledger: _Ledger, context: _RoundContext) -> None:
        brief = context.brief
        order = SealOrder(life=brief.life, sum=brief.sum, slice=ledger.number, partial=effect.partial)
        reply = await self._call(effect.worker, "seal", encoded(order), ledger, context)
        report = decoded(reply.report, SealedReport)
        clients = frozenset(report.clients)
        if report.round_id != self._work.start.config.round_id():
            raise MisuseError(f"it sends a partial of round {report.round_id.hex()[:16]}, which is another one")
        if len(clients) != len(report.clients) or not clients <= ledger.given.get(effect.partial, set()):
            raise MisuseError("it sends a partial with clients that it was not given for it, or twice")
        self._on_bytes(sum(array.nbytes for array in reply.arrays))
        self._tell(Sealed(effect.worker, effect.partial, effect.sign, clients), ledger.number, reply.arrays)

    async def _repair(self, client: str, why: str, ledger: _Ledger) -> None:
        """Have a submission given out again, once its bulk can be read here: this names it while it cannot."""
        _log.warning("a worker could not add the submission of %s: %s", client, why)
        if await self._unless_over(self._work.fetch, client) is not None:
            await trio.sleep(PAUSE)
            self._tell(Put((client,)), ledger.number)

    # ---- what an order is made of

    async def _order(self, effect: Give, ledger: _Ledger, brief: Brief) -> AddOrder | None:
        """An order, with what the store has of its submissions; None if the round is over."""
        stored: list[StoredSubmission] = []
        sessions: dict[str, SessionTrees] = {}
        for client in effect.order.clients:
            found = await self._unless_over(self._work.records.stored_submission, client)
            if found is None:
                return None
            stored.append(found)
            self._trees[client] = found.tree
            if found.trees is Trees.SESSION:
                trees = await self._work.records.session_trees(client)
                sessions[client] = await self._laying.session(client, trees)
        return AddOrder(
            brief=brief,
            slice=ledger.number,
            partial=effect.partial,
            number=effect.order.number,
            submissions=tuple(stored),
            sessions=sessions,
        )

    async def _unless_over(self, read: Callable[[str], Awaitable[FoundT]], client: str) -> FoundT | None:
        """What is stored of a client; None where it is erased because the round is over."""
        try:
            return await read(client)
        except StorageError:
            if not self._work.over.is_set():
                raise
            return None
