"""What a round computes, in tasks of its nursery; what comes out is reported to the server's own task as events.

Rules:

- The noise that this server adds to what it reveals is derived from a secret that is not in the store, from the round
  and from the submissions that are counted; so a share that is formed again, after a kill or from a store that was put
  back, is the same share.
- The share of the sum is formed piece by piece, as many at a time as the lane has threads. A piece is stored with the
  noise that the task asks for, and never without; if the server is killed before the share's list is stored, all
  pieces are formed anew, and are the same.
- A server forms its share from the rows with enough contributors alone, by both servers' shares of the counts, and
  expects the same rows of the other one, whose commitment names both shares. A count that the counted clients cannot
  have is evidence about the other server, whose share of it is false; the round is aborted then, before anything is
  summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never

import trio

from fsl_async.config import RoundConfig, restricted
from fsl_async.digests import DIGEST_BYTES, Buffer
from fsl_async.privacy.noise import noise_key, noised
from fsl_async.protocols import ssa
from fsl_async.protocols.ending import GaveUp
from fsl_async.protocols.entries import roster_digest
from fsl_async.protocols.machine import Event
from fsl_async.ring import Ring
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.contributors import Counts, FalseCountError, check_counts, opened_rows, row_counts
from fsl_async.wire.pieces import Span, piece_digest, spans_of
from fsl_async.wire.public_part import ALL_ROWS, OpenedRows
from parties.compute import ComputeLane
from parties.events import Evaluated
from parties.identity.keys import Identity
from parties.outcome import Model
from parties.server.evidence import Evidence
from parties.server.round.conclusion import OpenedSum, conclude
from parties.server.round.engine import RoundStart, RoundWork
from parties.server.round.own_rule import OwnResult
from parties.server.round.records import RoundRecords
from parties.server.round.services import RoundServices
from parties.server.round.shares import ShareRecords
from parties.storage.store import Change

Computed: TypeAlias = ssa.Evaluate | ssa.CountRows | ssa.Sum | ssa.Apply
"""The effects that are computations."""


class Computation:
    """The computations of one round.

    Args:
        start: what the round began with.
        records: what it keeps in the store.
        services: what it has of its server.
        over: set when the round is over.

    Attributes:
        sum: of the submissions, as it grows.
        retrievals: answers to the clients' retrievals.
        latest_rows: the rows that are opened, as far as they are known.
        opened: what the sum has come to; None before both shares are combined.
    """

    def __init__(self, start: RoundStart, records: RoundRecords, services: RoundServices, over: trio.Event) -> None:
        self._start = start
        self._records = records
        self._services = services
        self._over = over
        self._round_id = start.config.round_id()
        self.sum = services.engine.sum(RoundWork(start, records, self._submission, self._observe_added, over))
        self.retrievals = services.engine.answers(start, _retrieved(start), records)
        self._noise = Noise(start.config, services.identity, services.lane)
        self.opened: OpenedSum | None = None
        self.latest_rows: OpenedRows = ALL_ROWS
        self._rows_of: ssa.Counts = ()

    def begin(self, clients: Iterable[str]) -> None:
        """Start to work: on the submissions of these clients, which are stored, and on whatever comes."""
        for client in clients:
            self.sum.put(client)
        self._services.nursery.start_soon(self.sum.work)
        self._services.nursery.start_soon(self.retrievals.work)

    async def _submission(self, client: str) -> Submission:
        """A submission; one whose bulk is altered or missing is waited for, where nobody else has it.

        Raises:
            StorageError: it cannot be read, or the other server would forward it again after a restart.
        """
        records = self._records
        return await records.repaired_submission(client, lambda: self._over.is_set() or not records.carries(client))

    def perform(self, effect: Computed) -> None:
        """Compute what the state asks for, and report what comes out."""
        begin = self._services.nursery.start_soon
        match effect:
            case ssa.Evaluate(roster=roster):
                begin(self._evaluate, frozenset(roster))
            case ssa.CountRows(counted=counted):
                begin(self._form_counts, counted)
            case ssa.Sum():
                begin(self._form_share, effect)
            case ssa.Apply():
                begin(self._apply, effect)
            case _:
                assert_never(effect)

    async def open(self, effect: ssa.Apply) -> OpenedSum:
        """Combine both shares; see `opened`.

        Raises:
            StorageError: a share is not stored, or evidence could not be.
        """
        rows = await self.opened_rows(effect.counts)
        contributors: Mapping[str, Counts] = {}
        if self._start.config.task.rule == "row-mean":
            count = partial(row_counts, self._start.config.shape, await self._counts(effect.counts))
            contributors = await self._services.lane.run(count)
        self.opened = await conclude(self._start, self._records, self._services, effect, rows, contributors)
        return self.opened

    async def opened_rows(self, counts: ssa.Counts) -> OpenedRows:
        """The rows that both shares of the counts open; all of them where there are none.

        Raises:
            StorageError: a share of the counts is not stored.
        """
        if self._rows_of != counts:
            choose = partial(opened_rows, self._start.config.shape, await self._counts(counts))
            self.latest_rows, self._rows_of = await self._services.lane.run(choose), counts
        return self.latest_rows

    async def _counts(self, counts: ssa.Counts) -> list[Buffer]:
        return [await self._records.counts(name) for name in counts]

    def withdraw(self, explanation: str) -> None:
        """Apply nothing after all: the other server's own rule has come to something else."""
        if self.opened is not None:
            self.opened = self.opened.refused(self._start, explanation)

    def own_changes(self, event: Event) -> list[Change]:
        """What is stored together with an event: with the word that a sum is applied, what the own rule made of it."""
        own = self._start.config.task.rule == "own" and self._start.config.protocol == "ssa"
        if not own or self.opened is None or not isinstance(event, ssa.Applied):
            return []
        return OwnResult(self.opened.ending, self.opened.model, self.opened.state).changes(self._records.prefix)

    async def _evaluate(self, roster: frozenset[str]) -> None:
        proofs = await self.sum.proofs(roster)
        await self._services.report(self._round_id, ssa.Evaluated(proofs))

    async def _form_counts(self, counted: Mapping[str, bytes]) -> None:
        async with self.sum.settled(frozenset(counted)) as aggregate:
            parts = await self._services.lane.run_each(aggregate.counting())
        counts = await self._noise.on_counts(counted, await self._services.lane.run(partial(b"".join, parts)))
        await self._services.report(self._round_id, ssa.RowsCounted(await self._records.keep_counts(counts)))

    async def _form_share(self, effect: ssa.Sum) -> None:
        if effect.counts and self._start.config.task.privacy is None:  # with noise, any counts may be
            check = partial(check_counts, self._start.config.shape, await self._counts(effect.counts))
            try:
                await self._services.lane.run(partial(check, len(effect.counted)))
            except FalseCountError as error:
                await self._services.evidence.keep(self._false_counts(effect.counts, error))
                await self._services.report(self._round_id, GaveUp(str(error)))
                return
        opened = await self.opened_rows(effect.counts)
        spans = spans_of(self._start.config.shape, opened)
        async with self.sum.settled(frozenset(effect.counted)) as aggregate:
            forming = Forming(aggregate, spans, opened, self._noise.of_share(effect.counted, opened))
            share = await keep_formed(forming, self._records.shares, self._services.lane)
        nonce = self._services.randomness(DIGEST_BYTES)
        self.sum.release()
        await self._services.report(self._round_id, ssa.Summed(share, nonce))

    async def _apply(self, effect: ssa.Apply) -> None:
        opened = await self.open(effect)
        await self._services.report(self._round_id, ssa.Applied(opened.report(self._start.config).digest()))

    def _observe_added(self, client: str, seconds: float) -> None:
        number = self._start.config.number
        self._services.observe(Evaluated(number=number, client=client, seconds=seconds, total=self.sum.added))

    def _false_counts(self, counts: ssa.Counts, error: FalseCountError) -> Evidence:
        server = self._start.server
        peer = f"S{1 - server}"
        return Evidence(
            number=self._start.config.number,
            about=peer,
            kind="counts",
            first=counts[server],
            second=counts[1 - server],
            explanation=f"{error}: {peer} has sent a false share of the counts. Nothing was opened, and the round is "
            "aborted",
        )


