"""What a client must not forget, in its store: the state of one identity in one task.

    owner        whose state this is; another's is refused
    session      the trees that outlive their round (see `parties.client.session`)
    retrieval    the last query: its round and number
    submission   the last submission: on its way, received by both servers, or known to have ended
    told         its digest, once whoever submitted it has heard what became of it
    bulk/        the bytes of one that is on its way

Only a session's trees are kept: those of a retrieval serve the life of the client that planted them.
Rules: what a message depends on is committed before the message's first byte is sent; there is one submission at a
time; material of a round whose outcome is known is erased with the commit that notes the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.secrecy import Discreet
from fsl_async.task import Task
from parties.client.session import NoSession, OwnSession, StoredSession, TreeSession
from parties.client.submission import Draft, StoredDraft
from parties.client.trees import Planting, StoredPlanting
from parties.compute import ComputeLane
from parties.identity.keys import PublicIdentity
from parties.storage.decoding import decode_stored
from parties.storage.store import Change, Erase, Put, Store

__all__ = ["ClientState", "Ended", "LastSubmission", "Nothing", "Received", "Remembered", "Retrieval", "check_owner"]

VERSION = 1
SOURCE = "this client's state"
StructT = TypeVar("StructT")


class _Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    name: str
    identity: bytes
    task: bytes


class _KeptRetrieval(Discreet, frozen=True, forbid_unknown_fields=True):
    config: bytes
    query: int


class _OnItsWay(Discreet, frozen=True, forbid_unknown_fields=True, tag="on-its-way"):
    draft: StoredDraft


class _Received(Discreet, frozen=True, forbid_unknown_fields=True, tag="received"):
    config: bytes
    digest: bytes
    mark: bytes


class _Ended(Discreet, frozen=True, forbid_unknown_fields=True, tag="ended"):
    config: bytes
    digest: bytes
    mark: bytes


@dataclass(frozen=True)
class Nothing:
    """There is none."""


@dataclass(frozen=True)
class Retrieval:
    """A retrieval's round and number."""

    config: RoundConfig
    query: int


@dataclass(frozen=True)
class Received:
    """A submission that both servers have; how its round ended is not known."""

    config: RoundConfig
    digest: bytes
    mark: bytes


@dataclass(frozen=True)
class Ended:
    """A submission whose round's end is known."""

    config: RoundConfig
    digest: bytes
    mark: bytes


Submission: TypeAlias = Nothing | Draft | Received | Ended


@dataclass(frozen=True)
class LastSubmission:
    """The submission that a client made last, whatever became of it.

    Attributes:
        config: its round.
        digest: what receipts call it.
        mark: of its update.
    """

    config: RoundConfig
    digest: bytes
    mark: bytes


@dataclass(frozen=True)
class Remembered:
    """What a client knows of its earlier lives.

    Attributes:
        lived: whether there was one.
        session: its session.
        retrieval: its last retrieval.
        submission: its last submission.
        told: the digest of the last submission of which whoever made it knows what became of it; empty where none is.
    """

    lived: bool
    session: OwnSession
    retrieval: Nothing | Retrieval
    submission: Submission
    told: bytes


