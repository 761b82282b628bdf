"""Submissions on their way into a sum, several at once: jobs that own ranges of bins, not submissions.

A job adds every submission of the batch to the cells of its own ranges, one after the other. So no two jobs touch the
same cell or dense element, a thread waits for the others once for each batch and not for each submission, pieces of
small submissions are worth a thread, and cells stay in the cache from one submission to the next. What comes out for a
submission is what would come out if it were added alone.

As many are added at once as wait, bounded by memory, and by work: whoever waits for one batch, be it a client of
another task of the same process, waits no longer than its threads need for about 60 ms of work each.

Rule: three steps, each of jobs that may run side by side; a step begins when all jobs of the one before are done.

One client's update, as one server holds it, is its share of every weight, in the order of the wire (`TreeTotals`). The
leaves of a tree sum up to an additive share of its payload, so every tree's total is this server's share of one row's
update. Where a task bounds updates, a client proves the size of exactly this vector: what is added to the sum is what
is bounded, also where a round is aligned on a union and leaves outside it are neither.

Server 1's totals have the kernels' positive sign, so the update is server 0's vector minus server 1's; its dense shares
are negated to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fsl_async import kernels
from fsl_async.bounds import private_bytes
from fsl_async.geometry import Forest
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements, Ring
from fsl_async.server.slicing import LEAVES_PER_PIECE, Job, Range, shared_out, tiles, work_of
from fsl_async.task import Task
from fsl_async.wire.public_part import ForestKey, Layout, Trees, dense_bytes, forests_of


class TreeTotals:
    """Where the jobs of one submission write the totals of its trees.

    Args:
        ring: the task's.
        forests: those whose trees are added, in the order of the wire.
    """

    def __init__(self, ring: Ring, forests: Mapping[ForestKey, Forest]) -> None:
        self._ring = ring
        self._forests = forests
        self._sums = {
            key: kernels.Totals(np.zeros((forest.planes, forest.trees, 2), dtype=np.uint64))
            for key, forest in forests.items()
        }

    def of(self, key: ForestKey) -> kernels.Totals:
        """Where one forest's totals go."""
        return self._sums[key]

    def payloads(self, key: ForestKey) -> Elements:
        """This server's share of every tree's payload, once all jobs are done: (trees, payload elements)."""
        forest = self._forests[key]
        payloads = kernels.payload_of_planes(self._sums[key].sums, forest.payload_elements * self._ring.element_bytes)
        return self._ring.from_bytes(payloads.reshape(-1).data, forest.trees, forest.payload_elements)

    def counts(self, server: int) -> dict[ForestKey, Elements]:
        """By forest, every tree's count as this server proves it: equal on both servers if, and only if, it is 1.

        A tree's count is server 0's total minus server 1's, so server 1 adds 1. Each server knows what the other one
        has of an honest client, and so learns nothing from it.
        """
        shares = {key: np.ascontiguousarray(self.payloads(key)[:, -1]) for key in self._forests}
        return shares if server == 0 else {key: self._ring.add(share, self._ring.one) for key, share in shares.items()}

    def vector(self, server: int, dense: Elements) -> Elements:
        """The whole update: all trees' rows, tree by tree in the order of the wire, then all dense blocks.

        Args:
            server: 0 or 1.
            dense: this server's share of the dense blocks.

        Returns:
            x of server 0, z of server 1: the update is x - z.
        """
        rows = [
            self.payloads(key)[:, : forest.width].reshape(-1, *dense.shape[1:]) for key, forest in self._forests.items()
        ]
        return np.concatenate([*rows, dense if server == 0 else self._ring.negate(dense)])


BLOCK_BYTES = 16

MOST_SUBMISSIONS = 64
"""More of them at once gain nothing: they already share the waiting of threads for one another."""

MOST_BYTES = 32 << 20
"""Memory for the submissions of one batch, unless a single one takes more."""

BATCHES = 2
"""In memory at a time: one that is added, and the next one, which is read meanwhile; of single submissions only one."""


