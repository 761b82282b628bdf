"""The interface of a store, which holds what a party must not forget; and the store in memory.

A store has journals (lists of entries), blobs (written once) and values (replaced at will). An actor commits an event
before it acts on it, and acknowledges nothing that is not committed; changes that only make sense together go into one
commit. `MemoryStore` keeps all of it in memory, for as long as the process lasts.

    StorageError
    ├── DiskFullError    there is no room for this commit; a later one may find some
    └── StoreLostError   nothing more can be stored: everything that relies on the store ends

What a store holds is decoded as the type that was written. A store is a party's own. So what cannot be decoded is
damaged or was written by another release, and the error is a `StorageError`, never a peer's violation. The same holds
where recorded events do not lead from one state to the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols.machine import UnexpectedEvent
from fsl_async.wire.codec import UNREADABLE
from parties.docstrings import documented_by

ValueT = TypeVar("ValueT")

DAMAGED: Final = (
    "start again; if the error comes again, do not put an older copy in its place: docs/operations.md says what to do "
    'under "A store is damaged"'
)
"""What to do where a store does not hold what was written; an older copy could answer a round a second time."""


class DiskFullError(StorageError):
    """The disk is full: this commit has not been made.

    Later ones may be: a server waits for room and tries again.
    """


class StoreLostError(StorageError):
    """The disk or the file failed: nothing more can be stored.

    Do not try again with this store; end the process, mend the disk, and start again.
    """


@dataclass(frozen=True)
class Record:
    """Append an entry to a journal.

    Attributes:
        journal: its name.
        entry: the bytes.
    """

    journal: str
    entry: bytes = field(repr=False)


@dataclass(frozen=True)
class Keep:
    """Store a blob for good; if the key is stored already, the bytes must be the same.

    Attributes:
        key: its name.
        data: the bytes; not copied before they are stored.
    """

    key: str
    data: Buffer = field(repr=False)


@dataclass(frozen=True)
class Put:
    """Store a value; it replaces the one that the key had.

    Attributes:
        key: its name.
        data: the bytes; not copied before they are stored.
    """

    key: str
    data: Buffer = field(repr=False)


@dataclass(frozen=True)
class Erase:
    """Erase every journal, blob and value whose name begins with a prefix.

    Attributes:
        prefix: the beginning of their names; an empty prefix erases everything.
    """

    prefix: str


Change: TypeAlias = Record | Keep | Put | Erase
"""What `Store.commit` takes."""


class Store(ABC):
    """Journals, blobs and values; how long they last depends on the store.

    A store of your own implements the five abstract methods, and must keep what `commit` promises: all changes of a
    call or none, durable when it returns. Names are text, contents are bytes.

        await store.commit(Record("rounds", entry), Put("model", data))
        await store.entries("rounds")           # [entry]
    """

    @abstractmethod
    async def commit(self, *changes: Change) -> None:
        """Make all of these changes, in order, or none of them; when this returns they are durable.

        A caller that is cancelled does not know whether they were made.

        Raises:
            MisuseError: a name is not text; nothing has changed.
            StorageError: they could not be stored, or a blob is stored already with other content; nothing has changed,
                and nothing that depends on them may be acknowledged.
        """

    @abstractmethod
    async def entries(self, journal: str) -> list[bytes]:
        """All entries of a journal, in order; none where it is unknown."""

    @abstractmethod
    async def blob(self, key: str) -> memoryview:
        """A blob or a value; read-only.

        Raises:
            StorageError: there is none.
        """

    @abstractmethod
    async def keys(self, prefix: str) -> list[str]:
        """The keys of all blobs and values that begin with a prefix, sorted."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the file or the connection behind the store; a second call does nothing."""

    async def record(self, journal: str, entry: bytes) -> None:
        """Append one entry to a journal; see `commit`."""
        await self.commit(Record(journal, entry))

    async def check_room(self, needed: int) -> None:
        """Check that so many more bytes fit; a store that does not know how much room it has checks nothing.

        Raises:
            StorageError: they do not fit.
        """
        del needed


