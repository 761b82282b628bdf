"""How long a round collects, computes and waits, as its server measures it; stored, so that a restart loses none of it.

Rules: the clock is read when the round's machine changes its state, and what was measured is in the same commit as the
event that changed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from fsl_async.protocols.ending import Activity, RoundState
from parties.status import RoundTimes
from parties.storage.decoding import decode_stored
from parties.storage.store import Put, Store


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
