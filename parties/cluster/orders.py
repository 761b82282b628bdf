"""What a server tells a worker, and what a worker reports.

Rules: an order has names, seeds and digests, and no bulk: that lies in blobs, which workers read. An order with secrets
is sealed to the key that its worker made when it began, so neither a scheduler nor a log or file of its sees a seed.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeVar

import msgspec
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

from fsl_async.bin_count import planned
from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError
from fsl_async.secrecy import Discreet
from fsl_async.union import union_task
from fsl_async.wire.codec import UNREADABLE
from fsl_async.wire.public_part import Layout, Trees
from parties.server.round.reading import StoredSubmission

StructT = TypeVar("StructT", bound=msgspec.Struct)


class SessionTrees(msgspec.Struct, frozen=True, kw_only=True):
    """The trees of a client's session, which lie in the round's blobs for the workers.

    Attributes:
        place: the blob's name.
        kind: how they lie there, one of `session_layouts`.
    """

    place: str
    kind: str


def session_layouts(config: RoundConfig) -> dict[str, Layout]:
    """How the public part that brought a session's trees may lie: a retrieval's, a submission's, a union round's."""
    shape = config.shape
    layouts = {"retrieval": Layout.retrieval(shape), "submission": Layout.submission(shape, Trees.OWN)}
    if config.task.finds_unions:
        layouts["union"] = Layout.submission(union_task(planned(config.task)), Trees.OWN)
    return layouts


class Brief(Discreet, frozen=True, kw_only=True):
    """What a worker must know of a round.

    Attributes:
        life: names one life of the server: what was begun in another one is thrown away.
        sum: counts the sums of that life.
        config: the round's canonical bytes.
        server: 0 or 1.
        proof_key: the key under which both servers hash proofs.
        slices: into how many slices of its bins the sum is cut (`fsl_async.server.slicing`).
        unions: by sparse block, the blob of the union that the round is aligned on.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"proof_key"})
    life: bytes
    sum: int
    config: bytes
    server: int
    proof_key: bytes
    slices: int = 1
    unions: dict[str, str] = msgspec.field(default_factory=dict)


class AddOrder(Discreet, frozen=True, kw_only=True):
    """Add submissions to a partial.

    Attributes:
        brief: the round.
        slice: the slice that the partial is over, counted from 0.
        partial: the partial's number in its slice.
        number: the order's: the same again is not done twice.
        submissions: what the store has of each.
        sessions: by client, where the trees of its session lie.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"submissions"})
    brief: Brief
    slice: int
    partial: int
    number: int
    submissions: tuple[StoredSubmission, ...]
    sessions: dict[str, SessionTrees] = msgspec.field(default_factory=dict)


class ModelPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of rows of a block of the model, in a blob.

    Attributes:
        place: the blob's name.
        digest: of its content.
    """

    place: str
    digest: bytes


class ModelBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A sparse block of the model as a round retrieves it.

    Attributes:
        name: the block's.
        rows: how many there are.
        row_bytes: bytes of a row.
        pieces: its rows, in order.
    """

    name: str
    rows: int
    row_bytes: int
    pieces: tuple[ModelPiece, ...]


class StoredQuery(Discreet, frozen=True, kw_only=True):
    """A retrieval as it lies in the store, without its bulk.

    Attributes:
        client: whose it is.
        msk: this server's master seed.
        query: the number of the request that brought its trees; 0 where they are a session's.
        part: the digest of that request's public part, or of the session's trees.
        session: where the session's trees lie.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"msk"})
    client: str
    msk: bytes
    query: int
    part: bytes
    session: SessionTrees | None = None


class AnswerOrder(Discreet, frozen=True, kw_only=True):
    """Answer retrievals over a slice of the model, which a worker lays out for the first one and then keeps.

    Attributes:
        brief: the round; its number is another one than that of any sum.
        slice: which of the `even_slices`.
        model: the model.
        queries: what the store has of each retrieval.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"queries"})
    brief: Brief
    slice: int
    model: tuple[ModelBlock, ...]
    queries: tuple[StoredQuery, ...]


class AnsweredReport(msgspec.Struct, frozen=True, kw_only=True):
    """Retrievals are answered: the answers come beside it, (queries, bytes), without those that could not be.

    Attributes:
        damaged: by place among the queries, why their trees cannot be read.
    """

    damaged: dict[int, str]


class SealOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Send a partial."""

    life: bytes
    sum: int
    slice: int
    partial: int


class DropOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Throw away what is not needed any more: partials of earlier lives and sums, and of this slice all but one.

    Attributes:
        life: of the server.
        sum: which of that life.
        slice: which of that sum.
        but: the partial that stays; 0: none.
        below: partials of this slice with this number or a larger one have been begun since, and stay.
    """

    life: bytes
    sum: int
    slice: int
    but: int
    below: int


class HelloReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself.

    Attributes:
        release: the release of the software.
        isa: the instruction set of its kernels; "plain" where none are compiled.
        key: the public key to which orders are sealed.
        owner: whose blobs it has (`parties.deployment.blobs.blobs_owner`).
        threads: with how many it computes.
        memory: bytes that it may use; 0 where it does not know.
    """

    release: str
    isa: str
    key: bytes
    owner: bytes
    threads: int
    memory: int = 0


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Read a blob: whether a worker reaches the blobs of its server."""

    place: str


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A blob was read, or why it could not be.

    Attributes:
        content: the blob's first bytes.
        problem: empty where it could be read.
    """

    content: bytes
    problem: str = ""


class AddedReport(msgspec.Struct, frozen=True, kw_only=True):
    """An order is done.

    Attributes:
        entries: by client that was added, its entry, or what this slice of it proves (see `Aggregate.batch`).
        damaged: by client that was not, why: its bulk is missing or altered.
        seconds: how long adding took, without waiting.
    """

    entries: dict[str, bytes]
    damaged: dict[str, str]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class SealedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A partial, whose sum comes beside it.

    Attributes:
        round_id: the round that it belongs to.
        clients: its own list.
    """

    round_id: bytes
    clients: list[str]


def encoded(order: msgspec.Struct) -> bytes:
    """The bytes of an order or a report."""
    return msgspec.msgpack.encode(order)


def decoded(data: bytes, kind: type[StructT]) -> StructT:
    """Read an order or a report.

    Raises:
        MisuseError: it is none of that kind.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise MisuseError(f"no {kind.__name__}, as this release has it: {error}") from error


def sealed(order: msgspec.Struct, key: bytes) -> bytes:
    """An order that only the worker with this key can read.

    Raises:
        MisuseError: it is no key.
    """
    try:
        return bytes(SealedBox(PublicKey(key)).encrypt(encoded(order)))
    except CryptoError as error:
        raise MisuseError(f"a key to which nothing can be sealed: {error}") from error


def opened(data: bytes, secret: PrivateKey, kind: type[StructT]) -> StructT:
    """Read an order that was sealed to a worker.

    Raises:
        MisuseError: it was sealed to another one, or is none of that kind.
    """
    try:
        plain = SealedBox(secret).decrypt(data)
    except (CryptoError, ValueError, TypeError) as error:
        raise MisuseError("an order that was sealed to another worker, or altered") from error
    return decoded(bytes(plain), kind)
