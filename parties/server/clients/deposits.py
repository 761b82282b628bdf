"""A request's bulk, taken in: examined, named by its digests, put where it stays, and both halves of a request.

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

from fsl_async.bounds import check_private, private_bytes, private_digest, terms_of
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, public_digest, seed_commitment, tree_digest
from fsl_async.digests import DIGEST_BYTES, KEY_BYTES, same
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.server.aggregation import Submission
from fsl_async.task import Task
from fsl_async.wire.messages import NO_RETRIEVAL, Hint, Recall, Retrieve, Submit
from fsl_async.wire.public_part import Layout, Trees, dense_bytes, first_padding
from parties.compute import ComputeLane
from parties.server.replies import BulkRequest, RequestRefusedError
from parties.server.round.run import RoundRun
from parties.server.sessions import Sessions, StoredOrigin
from parties.server.store_layout import RequestKey, bound_name, dense_name, part_name, round_prefix
from parties.storage.blobs.blobs import Blobs
from parties.storage.store import Change


class Deposit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known of bulk that has been taken in.

    Attributes:
        part: the digest of the public part.
        tree: the digest of its trees; empty where it has none.
        dense: the digest of the share of dense blocks, which stands in the part; empty where it has none.
    """

    part: bytes
    tree: bytes
    dense: bytes


