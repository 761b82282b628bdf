"""Which rows a round opens: those with enough contributors, by both servers' shares of the counts.

Rule: a server forms its share of the sum from these rows alone, and expects the same rows of the other one, whose
commitment names both shares of the counts. A count that the counted clients cannot have is evidence about the other
server, whose share of it is false; the round is aborted then, before anything is summed.
"""

from __future__ import annotations

from functools import partial

from fsl_async.digests import Buffer
from fsl_async.protocols import ssa
from fsl_async.server.contributors import FalseCountError, check_counts, opened_rows
from fsl_async.wire.public_part import ALL_ROWS, Opened
from parties.server.evidence import Evidence
from parties.server.round.records import RoundRecords
from parties.server.round.start import RoundStart
from parties.server.round.tools import Tools


class Contributors:
    """The rows that one round opens.

    Args:
        begun: what the round began with.
        records: where shares of the counts are stored.
        tools: what it has of its server.
    """

    def __init__(self, begun: RoundStart, records: RoundRecords, tools: Tools) -> None:
        self._begun = begun
        self._records = records
        self._tools = tools
        self._opened: tuple[ssa.Counts, Opened] = (), ALL_ROWS

    @property
    def latest(self) -> Opened:
        """The rows, as far as they are known."""
        return self._opened[1]

    async def choose(self, effect: ssa.Sum) -> Opened:
        """The rows that are opened, if the counts are ones that the counted clients can have; with noise, any may be.

        Raises:
            FalseCountError: they are not; the evidence is kept.
            StorageError: a share of the counts is not stored, or the evidence could not be.
        """
        if effect.counts and self._begun.config.task.privacy is None:
            check = partial(check_counts, self._begun.config.shape, await self._shares(effect.counts))
            try:
                await self._tools.lane.run(partial(check, len(effect.counted)))
            except FalseCountError as error:
                await self._tools.evidence.keep(self._evidence(effect.counts, error))
                raise
        return await self.opened(effect.counts)

    async def opened(self, counts: ssa.Counts) -> Opened:
        """The rows that both shares of the counts open; all of them where there are none.

        Raises:
            StorageError: a share of the counts is not stored.
        """
        if self._opened[0] != counts:
            choose = partial(opened_rows, self._begun.config.shape, await self._shares(counts))
            self._opened = counts, await self._tools.lane.run(choose)
        return self._opened[1]

    async def _shares(self, counts: ssa.Counts) -> list[Buffer]:
        return [await self._records.counts(name) for name in counts]

    def _evidence(self, counts: ssa.Counts, error: FalseCountError) -> Evidence:
        server = self._begun.server
        peer = f"S{1 - server}"
        return Evidence(
            number=self._begun.config.number,
            about=peer,
            kind="counts",
            first=counts[server],
            second=counts[1 - server],
            explanation=f"{error}: {peer} has sent a false share of the counts. Nothing was opened, and the round is "
            "aborted",
        )