def _retrieved(start: RoundStart) -> Model:
    """The model as the round retrieves it: of some blocks the union's rows alone."""
    return {
        name: restricted(array, start.union[name]) if start.config.in_ranks(name) else array
        for name, array in start.model.items()
    }


COUNT_RING = Ring(32)
"""In which rows' contributors are counted."""

Noised: TypeAlias = Callable[[Span, Buffer], bytes]
"""Adds noise to what a share has of a span."""


class Noise:
    """One server's noise in one round.

    Args:
        config: the round.
        identity: this server's keys, of which the noise has one.
        lane: where it is computed.
    """

    def __init__(self, config: RoundConfig, identity: Identity, lane: ComputeLane) -> None:
        self._config = config
        self._identity = identity
        self._lane = lane

    def of_share(self, counted: Mapping[str, bytes], opened: OpenedRows) -> Noised:
        """What adds the noise that the task asks for to a piece of the share; nothing where it asks for none.

        It is a pure function of a piece's span and content, for a thread.

        Args:
            counted: the clients that count, and their submissions' digests.
            opened: by sparse block, the rows that are in the share.
        """
        ring, sigma, blocks = self._config.shape.ring, self._config.task.doses.values, self._config.shape.blocks
        if not sigma:
            return lambda _, content: bytes(content)
        keys = [self._key(counted, f"values {block}") for block in range(len(blocks))]

        def noised_at(span: Span, content: Buffer) -> bytes:
            rows = opened.get(blocks[span.block].name)
            there = range(span.start, span.stop) if rows is None else rows[span.start : span.stop]
            return noised(ring, content, sigma, keys[span.block], there, span.weights)

        return noised_at

    async def on_counts(self, counted: Mapping[str, bytes], counts: Buffer) -> bytes:
        """Shares of rows' contributors, words of 32 bits, with the noise that the task asks for."""
        sigma = self._config.task.doses.counts
        if sigma:
            return await self._lane.run(partial(noised, COUNT_RING, counts, sigma, self._key(counted, "counts")))
        return bytes(counts)

    def _key(self, counted: Mapping[str, bytes], use: str) -> bytes:
        return noise_key(self._identity.noise_secret, self._config.round_id(), roster_digest(counted), use)