@documented_by(Store)
class MemoryStore(Store):
    """A store that lives as long as its process.

    Closing it does nothing, so that a party of a simulation can come back to it.
    """

    def __init__(self) -> None:
        self._journals: defaultdict[str, list[bytes]] = defaultdict(list)
        self._blobs: dict[str, memoryview] = {}

    @property
    def size(self) -> int:
        """Bytes of all blobs and values."""
        return sum(map(len, self._blobs.values()))

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`."""
        plain = [checked(change) for change in changes]
        self._check(plain)
        for change in plain:
            match change:
                case Record(journal=journal, entry=entry):
                    self._journals[journal].append(entry)
                case Keep(key=key, data=data) | Put(key=key, data=data):
                    self._blobs[key] = _own(memoryview(data))
                case Erase(prefix=prefix):
                    self._journals = defaultdict(list, _without(self._journals, prefix))
                    self._blobs = _without(self._blobs, prefix)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        encoded(journal)
        return list(self._journals.get(journal, []))

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        encoded(key)
        if key not in self._blobs:
            raise StorageError(f"{key} is not stored")
        return self._blobs[key]

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        encoded(prefix)
        return sorted(key for key in self._blobs if key.startswith(prefix))

    async def aclose(self) -> None:
        """See `Store.aclose`."""

    def _check(self, changes: Sequence[Change]) -> None:
        """Refuse to store a blob where, at that point of the commit, its key has other content.

        Raises:
            StorageError: it has.
        """
        erased: tuple[str, ...] = ()
        fresh: dict[str, Buffer] = {}
        for change in changes:
            match change:
                case Keep(key=key, data=data):
                    before = fresh if key in fresh or key.startswith(erased) else self._blobs
                    if not same_bytes(before.get(key, data), data):
                        raise StorageError(f"{key} is stored already, with other content")
                    fresh[key] = data
                case Put(key=key, data=data):
                    fresh[key] = data
                case Erase(prefix=prefix):
                    erased = (*erased, prefix)
                    fresh = _without(fresh, prefix)
                case Record():
                    pass


def checked(change: Change) -> Change:
    """A change whose name is text and whose data are plain bytes.

    Raises:
        MisuseError: its name is not text.
    """
    match change:
        case Record(journal=journal):
            encoded(journal)
            return change
        case Keep(key=key, data=data):
            encoded(key)
            return Keep(key, _flat(data))
        case Put(key=key, data=data):
            encoded(key)
            return Put(key, _flat(data))
        case Erase(prefix=prefix):
            encoded(prefix)
            return change


def encoded(name: str) -> bytes:
    """A name as UTF-8.

    Raises:
        MisuseError: it is not text.
    """
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise MisuseError(f"{name!r} cannot name anything in a store: it is not text ({error.reason})") from error


def same_bytes(first: Buffer, second: Buffer) -> bool:
    """Whether two buffers of plain bytes are equal, at the speed of memory: views compare item by item."""
    return np.array_equal(np.frombuffer(first, np.uint8), np.frombuffer(second, np.uint8))


def _flat(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _own(data: memoryview) -> memoryview:
    """Content that nobody else can change."""
    return data if isinstance(data.obj, bytes) else memoryview(bytes(data))


def _without(named: Mapping[str, ValueT], prefix: str) -> dict[str, ValueT]:
    return {name: value for name, value in named.items() if not name.startswith(prefix)}


def decode_stored(data: Buffer, kind: Any, place: str) -> Any:
    """Decode a value or an entry of a store.

    Args:
        data: its bytes.
        kind: the type, or union of types, that was written.
        place: what to call it in a message.

    Raises:
        StorageError: it is not one of them.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise _unreadable(place, error) from error


@contextmanager
def replaying(journal: str) -> Iterator[None]:
    """Within the block recorded events are taken again.

    Raises:
        StorageError: one of them does not follow from those before it.
    """
    try:
        yield
    except (UnexpectedEvent, PeerViolationError, MisuseError) as error:
        raise _unreadable(journal, error) from error


def _unreadable(place: str, error: Exception) -> StorageError:
    return StorageError(
        f"{place} cannot be read: {error}; it is damaged or was written by another release: use that release, or "
        f"{DAMAGED}"
    )
