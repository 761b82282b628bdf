"""What a client stores: the state of one identity in one task.

    owner        whose state this is; another's is refused
    session      the trees that outlive their round (see `parties.client.session`)
    retrieval    the last query: its round and number
    submission   the last submission: pending, received by both servers, or ended
    spent/       rounds that are charged to the privacy budget, by their ids
    doubts/      marks of updates that may be in a sum, each with its round's number
    told         its digest, once its caller has heard what became of it
    bulk/        the bytes of a pending one

Only a session's trees are stored: those of a retrieval are used by the process that planted them.
Rules: what a message depends on is committed before the message's first byte is sent; there is one submission at a
time; the material of a round whose outcome is known is erased by the commit that notes the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, assert_never

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.secrecy import Discreet
from fsl_async.task import Task
from parties.client.session import NoSession, OwnSession, StoredSession, TreeSession
from parties.client.submission import Draft, LastSubmission, StoredDraft
from parties.client.trees import MadeTrees, StoredTrees
from parties.compute import ComputeLane
from parties.identity.keys import PublicIdentity
from parties.storage.store import Change, Erase, Put, Store, decode_stored

VERSION = 5
SOURCE = "this client's state"
SPENT = "spent/"
DOUBTS = "doubts/"


class StoredOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose state this is, and of which task."""

    version: int
    name: str
    identity: bytes
    task: bytes


class StoredRetrieval(Discreet, frozen=True, forbid_unknown_fields=True):
    """A `Retrieval` as it is stored."""

    config: bytes
    query: int


class StoredPending(Discreet, frozen=True, forbid_unknown_fields=True, tag="pending"):
    """A submission that a server may still lack."""

    draft: StoredDraft


class StoredReceived(Discreet, frozen=True, forbid_unknown_fields=True, tag="received"):
    """A submission that both servers have."""

    config: bytes
    digest: bytes
    mark: bytes


class StoredEnded(Discreet, frozen=True, forbid_unknown_fields=True, tag="ended"):
    """A submission whose round is over."""

    config: bytes
    digest: bytes
    mark: bytes


StoredSubmission: TypeAlias = StoredPending | StoredReceived | StoredEnded


@dataclass(frozen=True)
class Retrieval:
    """A retrieval's round and number."""

    config: RoundConfig
    query: int


@dataclass(frozen=True)
class Fresh:
    """Nothing has been submitted yet."""


@dataclass(frozen=True)
class Pending:
    """A submission is on its way, and lacks a receipt."""

    draft: Draft

    def receipted(self, server: int, signature: bytes) -> Pending | Received:
        """The submission with one more receipt."""
        draft = self.draft.receipted(server, signature)
        return Pending(draft) if len(draft.receipts) < 2 else Received(draft.summary())


@dataclass(frozen=True)
class Received:
    """Both servers have the submission; how its round ended is not known."""

    last: LastSubmission


@dataclass(frozen=True)
class Ended:
    """The submission's round has ended, and nothing more will be learnt of it."""

    last: LastSubmission


Submission: TypeAlias = Fresh | Pending | Received | Ended
"""What became of the last submission."""


def last_of(submission: Submission) -> LastSubmission | None:
    """The submission itself, whatever became of it; None before the first."""
    match submission:
        case Fresh():
            return None
        case Pending(draft=draft):
            return draft.summary()
        case Received(last=last) | Ended(last=last):
            return last
        case _:
            assert_never(submission)


@dataclass(frozen=True)
class StoredState:
    """What a client's store has of its earlier processes.

    Attributes:
        existed: whether there was one.
        session: its session.
        retrieval: its last retrieval, if its round has not been left.
        submission: its last submission.
        charged: the ids of the rounds that are charged to the privacy budget.
        unreported: the same, unless whoever made it is known to have heard what became of it.
        doubts: by their marks, updates that may be in a sum that a server knows, with their rounds' numbers.
    """

    existed: bool
    session: OwnSession
    retrieval: Retrieval | None
    submission: Submission
    unreported: LastSubmission | None
    charged: frozenset[bytes] = frozenset()
    doubts: Mapping[bytes, int] = field(default_factory=dict)


