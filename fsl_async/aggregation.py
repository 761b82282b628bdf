"""One server's side of secure submodel aggregation: submissions into accumulators, accumulators into a share.

Rules: clients are added in bin space, one accumulator for all of them, and folded to rows once per round; the work of one
submission is cut into `Job`s over disjoint slices of the accumulator, so that any number of threads may run them with no
lock; nothing the size of bins × Θ is made per client. Addition is exact and commutative, so any order gives the same sum.

Source: paper §"Basic Protocols" (SSA) and §"Malicious-secure sketching"; design §7, §8, §12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, derive_key, digest
from fsl_async.geometry import Forest, geometry_of
from fsl_async.public_part import ForestKey, Layout, forests_of
from fsl_async.ring import Elements
from fsl_async.selection import Blocks, forest_roots, tree_keys
from fsl_async.task import Dense, Sparse
from fsl_async.upload import dense_mask, tag_keys

__all__ = ["Aggregate", "Job", "Part", "Submission", "split_share", "tree_of"]

Job: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Part:
    """One public part as a server holds it: the bytes and what they are."""

    layout: Layout
    data: memoryview = field(repr=False)


@dataclass(frozen=True)
class Submission:
    """A complete submission on one server.

    Attributes:
        client: whose it is.
        msk: this server's master seed.
        commitments: c₀ and c₁.
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


def tree_of(forest: Forest, piece: memoryview) -> kernels.Tree:
    """View a piece of a public part as a forest's trees."""
    words = np.frombuffer(piece[: forest.word_bytes], dtype="<u8").reshape(forest.depth, forest.trees, 2)
    bits = np.frombuffer(piece[forest.word_bytes :], dtype=np.uint8).reshape(forest.depth, -1)
    return kernels.Tree(words, bits)


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
        self._forests = dict(forests_of(config.task))
        self._trees = tree_keys(config)
        self._sums = {key: _accumulator(forest) for key, forest in self._forests.items()}
        self._dense = config.task.ring.zeros(sum(block.size for _, block in config.task.dense_blocks()))
        self._proof_keys = tuple(derive_key(domain, proof_key) for domain in (Domain.PROOF_KEY, Domain.PROOF_MASK_KEY))

    def jobs(self, submission: Submission, threads: int) -> tuple[list[Job], Callable[[], bytes]]:
        """The work of adding one submission, and what to call when all of it is done.

        Jobs of one submission may run at the same time; jobs of different submissions may not.

        Returns:
            The jobs, and a function that returns the submission's proof digest (empty where semi-honest).
        """
        work = [
            _ForestWork(key, forest, self._prepare(submission, key, forest), self._sums[key])
            for key, forest in self._forests.items()
        ]
        jobs = [job for forest_work in work for job in forest_work.jobs(threads)]

        def finish() -> bytes:
            self._add_dense(submission)
            return self._proof(submission, work) if self._config.task.verified else b""

        return jobs, finish

    def negate(self) -> None:
        """Turn the sum into its negative: remove a submission by adding it between two calls."""
        ring = self._config.task.ring
        for key, forest in self._forests.items():
            view = _as_elements(self._sums[key], forest)
            view[...] = ring.negate(view)
        self._dense = ring.negate(self._dense)

    def share(self) -> bytes:
        """This server's share of the aggregate: every block's elements in the task's order, little-endian."""
        ring = self._config.task.ring
        folded = [self._block_share(index, block) for index, block in enumerate(self._config.task.blocks)]
        signed = folded if self._server == 0 else [self._sign(index, share) for index, share in enumerate(folded)]
        return b"".join(np.ascontiguousarray(share).tobytes() for share in signed) if ring else b""

    def _prepare(self, submission: Submission, key: ForestKey, forest: Forest) -> kernels.Evaluation:
        trees = submission.trees.layout.split(submission.trees.data)
        part = submission.part.layout.split(submission.part.data)
        return kernels.Evaluation(
            keys=self._trees,
            convert=kernels.key_schedule(self._config.convert_key(key.block)),
            roots=forest_roots(submission.msk, key, forest, self._server),
            tree=tree_of(forest, trees[key, "tree"]),
            hints=kernels.hint_planes(part[key, "hint"], forest.trees, forest.payload_elements, forest.element_bits),
            element_bits=forest.element_bits,
            verification=self._verification(submission, forest, part.get((key, "proof"))),
        )
