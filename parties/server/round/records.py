"""What a round keeps in the store, under which names, and how much room on the disk it takes.

    round-00000012/toss                              journal: our half of the seed, then what the peer said
    round-00000012/opened                            value: when it opened
    round-00000012/times                             value: how long it has collected, computed and waited
    round-00000012/events                            journal: the events of the round's machine
    round-00000012/requests                          journal: requests of which both halves have come and agree
    round-00000012/parts/<client>/<purpose>-<query>/<digest>    public parts, except those on loan
    round-00000012/submissions/<client>              submissions, without their bulk
    round-00000012/dense/<client>                    this server's shares of dense blocks, where the task has any
    round-00000012/bound/<client>                    private parts of the proofs of their bounds; empty if not carried
    round-00000012/share/<digest>                    both servers' shares of the sum
    round-00000012/counts/<digest>                   both servers' shares of the counts of contributors
    round-00000012/applied                           what the task's own rule made of the sum: see `own_result`

Rules: a public part is in its carrier's store before it is forwarded, a request before it is answered, a submission
before it is acknowledged, a share before it is committed to; so bulk data need not stay in memory. All of it is erased
with the round.

The server that is not a client's carrier holds the client's submission *on loan*: its public part lies in memory until
the round is over, and in the store only if there is no room in memory. A restart loses what was on loan; the carrier
forwards it again when the servers meet, and what needs the part waits until then. Trees that outlive their round are
stored by both servers. See docs/adr/0011.

The carrier needs a part that it has stored again soon, to forward it and to add it to the sum. So the part also stays
in memory until it is added, if there is room; without room, and after a restart, it is read back from the store.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec
import trio

from fsl_async.bounds import private_bytes, terms_of, verifier_bytes
from fsl_async.config import RoundConfig
from fsl_async.derivation import public_digest, tree_digest
from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.secrecy import Discreet
from fsl_async.server.aggregation import Claim, Submission
from fsl_async.task import Task
from fsl_async.wire.public_part import ALL_ROWS, Layout, Opened, Part, Trees, counts_bytes, dense_bytes, share_bytes
from parties.server.round.assembly import RequestKey
from parties.server.store_layout import client_key, round_prefix
from parties.storage.decoding import decode_stored
from parties.storage.store import DAMAGED, Change, Keep, Put, Record, Store

_PART_KEY = re.compile(r"round-\d{8,}/parts/([^/]+)/(retrieve|submit)-(\d{1,9})/((?:[0-9a-f]{2})+)")

AT_HAND_BYTES: Final = 128 << 20
"""Room in memory for stored public parts that are still to be added, beside what requests under way have."""

LOAN_BYTES: Final = 128 << 20
"""Room in memory for public parts that only their carrier has stored."""

IN_FLIGHT = 2
"""A commit lies in the store's log and in its file for a while."""

NO_SHARES = memoryview(b"")

SessionTrees: TypeAlias = Callable[[str], Awaitable[Submission]]
"""Finds the submission whose trees a client's session uses."""


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
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"msk"})
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


class OwnBulk(NamedTuple):
    """What a submission brings to its carrier alone; both are empty on the other server.

    Attributes:
        dense: the carrier's share of dense blocks.
        private: the private part of the proof of its bound.
    """

    dense: memoryview
    private: memoryview


class KnownPart(NamedTuple):
    """A public part in the store."""

    key: RequestKey
    digest: bytes


class StoredRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry of the journal of requests; `tree` is None where the digest of the trees was not known."""

    client: str
    purpose: Literal["retrieve", "submit"]
    query: int
    part: bytes
    tree: bytes | None


class _Shelf:
    """Public parts in memory.

    If there is no room for another part, those that are here stay, because they are needed first.

    Args:
        room: bytes in all.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._parts: dict[str, memoryview] = {}

    def hold(self, key: str, part: Buffer) -> bool:
        """Hold a part, if there is room for the whole message that it came in, which it keeps alive."""
        view = memoryview(part).toreadonly()
        if key not in self._parts and _kept_alive(view) <= self._room:
            self._parts[key] = view
            self._room -= _kept_alive(view)
        return key in self._parts

    def find(self, key: str) -> memoryview | None:
        """The part of that key, or None if it is not held."""
        return self._parts.get(key)

    def release(self, key: str) -> None:
        """Stop holding a part."""
        if key in self._parts:
            self._room += _kept_alive(self._parts.pop(key))


