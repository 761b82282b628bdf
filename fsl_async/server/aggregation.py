"""One server's side of secure submodel aggregation: submissions into accumulators, accumulators into a share.

Rules: all clients are added to one accumulator, bin by bin, which is folded to rows once per round; the work on
submissions is cut into `Job`s over disjoint slices of the accumulator, so any number of threads may run them without a
lock (see `fsl_async.server.batch`); no array of bins × Θ is made per client. Addition is exact and commutative, so any
order gives the same sum.

Source: paper §"Basic Protocols" (SSA); design §7, §8, §12. The proofs replace the paper §"Malicious-secure sketching".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Literal

import numpy as np

from fsl_async import kernels
from fsl_async.bounds import terms_of, verifier_share
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_mask, expansion_keys, forest_roots, tag_keys
from fsl_async.digests import Buffer, Domain, derive_key
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest, RowNumbers
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements
from fsl_async.server.batch import Batch, Prepared, TreeTotals
from fsl_async.server.slicing import CUT_AT, ForestSlice, Job, Slice, group_digests, groups_of, proof_digest, whole
from fsl_async.server.sums import BinSum, CellMemory, Content, UnionSum, merging, numbered
from fsl_async.task import Dense, Sparse, Task
from fsl_async.wire.pieces import Span, spans_of
from fsl_async.wire.public_part import ALL_ROWS, ForestKey, OpenedRows, Part, dense_bytes, forests_of, shape_of_share

COUNTED_AT_ONCE = 2**18
"""Rows whose counts are read off the sum at a time."""


@dataclass(frozen=True)
class Claim:
    """What shows, beside the trees, that a submission is within the task's bound.

    Attributes:
        private: the private part of the proof on the carrier; None on the other server, which expands its own.
        bind: the digest of all that the update depends on (`derivation.binding`).
        digest: names the submission.
    """

    private: memoryview | None = field(repr=False)
    bind: bytes
    digest: bytes


@dataclass(frozen=True)
class Submission:
    """A complete submission on one server.

    Attributes:
        client: whose it is.
        msk: this server's master seed.
        commitments: c₀ and c₁, bound to the round in which the trees came.
        tree: the digest of the trees.
        trees: the part that brought the trees: the submission's own, or a retrieval's.
        part: the submission's public part.
        dense: this server's share of the dense blocks; empty where it expands it from its seed.
        claim: the proof of the update's size; None where the task has no bound.
    """

    client: str
    msk: bytes = field(repr=False)
    commitments: tuple[bytes, bytes]
    tree: bytes
    trees: Part = field(repr=False)
    part: Part = field(repr=False)
    dense: memoryview = field(repr=False)
    claim: Claim | None = None


class Aggregate:
    """The running sum of one round on one server."""

    def __init__(
        self,
        config: RoundConfig,
        server: int,
        proof_key: bytes,
        unions: Mapping[str, RowNumbers] = MappingProxyType({}),
        memory: CellMemory | None = None,
        some: Slice | None = None,
    ) -> None:
        """Start at zero.

        Args:
            config: the round.
            server: 0 or 1.
            proof_key: the key under which both servers hash proofs; clients never learn it.
            unions: by sparse block, the union that the round is aligned on; none where it is not.
            memory: where large arrays come from, and where `release` returns them.
            some: the slice whose trees are added, for another sum of the round to be merged into; by default all. A
                round can be cut if `is_cut_by_bins`.
        """
        memory = memory or CellMemory()
        self._config = config
        self._server = server
        self._all = whole(config.shape)
        self._slice = self._all if some is None else some
        forests = dict(forests_of(config.shape))
        self._cuts = {key: ForestSlice(forests[key], bins) for key, bins in self._slice.items()}
        self._forests = {key: cut.forest for key, cut in self._cuts.items()}
        self._expansion_keys = expansion_keys(config)
        sparse = list(config.shape.sparse_blocks())
        self._bins = {index: BinSum(config, index, block, memory, self._of_block(index)) for index, block in sparse}
        self._unions = {i: UnionSum(config, i, block, unions[block.name]) for i, block in sparse if is_aligned(config)}
        self._terms = terms_of(config.shape)
        self._counts = config.shape.min_contributors is not None
        dense = dense_bytes(config.shape) // config.shape.ring.element_bytes if self._begins else 0
        self._dense = config.shape.ring.zeros(dense)
        self._toss = proof_key
        self._allocate()
        self._hash_keys = {
            leaves: kernels.keystream(derive_key(Domain.PROOF_KEY, proof_key), nonce=0, count=leaves)
            for leaves in ({forest.leaves for forest in self._forests.values()} if config.task.verified else ())
        }

    def _of_block(self, index: int) -> dict[int, Forest]:
        return {key.forest: forest for key, forest in self._forests.items() if key.block == index}

    @property
    def _begins(self) -> bool:
        """Whether the slice has the first bin of all: the dense blocks are added with it."""
        first = next(iter(self._all), None)
        return first is None or (first in self._slice and self._slice[first].start == 0)

    def batch(self, submissions: Sequence[Submission], threads: int) -> Batch:
        """Some submissions that are to be added at once.

        Jobs of one step of a batch may run at the same time; jobs of different batches may not, except those that
        prepare.

        Returns:
            The batch, whose entries are, for each submission, what shows the other server that it may be counted: its
            proof digest (of the trees alone without proofs; of the trees' counts, too, where contributors are counted),
            then this server's share of the proof of its bound, if the task has one. Those of a slice are what its
            groups of bins prove, from which `entry` makes a submission's.
        """
        multiple = kernels.GROUP if self._unions else CUT_AT
        return Batch(
            list(self._forests.values()),
            multiple,
            self._config.shape.ring,
            self._dense,
            [partial(self._prepare, submission) for submission in submissions],
            [partial(self._conclude, submission) for submission in submissions],
            threads,
        )

    def jobs(self, submission: Submission, threads: int) -> tuple[list[Job], Callable[[], bytes]]:
        """The jobs that add one submission alone, and a function to call when all of them are done.

        Returns:
            The jobs, and a function that returns the submission's entry; see `batch`.
        """
        batch = self.batch([submission], threads)
        _run(batch.preparing())

        def finish() -> bytes:
            _run(batch.concluding())
            return batch.entries[0]

        return batch.adding(), finish

    def _allocate(self) -> None:
        """Take the memory of every sum that submissions are added to."""
        for index, block_sum in self._bins.items():
            if self._config.task.verified or index not in self._unions:
                block_sum.allocate()

    def _prepare(self, submission: Submission) -> Prepared:
        totals = TreeTotals(self._config.shape.ring, self._forests) if self._terms or self._counts else None
        adders: list[kernels.OnRange] = []
        proofs: dict[ForestKey, Blocks] = {}
        part = submission.part.layout.split(submission.part.data)
        for key, cut in self._cuts.items():
            evaluation = self._evaluation(submission, key, cut, part)
            asked = totals.of(key) if totals else kernels.NO_TOTALS
            if part.get((key, "proof")):  # none in a session, nor where nothing is verified
                verification = self._verification(submission, cut, part[key, "proof"])
                add, proofs[key] = self._bins[key.block].verifying_adder(key.forest, evaluation, verification, asked)
            else:
                add = self._sum_for(key.block).adder(key.forest, evaluation, asked)
            adders.append(add)
        return Prepared(adders, proofs, totals, self._dense_share(submission, bytes(part[None, "salt"])))

    def _conclude(self, submission: Submission, added: Prepared) -> bytes:
        totals = added.totals
        counts = totals.counts(self._server) if totals and self._counts else {}
        digests = group_digests(groups_of(self._config.shape), self._cuts, added.proofs, counts)
        if self._slice != self._all:
            return digests
        entry = proof_digest(submission.tree, digests)
        if totals is None or self._terms is None:
            return entry
        return entry + self._bound_share(submission, totals.vector(self._server, added.dense))

    def negate(self) -> None:
        """Negate the sum: adding a submission between two calls takes it out."""
        sums: list[BinSum | UnionSum] = [*self._bins.values(), *self._unions.values()]
        for block_sum in sums:
            block_sum.negate()
        self._dense = self._config.shape.ring.negate(self._dense)

    def content(self) -> Content:
        """The arrays that the sum is made of; not copied."""
        sums: list[BinSum | UnionSum] = [*self._bins.values(), *self._unions.values()]
        return [*(cells for block_sum in sums for cells in block_sum.content()), self._dense]

    def merging(self, content: Content, sign: Literal[1, -1], some: Slice | None = None) -> list[Job]:
        """The jobs that add another sum of this round, or take it off; see `fsl_async.server.sums`.

        Args:
            content: the other's.
            sign: -1 to take it off.
            some: the slice that the other sum is over; by default all.
        """
        return merging(self._config.shape.ring, self._content_over(some), content, sign)

    def _content_over(self, some: Slice | None) -> Content:
        if some is None or some == self._all:
            return self.content()
        cells = [self._bins[key.block].cells(key.forest, bins) for key, bins in some.items()]
        first = next(iter(self._all))
        return [*cells, self._dense[: len(self._dense) if first in some and some[first].start == 0 else 0]]

    def release(self) -> None:
        """Give the memory back; this sum cannot be used any more."""
        for block_sum in self._bins.values():
            block_sum.release()

    def counts(self) -> bytes:
        """This server's share of the counts of contributors: of every row of every sparse block, 32 bits of it."""
        return b"".join(count() for count in self.counting())

    def counting(self) -> list[Callable[[], bytes]]:
        """What forms the parts of `counts`, in order; they may run at the same time, while nothing is added."""
        return [
            partial(self._count, index, start, min(start + COUNTED_AT_ONCE, block.rows))
            for index, block in self._config.shape.sparse_blocks()
            for start in range(0, block.rows, COUNTED_AT_ONCE)
        ]

    def _count(self, index: int, start: int, stop: int) -> bytes:
        ring = self._config.shape.ring
        counts = self._bins[index].rows(numbered(start, stop))[:, -1]
        signed = counts if self._server == 0 else ring.negate(counts)
        words = np.ascontiguousarray(signed).view(np.uint32).reshape(len(counts), -1)
        return words[:, 0].tobytes()

    def share(self, opened: OpenedRows = ALL_ROWS) -> bytes:
        """This server's share of the aggregate: every block's elements in the task's order, little-endian.

        Args:
            opened: by sparse block, the rows whose elements are in it; those of the others are in no share.
        """
        return b"".join(self.piece(span, opened) for span in spans_of(self._config.shape, opened))

    def piece(self, span: Span, opened: OpenedRows = ALL_ROWS) -> bytes:
        """A piece of this server's share; several may be formed at the same time, while nothing is added.

        Args:
            span: what it has of the share, one of `spans_of`.
            opened: as for `share`.
        """
        ring, block = self._config.shape.ring, self._config.shape.blocks[span.block]
        if not isinstance(block, Sparse):
            before = sum(other.size for other in self._config.shape.blocks[: span.block] if isinstance(other, Dense))
            return self._dense[before + span.start * span.weights : before + span.stop * span.weights].tobytes()
        index = next(index for index, sparse in self._config.shape.sparse_blocks() if sparse.name == block.name)
        rows = opened[block.name][span.start : span.stop] if block.name in opened else numbered(span.start, span.stop)
        folded = self._rows(index, rows)[:, : block.width]
        return (folded if self._server == 0 else ring.negate(folded)).tobytes()

    def _sum_for(self, block: int) -> BinSum | UnionSum:
        """Where a submission without proofs is added: at the union's rows only, if the round is aligned on one."""
        return self._unions.get(block, self._bins[block])

    def _evaluation(
        self,
        submission: Submission,
        key: ForestKey,
        cut: ForestSlice,
        part: Mapping[tuple[ForestKey | None, str], memoryview],
    ) -> kernels.Evaluation:
        trees = submission.trees.layout.split(submission.trees.data)
        hints = np.frombuffer(part[key, "hint"], dtype=np.uint8).reshape(cut.whole.trees, -1)
        return kernels.Evaluation(
            keys=self._expansion_keys,
            roots=forest_roots(submission.msk, key, cut.whole, self._server, cut.bins),
            tree=cut.trees(trees[key, "tree"]),
            convert=kernels.key_schedule(self._config.convert_key(key.block, bytes(part[None, "salt"]))),
            hints=kernels.payload_planes(cut.of_trees(hints)),
            element_bits=cut.whole.element_bits,
        )

    def _verification(self, submission: Submission, cut: ForestSlice, corrections: memoryview) -> kernels.Verification:
        blocks = np.frombuffer(corrections, dtype="<u8").reshape(cut.whole.trees, 2)
        tag, mask = tag_keys(self._config, submission.client, submission.tree, submission.commitments)
        return kernels.Verification(
            tag=kernels.key_schedule(tag),
            masks=kernels.keystream(mask, nonce=0, count=cut.whole.leaves),
            hash_keys=self._hash_keys[cut.whole.leaves],
            # Aligned here, because otherwise every job would copy them.
            corrections=np.require(cut.of_trees(blocks), requirements="A"),
        )

    def _dense_share(self, submission: Submission, salt: bytes) -> Elements:
        task = self._config.shape
        if not len(self._dense):
            return self._dense
        if submission.dense:
            return task.ring.from_bytes(submission.dense, len(self._dense))
        return dense_mask(task, submission.msk, self._config.epoch, salt)

    def _bound_share(self, submission: Submission, vector: Elements) -> bytes:
        """This server's share of the proof that the update is within the bound."""
        terms, claim = self._terms, submission.claim
        if terms is None or claim is None:
            raise MisuseError(f"the submission of {submission.client} does not claim to be within the task's bound")
        return verifier_share(
            terms, self._server, vector, claim.private, submission.msk, claim.bind, self._toss, claim.digest
        )

    def _rows(self, index: int, rows: RowNumbers) -> Elements:
        """The sum of some rows of a block."""
        totals = self._bins[index].rows(rows)
        return self._config.shape.ring.add(totals, self._unions[index].rows(rows)) if index in self._unions else totals


def is_aligned(config: RoundConfig) -> bool:
    """Whether submissions without proofs are added at the rows of a union alone."""
    return bool(config.union) and config.task.selection == "fixed"


def is_cut_by_bins(config: RoundConfig) -> bool:
    """Whether a round's sum can be made of sums over slices of its bins.

    One that is aligned on a union has cells for that alone; a bound is proved of all trees at once.
    """
    return not is_aligned(config) and terms_of(config.shape) is None


def _run(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job()


def split_share(task: Task, share: Buffer, opened: OpenedRows = ALL_ROWS) -> dict[str, Elements]:
    """View a share's bytes as every block's elements: (rows, width), of the opened rows, or (size,)."""
    blocks: dict[str, Elements] = {}
    offset = 0
    for block in task.blocks:
        shape = shape_of_share(block, opened)
        stop = offset + math.prod(shape) * task.ring.element_bytes
        blocks[block.name] = task.ring.from_bytes(memoryview(share)[offset:stop], *shape)
        offset = stop
    return blocks
