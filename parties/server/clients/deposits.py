"""A request's bulk, taken in: examined, named by its digests, and put where it stays.

What changes rounds never sees bulk: it says what a request's bulk has to be (`Wanted`), and hears afterwards what it
was (`Deposit`). Rules:

- Hashing and looking through bulk is the lane's work, so that the event loop goes on meanwhile.
- A part is looked at once; views of what came are hashed and put, nothing is copied.
- What is put is what was wanted: bulk of another size or form is refused, and one with another digest than was
  announced is not put. It is named all the same, because it contradicts what its client has said.
- When a deposit is returned, its bulk is as durable as the blobs make it.

    parts/<client>/<purpose>-<query>/<digest>    a public part, below its round's prefix
    dense/<client>/<digest>                      the carrier's share of dense blocks
    bound/<client>/<digest>                      the private part of the proof of a bound
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from fsl_async.bounds import SALT_BYTES as BOUND_SALT_BYTES
from fsl_async.bounds import check_private, private_bytes, private_digest, terms_of
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, public_digest, tree_digest
from fsl_async.digests import DIGEST_BYTES, same
from fsl_async.errors import PeerViolationError
from fsl_async.task import Task
from fsl_async.wire.messages import NO_RETRIEVAL, Hint, Retrieve, Submit
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees, dense_bytes, first_padding
from parties.compute import ComputeLane
from parties.server.clients.answerer import BulkRequest
from parties.server.refusals import RequestRefusedError
from parties.server.store_layout import RequestKey, bound_name, dense_name, part_name, round_prefix
from parties.storage.blobs.blobs import Blobs

__all__ = ["Deposit", "Depositor", "Wanted", "examine", "named", "wrong_form"]


class Deposit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known of bulk that has been taken in.

    Attributes:
        part: the digest of the public part.
        tree: the digest of its trees; empty where it has none.
        size: of the public part, in bytes.
    """

    part: bytes
    tree: bytes
    size: int


@dataclass(frozen=True)
class Wanted:
    """What the bulk of one request has to be, on its client's carrier.

    Attributes:
        prefix: what the names of the round's blobs begin with.
        shape: the task, as the round works on it.
        key: the request.
        layout: how its public part lies.
        seed: the client's master seed here, with which the digests of what is private are keyed.
        announced: the digest of the public part; empty in a hint, which announces none to its carrier.
        dense_digest: of the share of dense blocks; empty where there is none.
        bound_digest: of the private part of a bound's proof; empty where there is none.
    """

    prefix: str
    shape: Task
    key: RequestKey
    layout: Layout
    seed: bytes = field(repr=False)
    announced: bytes
    dense_digest: bytes = b""
    bound_digest: bytes = b""

    @staticmethod
    def of(config: RoundConfig, client: str, message: BulkRequest, seed: bytes) -> Wanted:
        """What a request's message says of its bulk.

        Args:
            config: the round.
            client: whose request it is.
            message: the request.
            seed: the client's master seed: the message's own, or its session's.

        Raises:
            RequestRefusedError: a salt or a digest in the message has another size than the round implies.
        """
        prefix, shape = round_prefix(config.number), config.shape
        match message:
            case Retrieve(query=query, public_digest=announced):
                key = RequestKey(client, "retrieve", query)
                return Wanted(prefix, shape, key, Layout.retrieval(shape), seed, announced)
            case Submit() | Hint():
                check_salts(shape, message)
                key, layout = RequestKey(client, "submit", 0), Layout.submission(shape, trees_of(message))
                named = message.public_digest, message.dense_digest, message.bound_digest
                return Wanted(prefix, shape, key, layout, seed, *named)

    @property
    def size(self) -> int:
        """Bytes of all the bulk."""
        return self.layout.size + sum(self.own_sizes)

    @property
    def own_sizes(self) -> tuple[int, int]:
        """Bytes of the share of dense blocks, and of the private part of the bound's proof."""
        if self.key.purpose == "retrieve":
            return 0, 0
        return dense_bytes(self.shape), private_bytes(self.shape)

    def check_size(self, size: int) -> None:
        """Refuse bulk of another size.

        Raises:
            RequestRefusedError: it has another size.
        """
        if size == self.size:
            return
        dense, private = self.own_sizes
        also = f", {dense} of dense share" if dense else ""
        also += f", {private} of the bound's private part" if private else ""
        explanation = (
            f"the task implies {self.layout.size} bytes of public part{also}, which are expected from you; {size} came"
        )
        raise RequestRefusedError.because("malformed", explanation)