class ClientState:
    """One client's state in a store."""

    def __init__(self, store: Store, identity: PublicIdentity, task: Task, lane: ComputeLane) -> None:
        self._store = store
        self._client = identity.name
        self._owner = _owner(identity, task)
        self._lane = lane

    async def load(self) -> StoredState:
        """Read it all.

        Raises:
            MisuseError: the store is another client's or another task's.
            StorageError: what is stored cannot be read.
        """
        keys = set(await self._store.keys(""))
        if "owner" not in keys:
            return StoredState(False, NoSession(), None, Fresh(), None)
        _check_owner(await _owner_in(self._store), self._owner)
        submission = await self._submission() if "submission" in keys else Fresh()
        told = await self._store.blob("told") if "told" in keys else b""
        last = last_of(submission)
        return StoredState(
            existed=True,
            session=await self._session() if "session" in keys else NoSession(),
            retrieval=await self._retrieval() if "retrieval" in keys else None,
            submission=submission,
            unreported=None if last is None or last.digest == told else last,
            charged=_charged(keys),
            doubts=_doubts(keys),
        )

    # ---- what is committed

    async def claim(self) -> None:
        """Once both servers have shown that they run this task: the store is this client's."""
        await self._store.commit(Put("owner", msgspec.msgpack.encode(self._owner)))

    async def store_retrieval(self, retrieval: Retrieval, session: OwnSession) -> None:
        """Before a query is sent."""
        stored = StoredRetrieval(retrieval.config.canonical(), retrieval.query)
        await self._store.commit(*_session(session), _put("retrieval", stored))

    async def store_draft(self, draft: Draft, session: OwnSession) -> None:
        """Before a submission is sent: all of it, and the session as it is from then on."""
        await self._store.commit(
            Erase("bulk/"),
            Erase("retrieval"),
            *_session(session),
            _put("submission", StoredPending(draft.stored())),
            Put("bulk/part", draft.part),
            Put("bulk/shares", draft.shares),
            *_charge(draft.config),
        )

    async def store_receipt(self, submission: Pending | Received) -> None:
        """Once a server has the submission; with the second receipt its bytes are erased."""
        match submission:
            case Pending(draft=draft):
                await self._store.commit(_put("submission", StoredPending(draft.stored())))
            case Received(last=last):
                received = StoredReceived(last.config.canonical(), last.digest, last.mark)
                await self._store.commit(_put("submission", received), Erase("bulk/"))

    async def store_end(
        self, last: LastSubmission, session: OwnSession, *, costs_nothing: bool, doubtful: bool
    ) -> None:
        """Once all is known that can be of how the submission's round ended.

        Args:
            last: the submission.
            session: as it is from then on.
            costs_nothing: whether the round is charged no longer.
            doubtful: whether the update may be in a sum that a server knows.
        """
        ended = _put("submission", StoredEnded(last.config.canonical(), last.digest, last.mark))
        given_back = [Erase(_charge_key(last.config))] if costs_nothing else []
        doubt = [_doubt(last)] if doubtful else []
        await self._store.commit(ended, Erase("bulk/"), *_session(session), *given_back, *doubt)

    async def store_told(self, digest: bytes) -> None:
        """Once the caller has heard what became of it."""
        await self._store.commit(Put("told", digest))

    async def forget_retrieval(self) -> None:
        """When its round is left."""
        await self._store.commit(Erase("retrieval"))

    async def forget_rounds(self, undecided: LastSubmission | None) -> None:
        """When the servers have begun anew; whose state this is remains, and so do charges and doubts."""
        doubt = [_doubt(undecided)] if undecided else []
        await self._store.commit(Erase("bulk/"), Erase("retrieval"), Erase("session"), Erase("submission"), *doubt)

    async def forget_session(self) -> None:
        """When a server does not have its trees."""
        await self._store.commit(Erase("session"))

    # ---- what is read

    async def _session(self) -> TreeSession:
        stored = await self._read("session", StoredSession)
        return TreeSession(stored.state, await self._grown(stored.planting), stored.commitments)

    async def _retrieval(self) -> Retrieval:
        stored = await self._read("retrieval", StoredRetrieval)
        return Retrieval(_config(stored.config), stored.query)

    async def _submission(self) -> Submission:
        found: StoredSubmission = await self._read("submission", StoredSubmission)
        match found:
            case StoredPending(draft=stored):
                part, shares = [await self._store.blob(f"bulk/{name}") for name in ("part", "shares")]
                config = _config(stored.config)
                return Pending(
                    Draft(
                        config, self._client, stored.header, part, shares, stored.receipts, stored.mark, stored.left_out
                    )
                )
            case StoredReceived(config=config, digest=digest, mark=mark):
                return Received(LastSubmission(_config(config), digest, mark))
            case StoredEnded(config=config, digest=digest, mark=mark):
                return Ended(LastSubmission(_config(config), digest, mark))
            case _:
                assert_never(found)

    async def _grown(self, stored: StoredTrees) -> MadeTrees:
        config = _config(stored.config)
        if config.task.canonical() != self._owner.task:
            raise StorageError(f"{SOURCE} cannot be read: it has trees of another task; begin anew with another file")
        return await self._lane.run(partial(MadeTrees.again, stored, config, SOURCE))

    async def _read(self, key: str, kind: Any) -> Any:
        return decode_stored(await self._store.blob(key), kind, f"{SOURCE} ({key})")


