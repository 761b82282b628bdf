"""A round's three times: its deadline, the grace for stragglers, and the patience with a silent peer.

Rule: the peer is awaited for a limited time only, and only as long as nothing has been committed to.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from fsl_async.protocols import ssa
from fsl_async.protocols.ending import CloseRound, GaveUp
from fsl_async.protocols.reconciliation import Round
from parties.server.round.records import RoundRecords
from parties.server.round.start import RoundStart
from parties.server.round.tools import Tools


class Timers:
    """The timers of one round, in its nursery; each reports its end as an event.

    Args:
        begun: what the round began with.
        records: whether it waits for parts that the peer is to forward again.
        tools: what it has of its server.
        state: returns the present state of the round's machine.
    """

    def __init__(self, begun: RoundStart, records: RoundRecords, tools: Tools, state: Callable[[], Round]) -> None:
        self._round_id = begun.config.round_id()
        self._closes_at = begun.closes_at
        self._peer = f"S{1 - begun.server}"
        self._records = records
        self._tools = tools
        self._state = state

    def start_deadline(self) -> None:
        """Close the round when its time is over, if it has a deadline."""
        if self._closes_at != inf:
            self._tools.nursery.start_soon(self._close_when_due)

    def start_grace(self) -> None:
        """Wait for submissions that only the peer holds, for the grace period."""
        self._tools.nursery.start_soon(self._wait_for_grace)

    def watch_peer(self) -> None:
        """If this state awaits the peer and nothing has been committed to, give the round up after a while.

        What the peer says meanwhile ends the waiting only if it leads to another kind of state.
        """
        if awaits_peer(self._state(), self._records.awaits_any) and self._tools.patience != inf:
            self._tools.nursery.start_soon(self._lose_patience, self._state())

    async def _close_when_due(self) -> None:
        await trio.sleep(max(0.0, self._closes_at - self._tools.clock()))
        await self._tools.report(self._round_id, CloseRound())

    async def _wait_for_grace(self) -> None:
        await trio.sleep(self._tools.grace)
        await self._tools.report(self._round_id, ssa.GraceOver())

    async def _lose_patience(self, state: Round) -> None:
        stood = self._tools.standstill.seconds
        await trio.sleep(self._tools.patience)
        while (longer := self._tools.standstill.seconds - stood) > 0:  # it was not the peer that was awaited
            stood += longer
            await trio.sleep(longer)
        if type(self._state()) is type(state) and awaits_peer(state, self._records.awaits_any):
            waited = f"{self._peer} was awaited in state {type(state).__name__} for {self._tools.patience:g} s"
            await self._tools.report(self._round_id, GaveUp(waited))


def awaits_peer(state: Round, lacks_parts: bool) -> bool:
    """Whether the round cannot continue before the peer sends something, and may still be aborted.

    Args:
        state: the round's.
        lacks_parts: whether a restart has lost public parts that the peer has yet to forward again.
    """
    return state.may_give_up or _cannot_evaluate(state, lacks_parts)


def waiting_for(state: Round, lacks_parts: bool, peer: str) -> str:
    """What has to come before the round continues, for people; empty if the round is over.

    Args:
        state: the round's.
        lacks_parts: as above.
        peer: the other server's name.
    """
    lacking = _cannot_evaluate(state, lacks_parts)
    return f"submissions that {peer} forwards again" if lacking else state.waits_for.format(peer=peer)


def _cannot_evaluate(state: Round, lacks_parts: bool) -> bool:
    return lacks_parts and isinstance(state, ssa.Rostered | ssa.Verified | ssa.Chosen)