class RoundRecords:
    """The records of one round.

    Args:
        store: where they are.
        config: the round.
        session_trees: finds the trees of sessions, on which hints ride.
        own: the same store as the server uses it for its own records; None where it is not told apart.

    Attributes:
        store: for what clients send: if the disk is full, they are told to come back.
        own: for what the server records itself: if the disk is full, it waits.
        prefix: what the names of all records of the round begin with.
    """

    def __init__(
        self, store: Store, config: RoundConfig, session_trees: SessionTrees, own: Store | None = None
    ) -> None:
        self.store = store
        self.own = own or store
        self._config = config
        self._session_trees = session_trees
        self._at_hand = _Shelf(AT_HAND_BYTES)
        self._on_loan = _Shelf(LOAN_BYTES)
        self._awaited: dict[str, trio.Event] = {}
        self._noted: set[KnownPart] = set()
        self._trees_named: dict[KnownPart, bytes] = {}
        self.prefix = round_prefix(config.number)

    # ---- public parts and requests

    def name(self, key: RequestKey, part: Part) -> bytes:
        """The digest of a public part; that of its trees is remembered, because it is needed soon."""
        tree = tree_digest(part.layout, part.data)
        name = public_digest(part.layout, part.data, tree)
        self._trees_named[KnownPart(key, name)] = tree
        return name

    async def tree_digest(self, key: RequestKey, name: bytes, layout: Layout) -> bytes:
        """The digest of the trees in a stored public part.

        Raises:
            StorageError: the part is not stored.
        """
        known = self._trees_named.get(KnownPart(key, name))
        return tree_digest(layout, await self.part(key, name)) if known is None else known

    async def keep_part(self, key: RequestKey, name: bytes, part: Buffer) -> None:
        """Keep a public part that the other server forwards, under its digest: on loan, or stored.

        Raises:
            StorageError: it could not be stored.
        """
        place = self._part_key(key, name)
        if not (self._lends(key) and self._on_loan.hold(place, part)):
            await self.own.commit(Keep(place, part))
            self._hold(key, place, part)
        if place in self._awaited:
            self._awaited.pop(place).set()

    async def keep_request(self, key: RequestKey, name: bytes, *bulk: Buffer) -> None:
        """Record that both halves of a request are here and agree; on the carrier together with the part itself."""
        place, known = self._part_key(key, name), KnownPart(key, name)
        tree = self._trees_named.get(known)
        entry = msgspec.msgpack.encode(StoredRequest(key.client, key.purpose, key.query, name, tree))
        await self.store.commit(*(Keep(place, part) for part in bulk), Record(f"{self.prefix}/requests", entry))
        self._noted.add(known)
        for part in bulk:
            self._hold(key, place, part)

    def is_noted(self, key: RequestKey, name: bytes) -> bool:
        """Whether it is recorded, also from before a restart, that both halves of a request were here and agreed."""
        return KnownPart(key, name) in self._noted

    async def part(self, key: RequestKey, name: bytes) -> memoryview:
        """A public part that is kept; one that a restart has lost is waited for.

        Raises:
            StorageError: it is not kept.
        """
        place = self._part_key(key, name)
        if place in self._awaited:
            await self._awaited[place].wait()
        for shelf in (self._on_loan, self._at_hand):
            held = shelf.find(place)
            if held is not None:
                return held
        return await self.store.blob(place)

    def await_part(self, key: RequestKey, name: bytes) -> None:
        """Note that a restart has lost a public part, which is waited for from now on."""
        self._awaited[self._part_key(key, name)] = trio.Event()

    def awaits(self, key: RequestKey, name: bytes) -> bool:
        """Whether a public part is waited for until its carrier forwards it again."""
        return self._part_key(key, name) in self._awaited

    @property
    def awaits_any(self) -> bool:
        """Whether any public part is waited for."""
        return bool(self._awaited)

    async def requests(self) -> list[KnownPart]:
        """All requests of which both halves are recorded."""
        journal = f"{self.prefix}/requests"
        for entry in await self.store.entries(journal):
            plain = decode_stored(entry, StoredRequest, journal)
            known = KnownPart(RequestKey(plain.client, plain.purpose, plain.query), plain.part)
            self._noted.add(known)
            if plain.tree is not None:
                self._trees_named[known] = plain.tree
        return sorted(self._noted)

    async def parts(self) -> list[KnownPart]:
        """All public parts that are stored."""
        return [_known_part(key) for key in await self.store.keys(f"{self.prefix}/parts/")]

    def release(self) -> None:
        """Free the parts in memory and end all waiting: the round is over."""
        self._on_loan, self._at_hand = _Shelf(0), _Shelf(0)
        while self._awaited:
            self._awaited.popitem()[1].set()

    # ---- submissions

    def submission_changes(self, submission: StoredSubmission, own: OwnBulk) -> list[Change]:
        """The changes that store a submission; its public part is kept already."""
        client = client_key(submission.client)
        return [
            Put(f"{self.prefix}/submissions/{client}", msgspec.msgpack.encode(submission)),
            *([Put(f"{self.prefix}/dense/{client}", own.dense)] if dense_bytes(self._config.shape) else []),
            *([Put(f"{self.prefix}/bound/{client}", own.private)] if private_bytes(self._config.shape) else []),
        ]

    async def submission(self, client: str) -> Submission:
        """A submission with its bulk, which is not held in memory here any longer.

        Raises:
            StorageError: no submission of that client is stored.
        """
        key = client_key(client)
        place = f"{self.prefix}/submissions/{key}"
        stored: StoredSubmission = decode_stored(await self.store.blob(place), StoredSubmission, place)
        layout = Layout.submission(self._config.shape, stored.trees)
        own = RequestKey(client, "submit", 0)
        part = Part(layout, await self.part(own, stored.part))
        self._at_hand.release(self._part_key(own, stored.part))
        return Submission(
            client=client,
            msk=stored.msk,
            commitments=stored.commitments,
            tree=stored.tree,
            trees=await self._trees(stored, part),
            part=part,
            dense=await self.store.blob(f"{self.prefix}/dense/{key}") if dense_bytes(self._config.shape) else NO_SHARES,
            dense_salt=stored.dense_salt,
            claim=await self._claim(stored) if terms_of(self._config.shape) else None,
        )

    async def _claim(self, stored: StoredSubmission) -> Claim:
        """What shows that a submission is within the task's bound."""
        private = await self.store.blob(f"{self.prefix}/bound/{client_key(stored.client)}")
        return Claim(private or None, stored.bind, stored.name)

    async def _trees(self, stored: StoredSubmission, part: Part) -> Part:
        match stored.trees:
            case Trees.OWN:
                return part
            case Trees.RETRIEVAL:
                key = RequestKey(stored.client, "retrieve", stored.query)
                return Part(Layout.retrieval(self._config.shape), await self.part(key, stored.query_part))
            case Trees.SESSION:
                return (await self._session_trees(stored.client)).trees

    # ---- shares

    def counts_name(self, counts: Buffer, peer: str) -> bytes:
        """The digest that names a share of the counts of contributors.

        Raises:
            PeerViolationError: it is the peer's, and has another size than the task implies.
        """
        expected = counts_bytes(self._config.shape)
        if len(counts) != expected:
            raise PeerViolationError(peer, f"sent counts of {len(counts)} bytes, the task implies {expected}")
        return digest(Domain.COUNTS, counts)

    async def keep_counts(self, counts: Buffer) -> bytes:
        """Store a share of the counts, and return the digest that names it."""
        name = digest(Domain.COUNTS, counts)
        await self.own.commit(Keep(self._counts_key(name), counts))
        return name

    async def counts(self, name: bytes) -> memoryview:
        """A share of the counts, by its digest.

        Raises:
            StorageError: it is not stored.
        """
        return await self.store.blob(self._counts_key(name))

    def share_name(self, share: Buffer, peer: str, opened: Opened = ALL_ROWS) -> bytes:
        """The digest that names a share of the sum, of the rows that are opened.

        Raises:
            PeerViolationError: it is the peer's, and has another size than the task and the counts imply.
        """
        expected = share_bytes(self._config.shape, opened)
        if len(share) != expected:
            raise PeerViolationError(peer, f"sent a share of {len(share)} bytes, the task implies {expected}")
        return digest(Domain.SHARE, share)

    async def keep_share(self, share: Buffer) -> bytes:
        """Store a share of the sum, and return the digest that names it."""
        name = digest(Domain.SHARE, share)
        await self.own.commit(Keep(self._share_key(name), share))
        return name

    async def share(self, name: bytes) -> memoryview:
        """A share of the sum, by its digest.

        Raises:
            StorageError: it is not stored.
        """
        return await self.store.blob(self._share_key(name))

    def _lends(self, key: RequestKey) -> bool:
        """Whether only the carrier has to store a public part: no session and no later request refers to it."""
        return key.purpose == "submit" and self._config.task.selection != "fixed"

    def _hold(self, key: RequestKey, place: str, part: Buffer) -> None:
        """Hold a part that is to be added; a retrieval's may never be needed again."""
        if key.purpose == "submit":
            self._at_hand.hold(place, part)

    def _counts_key(self, name: bytes) -> str:
        return f"{self.prefix}/counts/{name.hex()}"

    def _share_key(self, name: bytes) -> str:
        return f"{self.prefix}/share/{name.hex()}"

    def _part_key(self, key: RequestKey, name: bytes) -> str:
        return f"{self.prefix}/parts/{client_key(key.client)}/{key.purpose}-{key.query}/{name.hex()}"


