"""A submission's bytes: made once, stored before the first of them is sent, and the same in every repeat.

A submission that is sent in two versions is refused at best; in a session it would be a second hint for one epoch, and
the difference of the two reveals the values. So nothing here is made again after a restart: every byte is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fsl_async.bounds import ProjectionError, private_bytes
from fsl_async.client.bound import bound_part
from fsl_async.client.upload import SparseUpdate, plain_elements, submission_bulk, update_elements
from fsl_async.config import RoundConfig
from fsl_async.derivation import binding, public_digest, submission_digest
from fsl_async.digests import Buffer, Domain, digest
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements
from fsl_async.secrecy import Discreet
from fsl_async.wire.messages import Hint, Submit
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees
from parties.client.trees import MadeTrees
from parties.identity.keys import Identity, PublicIdentity


@dataclass(frozen=True)
class TreeSource:
    """The trees that a submission uses.

    Attributes:
        trees: where the servers have them from.
        query: the retrieval that brought them; 0 where none did.
        planting: the trees.
        commitments: to their master seeds.
    """

    trees: Trees
    query: int
    planting: MadeTrees
    commitments: tuple[bytes, bytes]


class Header(Discreet, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a submission's messages say besides the bulk.

    Attributes:
        digest: what receipts, rosters and proofs call the submission.
        trees: where the servers have its trees from.
        query: the retrieval that brought them; 0 where none did.
        seeds: both servers' master seeds.
        commitments: to them.
        public_digest: of the public part.
        bound_digest: of the private part of the bound's proof; empty where the task has no bound.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"seeds"})
    digest: bytes
    trees: Trees
    query: int
    seeds: tuple[bytes, bytes]
    commitments: tuple[bytes, bytes]
    public_digest: bytes
    bound_digest: bytes


class StoredDraft(Discreet, frozen=True, forbid_unknown_fields=True):
    """What is stored of a pending submission, besides its bulk.

    Attributes:
        config: its round.
        header: what its messages say besides the bulk.
        receipts: by server.
        mark: of the update that it was made of.
        left_out: by sparse block, the caller's rows that found no place in it.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"left_out"})
    config: bytes
    header: Header
    receipts: dict[int, bytes]
    mark: bytes
    left_out: dict[str, list[int]]


@dataclass(frozen=True)
class LastSubmission:
    """The submission that a client made last, whatever became of it.

    Attributes:
        config: its round.
        digest: what receipts call it.
        mark: of its update; see `update_mark`.
    """

    config: RoundConfig
    digest: bytes
    mark: bytes


@dataclass(frozen=True)
class Draft:
    """A submission, whole.

    Attributes:
        config: its round.
        client: whose it is.
        header: what its messages say besides the bulk.
        part: the public part, for the carrier.
        shares: the dense shares, then the private part of the bound's proof, for the carrier.
        receipts: the servers' signatures so far.
        mark: of the update that it was made of (`update_mark`).
        left_out: by sparse block, the caller's rows that found no place in it.
    """

    config: RoundConfig
    client: str
    header: Header
    part: Buffer = field(repr=False)
    shares: Buffer = field(repr=False)
    receipts: Mapping[int, bytes] = field(default_factory=dict)
    mark: bytes = b""
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict, repr=False)

    @property
    def digest(self) -> bytes:
        """What receipts, rosters and proofs call it."""
        return self.header.digest

    def summary(self) -> LastSubmission:
        """What is remembered of it once its bytes are not needed any more."""
        return LastSubmission(self.config, self.digest, self.mark)

    def message(self, server: int) -> Submit | Hint:
        """What goes to one server, besides the bulk."""
        round_id, header = self.config.round_id(), self.header
        if header.trees is Trees.SESSION:
            return Hint(round_id, header.commitments[server], header.public_digest, header.bound_digest)
        return Submit(
            round_id=round_id,
            query=header.query,
            seed=header.seeds[server],
            commitments=header.commitments,
            public_digest=header.public_digest,
            bound_digest=header.bound_digest,
        )

    def bulk(self, server: int) -> tuple[Buffer, ...]:
        """The bulk that goes to one server."""
        return (self.part, self.shares) if self.config.carrier(self.client) == server else ()

    def receipted(self, server: int, signature: bytes) -> Draft:
        """The same with one more receipt."""
        return replace(self, receipts={**self.receipts, server: signature})

    def stored(self) -> StoredDraft:
        """What must be stored of it, besides part and shares."""
        left_out = {name: list(rows) for name, rows in self.left_out.items()}
        return StoredDraft(self.config.canonical(), self.header, dict(self.receipts), self.mark, left_out)


