"""Malformed submissions: an honest client's, and the ways a malicious one spoils a tree in it.

A forger is given every advantage: it knows its seeds and every leaf of both servers, and after it has spoiled a tree it
fixes κ anew and makes the best tag correction there is, one that satisfies a leaf of its choice. Whether a bin is sound
is decided here in the clear, from both servers' leaves: at most one differs, there the control bits differ, and the
correction is the one for that leaf. The verdict comes from the servers' own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fsl_async import Ring, Sparse, Task, kernels
from fsl_async.bin_count import bins_of_round
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import submission_bulk
from fsl_async.config import BlockModel, RoundConfig, ServerKeys
from fsl_async.derivation import expansion_keys, forest_roots, seed_commitment, tag_keys, tree_digest
from fsl_async.digests import Domain, digest
from fsl_async.geometry import Forest
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.wire.public_part import ForestKey, Layout, Part, Trees, forests_of

ALICE, MALLORY = "alice", "mallory"

ATTEMPTS_PER_SUBMISSION = 20

TASKS = (
    Task(
        name="four levels",
        blocks=(Sparse("items", rows=230, width=3, select=4),),
        ring=Ring(32),
        min_clients=2,
        max_clients=4,
    ),
    Task(
        name="nine levels and a stash",
        blocks=(Sparse("items", rows=6000, select=4, stash=1),),
        ring=Ring(64),
        min_clients=2,
        max_clients=4,
    ),
    Task(
        name="two blocks",
        blocks=(Sparse("words", rows=900, select=6), Sparse("labels", rows=120, select=3, width=2)),
        ring=Ring(128),
        min_clients=2,
        max_clients=4,
    ),
)


def round_of(task: Task, number: int, *, session: int = 0) -> RoundConfig:
    """A round as two servers would have tossed it; a session's later round keeps the first one's seed."""
    begun = session or number
    keys = ServerKeys(bytes(32), bytes(32))
    return RoundConfig(
        task=task,
        number=number,
        session=begun,
        hash_seed=digest(Domain.HASH_SEED, begun.to_bytes(4, "little")),
        toss=(digest(Domain.TOSS_COMMITMENT, number.to_bytes(4, "little")), bytes(32)),
        servers=(keys, keys),
        model=tuple(BlockModel(block.name, "f4", bytes(32)) for block in task.blocks),
        bins=bins_of_round(task, (), ()),
    )


@dataclass
class Grown:
    """One forest's public part, open to change.

    Attributes:
        words: correction words; uint64 (depth, trees, 2).
        corrections: tag corrections; uint64 (trees, 2).
    """

    words: np.ndarray
    corrections: np.ndarray

    def copy(self) -> Grown:
        return Grown(self.words.copy(), self.corrections.copy())

    @property
    def tree(self) -> kernels.Tree:
        return kernels.Tree(self.words)

    @staticmethod
    def read(forest: Forest, tree: memoryview, proof: memoryview) -> Grown:
        words = np.frombuffer(tree, "<u8").reshape(forest.depth, forest.trees, 2).copy()
        return Grown(words, np.frombuffer(proof, "<u8").reshape(forest.trees, 2).copy())


@dataclass
class Forgery:
    """A submission, whole, as both servers would get it.

    Attributes:
        config: the round it is for.
        client: in whose name it comes.
        msk: both master seeds.
        grown: every forest's trees and corrections.
        part: the bytes it was made from, for hints.
    """

    config: RoundConfig
    client: str
    msk: tuple[bytes, bytes] = field(repr=False)
    grown: dict[ForestKey, Grown] = field(repr=False)
    part: bytes = field(repr=False)

    @property
    def layout(self) -> Layout:
        return Layout.submission(self.config.shape, Trees.OWN)

    @property
    def forests(self) -> dict[ForestKey, Forest]:
        return dict(forests_of(self.config.shape))

    @property
    def commitments(self) -> tuple[bytes, bytes]:
        first, second = (seed_commitment(self.msk[b], self.config.round_id(), self.client, b) for b in (0, 1))
        return first, second

    def public_part(self) -> bytes:
        """The bytes of the public part."""
        part = bytearray(self.part)
        for piece in self.layout.pieces:
            if piece.kind == "tree":
                part[piece.start : piece.stop] = self.grown[piece.key].words.tobytes()
            if piece.kind == "proof":
                part[piece.start : piece.stop] = self.grown[piece.key].corrections.tobytes()
        return bytes(part)

    def tree_digest(self) -> bytes:
        return tree_digest(self.layout, self.public_part())

    def submission(self, server: int) -> Submission:
        part = Part(self.layout, memoryview(self.public_part()))
        msk, tree = self.msk[server], self.tree_digest()
        return Submission(self.client, msk, self.commitments, tree, part, part, memoryview(b""))

    def leaves(self, key: ForestKey, server: int) -> np.ndarray:
        """Every leaf block of a server: (trees, leaves, 2)."""
        forest = self.forests[key]
        nothing = np.zeros(forest.trees, dtype=np.uint8)
        keys = expansion_keys(self.config)
        roots = forest_roots(self.msk[server], key, forest, server)
        view = kernels.Selection(keys, roots, self.grown[key].tree, keys, nothing, 1)
        blocks = np.zeros((forest.segments, forest.leaves, forest.bins, 2), dtype=np.uint64)
        every = np.arange(forest.leaves, dtype=np.uint32)
        for segment in range(forest.segments):
            kernels.evaluate_leaves(view, every, blocks, segment, 0, forest.bins)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(forest.trees, forest.leaves, 2)

    def disagreement(self, key: ForestKey) -> Disagreement:
        return Disagreement(self.leaves(key, 0), self.leaves(key, 1))

    def prove(self, rng: np.random.Generator) -> Forgery:
        """Fix κ for these trees, and give every tree the correction that satisfies one of its differing leaves."""
        tag, mask = tag_keys(self.config, self.client, self.tree_digest(), self.commitments)
        for key, forest in self.forests.items():
            found = self.disagreement(key)
            x = found.some_leaf(rng)
            trees = np.arange(forest.trees)
            masks = kernels.keystream(mask, nonce=0, count=forest.leaves)[x]
            at = (np.ascontiguousarray(side[trees, x]) for side in (found.first, found.second))
            self.grown[key].corrections = kernels.tag_corrections(kernels.key_schedule(tag), *at, masks)
        return self

    def sound(self) -> bool:
        """Whether every tree is a point function and carries its own proof, decided in the clear."""
        tag, mask = tag_keys(self.config, self.client, self.tree_digest(), self.commitments)
        return all(self._forest_is_sound(key, kernels.key_schedule(tag), mask) for key in self.forests)

    def is_point_function(self) -> bool:
        """Whether every tree is a point function, whatever its proof."""
        return all(self.disagreement(key).is_point.all() for key in self.forests)

    def _forest_is_sound(self, key: ForestKey, tag: kernels.Keys, mask: bytes) -> bool:
        found = self.disagreement(key)
        if not found.is_point.all():
            return False
        trees = np.flatnonzero(found.differs.any(axis=1))
        x = found.differs[trees].argmax(axis=1)
        masks = kernels.keystream(mask, nonce=0, count=found.differs.shape[1])[x]
        at = (np.ascontiguousarray(side[trees, x]) for side in (found.first, found.second))
        needed = kernels.tag_corrections(tag, *at, masks)
        return bool((self.grown[key].corrections[trees] == needed).all())


@dataclass
class Disagreement:
    """Both servers' leaves of one forest, (trees, leaves, 2), and where they differ."""

    first: np.ndarray
    second: np.ndarray

    @cached_property
    def differs(self) -> np.ndarray:
        """Leaves with different blocks: bool (trees, leaves)."""
        return (self.first != self.second).any(axis=2)

    @cached_property
    def turned(self) -> np.ndarray:
        """Leaves with different control bits: bool (trees, leaves)."""
        return ((self.first ^ self.second)[..., 0] & np.uint64(1)).astype(bool)

    @cached_property
    def is_point(self) -> np.ndarray:
        """Trees of which at most one leaf differs, and there the control bit: bool (trees,)."""
        return (self.differs.sum(axis=1) <= 1) & (self.differs == self.turned).all(axis=1)

    def some_leaf(self, rng: np.random.Generator) -> np.ndarray:
        """Of every tree a leaf where control bits differ, else one that differs at all, else any."""
        chance = rng.random(self.differs.shape)
        return np.argmax(2 * self.turned + 1 * self.differs + chance / 2, axis=1)


