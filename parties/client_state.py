"""What a client must not forget, in its store: the state of one identity in one task.

    owner        whose state this is; another's is refused
    session      the trees that outlive their round (see `parties.client_session`)
    retrieval    the last query: its number, its trees, and whether it was answered; an update may ride on them
    submission   the last submission: on its way, received by both servers, or told of
    bulk/        the bytes of one that is on its way

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
from fsl_async.discreet import Discreet
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.task import Task
from parties.client_session import KeptSession, NoSession, OwnSession, TreeSession
from parties.compute import ComputeLane
from parties.drafts import Draft, KeptDraft
from parties.identity import PublicIdentity
from parties.kept import read_kept
from parties.planting import KeptPlanting, Planting
from parties.store import Change, Erase, Put, Store

__all__ = ["ClientState", "Nothing", "Received", "Remembered", "Retrieval", "Told"]

VERSION = 1
SOURCE = "this client's state"
StructT = TypeVar("StructT")


class _Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    name: str
    identity: bytes
    task: bytes


class _KeptRetrieval(Discreet, frozen=True, forbid_unknown_fields=True):
    query: int
    planting: KeptPlanting
    answered: bool


class _OnItsWay(Discreet, frozen=True, forbid_unknown_fields=True, tag="on-its-way"):
    draft: KeptDraft


class _Received(Discreet, frozen=True, forbid_unknown_fields=True, tag="received"):
    config: bytes
    digest: bytes


class _Told(Discreet, frozen=True, forbid_unknown_fields=True, tag="told"):
    config: bytes


@dataclass(frozen=True)
class Nothing:
    """There is none."""


@dataclass(frozen=True)
class Retrieval:
    """A retrieval's number and trees, and whether both servers have answered it."""

    query: int
    planting: Planting
    answered: bool


@dataclass(frozen=True)
class Received:
    """A submission that both servers have; how its round ended is not known."""

    config: RoundConfig
    digest: bytes


@dataclass(frozen=True)
class Told:
    """A submission whose round's end is known."""

    config: RoundConfig


Submission: TypeAlias = Nothing | Draft | Received | Told


@dataclass(frozen=True)
class Remembered:
    """What a client knows of its earlier lives.

    Attributes:
        lived: whether there was one.
        session: its session.
        retrieval: its last retrieval.
        submission: its last submission.
    """

    lived: bool
    session: OwnSession
    retrieval: Nothing | Retrieval
    submission: Submission


class ClientState:
    """One client's state in a store."""

    def __init__(self, store: Store, identity: PublicIdentity, task: Task, lane: ComputeLane) -> None:
        self._store = store
        self._client = identity.name
        self._owner = _Owner(VERSION, identity.name, identity.digest(), task.canonical())
        self._lane = lane

    async def load(self) -> Remembered:
        """Read it all; a store that is empty becomes this client's.

        Raises:
            MisuseError: the store is another client's or another task's.
            StorageError: what is kept cannot be read.
        """
        keys = set(await self._store.keys(""))
        if "owner" not in keys:
            await self._store.commit(Put("owner", msgspec.msgpack.encode(self._owner)))
            return Remembered(False, NoSession(), Nothing(), Nothing())
        self._check_owner(await self._read("owner", _Owner))
        return Remembered(
            lived=True,
            session=await self._session() if "session" in keys else NoSession(),
            retrieval=await self._retrieval() if "retrieval" in keys else Nothing(),
            submission=await self._submission() if "submission" in keys else Nothing(),
        )

    # ---- what is committed

    async def keep_retrieval(self, retrieval: Retrieval, session: OwnSession) -> None:
        """Before a query is sent, and once it is answered."""
        kept = _KeptRetrieval(retrieval.query, retrieval.planting.kept(), retrieval.answered)
        await self._store.commit(*_session(session), _put("retrieval", kept))

    async def keep_draft(self, draft: Draft, session: OwnSession) -> None:
        """Before a submission is sent: all of it, and the session as it is from then on."""
        await self._store.commit(
            Erase("bulk/"),
            Erase("retrieval"),
            *_session(session),
            _put("submission", _OnItsWay(draft.kept())),
            Put("bulk/part", draft.part),
            Put("bulk/shares", draft.shares),
        )

    async def keep_receipt(self, draft: Draft) -> None:
        """Once a server has the submission; with the second receipt its bytes are erased."""
        if len(draft.receipts) < 2:
            await self._store.commit(_put("submission", _OnItsWay(draft.kept())))
            return
        received = _Received(draft.config.canonical(), draft.words.digest)
        await self._store.commit(_put("submission", received), Erase("bulk/"))

    async def keep_end(self, config: RoundConfig, session: OwnSession) -> None:
        """Once it is known how the submission's round ended."""
        told = _put("submission", _Told(config.canonical()))
        await self._store.commit(told, Erase("bulk/"), *_session(session))

    async def forget_retrieval(self) -> None:
        """When its round is left."""
        await self._store.commit(Erase("retrieval"))

    # ---- what is read

    def _check_owner(self, owner: _Owner) -> None:
        ours = self._owner
        if owner.version != VERSION:
            raise StorageError(f"{SOURCE} is of version {owner.version}, this release reads version {VERSION}")
        if owner.identity != ours.identity:
            whose = f"client {owner.name!r}" if owner.name != ours.name else f"other keys of {owner.name!r}"
            raise MisuseError(f"the state belongs to {whose}, not to {ours.name!r} with these keys; name another file")
        if owner.task != ours.task:
            theirs, task = (_task(data) for data in (owner.task, ours.task))
            field, there, here = first_difference(theirs, task) or ("", "", "")
            raise MisuseError(
                f"the state belongs to another task: {field} is {there} there, {here} here; name another file"
            )

    async def _session(self) -> TreeSession:
        kept = await self._read("session", KeptSession)
        return TreeSession(kept.state, await self._grown(kept.planting), kept.commitments)

    async def _retrieval(self) -> Retrieval:
        kept = await self._read("retrieval", _KeptRetrieval)
        return Retrieval(kept.query, await self._grown(kept.planting), kept.answered)

    async def _submission(self) -> Submission:
        match await self._read("submission", _OnItsWay | _Received | _Told):
            case _OnItsWay(draft=kept):
                part, shares = [await self._store.blob(f"bulk/{name}") for name in ("part", "shares")]
                return Draft(_config(kept.config), self._client, kept.words, part, shares, kept.receipts, kept.left_out)
            case _Received(config=config, digest=digest):
                return Received(_config(config), digest)
            case kept:
                return Told(_config(kept.config))

    async def _grown(self, kept: KeptPlanting) -> Planting:
        config = _config(kept.config)
        if config.task.canonical() != self._owner.task:
            raise StorageError(f"{SOURCE} cannot be read: it has trees of another task; begin anew with another file")
        return await self._lane.run(partial(Planting.again, kept, config, SOURCE))

    async def _read(self, key: str, kind: Any) -> Any:
        return read_kept(await self._store.blob(key), kind, f"{SOURCE} ({key})")


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
            return (_put("session", session.kept()),)