def submission_bytes(task: Task) -> int:
    """The most bytes that a client sends for one retrieval and its submission."""
    retrieval = Layout.retrieval(task).size
    return retrieval if task.protocol == "psr" else retrieval + _own_submission(task)


def client_bytes(task: Task) -> int:
    """The most bytes that a server stores of one client in a round: the trees of each retrieval, and its submission.

    Where updates are bounded, both servers' answers about the proof come on top: the round's events have them. No
    request has two public parts (see `parties.server.round.assembly`). Trees that a session keeps beyond the round
    are there twice when the round is settled.
    """
    retrieval = Layout.retrieval(task).size
    match task.protocol:
        case "psr":
            return task.retrievals * retrieval
        case "psu":
            return _own_submission(task)
    outliving = max(retrieval, Layout.submission(task, Trees.OWN).size) if task.selection == "fixed" else 0
    return task.retrievals * retrieval + _own_submission(task) + outliving + 2 * verifier_bytes(task)


def _own_submission(task: Task) -> int:
    return Layout.submission(task, Trees.OWN).size + dense_bytes(task) + private_bytes(task)


def round_bytes(task: Task, clients: int) -> int:
    """The most bytes that a round of so many clients takes, while what came last is on its way into the file.

    A server that begins a round without this room turns clients away later, when they have done their work. Clients
    that retrieve and do not submit come on top: if there is no room for them, they are told to come back.
    """
    last = max(IN_FLIGHT * submission_bytes(task), clients * verifier_bytes(task))
    return clients * client_bytes(task) + last


def _kept_alive(view: memoryview) -> int:
    """Bytes of all that a view is a part of."""
    return memoryview(view.obj).nbytes


def _known_part(key: str) -> KnownPart:
    match = _PART_KEY.fullmatch(key)
    if match is None:
        raise StorageError(f"{key} in the store names no public part; it is damaged: {DAMAGED}")
    kind: Literal["retrieve", "submit"] = "retrieve" if match[2] == "retrieve" else "submit"
    return KnownPart(RequestKey(unquote(match[1]), kind, int(match[3])), bytes.fromhex(match[4]))
