"""What a round computes, in tasks of its nursery; what comes out is reported to the server's own task as events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeAlias, assert_never

import trio

from fsl_async.config import restricted
from fsl_async.digests import DIGEST_BYTES
from fsl_async.protocols import ssa
from fsl_async.protocols.ending import GaveUp
from fsl_async.protocols.machine import Event
from fsl_async.server.aggregation import Submission
from fsl_async.server.contributors import FalseCountError
from fsl_async.wire.share_pieces import spans_of
from parties.events import Evaluated
from parties.outcome import Model
from parties.server.round.conclusion import Opened, conclude
from parties.server.round.contributors import Contributors
from parties.server.round.engine import RoundWork
from parties.server.round.forming import Forming, keep_formed
from parties.server.round.noising import Noise
from parties.server.round.records import RoundRecords
from parties.server.round.start import RoundStart
from parties.server.round.tools import Tools
from parties.storage.store import Change

Computed: TypeAlias = ssa.Evaluate | ssa.CountRows | ssa.Sum | ssa.Apply
"""The effects that are computations."""


class Computation:
    """The computations of one round.

    Args:
        begun: what the round began with.
        records: what it keeps in the store.
        tools: what it has of its server.
        over: set when the round is over.

    Attributes:
        retrievals: answers to the clients' retrievals.
        contributors: which rows are opened.
        opened: what the sum has come to; None before both shares are combined.
    """

    def __init__(self, begun: RoundStart, records: RoundRecords, tools: Tools, over: trio.Event) -> None:
        self._begun = begun
        self._records = records
        self._tools = tools
        self._over = over
        self._round_id = begun.config.round_id()
        self._sum = tools.engine.sum(RoundWork(begun, records, self._submission, self._observe_added, over))
        self.retrievals = tools.engine.answers(begun, _retrieved(begun), records)
        self.contributors = Contributors(begun, records, tools)
        self._noise = Noise(begun.config, tools.identity, tools.lane)
        self.opened: Opened | None = None

    @property
    def added(self) -> int:
        """How many submissions are in the sum."""
        return self._sum.added

    @property
    def seconds(self) -> float:
        """How long adding them has taken so far."""
        return self._sum.seconds

    def begin(self, clients: Iterable[str]) -> None:
        """Start to work: on the submissions of these clients, which are stored, and on whatever comes."""
        for client in clients:
            self._sum.put(client)
        self._tools.nursery.start_soon(self._sum.work)
        self._tools.nursery.start_soon(self.retrievals.work)

    def add(self, client: str) -> None:
        """Add a client's stored submission to the sum when its turn comes."""
        self._sum.put(client)

    async def _submission(self, client: str) -> Submission:
        """A submission; one whose bulk is altered or missing is waited for, where nobody else has it.

        Raises:
            StorageError: it cannot be read, or the other server would forward it again after a restart.
        """
        records = self._records
        return await records.mended_submission(client, lambda: self._over.is_set() or not records.carries(client))

    def perform(self, effect: Computed) -> None:
        """Compute what the state asks for, and report what comes out."""
        start = self._tools.nursery.start_soon
        match effect:
            case ssa.Evaluate(roster=roster):
                start(self._evaluate, frozenset(roster))
            case ssa.CountRows(counted=counted):
                start(self._form_counts, counted)
            case ssa.Sum():
                start(self._form_share, effect)
            case ssa.Apply():
                start(self._apply, effect)
            case _:
                assert_never(effect)

    async def open(self, effect: ssa.Apply) -> Opened:
        """Combine both shares; see `opened`.

        Raises:
            StorageError: a share is not stored, or evidence could not be.
        """
        rows = await self.contributors.opened(effect.counts)
        self.opened = await conclude(self._begun, self._records, self._tools, effect, rows)
        return self.opened

    def withdraw(self, explanation: str) -> None:
        """Apply nothing after all: the other server's own rule has come to something else."""
        if self.opened is not None:
            self.opened = self.opened.refused(self._begun, explanation)

    def own_changes(self, event: Event) -> list[Change]:
        """What is stored together with an event: with the word that a sum is applied, what the own rule made of it."""
        own = self._begun.config.task.rule == "own" and self._begun.config.protocol == "ssa"
        if not own or self.opened is None or not isinstance(event, ssa.Applied):
            return []
        return self.opened.own_result().changes(self._records.prefix)

    def release(self) -> None:
        """Free the sum's memory: the round is over, and none of its tasks runs any more."""
        self._sum.release()

    async def _evaluate(self, roster: frozenset[str]) -> None:
        proofs = await self._sum.proofs(roster)
        await self._tools.report(self._round_id, ssa.Evaluated(proofs))

    async def _form_counts(self, counted: Mapping[str, bytes]) -> None:
        async with self._sum.settled(frozenset(counted)) as aggregate:
            parts = await self._tools.lane.run_each(aggregate.counting())
        counts = await self._noise.on_counts(counted, await self._tools.lane.run(partial(b"".join, parts)))
        await self._tools.report(self._round_id, ssa.RowsCounted(await self._records.keep_counts(counts)))

    async def _form_share(self, effect: ssa.Sum) -> None:
        try:
            opened = await self.contributors.choose(effect)
        except FalseCountError as error:
            await self._tools.report(self._round_id, GaveUp(str(error)))
            return
        spans = spans_of(self._begun.config.shape, opened)
        async with self._sum.settled(frozenset(effect.counted)) as aggregate:
            forming = Forming(aggregate, spans, opened, self._noise.of_share(effect.counted, opened))
            share = await keep_formed(forming, self._records.shares, self._tools.lane)
        nonce = self._tools.randomness(DIGEST_BYTES)
        self._sum.release()
        await self._tools.report(self._round_id, ssa.Summed(share, nonce))

    async def _apply(self, effect: ssa.Apply) -> None:
        opened = await self.open(effect)
        await self._tools.report(self._round_id, ssa.Applied(opened.report(self._begun.config).digest()))

    def _observe_added(self, client: str, seconds: float) -> None:
        number = self._begun.config.number
        self._tools.observe(Evaluated(number=number, client=client, seconds=seconds, total=self.added))


def _retrieved(begun: RoundStart) -> Model:
    """The model as the round retrieves it: of some blocks the union's rows alone."""
    return {
        name: restricted(array, begun.union[name]) if begun.config.in_ranks(name) else array
        for name, array in begun.model.items()
    }
