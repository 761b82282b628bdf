"""A stored submission, read with its bulk: by the server from its records, and by whoever reads its blobs for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

from fsl_async.bounds import terms_of
from fsl_async.config import RoundConfig
from fsl_async.secrecy import Discreet
from fsl_async.server.aggregation import Claim, Submission
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.server.round.reading_back import ReadBack
from parties.server.store_layout import RequestKey, bound_name, dense_name, round_prefix

__all__ = ["StoredSubmission", "SubmissionReader"]

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
        dense_salt: what its dense masks depend on; empty where the task has no dense blocks.
        bind: what the proof of its bound is bound to; empty where the task has no bound.
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
    dense_salt: bytes = b""
    bind: bytes = b""
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
            HarmedBlobError: some of it is missing, or is not what was put.
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
            dense_salt=stored.dense_salt,
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
