"""One server's side of secure submodel aggregation: submissions into accumulators, accumulators into a share.

Rules: clients are added in bin space, one accumulator for all of them, and folded to rows once per round; the work of
one submission is cut into `Job`s over disjoint slices of the accumulator, so that any number of threads may run them
with no lock; nothing the size of bins × Θ is made per client. Addition is exact and commutative, so any order gives the
same sum.

Source: paper §"Basic Protocols" (SSA) and §"Malicious-secure sketching"; design §7, §8, §12.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer, Domain, derive_key, digest
from fsl_async.geometry import Forest, geometry_of
from fsl_async.public_part import ForestKey, Part, forests_of
from fsl_async.ring import Elements
from fsl_async.selection import Blocks, forest_roots, tree_keys
from fsl_async.task import Dense, Sparse, Task
from fsl_async.upload import dense_mask, tag_keys
from fsl_async.work import Job, ranges, tree_of

__all__ = ["Aggregate", "Submission", "split_share"]


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
    """

    client: str
    msk: bytes = field(repr=False)
    commitments: tuple[bytes, bytes]
    tree: bytes
    trees: Part = field(repr=False)
    part: Part = field(repr=False)
    dense: memoryview = field(repr=False)


@dataclass(frozen=True)
class _Work:
    """One forest of one submission, ready to be evaluated."""

    forest: Forest
    evaluation: kernels.Evaluation
    accumulator: Blocks

    def jobs(self, threads: int) -> list[Job]:
        return [
            partial(kernels.evaluate_add, self.evaluation, self.accumulator, segment, start, stop)
            for segment, start, stop in ranges(self.forest, threads)
        ]


@dataclass(frozen=True)
class _VerifiedWork(_Work):
    """The same with proofs: one block per tree."""

    verification: kernels.Verification
    proofs: Blocks

    def jobs(self, threads: int) -> list[Job]:
        return [
            partial(
                kernels.evaluate_verified,
                self.evaluation,
                self.verification,
                self.accumulator,
                self.proofs,
                segment,
                start,
                stop,
            )
            for segment, start, stop in ranges(self.forest, threads)
        ]