def draft_submission(
    config: RoundConfig,
    client: PublicIdentity,
    source: TreeSource,
    sparse: Mapping[int, SparseUpdate],
    dense: Mapping[int, Elements],
    unions: Mapping[str, npt.NDArray[np.uint32]],
    randomness: Randomness,
) -> Draft:
    """Fix a submission's bytes.

    Args:
        config: the round.
        client: who submits.
        source: the trees.
        sparse: by sparse block, rows as this round names them, and their elements.
        dense: the elements of dense blocks.
        unions: by sparse block, the rows that the round is aligned on.
        randomness: what is fresh about the proof of a bound.

    Raises:
        BoundExceededError: the update is beyond the task's bound.
        MisuseError: a row is not among the trees' rows, or was deferred.
    """
    client_trees, carrier = source.planting.client_trees, config.carrier(client.name)
    layout = Layout.submission(config.shape, source.trees)
    brought = client_trees.digest if source.trees is Trees.OWN else b""
    plain = plain_elements(config, client_trees, sparse, unions)
    update = update_elements(config, client_trees, sparse, dense, plain)
    while True:
        fresh = randomness(SALT_BYTES) if private_bytes(config.shape) else b""
        part, share = submission_bulk(config, client.name, client_trees, sparse, source.trees, dense, plain, fresh)
        public = public_digest(layout, part, brought)
        bind = binding(config.round_id(), client.digest(), public, client_trees.digest, source.commitments)
        try:
            private, bound = bound_part(config, update, client_trees.seeds.msk, carrier, bind, randomness)
        except ProjectionError:
            continue  # once in 2^40 times: another salt is another projection
        break
    header = Header(
        digest=submission_digest(bind, bound),
        trees=source.trees,
        query=source.query,
        seeds=client_trees.seeds.msk,
        commitments=source.commitments,
        public_digest=public,
        bound_digest=bound,
    )
    return Draft(config, client.name, header, part, share + private)


def update_mark(
    identity: Identity, protocol: str, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements]
) -> bytes:
    """A keyed digest by which a client recognises an update that it has submitted; it tells nobody else anything."""
    parts: list[Buffer] = [protocol.encode()]
    for index, (rows, elements) in sorted(sparse.items()):
        order = np.argsort(rows)
        parts += [b"sparse %d" % index, rows[order].astype("<u4").tobytes(), elements[order].tobytes()]
    for index, elements in sorted(dense.items()):
        parts += [b"dense %d" % index, elements.tobytes()]
    return digest(Domain.UPDATE, *parts, key=identity.statement_secret)


def is_nothing(sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements]) -> bool:
    """Whether an update names no row and changes no value: two sums do not differ in it."""
    return not any(len(rows) for rows, _ in sparse.values()) and not any(elements.any() for elements in dense.values())


def fresh_marks(count: int, randomness: Randomness) -> Elements:
    """Random elements of Z_2^64, none of them 0: they mark a row, and their sum hides how often it was marked."""
    numbers = np.frombuffer(randomness(8 * count), dtype="<u8")
    return np.where(numbers == 0, np.uint64(1), numbers).reshape(count, 1)
