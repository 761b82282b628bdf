"""A round's deadline, the grace for stragglers, the patience with a silent peer; and how long it has taken, in parts.

Rules: the peer is awaited for a limited time only, and only as long as nothing has been committed to. How long a round
collects, computes and waits is stored, so that a restart loses none of it: the clock is read when the round's machine
changes its state, and what was measured is in the same commit as the event that changed it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Annotated

import msgspec
import trio

from fsl_async.protocols import ssa
from fsl_async.protocols.ending import Activity, CloseRound, GaveUp, RoundState
from fsl_async.protocols.reconciliation import Round
from parties.server.round.engine import RoundStart
from parties.server.round.records import RoundRecords
from parties.server.round.services import RoundServices
from parties.status import RoundTimes
from parties.storage.store import Put, Store, decode_stored


class Timers:
    """The timers of one round, in its nursery; each reports its end as an event.

    Args:
        start: what the round began with.
        records: whether it waits for parts that the peer is to forward again.
        services: what it has of its server.
        state: returns the present state of the round's machine.
    """

    def __init__(
        self, start: RoundStart, records: RoundRecords, services: RoundServices, state: Callable[[], Round]
    ) -> None:
        self._round_id = start.config.round_id()
        self._closes_at = start.closes_at
        self._peer = f"S{1 - start.server}"
        self._records = records
        self._services = services
        self._state = state

    def start_deadline(self) -> None:
        """Close the round when its time is over, if it has a deadline."""
        if self._closes_at != inf:
            self._services.nursery.start_soon(self._close_when_due)

    def start_grace(self) -> None:
        """Wait for submissions that only the peer holds, for the grace period."""
        self._services.nursery.start_soon(self._wait_for_grace)

    def watch_peer(self) -> None:
        """If this state awaits the peer and nothing has been committed to, give the round up after a while.

        What the peer says meanwhile ends the waiting only if it leads to another kind of state.
        """
        if awaits_peer(self._state(), self._records.awaits_any) and self._services.patience != inf:
            self._services.nursery.start_soon(self._lose_patience, self._state())

    async def _close_when_due(self) -> None:
        await trio.sleep(max(0.0, self._closes_at - self._services.clock()))
        await self._services.report(self._round_id, CloseRound())

    async def _wait_for_grace(self) -> None:
        await trio.sleep(self._services.grace)
        await self._services.report(self._round_id, ssa.GraceOver())

    async def _lose_patience(self, state: Round) -> None:
        stood = self._services.standstill.seconds
        await trio.sleep(self._services.patience)
        while (longer := self._services.standstill.seconds - stood) > 0:  # it was not the peer that was awaited
            stood += longer
            await trio.sleep(longer)
        if type(self._state()) is type(state) and awaits_peer(state, self._records.awaits_any):
            waited = f"{self._peer} was awaited in state {type(state).__name__} for {self._services.patience:g} s"
            await self._services.report(self._round_id, GaveUp(waited))


def awaits_peer(state: Round, lacks_parts: bool) -> bool:
    """Whether the round cannot continue before the peer sends something, and may still be aborted.

    Args:
        state: the round's.
        lacks_parts: whether a restart has lost public parts that the peer has yet to forward again.
    """
    return state.may_give_up or _cannot_evaluate(state, lacks_parts)


def waiting_for(state: Round, lacks_parts: bool, peer: str) -> str:
    """What has to come before the round continues, for people; empty if the round is over."""
    lacking = _cannot_evaluate(state, lacks_parts)
    return f"submissions that {peer} forwards again" if lacking else state.waits_for.format(peer=peer)


def _cannot_evaluate(state: Round, lacks_parts: bool) -> bool:
    return lacks_parts and isinstance(state, ssa.Rostered | ssa.Verified | ssa.Chosen)


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What has been measured of a round up to the last change of its state.

    Attributes:
        times: seconds by activity, up to `since`.
        since: when the state changed, in seconds since 1970.
    """

    times: RoundTimes
    since: Annotated[float, msgspec.Meta(gt=-(2**36), lt=2**36)]

    def until(self, now: float, activity: Activity | None) -> Measured:
        """The same with what has passed since, during an activity; None: during an interruption."""
        field = activity or "interrupted"
        spent = getattr(self.times, field) + max(0.0, now - self.since)
        return Measured(msgspec.structs.replace(self.times, **{field: spent}), now)


class Stopwatch:
    """Measures one round on one server.

    Args:
        opened_at: when the round opened, in seconds since 1970.
        key: where what it has measured is stored.
        held_up: for how many seconds this server's own store or blobs have held it up; it did not wait for the other
            one meanwhile.
    """

    def __init__(self, opened_at: float, key: str, held_up: Callable[[], float] = lambda: 0.0) -> None:
        self._opened_at = opened_at
        self._key = key
        self._held_up = held_up
        self._before = self._until_now = held_up()
        self._measured = Measured(RoundTimes(), opened_at)

    async def resume(self, store: Store, state: RoundState, now: float) -> None:
        """Continue after a restart, in the state that the server's records lead to.

        Raises:
            StorageError: what was measured cannot be read.
        """
        if await store.keys(self._key):
            self._measured = decode_stored(await store.blob(self._key), Measured, self._key)
            if state.activity != "collecting":
                self._measured = self._measured.until(now, None)

    def moved(self, before: RoundState, after: RoundState, now: float) -> Measured:
        """What is measured when the machine goes from a state to another one; `adopt` it once it is stored."""
        if type(before) is type(after):
            return self._measured
        self._until_now = self._held_up()
        return self._until(now, before.activity)

    def changes(self, measured: Measured) -> list[Put]:
        """The change that stores it, if there is anything new."""
        return [] if measured is self._measured else [Put(self._key, msgspec.msgpack.encode(measured))]

    def adopt(self, measured: Measured) -> None:
        """Continue from what is stored."""
        self._measured, self._before = measured, self._until_now

    def _until(self, now: float, activity: Activity | None) -> Measured:
        """What is measured with the time up to now: what held the server up goes last, as an interruption."""
        if activity == "collecting":  # of clients, who come back
            return self._measured.until(now, activity)
        held_up, since = self._held_up() - self._before, self._measured.since
        return self._measured.until(max(min(since, now), now - held_up), activity).until(now, None)

    def times(self, state: RoundState, now: float) -> RoundTimes:
        """The round's time so far."""
        return self._until(now, state.activity).times if state.activity else self._measured.times

    def since(self, state: RoundState) -> float:
        """Since when the round collects, or since when it does not any more, in seconds since 1970."""
        if state.activity == "collecting":
            return self._opened_at
        return self._opened_at + self._measured.times.collecting