class Judges:
    """Both servers of one round, which say whether they agree on a submission."""

    def __init__(self, config: RoundConfig, proof_key: bytes = b"tossed by the servers") -> None:
        self.config = config
        self.servers = [Aggregate(config, server, proof_key) for server in (0, 1)]

    def accept(self, forgery: Forgery) -> bool:
        return self.proof(0, forgery) == self.proof(1, forgery)

    def proof(self, server: int, forgery: Forgery) -> bytes:
        jobs, finish = self.servers[server].jobs(forgery.submission(server), threads=1)
        for job in jobs:
            job()
        return finish()


@dataclass(frozen=True)
class Malformation:
    """A way to spoil an honest submission.

    Attributes:
        name: what is done.
        spoil: does it.
        trees: whether it leaves a tree that is no point function; else all trees are, and a proof is not theirs.
    """

    name: str
    spoil: Callable[[Forgery, Workshop], Forgery]
    trees: bool = True


class Workshop:
    """Where honest submissions are made, to be spoilt: a round, the one before it, and one stream of randomness."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self.rng = np.random.default_rng(seed)
        self.config = round_of(task, 2)
        self.earlier = round_of(task, 1)
        self.judges = Judges(self.config)

    def randomness(self, size: int) -> bytes:
        return self.rng.bytes(size)

    def client_trees(self, config: RoundConfig, *, rows: bool = True) -> ClientTrees:
        """Trees for a random selection, of as many rows as may be, or of none."""
        chosen = {
            index: self.rng.choice(block.rows, block.select if rows else 0, replace=False).astype(np.uint32)
            for index, block in config.shape.sparse_blocks()
        }
        return plant(config, chosen, MasterSeeds.fresh(self.randomness), self.randomness)

    def submission(self, config: RoundConfig, client: str = ALICE, *, rows: bool = True) -> Forgery:
        """What an honest client submits in a round."""
        client_trees = self.client_trees(config, rows=rows)
        updates = {
            index: (client_trees.rows[index], config.shape.ring.zeros(len(client_trees.rows[index]), block.width))
            for index, block in config.shape.sparse_blocks()
        }
        part, _ = submission_bulk(config, client, client_trees, updates, Trees.OWN)
        pieces = Layout.submission(config.shape, Trees.OWN).split(memoryview(part))
        grown = {
            key: Grown.read(forest, pieces[key, "tree"], pieces[key, "proof"])
            for key, forest in forests_of(config.shape)
        }
        return Forgery(config, client, client_trees.seeds.msk, grown, bytes(part))

    def attempts(self, malformation: Malformation) -> Iterator[Forgery]:
        """Attempts of one kind without end; now and then one is sound, where only leaves beyond the bin are spoilt."""
        while True:
            template = self.submission(self.config)
            for _ in range(ATTEMPTS_PER_SUBMISSION):
                fresh = replace(template, grown={key: grown.copy() for key, grown in template.grown.items()})
                yield malformation.spoil(fresh, self)

    def spoil(self, malformation: Malformation) -> Iterator[Forgery]:
        """The attempts of one kind that are not sound."""
        return (forgery for forgery in self.attempts(malformation) if not forgery.sound())


def honest(workshop: Workshop) -> Iterator[Forgery]:
    """Honest submissions without end; every eighth selects no row at all."""
    while True:
        for number in range(8):
            yield workshop.submission(workshop.config, rows=number < 7)
