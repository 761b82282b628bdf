"""Which worker adds to which slice of a round: one at a time, so that it needs the memory of one.

Every slice has a ledger of its own (`fsl_async.protocols.partials`). Whoever is free goes where the fewest are. A slice
where clients wait and nobody works, or nobody who answers, gets a worker from a slice that has several; where no slice
has, a worker goes from slice to slice, not more often than a partial is worth sealing, or at once when all clients are
in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fsl_async.protocols.partials import PartialSum, Settled, Worker


class Assignment(NamedTuple):
    """A worker, and the number of a slice."""

    worker: str
    slice: int


def next_join(ledgers: Sequence[PartialSum], fit: Collection[str]) -> Assignment | None:
    """Where a free worker goes next; None if nobody is free, or nothing is left to do.

    Args:
        ledgers: of every slice.
        fit: the workers that are there, and have the memory for a slice.
    """
    posted = {name for ledger in ledgers if not isinstance(ledger, Settled) for name in ledger.workers}
    free = sorted(set(fit) - posted)
    unsettled = [number for number, ledger in enumerate(ledgers) if not isinstance(ledger, Settled)]
    if not free or not unsettled:
        return None
    return Assignment(
        free[0], min(unsettled, key=lambda number: (len(_at_work(ledgers[number])), -_waits(ledgers[number])))
    )


def next_leave(ledgers: Sequence[PartialSum], *, closed: bool) -> Assignment | None:
    """Who should leave which slice, for one that nobody works on; None if all is well, or somebody leaves already.

    Args:
        ledgers: of every slice.
        closed: whether no further clients come.
    """
    unsettled = [(number, ledger) for number, ledger in enumerate(ledgers) if not isinstance(ledger, Settled)]
    empty = [ledger for _, ledger in unsettled if not _at_work(ledger) and _waits(ledger)]
    if not empty or any(worker.leaving for _, ledger in unsettled for worker in _at_work(ledger).values()):
        return None
    longest = max(map(_waits, empty))
    donors = [
        (number, ledger)
        for number, ledger in unsettled
        if len(_at_work(ledger)) > 1 or (_at_work(ledger) and _may_leave(ledger, longest, closed=closed))
    ]
    if not donors:
        return None
    number, donor = max(donors, key=lambda found: (len(_at_work(found[1])), -_waits(found[1])))
    working = _at_work(donor)
    return Assignment(min(working, key=lambda name: len(working[name].orders)), number)


def _may_leave(ledger: PartialSum, longest: int, *, closed: bool) -> bool:
    """Whether the only worker of a slice is needed more where clients wait."""
    return _waits(ledger) == 0 if closed else longest >= ledger.seal and longest > _waits(ledger)


def _at_work(ledger: PartialSum) -> dict[str, Worker]:
    """The workers of a slice that answer."""
    return {name: worker for name, worker in ledger.workers.items() if not worker.doubted}


def _waits(ledger: PartialSum) -> int:
    return len(ledger.waiting)
