"""One server's side of secure submodel aggregation: submissions into accumulators, accumulators into a share.

Rules: all clients are added to one accumulator, bin by bin, which is folded to rows once per round; the work of one
submission is cut into `Job`s over disjoint slices of the accumulator, so any number of threads may run them without a
lock; no array of bins × Θ is made per client. Addition is exact and commutative, so any order gives the same sum.

Source: paper §"Basic Protocols" (SSA); design §7, §8, §12. The proofs replace the paper §"Malicious-secure sketching".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from fsl_async import kernels
from fsl_async.bounds import terms_of, verifier_share
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_mask, forest_roots, tag_keys, tree_keys
from fsl_async.digests import Buffer, Domain, derive_key, digest
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest, RowNumbers
from fsl_async.kernels.arrays import Blocks
from fsl_async.ring import Elements
from fsl_async.server.jobs import Job, tree_of
from fsl_async.server.sums import BinSum, CellMemory, UnionSum
from fsl_async.server.tree_totals import TreeTotals
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import ALL_ROWS, ForestKey, Opened, Part, dense_bytes, forests_of, shape_of_share


@dataclass(frozen=True)
class Claim:
    """What shows, beside the trees, that a submission is within the task's bound.

    Attributes:
        private: the private part of the proof on the carrier; None on the other server, which expands its own.
        bind: the digest of all that the update depends on (`bounds.binding`).
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
        dense_salt: the salt of that expansion; empty where the task has no dense blocks.
        claim: the proof of the update's size; None where the task has no bound.
    """

    client: str
    msk: bytes = field(repr=False)
    commitments: tuple[bytes, bytes]
    tree: bytes
    trees: Part = field(repr=False)
    part: Part = field(repr=False)
    dense: memoryview = field(repr=False)
    dense_salt: bytes = b""
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
    ) -> None:
        """Start at zero.

        Args:
            config: the round.
            server: 0 or 1.
            proof_key: the key under which both servers hash proofs; clients never learn it.
            unions: by sparse block, the union that the round is aligned on; none where it is not.
            memory: where large arrays come from, and where `release` returns them.
        """
        memory = memory or CellMemory()
        self._config = config
        self._server = server
        self._forests = dict(forests_of(config.shape))
        self._tree_keys = tree_keys(config)
        sparse = list(config.shape.sparse_blocks())
        self._bins = {index: BinSum(config, index, block, memory) for index, block in sparse}
        aligned = bool(config.union) and config.task.selection == "fixed"
        self._unions = {i: UnionSum(config, i, block, unions[block.name]) for i, block in sparse if aligned}
        self._terms = terms_of(config.shape)
        self._dense = config.shape.ring.zeros(dense_bytes(config.shape) // config.shape.ring.element_bytes)
        self._toss = proof_key
        self._proof_key = kernels.key_schedule(derive_key(Domain.PROOF_KEY, proof_key))
        self._proof_mask_key = derive_key(Domain.PROOF_MASK_KEY, proof_key)
        self._proof_masks: dict[int, Blocks] = {}

    def jobs(self, submission: Submission, threads: int) -> tuple[list[Job], Callable[[], bytes]]:
        """The jobs that add one submission, and a function to call when all of them are done.

        Jobs of one submission may run at the same time; jobs of different submissions may not.

        Returns:
            The jobs, and a function that returns what shows the other server that the submission may be counted: its
            proof digest (of the trees alone without proofs; of the trees' counts, too, where contributors are counted),
            then this server's share of the proof of its bound, if the task has one.
        """
        counts = self._config.shape.min_contributors is not None
        totals = TreeTotals(self._config.shape.ring, self._forests) if self._terms or counts else None
        jobs: list[Job] = []
        proofs: list[Blocks] = []
        part = submission.part.layout.split(submission.part.data)
        for key, forest in self._forests.items():
            evaluation = self._evaluation(submission, key, forest, part)
            asked = totals.of(key) if totals else kernels.NO_TOTALS
            if (key, "proof") in part:
                verification = self._verification(submission, forest, part[key, "proof"])
                work, proof = self._bins[key.block].verify_jobs(key.forest, evaluation, verification, threads, asked)
                proofs.append(proof)
            else:
                work = self._sum_for(key.block).add_jobs(key.forest, evaluation, threads, asked)
            jobs += work

        def finish() -> bytes:
            dense = self._dense_share(submission)
            self._dense = self._config.shape.ring.add(self._dense, dense)
            each = [*proofs, *(totals.counts(self._server) if totals and counts else ())]
            entry = digest(Domain.PROOF, submission.tree, *(piece.reshape(-1).view(np.uint8).data for piece in each))
            if totals is None or self._terms is None:
                return entry
            return entry + self._bound_share(submission, totals.vector(self._server, dense))

        return jobs, finish

    def negate(self) -> None:
        """Negate the sum: adding a submission between two calls takes it out."""
        sums: list[BinSum | UnionSum] = [*self._bins.values(), *self._unions.values()]
        for block_sum in sums:
            block_sum.negate()
        self._dense = self._config.shape.ring.negate(self._dense)

    def release(self) -> None:
        """Give the memory back; this sum cannot be used any more."""
        for block_sum in self._bins.values():
            block_sum.release()

    def counts(self) -> bytes:
        """This server's share of the counts of contributors: of every row of every sparse block, 32 bits of it."""
        ring = self._config.shape.ring
        parts: list[bytes] = []
        for index, _ in self._config.shape.sparse_blocks():
            counts = self._bins[index].rows()[:, -1]
            signed = counts if self._server == 0 else ring.negate(counts)
            words = np.ascontiguousarray(signed).view(np.uint32).reshape(len(counts), -1)
            parts.append(words[:, 0].tobytes())
        return b"".join(parts)

    def share(self, opened: Opened = ALL_ROWS) -> bytes:
        """This server's share of the aggregate: every block's elements in the task's order, little-endian.

        Args:
            opened: by sparse block, the rows whose elements are in it; those of the others are in no share.
        """
        task = self._config.shape
        ring = task.ring
        parts: list[bytes] = []
        offset = 0
        numbers = {block.name: index for index, block in task.sparse_blocks()}
        for block in task.blocks:
            if isinstance(block, Sparse):
                folded = self._rows(numbers[block.name], opened.get(block.name))[:, : block.width]
                signed = folded if self._server == 0 else ring.negate(folded)
                parts.append(signed.tobytes())
            else:
                parts.append(self._dense[offset : offset + block.size].tobytes())
                offset += block.size
        return b"".join(parts)

    def _sum_for(self, block: int) -> BinSum | UnionSum:
        """Where a submission without proofs is added: at the union's rows only, if the round is aligned on one."""
        return self._unions.get(block, self._bins[block])

    def _evaluation(
        self,
        submission: Submission,
        key: ForestKey,
        forest: Forest,
        part: Mapping[tuple[ForestKey, str], memoryview],
    ) -> kernels.Evaluation:
        trees = submission.trees.layout.split(submission.trees.data)
        return kernels.Evaluation(
            keys=self._tree_keys,
            roots=forest_roots(submission.msk, key, forest, self._server),
            tree=tree_of(forest, trees[key, "tree"]),
            convert=kernels.key_schedule(self._config.convert_key(key.block, bytes(part[key, "salt"]))),
            hints=kernels.payload_planes(np.frombuffer(part[key, "hint"], dtype=np.uint8).reshape(forest.trees, -1)),
            element_bits=forest.element_bits,
        )

    def _verification(self, submission: Submission, forest: Forest, corrections: memoryview) -> kernels.Verification:
        tag, mask = tag_keys(self._config, submission.client, submission.tree, submission.commitments)
        return kernels.Verification(
            tag=kernels.key_schedule(tag),
            masks=kernels.keystream(mask, nonce=0, count=forest.leaves),
            digest=self._proof_key,
            digest_masks=self._proof_masks_of(forest.leaves),
            # Aligned here, because otherwise every job would copy them.
            corrections=np.require(np.frombuffer(corrections, dtype="<u8").reshape(forest.trees, 2), requirements="A"),
        )

    def _proof_masks_of(self, leaves: int) -> Blocks:
        """ρ′ of that many leaves, the same for every client of the round."""
        if leaves not in self._proof_masks:
            self._proof_masks[leaves] = kernels.keystream(self._proof_mask_key, nonce=0, count=leaves)
        return self._proof_masks[leaves]

    def _dense_share(self, submission: Submission) -> Elements:
        """This server's share of the submission's dense blocks."""
        task = self._config.shape
        if submission.dense or not len(self._dense):
            return task.ring.from_bytes(submission.dense, len(self._dense))
        return dense_mask(task, submission.msk, self._config.epoch, submission.dense_salt)

    def _bound_share(self, submission: Submission, vector: Elements) -> bytes:
        """This server's share of the proof that the update is within the bound."""
        terms, claim = self._terms, submission.claim
        if terms is None or claim is None:
            raise MisuseError(f"the submission of {submission.client} does not claim to be within the task's bound")
        return verifier_share(
            terms, self._server, vector, claim.private, submission.msk, claim.bind, self._toss, claim.digest
        )

    def _rows(self, index: int, opened: RowNumbers | None) -> Elements:
        """The sum of every row of a block, or of those that are opened."""
        totals = self._bins[index].rows(opened)
        return self._config.shape.ring.add(totals, self._unions[index].rows()) if index in self._unions else totals


def split_share(task: Task, share: Buffer, opened: Opened = ALL_ROWS) -> dict[str, Elements]:
    """View a share's bytes as every block's elements: (rows, width), of the opened rows, or (size,)."""
    blocks: dict[str, Elements] = {}
    offset = 0
    for block in task.blocks:
        shape = shape_of_share(block, opened)
        stop = offset + math.prod(shape) * task.ring.element_bytes
        blocks[block.name] = task.ring.from_bytes(memoryview(share)[offset:stop], *shape)
        offset = stop
    return blocks