class ClientState:
    """One client's state in a store."""

    def __init__(self, store: Store, identity: PublicIdentity, task: Task, lane: ComputeLane) -> None:
        self._store = store
        self._client = identity.name
        self._owner = _owner(identity, task)
        self._lane = lane

    async def load(self) -> Remembered:
        """Read it all.

        Raises:
            MisuseError: the store is another client's or another task's.
            StorageError: what is kept cannot be read.
        """
        keys = set(await self._store.keys(""))
        if "owner" not in keys:
            return Remembered(False, NoSession(), Nothing(), Nothing(), b"")
        _check_owner(await _owner_in(self._store), self._owner)
        return Remembered(
            lived=True,
            session=await self._session() if "session" in keys else NoSession(),
            retrieval=await self._retrieval() if "retrieval" in keys else Nothing(),
            submission=await self._submission() if "submission" in keys else Nothing(),
            told=bytes(await self._store.blob("told")) if "told" in keys else b"",
        )

    # ---- what is committed

    async def claim(self) -> None:
        """Once both servers have shown that they run this task: the store is this client's."""
        await self._store.commit(Put("owner", msgspec.msgpack.encode(self._owner)))

    async def keep_retrieval(self, retrieval: Retrieval, session: OwnSession) -> None:
        """Before a query is sent."""
        kept = _KeptRetrieval(retrieval.config.canonical(), retrieval.query)
        await self._store.commit(*_session(session), _put("retrieval", kept))

    async def keep_draft(self, draft: Draft, session: OwnSession) -> None:
        """Before a submission is sent: all of it, and the session as it is from then on."""
        await self._store.commit(
            Erase("bulk/"),
            Erase("retrieval"),
            *_session(session),
            _put("submission", _OnItsWay(draft.stored())),
            Put("bulk/part", draft.part),
            Put("bulk/shares", draft.shares),
        )

    async def keep_receipt(self, draft: Draft) -> None:
        """Once a server has the submission; with the second receipt its bytes are erased."""
        if len(draft.receipts) < 2:
            await self._store.commit(_put("submission", _OnItsWay(draft.stored())))
            return
        received = _Received(draft.config.canonical(), draft.words.digest, draft.mark)
        await self._store.commit(_put("submission", received), Erase("bulk/"))

    async def keep_end(self, last: LastSubmission, session: OwnSession) -> None:
        """Once it is known how the submission's round ended."""
        ended = _put("submission", _Ended(last.config.canonical(), last.digest, last.mark))
        await self._store.commit(ended, Erase("bulk/"), *_session(session))

    async def keep_told(self, digest: bytes) -> None:
        """Once whoever submitted has heard what became of it."""
        await self._store.commit(Put("told", digest))

    async def forget_retrieval(self) -> None:
        """When its round is left."""
        await self._store.commit(Erase("retrieval"))

    async def forget_rounds(self) -> None:
        """When the servers have begun anew: all but whose state this is."""
        await self._store.commit(Erase("bulk/"), Erase("retrieval"), Erase("session"), Erase("submission"))

    async def forget_session(self) -> None:
        """When a server has not its trees."""
        await self._store.commit(Erase("session"))

    # ---- what is read

    async def _session(self) -> TreeSession:
        kept = await self._read("session", StoredSession)
        return TreeSession(kept.state, await self._grown(kept.planting), kept.commitments)

    async def _retrieval(self) -> Retrieval:
        kept = await self._read("retrieval", _KeptRetrieval)
        return Retrieval(_config(kept.config), kept.query)

    async def _submission(self) -> Submission:
        match await self._read("submission", _OnItsWay | _Received | _Ended):
            case _OnItsWay(draft=kept):
                part, shares = [await self._store.blob(f"bulk/{name}") for name in ("part", "shares")]
                words, receipts = kept.words, kept.receipts
                config = _config(kept.config)
                return Draft(config, self._client, words, part, shares, receipts, kept.mark, kept.left_out)
            case _Received(config=config, digest=digest, mark=mark):
                return Received(_config(config), digest, mark)
            case kept:
                return Ended(_config(kept.config), kept.digest, kept.mark)

    async def _grown(self, kept: StoredPlanting) -> Planting:
        config = _config(kept.config)
        if config.task.canonical() != self._owner.task:
            raise StorageError(f"{SOURCE} cannot be read: it has trees of another task; begin anew with another file")
        return await self._lane.run(partial(Planting.again, kept, config, SOURCE))

    async def _read(self, key: str, kind: Any) -> Any:
        return decode_stored(await self._store.blob(key), kind, f"{SOURCE} ({key})")


async def check_owner(store: Store, identity: PublicIdentity, task: Task) -> None:
    """Refuse the state of somebody else; an empty store is nobody's yet.

    Raises:
        MisuseError: it is another client's, or of another task.
        StorageError: it cannot be read.
    """
    if await store.keys("owner"):
        _check_owner(await _owner_in(store), _owner(identity, task))


def _owner(identity: PublicIdentity, task: Task) -> _Owner:
    return _Owner(VERSION, identity.name, identity.digest(), task.canonical())


async def _owner_in(store: Store) -> _Owner:
    kept: _Owner = decode_stored(await store.blob("owner"), _Owner, f"{SOURCE} (owner)")
    return kept


def _check_owner(owner: _Owner, ours: _Owner) -> None:
    if owner.version != VERSION:
        raise StorageError(f"{SOURCE} is of version {owner.version}, this release reads version {VERSION}")
    if owner.identity != ours.identity:
        whose = f"client {owner.name!r}" if owner.name != ours.name else f"other keys of {owner.name!r}"
        raise MisuseError(f"the state belongs to {whose}, not to {ours.name!r} with these keys")
    if owner.task != ours.task:
        theirs, task = (_task(data) for data in (owner.task, ours.task))
        field, there, here = first_difference(theirs, task) or ("", "", "")
        raise MisuseError(
            f"the state belongs to another task: {field} is {there} there, {here} here; use the task file it is of"
        )


def _task(data: bytes) -> Task:
    with _readable():
        return Task.parse(data, SOURCE)


def _config(data: bytes) -> RoundConfig:
    with _readable():
        return RoundConfig.parse(data, SOURCE)


@contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read is the store's fault, not a peer's."""
    try:
        yield
    except PeerViolationError as error:
        raise StorageError(f"{SOURCE} cannot be read: {error}; begin anew with another file") from error


def _put(key: str, kept: msgspec.Struct) -> Put:
    return Put(key, msgspec.msgpack.encode(kept))


def _session(session: OwnSession) -> tuple[Change, ...]:
    match session:
        case NoSession():
            return (Erase("session"),)
        case TreeSession():
            return (_put("session", session.stored()),)