@dataclass(frozen=True)
class Forming:
    """How the pieces of a share of a sum are formed, as they are stored and sent.

    Attributes:
        aggregate: the sum.
        spans: what each piece has of the share.
        opened: by sparse block, the rows that are in the share.
        noised: adds the noise that the task asks for to a piece.
    """

    aggregate: Aggregate
    spans: Sequence[Span]
    opened: OpenedRows
    noised: Noised

    def folds(self, place: int, count: int) -> list[Callable[[], bytes]]:
        """What forms a piece, in at most so many parts."""
        return [partial(self.aggregate.piece, span, self.opened) for span in self.spans[place].cut(count)]

    def finished(self, place: int, parts: Sequence[bytes]) -> tuple[bytes, bytes]:
        """A piece of which all parts are formed: the digest that names it, and its content."""
        content = self.noised(self.spans[place], parts[0] if len(parts) == 1 else b"".join(parts))
        return piece_digest(content), content

    def piece(self, place: int) -> tuple[bytes, bytes]:
        """The same, formed by one thread."""
        return self.finished(place, [fold() for fold in self.folds(place, 1)])


async def keep_formed(forming: Forming, shares: ShareRecords, lane: ComputeLane) -> bytes:
    """Form and store a share, and return the digest that names it; of few pieces each is formed by several threads."""
    count = len(forming.spans)
    threads = lane.threads // count if count else 0
    names: dict[int, bytes] = {}
    places = iter(range(count))

    async def form(place: int) -> tuple[bytes, bytes]:
        if threads < 2:
            return await lane.run(partial(forming.piece, place))
        parts = await lane.run_each(forming.folds(place, threads))
        return await lane.run(partial(forming.finished, place, parts))

    async def work() -> None:
        for place in places:
            names[place], content = await form(place)
            await shares.keep_piece(names[place], content)

    async with trio.open_nursery() as nursery:
        for _ in range(min(lane.threads, count)):
            nursery.start_soon(work)
    return await shares.keep_list(tuple(names[place] for place in range(count)))
