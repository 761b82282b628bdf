"""What a round keeps in the store, under which names, and how much room on the disk it takes.

    round-00000012/toss                              journal: our half of the seed, then what the peer said
    round-00000012/opened                            value: when it opened
    round-00000012/times                             value: how long it has collected, computed and waited
    round-00000012/events                            journal: the events of the round's machine
    round-00000012/requests                          journal: requests of which both halves have come and agree
    round-00000012/submissions/<client>              submissions, without their bulk
    round-00000012/share/<digest>                    the lists of both servers' shares of the sum: see `shares`
    round-00000012/counts/<digest>                   both servers' shares of the counts of contributors
    round-00000012/applied                           what the task's own rule made of the sum: see `own_rule`

Bulk lies in blobs: the pieces of shares, and what clients send, which the clients' connections put (see
`parties.server.clients.deposits`): public parts, except those on loan, and on the carrier shares of dense blocks and
private parts of the proofs of bounds. Their names are in `parties.server.store_layout`. What is read back is compared
with its digest.

Rules: a public part is in its carrier's blobs before its request is noted, a request is noted before it is answered and
its part forwarded, a submission is in the store before it is acknowledged, a share before it is committed to; so bulk
data need not stay in memory. A blob of the carrier's that no noted request refers to counts for nothing: its client
repeats what it did not hear of. All of it is erased with the round.

The server that is not a client's carrier holds the client's submission *on loan*: where the part comes over the link,
it lies in memory until the round is over, and in the blobs only if there is no room in memory. A restart loses what was
on loan in memory; the carrier forwards it again when the servers meet, and what needs the part waits until then. Trees
that outlive their round are stored by both servers. See docs/adr/0011.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec
import trio

from fsl_async.bin_count import planned
from fsl_async.bounds import private_bytes, verifier_bytes
from fsl_async.config import RoundConfig
from fsl_async.derivation import tree_digest
from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.server.aggregation import Submission
from fsl_async.task import Task
from fsl_async.wire.public_part import Layout, Part, Trees, counts_bytes, dense_bytes
from parties.compute import ComputeLane, InlineLane
from parties.events import Observer, unobserved
from parties.server.round.reading import AlteredError, ReadBack, StoredSubmission, SubmissionReader
from parties.server.round.shares import ShareRecords
from parties.server.storage import ADDED, HELD_BYTES, PAUSE, PartCache
from parties.server.store_layout import (
    KnownPart,
    RequestKey,
    client_key,
    known_part,
    part_name,
    round_prefix,
)
from parties.storage.blobs.blobs import Blobs, DamagedBlobError
from parties.storage.blobs.memory import StoreBlobs
from parties.storage.store import Change, Keep, Put, Record, Store, decode_stored

IN_FLIGHT = 2
"""A commit lies in the store's log and in its file for a while."""

SessionTrees: TypeAlias = Callable[[str], Awaitable[Submission]]
"""Finds the submission whose trees a client's session uses."""


class StoredRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry of the journal of requests; `tree` is None where the digest of the trees was not known."""

    client: str
    purpose: Literal["retrieve", "submit"]
    query: int
    part: bytes
    tree: bytes | None


class RoundRecords:
    """The records of one round.

    Args:
        store: where they are.
        config: the round.
        session_trees: finds the trees of sessions, on which hints ride.
        own: the same store as the server uses it for its own records; None where it is not told apart.
        blobs: where clients' bulk lies, as the server uses it itself; None: in the store.
        lane: where what is read back is compared with its digest.
        carries: whether this server is a client's carrier.
        observe: hears of blobs that are altered or missing.
        recent: public parts that this server has put a moment ago.
        loans: bytes of what only the carrier has to store that may be held in memory alone here.

    Attributes:
        store: for what clients send: if the disk is full, they are told to come back.
        own: for what the server records itself: if the disk is full, it waits.
        blobs: likewise, for bulk.
        prefix: what the names of all records of the round begin with.
        shares: both servers' shares of the sum.
        over: set when the round has its end; from then on the other server forwards nothing of it again.
    """

    def __init__(
        self,
        store: Store,
        config: RoundConfig,
        session_trees: SessionTrees,
        own: Store | None = None,
        blobs: Blobs | None = None,
        lane: ComputeLane | None = None,
        carries: Callable[[str], bool] = lambda client: True,
        observe: Observer = unobserved,
        recent: PartCache | None = None,
        loans: int = HELD_BYTES,
    ) -> None:
        self.store = store
        self.own = own or store
        self.blobs = blobs or StoreBlobs(self.own)
        lane = lane or InlineLane()
        self._read = ReadBack(self.blobs, lane, config.shape, observe)
        self._reader = SubmissionReader(self._read, config, self.part, self.session_trees)
        self.carries = carries
        self.over = trio.Event()
        self._config = config
        self._session_trees = session_trees
        self._on_loan = PartCache(loans, evicts=False)
        self._recent = PartCache(0) if recent is None else recent
        self._awaited: dict[str, trio.Event] = {}
        self._noted: dict[KnownPart, bytes | None] = {}
        self._trees_named: dict[KnownPart, bytes] = {}
        self._malformed: dict[KnownPart, str] = {}
        self._sizes: dict[KnownPart, int] = {}
        self._just_stored: dict[str, StoredSubmission] = {}
        self.prefix = round_prefix(config.number)
        self.shares = ShareRecords(self.own, self.blobs, lane, self.prefix)

    # ---- public parts and requests

    def note_tree(self, key: RequestKey, name: bytes, tree: bytes) -> None:
        """Remember the digest of the trees in a public part, because it is needed soon."""
        known = KnownPart(key, name)
        if self._noted.get(known) is None:
            self._trees_named[known] = tree

    def note_malformed(self, key: RequestKey, name: bytes, explanation: str) -> None:
        """Note a forwarded part that has not the form that it must have; it need not be kept."""
        self._malformed[KnownPart(key, name)] = explanation

    def malformed(self, key: RequestKey, name: bytes) -> str:
        """What is wrong with the form of a forwarded part; empty where nothing is known to be."""
        return self._malformed.get(KnownPart(key, name), "")

    async def tree_digest(self, key: RequestKey, name: bytes, layout: Layout) -> bytes:
        """The digest of the trees in a stored public part.

        Raises:
            StorageError: the part is not stored.
        """
        tree = self._tree_named(KnownPart(key, name))
        return tree_digest(layout, await self.part(key, name)) if tree is None else tree

    async def keep_part(self, key: RequestKey, name: bytes, part: Buffer) -> None:
        """Keep a public part that the other server forwards, on loan or in blobs; what waits for it goes on.

        Raises:
            StorageError: it could not be kept.
        """
        if not (self._lends(key) and self._on_loan.hold(name, part)):
            await self.blobs.put(place := self._part_key(key, name), part)
            self._recent.hold(place, part, ADDED)
        self._sizes[KnownPart(key, name)] = len(part)
        awaited = self._awaited.pop(self._part_key(key, name), None)
        if awaited is not None:
            awaited.set()

    async def part_size(self, key: RequestKey, name: bytes) -> int | None:
        """The bytes of a public part that the other server has forwarded; None if it is not kept."""
        known = self._sizes.get(KnownPart(key, name))
        return await self.blobs.size(self._part_key(key, name)) if known is None else known

    async def keep_request(self, key: RequestKey, name: bytes, *changes: Change) -> None:
        """Record once that both halves of a request are here and agree, and make other changes in the same commit."""
        known = KnownPart(key, name)
        if known in self._noted:
            if changes:
                await self.store.commit(*changes)
            return
        tree = self._tree_named(known)
        entry = msgspec.msgpack.encode(StoredRequest(key.client, key.purpose, key.query, name, tree))
        await self.store.commit(Record(f"{self.prefix}/requests", entry), *changes)
        self._noted[known] = self._trees_named.pop(known, tree)
        self._sizes.pop(known, None)

    def is_noted(self, key: RequestKey, name: bytes) -> bool:
        """Whether it is recorded, also from before a restart, that both halves of a request were here and agreed."""
        return KnownPart(key, name) in self._noted

    async def part(self, key: RequestKey, name: bytes) -> memoryview:
        """A public part that is kept; one that a restart has lost is waited for.

        Raises:
            StorageError: it is not kept, or is not what was put. Where this server is not its carrier, it is erased
                then, unless the round is over: after a restart the carrier forwards it again.
        """
        place = self._part_key(key, name)
        if place in self._awaited:
            await self._awaited[place].wait()
        for held in (self._on_loan.find(name), self._recent.find(place)):
            if held is not None:
                return held
        try:
            return await self._read.part(place, key.purpose, name)
        except AlteredError:
            if not (self.carries(key.client) or self.over.is_set()):
                await self.blobs.erase(place)
            raise

    def note_used(self, key: RequestKey, name: bytes) -> None:
        """Note that a public part was forwarded, or that the submission which it is was added."""
        if key.purpose == "submit":
            self._recent.use(self._part_key(key, name))

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
            self._noted[known] = plain.tree
        return sorted(self._noted)

    async def parts(self) -> list[KnownPart]:
        """All public parts that lie in blobs; on the carrier also those of requests that have come to nothing."""
        return [known_part(name) for name in await self.blobs.names(f"{self.prefix}/parts/")]

    def release(self) -> None:
        """Free the parts in memory and end all waiting: the round is over."""
        self._on_loan = PartCache(0, evicts=False)
        self._recent.clear()
        self._just_stored.clear()
        while self._awaited:
            self._awaited.popitem()[1].set()

    # ---- submissions

    def submission_changes(self, submission: StoredSubmission) -> list[Change]:
        """The changes that store a submission; its bulk is kept already."""
        place = f"{self.prefix}/submissions/{client_key(submission.client)}"
        return [Put(place, msgspec.msgpack.encode(submission))]

    async def submission(self, client: str) -> Submission:
        """A submission with its bulk.

        Raises:
            StorageError: no submission of that client is stored.
        """
        stored = await self.stored_submission(client)
        found = await self._reader.read(stored)
        self.note_used(RequestKey(client, "submit", 0), stored.part)  # whoever asks for a submission adds it
        return found

    async def repaired_submission(self, client: str, gives_up: Callable[[], bool]) -> Submission:
        """The same; one whose bulk is altered or missing is waited for, and looked for again every few seconds.

        Args:
            client: whose.
            gives_up: asked each time that it is damaged, whether to wait no longer.

        Raises:
            DamagedBlobError: it is so still.
            StorageError: it cannot be read.
        """
        while True:
            try:
                return await self.submission(client)
            except DamagedBlobError:
                if gives_up():
                    raise
            await trio.sleep(PAUSE)

    async def session_trees(self, client: str) -> Part:
        """The trees of a client's session, on which its hints ride."""
        return (await self._session_trees(client)).trees

    def hold_submission(self, submission: StoredSubmission) -> None:
        """Hold what has just been stored of a submission until it is asked for: it soon is."""
        self._just_stored[submission.client] = submission

    async def stored_submission(self, client: str) -> StoredSubmission:
        """A submission without its bulk.

        Raises:
            StorageError: no submission of that client is stored.
        """
        held = self._just_stored.pop(client, None)
        if held is not None:
            return held
        place = f"{self.prefix}/submissions/{client_key(client)}"
        stored: StoredSubmission = decode_stored(await self.store.blob(place), StoredSubmission, place)
        return stored

    # ---- shares of the counts

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

    def _lends(self, key: RequestKey) -> bool:
        """Whether only the carrier has to store a public part: no session and no later request refers to it."""
        return key.purpose == "submit" and self._config.task.selection != "fixed"

    def _tree_named(self, known: KnownPart) -> bytes | None:
        """The digest of the trees in a public part, where it is known."""
        tree = self._noted.get(known)
        return self._trees_named.get(known) if tree is None else tree

    def _counts_key(self, name: bytes) -> str:
        return f"{self.prefix}/counts/{name.hex()}"

    def _part_key(self, key: RequestKey, name: bytes) -> str:
        return part_name(self.prefix, key, name)


def submission_bytes(task: Task) -> int:
    """The most bytes that a client sends for one retrieval and its submission."""
    task = planned(task)
    retrieval = Layout.retrieval(task).size
    return retrieval if task.protocol == "psr" else retrieval + _own_submission(task)


def client_bytes(task: Task) -> int:
    """The most bytes that a server stores of one client in a round: the trees of each retrieval, and its submission.

    Where updates are bounded, both servers' answers about the proof come on top: the round's events have them. No
    request has two public parts (see `parties.server.round.assembly`). Trees that a session keeps beyond the round
    are there twice when the round is settled.
    """
    task = planned(task)
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
    last = max(IN_FLIGHT * submission_bytes(task), clients * verifier_bytes(planned(task)))
    return clients * client_bytes(task) + last
