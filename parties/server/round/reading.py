"""Bulk that is read back from blobs, compared with the digest that the store has of it.

What is altered or missing is never evaluated, answered or sent on. The operator is told which blob it is, and its round
waits, until it is put back or the round is aborted. Comparing is the lane's work.
A submission is read with its bulk by the server from its records, and by whoever reads its blobs for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, TypeAlias

from fsl_async.bounds import private_digest, terms_of
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, public_digest, tree_digest
from fsl_async.digests import same
from fsl_async.secrecy import Discreet
from fsl_async.server.aggregation import Claim, Submission
from fsl_async.task import Task
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.compute import ComputeLane
from parties.events import Observer, Warned, unobserved
from parties.server.store_layout import Purpose, RequestKey, bound_name, dense_name, round_prefix
from parties.storage.blobs.blobs import Blobs, DamagedBlobError


class AlteredError(DamagedBlobError):
    """A blob has other content than was put."""


class ReadBack:
    """Reads a round's blobs.

    Args:
        blobs: where they are.
        lane: where they are compared.
        task: as the round works on it.
        observe: hears of blobs that are altered or missing, once of each.
    """

    def __init__(self, blobs: Blobs, lane: ComputeLane, task: Task, observe: Observer = unobserved) -> None:
        self._blobs = blobs
        self._lane = lane
        self._task = task
        self._observe = observe
        self._told: set[str] = set()

    async def part(self, place: str, purpose: Purpose, name: bytes) -> memoryview:
        """A public part.

        Args:
            place: the blob's name.
            purpose: what the part is for.
            name: its digest.

        Raises:
            DamagedBlobError: it is not the one that was put, or is missing.
            StorageError: it cannot be read.
        """
        return await self._found(place, partial(self._is_part, purpose, name))

    async def trees(self, place: str, layout: Layout, name: bytes) -> memoryview:
        """The trees of a session that were put for this round, by the digest of the trees; see `part`."""
        return await self._found(place, lambda content: _has_trees(layout, content, name))

    async def dense(self, place: str, name: bytes, seed: bytes) -> memoryview:
        """A share of dense blocks, whose digest is keyed with its client's seed; see `part`."""
        return await self._found(place, lambda content: same(dense_digest(content, seed), name))

    async def private(self, place: str, name: bytes, seed: bytes) -> memoryview:
        """The private part of a bound's proof, likewise."""
        return await self._found(place, lambda content: same(private_digest(content, seed), name))

    async def _found(self, place: str, is_right: Callable[[memoryview], bool]) -> memoryview:
        try:
            content = await self._blobs.read(place)
            if not await self._lane.run_over(len(content), partial(is_right, content)):
                raise altered(place)
        except DamagedBlobError as error:
            if place not in self._told:
                self._told.add(place)
                self._observe(Warned(about="blobs", explanation=f"{error}; its round waits for it, or for its end"))
            raise
        self._told.discard(place)
        return content

    def _is_part(self, purpose: Purpose, name: bytes, content: memoryview) -> bool:
        """Whether a part has a digest; parts of one size lie alike, as far as digests go."""
        for layout in layouts_of(self._task, purpose):
            if layout.size == len(content):
                return same(public_digest(layout, content, tree_digest(layout, content)), name)
        return False


def _has_trees(layout: Layout, content: memoryview, name: bytes) -> bool:
    return len(content) == layout.size and same(tree_digest(layout, content), name)


def layouts_of(task: Task, purpose: str) -> list[Layout]:
    """How public parts for that purpose may lie."""
    if purpose == "retrieve":
        return [Layout.retrieval(task)]
    return [Layout.submission(task, trees) for trees in Trees]


def altered(place: str) -> AlteredError:
    """The error for a blob that is not what was put."""
    return AlteredError(
        f'the blob {place} has other content than was put: docs/operations.md says what to do under "A store is '
        'damaged"'
    )


NO_SHARES = memoryview(b"")

FindPart: TypeAlias = Callable[[RequestKey, bytes], Awaitable[memoryview]]
"""The public part of a request, by its digest."""

FindTrees: TypeAlias = Callable[[str], Awaitable[Part]]
"""The trees of a client's session."""


class StoredSubmission(Discreet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submission as it lies in the store, without its bulk.

    Attributes:
        client: whose it is.
        name: its digest, as receipts and rosters have it.
        msk: this server's master seed.
        commitments: c₀ and c₁.
        tree: the digest of its trees.
        trees: where they come from.
        query: the retrieval that brought them, and `query_part` the digest of its public part; 0 and empty otherwise.
        part: the digest of its public part.
        bind: what the proof of its bound is bound to.
        dense: the digest under which the share of dense blocks lies here; empty where none does.
        private: likewise of the private part of the proof of its bound.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"msk", "dense", "private"})
    client: str
    name: bytes
    msk: bytes
    commitments: tuple[bytes, bytes]
    tree: bytes
    trees: Trees
    query: int
    query_part: bytes
    part: bytes
    bind: bytes
    dense: bytes = b""
    private: bytes = b""


class SubmissionReader:
    """Reads the submissions of one round.

    Args:
        read: reads blobs, and compares them with their digests.
        config: the round.
        part: finds public parts.
        session: finds the trees of sessions.
    """

    def __init__(self, read: ReadBack, config: RoundConfig, part: FindPart, session: FindTrees) -> None:
        self._read = read
        self._config = config
        self._part = part
        self._session = session
        self._prefix = round_prefix(config.number)

    async def read(self, stored: StoredSubmission) -> Submission:
        """A submission with its bulk.

        Raises:
            DamagedBlobError: some of it is missing, or is not what was put.
            StorageError: it cannot be read.
        """
        layout = Layout.submission(self._config.shape, stored.trees)
        part = Part(layout, await self._part(RequestKey(stored.client, "submit", 0), stored.part))
        return Submission(
            client=stored.client,
            msk=stored.msk,
            commitments=stored.commitments,
            tree=stored.tree,
            trees=await self._trees(stored, part),
            part=part,
            dense=await self._dense(stored) if stored.dense else NO_SHARES,
            claim=await self._claim(stored) if terms_of(self._config.shape) else None,
        )

    async def _claim(self, stored: StoredSubmission) -> Claim:
        """What shows that a submission is within the task's bound."""
        if not stored.private:
            return Claim(None, stored.bind, stored.name)
        place = bound_name(self._prefix, stored.client, stored.private)
        return Claim(await self._read.private(place, stored.private, stored.msk), stored.bind, stored.name)

    async def _dense(self, stored: StoredSubmission) -> memoryview:
        """The share of dense blocks that a submission has brought."""
        return await self._read.dense(dense_name(self._prefix, stored.client, stored.dense), stored.dense, stored.msk)

    async def _trees(self, stored: StoredSubmission, part: Part) -> Part:
        match stored.trees:
            case Trees.OWN:
                return part
            case Trees.RETRIEVAL:
                key = RequestKey(stored.client, "retrieve", stored.query)
                return Part(Layout.retrieval(self._config.shape), await self._part(key, stored.query_part))
            case Trees.SESSION:
                return await self._session(stored.client)
