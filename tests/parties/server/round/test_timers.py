"""How long a round waits for its peer."""

from types import SimpleNamespace
from typing import Any

import trio

from fsl_async.protocols import ssa
from fsl_async.protocols.ending import GaveUp
from parties.events import unobserved
from parties.server.round.waiting import Timers
from parties.server.storage import Standstill

COUNTED = {"anna": bytes(32), "ben": bytes(32)}


async def given_up(before: ssa.Round, after: ssa.Round) -> list[tuple[float, str]]:
    """When and why a round is given up that lacks parts, and whose state changes after 5 of 20 seconds."""
    state, told = [before], []
    began = trio.current_time()

    async def report(round_id: bytes, event: Any) -> None:
        assert isinstance(event, GaveUp)
        told.append((trio.current_time() - began, event.explanation))

    async with trio.open_nursery() as nursery:
        standstill = Standstill(unobserved)
        tools: Any = SimpleNamespace(nursery=nursery, patience=20.0, report=report, standstill=standstill)
        begun: Any = SimpleNamespace(config=SimpleNamespace(round_id=lambda: bytes(32)), closes_at=0.0, server=0)
        records: Any = SimpleNamespace(awaits_any=True)
        Timers(begun, records, tools, lambda: state[0]).watch_peer()
        await trio.sleep(5)
        state[0] = after
    return told


async def test_a_peer_that_sends_its_counts_and_not_the_parts_that_we_lack_is_not_awaited_for_ever(
    autojump_clock: object,
) -> None:
    waiting = ssa.Verified(COUNTED, COUNTED, {}, {}, {})
    heard = ssa.Verified(COUNTED, COUNTED, {}, {}, {"count": bytes(32)})
    assert await given_up(waiting, heard) == [(20.0, "S1 was awaited in state Verified for 20 s")]


async def test_a_round_that_has_moved_on_is_not_given_up(autojump_clock: object) -> None:
    waiting = ssa.Verified(COUNTED, COUNTED, {}, {}, {})
    assert await given_up(waiting, ssa.Tallied(COUNTED, COUNTED, {}, {}, bytes(32), {})) == []