class Depositor:
    """Takes the bulk of requests in.

    Args:
        blobs: where it is put.
        lane: where it is looked through.
        note: takes each public part that has been put, with its blob's name.
    """

    def __init__(self, blobs: Blobs, lane: ComputeLane, note: Callable[[str, memoryview], None]) -> None:
        self._blobs = blobs
        self._lane = lane
        self._note = note

    async def take(self, wanted: Wanted, bulk: memoryview) -> Deposit:
        """Examine bulk and put it; it is put only if its public part is the one that was announced.

        Raises:
            RequestRefusedError: it is not what was wanted.
            StorageError: it could not be put.
        """
        wanted.check_size(len(bulk))
        deposit = await self._lane.run(partial(_examined, wanted, bulk))
        if not wanted.announced or same(wanted.announced, deposit.part):
            await self._put(wanted, deposit, *_split(wanted, bulk))
        return deposit

    async def _put(
        self, wanted: Wanted, deposit: Deposit, public: memoryview, dense: memoryview, private: memoryview
    ) -> None:
        name = part_name(wanted.prefix, wanted.key, deposit.part)
        await self._blobs.put(name, public)
        self._note(name, public)
        if dense:
            await self._blobs.put(dense_name(wanted.prefix, wanted.key.client, wanted.dense_digest), dense)
        if private:
            await self._blobs.put(bound_name(wanted.prefix, wanted.key.client, wanted.bound_digest), private)


def bulk_sizes(shape: Task) -> frozenset[int]:
    """The bytes that a request brings to its client's carrier, for every request of a round that has any."""
    if shape.protocol == "psr":
        return frozenset({Layout.retrieval(shape).size})
    own = dense_bytes(shape) + private_bytes(shape)
    submissions = {Layout.submission(shape, trees).size + own for trees in Trees}
    return frozenset({Layout.retrieval(shape).size, *submissions})


def trees_of(message: Submit | Hint) -> Trees:
    """Where the trees of a submission come from."""
    match message:
        case Hint():
            return Trees.SESSION
        case Submit(query=query):
            return Trees.OWN if query == NO_RETRIEVAL else Trees.RETRIEVAL


def check_salts(shape: Task, message: Submit | Hint) -> None:
    """Refuse salts and digests, of the dense share and of a bound's proof, of other sizes than the round implies.

    Raises:
        RequestRefusedError: there is one.
    """
    sizes = (SALT_BYTES, DIGEST_BYTES) if dense_bytes(shape) else (0, 0)
    if (len(message.dense_salt), len(message.dense_digest)) != sizes:
        explanation = f"a salt of {sizes[0]} bytes and a digest of {sizes[1]} expected of the dense share"
        raise RequestRefusedError.because("malformed", explanation)
    sizes = (BOUND_SALT_BYTES, DIGEST_BYTES) if terms_of(shape) else (0, 0)
    if (len(message.bound_salt), len(message.bound_digest)) != sizes:
        explanation = f"a salt of {sizes[0]} bytes and a digest of {sizes[1]} expected of the bound's proof"
        raise RequestRefusedError.because("malformed", explanation)


def examine(shape: Task, layout: Layout, part: memoryview) -> Deposit:
    """Name a public part of the right size by its digests.

    Raises:
        RequestRefusedError: bits are set that nothing reads: one part has one encoding.
    """
    if wrong := wrong_form(shape, layout, part):
        raise RequestRefusedError.because("malformed", wrong)
    return named(layout, part)


def named(layout: Layout, part: memoryview) -> Deposit:
    """A public part's digests, whatever its form."""
    tree = tree_digest(layout, part)
    return Deposit(public_digest(layout, part, tree), tree, len(part))


def wrong_form(shape: Task, layout: Layout, part: memoryview) -> str:
    """What is wrong with the form of a public part of the right size; empty where nothing is."""
    padded = first_padding(shape, layout, part)
    if padded is None:
        return ""
    (block, forest), kind = padded
    return f"block {block}, forest {forest}: padding behind the bits of its {kind} must be zero"


def _examined(wanted: Wanted, bulk: memoryview) -> Deposit:
    """The lane's work."""
    public, dense, private = _split(wanted, bulk)
    if wanted.key.purpose == "submit" and not same(dense_digest(dense, wanted.seed), wanted.dense_digest):
        raise RequestRefusedError.because("malformed", "the dense share does not match its digest")
    if private:
        _check_bound(wanted, private)
    return examine(wanted.shape, wanted.layout, public)


def _split(wanted: Wanted, bulk: memoryview) -> tuple[memoryview, memoryview, memoryview]:
    """The public part, the share of dense blocks, and the private part of the bound's proof."""
    public, dense = wanted.layout.size, wanted.own_sizes[0]
    return bulk[:public], bulk[public : public + dense], bulk[public + dense :]


def _check_bound(wanted: Wanted, private: memoryview) -> None:
    """Check the form of a bound's proof, so that an honest client with a bug hears of it before its receipt."""
    terms = terms_of(wanted.shape)
    if terms is None:  # then there is no private part
        return
    try:
        check_private(terms, private, wanted.key.client)
    except PeerViolationError as error:
        raise RequestRefusedError.because("malformed", str(error)) from error
    if not same(private_digest(private, wanted.seed), wanted.bound_digest):
        raise RequestRefusedError.because("malformed", "the bound's private part does not match its digest")