class Aggregate:
    """The running sum of one round on one server."""

    def __init__(self, config: RoundConfig, server: int, proof_key: bytes) -> None:
        """Start at zero.

        Args:
            config: the round.
            server: 0 or 1.
            proof_key: the key under which both servers hash proofs; clients never learn it.
        """
        self._config = config
        self._server = server
        self._forests = dict(forests_of(config.shape))
        self._tree_keys = tree_keys(config)
        self._sums = {key: _accumulator(forest) for key, forest in self._forests.items()}
        self._dense = config.shape.ring.zeros(sum(block.size for _, block in config.shape.dense_blocks()))
        self._proof_key = derive_key(Domain.PROOF_KEY, proof_key)
        self._proof_mask_key = derive_key(Domain.PROOF_MASK_KEY, proof_key)

    def jobs(self, submission: Submission, threads: int) -> tuple[list[Job], Callable[[], bytes]]:
        """The work of adding one submission, and what to call when all of it is done.

        Jobs of one submission may run at the same time; jobs of different submissions may not.

        Returns:
            The jobs, and a function that returns the submission's proof digest (of the trees alone where none is
            asked).
        """
        work = [self._prepare(submission, key, forest) for key, forest in self._forests.items()]

        def finish() -> bytes:
            self._add_dense(submission)
            proofs = [forest_work.proofs for forest_work in work if isinstance(forest_work, _VerifiedWork)]
            return digest(Domain.PROOF, submission.tree, *(proof.tobytes() for proof in proofs))

        return [job for forest_work in work for job in forest_work.jobs(threads)], finish

    def negate(self) -> None:
        """Turn the sum into its negative: a submission is taken out by adding it between two calls."""
        ring = self._config.shape.ring
        for key, forest in self._forests.items():
            view = _elements(self._sums[key], forest)
            view[...] = ring.negate(view)
        self._dense = ring.negate(self._dense)

    def share(self) -> bytes:
        """This server's share of the aggregate: every block's elements in the task's order, little-endian."""
        task = self._config.shape
        ring = task.ring
        parts: list[bytes] = []
        offset = 0
        numbers = itertools.count()
        for block in task.blocks:
            if isinstance(block, Sparse):
                folded = self._fold(next(numbers), block)
                signed = folded if self._server == 0 else ring.negate(folded)
                parts.append(signed.tobytes())
            else:
                parts.append(self._dense[offset : offset + block.size].tobytes())
                offset += block.size
        return b"".join(parts)

    def _prepare(self, submission: Submission, key: ForestKey, forest: Forest) -> _Work:
        trees = submission.trees.layout.split(submission.trees.data)
        part = submission.part.layout.split(submission.part.data)
        payloads = np.frombuffer(part[key, "hint"], dtype=np.uint8).reshape(forest.trees, -1)
        evaluation = kernels.Evaluation(
            keys=self._tree_keys,
            roots=forest_roots(submission.msk, key, forest, self._server),
            tree=tree_of(forest, trees[key, "tree"]),
            convert=kernels.key_schedule(self._config.convert_key(key.block)),
            hints=kernels.payload_planes(payloads),
            element_bits=forest.element_bits,
        )
        if (key, "proof") not in part:
            return _Work(forest, evaluation, self._sums[key])
        verification = self._verification(submission, forest, part[key, "proof"])
        return _VerifiedWork(forest, evaluation, self._sums[key], verification, np.zeros((forest.trees, 2), np.uint64))

    def _verification(self, submission: Submission, forest: Forest, corrections: memoryview) -> kernels.Verification:
        tag, mask = tag_keys(self._config, submission.client, submission.tree, submission.commitments)
        return kernels.Verification(
            tag=kernels.key_schedule(tag),
            masks=kernels.keystream(mask, nonce=0, count=forest.leaves),
            digest=kernels.key_schedule(self._proof_key),
            digest_masks=kernels.keystream(self._proof_mask_key, nonce=0, count=forest.leaves),
            corrections=np.frombuffer(corrections, dtype="<u8").reshape(forest.trees, 2),
        )

    def _add_dense(self, submission: Submission) -> None:
        if not len(self._dense):
            return
        task = self._config.shape
        expands = not submission.dense
        share = (
            dense_mask(task, submission.msk, self._config.epoch)
            if expands
            else task.ring.from_bytes(submission.dense, len(self._dense))
        )
        self._dense = task.ring.add(self._dense, share)

    def _fold(self, index: int, block: Sparse) -> Elements:
        """Sum a block's bins, and its stash slots, to rows."""
        ring = self._config.shape.ring
        geometry = geometry_of(self._config.shape, block)
        totals = ring.zeros(block.rows, block.width)
        key = self._config.placement_key(index)
        tables = [kernels.Permutation(key, segment, block.rows).table() for segment in range(geometry.bins.segments)]
        kernels.fold(self._sums[ForestKey(index, 0)], tables, totals, geometry.bins.positions)
        for number, forest in enumerate(geometry.stash, start=1):
            totals = ring.add(totals, _stash_rows(self._sums[ForestKey(index, number)], forest))
        return totals


def split_share(task: Task, share: Buffer) -> dict[str, Elements]:
    """View a share's bytes as every block's elements: (rows, width) or (size,)."""
    blocks: dict[str, Elements] = {}
    offset = 0
    for block in task.blocks:
        stop = offset + block.weights * task.ring.element_bytes
        shape = (block.size,) if isinstance(block, Dense) else (block.rows, block.width)
        blocks[block.name] = task.ring.from_bytes(memoryview(share)[offset:stop], *shape)
        offset = stop
    return blocks


def _accumulator(forest: Forest) -> Blocks:
    """Zeros for (segments, leaves, planes, bins) blocks, on a cache line so that vectors do not straddle two."""
    shape = (forest.segments, forest.leaves, forest.planes, forest.bins, 2)
    memory = np.zeros(int(np.prod(shape)) + 8, dtype=np.uint64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + int(np.prod(shape))].reshape(shape)


def _elements(accumulator: Blocks, forest: Forest) -> npt.NDArray[Any]:
    return accumulator.view(np.uint32) if forest.element_bits == 32 else accumulator


def _stash_rows(accumulator: Blocks, forest: Forest) -> Elements:
    """The rows of a stash slot, which stands over the rows as they are: (leaves, planes, one bin) to (rows, width)."""
    payloads = kernels.payload_of_planes(
        np.ascontiguousarray(accumulator[0, :, :, 0].transpose(1, 0, 2)), forest.width * forest.element_bits // 8
    )
    dtype = np.uint32 if forest.element_bits == 32 else np.uint64
    shape = (forest.leaves, forest.width, 2) if forest.element_bits == 128 else (forest.leaves, forest.width)
    return payloads.view(dtype).reshape(shape)
