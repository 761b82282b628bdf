"""The engine that computes in the server's own process: in its lane, which is threads, or inline in a simulation."""

from __future__ import annotations

from functools import partial

from fsl_async.server.aggregation import Aggregate
from fsl_async.server.batch import at_once
from fsl_async.server.sums import CellMemory
from parties.compute import ComputeLane
from parties.outcome import Model
from parties.server.round.accumulation import Accumulator
from parties.server.round.engine import Answers, Engine, RoundSum, RoundWork
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import PassesInProcess, RetrievalBatcher
from parties.server.round.start import RoundStart

__all__ = ["SPARE_BYTES", "InProcess"]

SPARE_BYTES = 256 << 20
"""Memory of one round's sum that is kept for the next one's, at most."""


class InProcess(Engine):
    """Computes with the threads of one lane.

    Args:
        lane: where.
    """

    def __init__(self, lane: ComputeLane) -> None:
        self._lane = lane
        self._memory = CellMemory(SPARE_BYTES)

    def sum(self, work: RoundWork) -> RoundSum:
        """See `Engine.sum`."""
        begun = work.begun
        make = partial(Aggregate, begun.config, begun.server, begun.proof_key, begun.union, self._memory)
        most = at_once(begun.config.shape, self._lane.threads)
        return Accumulator(make, work.fetch, self._lane, most, work.on_added, work.over)

    def answers(self, begun: RoundStart, model: Model, records: RoundRecords) -> Answers:
        """See `Engine.answers`."""
        return RetrievalBatcher(PassesInProcess(begun.config, begun.server, model, records, self._lane))