@dataclass(frozen=True)
class Wanted:
    """What the bulk of one request has to be, on its client's carrier.

    Attributes:
        prefix: what the names of the round's blobs begin with.
        shape: the task, as the round works on it.
        key: the request.
        layout: how its public part lies.
        seed: the client's master seed here, with which the digests of what is private are keyed.
        announced: the digest of the public part.
        bound_digest: of the private part of a bound's proof; empty where there is none.
    """

    prefix: str
    shape: Task
    key: RequestKey
    layout: Layout
    seed: bytes = field(repr=False)
    announced: bytes
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
            RequestRefusedError: a digest in the message has another size than the round implies.
        """
        prefix, shape = round_prefix(config.number), config.shape
        match message:
            case Retrieve(query=query, public_digest=announced):
                key = RequestKey(client, "retrieve", query)
                return Wanted(prefix, shape, key, Layout.retrieval(shape), seed, announced)
            case Submit() | Hint():
                check_bound_digest(shape, message)
                key, layout = RequestKey(client, "submit", 0), Layout.submission(shape, trees_of(message))
                return Wanted(prefix, shape, key, layout, seed, message.public_digest, message.bound_digest)

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

    def __init__(self, blobs: Blobs, lane: ComputeLane, note: Callable[[str, memoryview], object]) -> None:
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
        deposit = await self._lane.run_over(len(bulk), partial(_examined, wanted, bulk))
        if same(wanted.announced, deposit.part):
            await self._put(wanted, deposit, *_split(wanted, bulk))
        return deposit

    async def _put(
        self, wanted: Wanted, deposit: Deposit, public: memoryview, dense: memoryview, private: memoryview
    ) -> None:
        name = part_name(wanted.prefix, wanted.key, deposit.part)
        await self._blobs.put(name, public)
        self._note(name, public)
        if dense:
            await self._blobs.put(dense_name(wanted.prefix, wanted.key.client, deposit.dense), dense)
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


def check_bound_digest(shape: Task, message: Submit | Hint) -> None:
    """Refuse a digest of a bound's proof where the round has none, and a submission without it where it has.

    Raises:
        RequestRefusedError: there is one too many, or it is missing.
    """
    size = DIGEST_BYTES if terms_of(shape) else 0
    if len(message.bound_digest) != size:
        raise RequestRefusedError.because("malformed", f"a digest of {size} bytes expected of the bound's proof")


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
    dense = layout.split(part).get((None, "dense"), b"")
    return Deposit(public_digest(layout, part, tree), tree, bytes(dense))


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
    deposit = examine(wanted.shape, wanted.layout, public)
    if not same(dense_digest(dense, wanted.seed), deposit.dense):
        raise RequestRefusedError.because("malformed", "the dense share does not match its digest in the public part")
    if private:
        _check_bound(wanted, private)
    return deposit


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


def check_seed(run: RoundRun, client: str, message: Retrieve | Submit) -> None:
    """Check a master seed against its commitment.

    Raises:
        RequestRefusedError: they do not match.
    """
    server = run.server
    expected = seed_commitment(message.seed, run.round_id, client, server)
    if len(message.seed) != KEY_BYTES or not same(expected, message.commitments[server]):
        raise RequestRefusedError.because("malformed", "the master seed does not match its commitment")


async def session_trees(sessions: Sessions, run: RoundRun, client: str, message: Recall) -> Submission:
    """The submission that brought the trees of a client's session.

    Raises:
        RequestRefusedError: the client has no session here, or means other trees, for which its hints are no values.
    """
    session = await sessions.of(run.config, client)
    _check_meant(run, session.commitments, message)
    return session


async def session_origin(sessions: Sessions, run: RoundRun, client: str, message: Hint) -> StoredOrigin:
    """Where the trees of a client's session come from.

    Raises:
        RequestRefusedError: the client has no session here, or means other trees, for which its hints are no values.
    """
    origin = await sessions.origin(client)
    _check_meant(run, origin.commitments, message)
    return origin


def _check_meant(run: RoundRun, commitments: tuple[bytes, bytes], message: Recall | Hint) -> None:
    if not same(commitments[run.server], message.session):
        explanation = "your session has other trees here, as if an older state of yours had been put back"
        raise RequestRefusedError.because("no-session", f"{explanation}; your next call begins a new session")


def check_carried(run: RoundRun, client: str) -> None:
    """Refuse bulk that is brought to the server that is not its client's carrier.

    Raises:
        RequestRefusedError: this server is not.
    """
    if run.config.carrier(client) != run.server:
        raise RequestRefusedError.because("malformed", "0 bytes of public part expected from you: you are not carried")


async def assemble(run: RoundRun, key: RequestKey, announced: bytes, deposit: Deposit | None, layout: Layout) -> None:
    """Wait until both halves of a request are here and agree; `keep` records that.

    A repeat needs no part: the part was here and right when the request was recorded.

    Args:
        run: the round.
        key: the request.
        announced: the digest of the public part that the client announces.
        deposit: what the client has brought to its carrier; None on the other server, to which it is forwarded.
        layout: how the public part lies.

    Raises:
        RequestRefusedError: nothing was brought to the carrier, the halves differ, what was forwarded has not the form
            that it must have, or the round closed.
        StorageError: what was forwarded cannot be looked for, or is missing.
    """
    is_carrier = run.config.carrier(key.client) == run.server
    if is_carrier and deposit is None and layout.size == 0:
        deposit = await _empty(run, key, layout)
    if is_carrier and deposit is None:
        raise RequestRefusedError.because(
            "malformed", "the bytes of the public part are expected from you, and nothing came"
        )
    run.requests.direct(key, announced)
    if deposit is not None:
        run.records.note_tree(key, deposit.part, deposit.tree)
        run.requests.public(key, deposit.part)
    await run.requests.assembled(key)
    if deposit is None and not run.records.is_noted(key, announced):
        await _check_form(run, key, announced, layout)


async def keep(run: RoundRun, key: RequestKey, part: bytes, *changes: Change) -> None:
    """Record that both halves of a request are here and agree, and have its part forwarded from then on.

    Args:
        run: the round.
        key: the request.
        part: the digest of its public part.
        changes: what else the request is, in the same commit.

    Raises:
        StorageError: it could not be recorded.
    """
    await run.records.keep_request(key, part, *changes)
    if run.config.carrier(key.client) == run.server:
        run.outbox.forward(key, part)


async def _empty(run: RoundRun, key: RequestKey, layout: Layout) -> Deposit:
    """The deposit of a part of no bytes, as trees over blocks of a single row have: no bulk comes for it."""
    deposit = examine(run.config.shape, layout, memoryview(b""))
    await run.records.blobs.put(part_name(run.records.prefix, key, deposit.part))
    return deposit


async def _check_form(run: RoundRun, key: RequestKey, part: bytes, layout: Layout) -> None:
    """Refuse a part that was forwarded, and is not what its client's message says: it would fit no evaluation."""
    if wrong := run.records.malformed(key, part):
        raise RequestRefusedError.because("malformed", wrong)
    size = await run.records.part_size(key, part)
    if size is None:  # it was here when this server started, and no client is to blame that it is gone
        raise StorageError(f"{key.client!r}'s part {part.hex()[:8]} has come before, and its blob is missing")
    if size != layout.size:
        raise RequestRefusedError.because("malformed", f"{layout.size} bytes of public part expected, {size} came")