async def check_owner(store: Store, identity: PublicIdentity, task: Task) -> None:
    """Refuse another client's state; an empty store is nobody's yet.

    Raises:
        MisuseError: it is another client's, or of another task.
        StorageError: it cannot be read.
    """
    if await store.keys("owner"):
        _check_owner(await _owner_in(store), _owner(identity, task))


def _owner(identity: PublicIdentity, task: Task) -> StoredOwner:
    return StoredOwner(VERSION, identity.name, identity.digest(), task.canonical())


async def _owner_in(store: Store) -> StoredOwner:
    stored: StoredOwner = decode_stored(await store.blob("owner"), StoredOwner, f"{SOURCE} (owner)")
    return stored


def _check_owner(owner: StoredOwner, ours: StoredOwner) -> None:
    if owner.version != VERSION:
        raise StorageError(
            f"{SOURCE} is of version {owner.version}, this release reads version {VERSION}. Run the release that wrote "
            "it; or, after that release has the outcome of its last submission, begin anew with another store"
        )
    if owner.identity != ours.identity:
        whose = f"client {owner.name!r}" if owner.name != ours.name else f"other keys of {owner.name!r}"
        raise MisuseError(f"the state belongs to {whose}, not to {ours.name!r} with these keys")
    if owner.task != ours.task:
        theirs, task = (_task(data) for data in (owner.task, ours.task))
        field, there, here = first_difference(theirs, task) or ("", "", "")
        raise MisuseError(
            f"the state belongs to another task: {field} is {there} there, {here} here; use the task file of the state"
        )


def _task(data: bytes) -> Task:
    with _readable():
        return Task.parse(data, SOURCE)


def _config(data: bytes) -> RoundConfig:
    with _readable():
        return RoundConfig.parse(data, SOURCE)


@contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read here is the store's fault, not a peer's."""
    try:
        yield
    except PeerViolationError as error:
        raise StorageError(f"{SOURCE} cannot be read: {error}; begin anew with another file") from error


def _put(key: str, stored: msgspec.Struct) -> Put:
    return Put(key, msgspec.msgpack.encode(stored))


def _charge_key(config: RoundConfig) -> str:
    return f"{SPENT}{config.round_id().hex()}"


def _charge(config: RoundConfig) -> tuple[Change, ...]:
    """What charges a round, where servers add noise to its sum."""
    return () if config.task.privacy is None else (Put(_charge_key(config), b""),)


def _charged(keys: set[str]) -> frozenset[bytes]:
    try:
        return frozenset(bytes.fromhex(key.removeprefix(SPENT)) for key in keys if key.startswith(SPENT))
    except ValueError as error:
        raise StorageError(f"{SOURCE} cannot be read: what is spent has no round's id: {error}") from error


def _doubt(last: LastSubmission) -> Put:
    return Put(f"{DOUBTS}{last.mark.hex()}/{last.config.number}", b"")


def _doubts(keys: set[str]) -> dict[bytes, int]:
    try:
        found = [key.removeprefix(DOUBTS).split("/") for key in keys if key.startswith(DOUBTS)]
        return {bytes.fromhex(mark): int(number) for mark, number in found}
    except ValueError as error:
        raise StorageError(f"{SOURCE} cannot be read: a submission in doubt has no mark and round: {error}") from error


def _session(session: OwnSession) -> tuple[Change, ...]:
    match session:
        case NoSession():
            return (Erase("session"),)
        case TreeSession():
            return (_put("session", session.stored()),)