def at_once(shape: Task, threads: int) -> int:
    """The most submissions of a round that are added at once.

    Args:
        shape: the round's task, with its blocks as they are in the round.
        threads: how many jobs run at a time.
    """
    work = sum(work_of(forest) for _, forest in forests_of(shape))
    return max(1, min(_fitting(shape), threads * LEAVES_PER_JOB // max(1, work)))


def held_bytes(shape: Task) -> int:
    """The most memory that submissions take on their way into the sum, with whatever is derived from them."""
    fitting = _fitting(shape)
    return (BATCHES * fitting if fitting > 1 else 1) * _submission_bytes(shape)


def cell_bytes(shape: Task) -> int:
    """The memory of a sum's cells: one for every position of every bin and stash slot."""
    return sum(forest.trees * forest.leaves * forest.planes * BLOCK_BYTES for _, forest in forests_of(shape))


def _fitting(shape: Task) -> int:
    return min(MOST_SUBMISSIONS, MOST_BYTES // _submission_bytes(shape))


def _submission_bytes(shape: Task) -> int:
    """A submission with its dense share, as it came and as elements, and what is derived from it."""
    bulk = Layout.submission(shape, Trees.OWN).size + private_bytes(shape) + 2 * dense_bytes(shape)
    return bulk + BLOCK_BYTES * _blocks(forest for _, forest in forests_of(shape))


def _blocks(forests: Iterable[Forest]) -> int:
    """Roots, proofs, hints in planes and totals of every tree, and a mask for every leaf of a tree."""
    return sum(forest.trees * (2 + 2 * forest.planes) + forest.leaves for forest in forests)


JOBS_PER_THREAD = 2
"""A thread that is held up leaves its next job to another one."""

LEAVES_PER_JOB = 2**24
"""About 60 ms of work: others wait for a thread no longer than that."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A submission that is ready to be added.

    Attributes:
        adders: by forest, in the order of the wire, what adds its trees to a range of bins.
        proofs: by forest that has proofs, one block for every tree; filled by the adders.
        totals: where the adders write what every tree sums up to; None where nobody asks for that.
        dense: this server's share of its dense blocks.
    """

    adders: Sequence[kernels.OnRange]
    proofs: Mapping[ForestKey, Blocks]
    totals: TreeTotals | None
    dense: Elements = field(repr=False)


class Batch:
    """Some submissions that are added at once.

        batch = aggregate.batch(submissions, threads)
        for step in (batch.preparing, batch.adding, batch.concluding):
            run_side_by_side(step())
        for submission, entry in zip(submissions, batch.entries): ...

    Args:
        forests: all forests of the round, in the order of the wire.
        multiple: ranges are cut only at multiples of this many bins.
        ring: the task's.
        dense: the sum of all dense blocks, changed in place.
        prepare: for every submission, makes it ready.
        conclude: for every submission, takes what is left of it and returns its entry.
        threads: how many jobs run at a time.
    """

    def __init__(
        self,
        forests: Sequence[Forest],
        multiple: int,
        ring: Ring,
        dense: Elements,
        prepare: Sequence[Callable[[], Prepared]],
        conclude: Sequence[Callable[[Prepared], bytes]],
        threads: int,
    ) -> None:
        self._forests = forests
        self._multiple = multiple
        self._ring = ring
        self._dense = dense
        self._prepare = prepare
        self._conclude = conclude
        self._threads = threads
        self._prepared: dict[int, Prepared] = {}
        self._entries: list[bytes] = [b""] * len(prepare)

    def preparing(self) -> list[Job]:
        """The jobs that derive what each submission is added by."""
        return self._by_submission(self._prepare_some)

    def adding(self) -> list[Job]:
        """The jobs that add all submissions; each has bins of its own."""
        ready = [self._prepared[number] for number in range(len(self._prepare))]
        parts = self._parts(len(ready))
        cuts = _cuts(len(self._dense), len(parts))
        return [partial(self._add, ready, part, dense) for part, dense in zip(parts, cuts, strict=True)]

    def concluding(self) -> list[Job]:
        """The jobs that make each submission's entry."""
        return self._by_submission(self._conclude_some)

    @property
    def entries(self) -> list[bytes]:
        """What shows the other server that each submission may be counted, once all steps are done."""
        return list(self._entries)

    def _parts(self, submissions: int) -> list[list[Range]]:
        """Cut the bins into what each job owns: enough for all threads, none too small, none too long."""
        work = submissions * sum(map(work_of, self._forests))
        enough = max(JOBS_PER_THREAD * self._threads, -(-work // LEAVES_PER_JOB))
        return shared_out(self._forests, max(1, min(enough, work // LEAVES_PER_PIECE)), self._multiple) or [[]]

    def _by_submission(self, work: Callable[[range], None]) -> list[Job]:
        count = len(self._prepare)
        return [partial(work, range(count)[cut]) for cut in _cuts(count, min(self._threads, count))]

    def _prepare_some(self, numbers: range) -> None:
        for number in numbers:
            self._prepared[number] = self._prepare[number]()

    def _add(self, ready: Sequence[Prepared], part: Sequence[Range], dense: slice) -> None:
        for prepared in ready:
            self._dense[dense] = self._ring.add(self._dense[dense], prepared.dense[dense])
        for piece in part:
            adders = [prepared.adders[piece.forest] for prepared in ready]
            for start, stop in self._tiles(piece, len(adders)):
                for add in adders:
                    add(piece.segment, start, stop)

    def _tiles(self, piece: Range, submissions: int) -> Sequence[tuple[int, int]]:
        """The ranges that are added at a time: the cells of a lone submission are used once, so it needs no tiles."""
        if submissions == 1:
            return [(piece.start, piece.stop)]
        return list(tiles(piece, self._forests[piece.forest], self._multiple))

    def _conclude_some(self, numbers: range) -> None:
        for number in numbers:
            self._entries[number] = self._conclude[number](self._prepared.pop(number))


def _cuts(length: int, parts: int) -> list[slice]:
    """Cut a length into about equal parts."""
    return [slice(length * part // parts, length * (part + 1) // parts) for part in range(parts)]
