"""The interface of blobs, which hold what is large: public parts, dense shares, shares of a sum.

A store keeps what is small, and refers to blobs by their names. Rules, which callers keep:

- A blob is put, durably, before the store's commit that refers to it; so the store never refers to nothing.
- What is to be forgotten is erased from the store first, and from the blobs after it; a sweep at the next start erases
  what a crash has left between the two.
- A blob is written once. Whoever reads one back compares it with a digest that the store has.

Names are parts between slashes:

    await blobs.put("round-00000012/parts/alice/submit-0/5f…", part)
    await store.commit(Record(…))
    await blobs.read("round-00000012/parts/alice/submit-0/5f…", 0, 4096)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, StorageError

LONGEST_NAME = 1_024
"""Characters of a name."""


def checked(name: str) -> str:
    """A name that can name a blob.

    Raises:
        MisuseError: it is empty or too long, has an empty part, one of dots alone, or a character that is not printable
            ASCII.
    """
    parts = name.split("/")
    wrong = not name.isascii() or not name.isprintable() or "\\" in name or len(name) > LONGEST_NAME
    if wrong or any(not part.strip(".") for part in parts):
        raise MisuseError(
            f"{name!r} cannot name a blob: parts of printable ASCII between slashes, none empty or of dots alone, "
            f"{LONGEST_NAME} characters in all"
        )
    return name


def checked_prefix(prefix: str) -> str:
    """A prefix that stands for one blob, or for all below a folder: empty, or a name with or without a last slash.

    Raises:
        MisuseError: no blob's name can begin with it.
    """
    if prefix:
        checked(prefix.removesuffix("/"))
    return prefix


def is_below(name: str, prefix: str) -> bool:
    """Whether erasing a prefix erases the blob of that name."""
    return name == prefix or not prefix or (prefix.endswith("/") and name.startswith(prefix))


class BlobsAwayError(StorageError):
    """The place of the blobs cannot be reached now; the same call may succeed later."""


class DamagedBlobError(StorageError):
    """A blob is missing, too short or altered; the message names it."""


@dataclass(frozen=True)
class Usage:
    """How a place of blobs stands, for people.

    Attributes:
        where: what it is called.
        stored: bytes of all blobs, as far as this process knows.
        free: bytes that are free there; None where that is not known.
    """

    where: str
    stored: int
    free: int | None = None


class Blobs(ABC):
    """Bulk bytes, each under a name; how long they last depends on where they are.

    A place of your own for them implements the seven abstract methods.
    """

    @abstractmethod
    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """Write a blob: whole, or not at all.

        The same content under the same name again is harmless.

        Args:
            name: path-like text, without empty parts.
            pieces: the content, in order; not copied before they are written.
            durable: whether it outlives a power failure once this returns; it outlives the process in any case, if the
                place does.

        Raises:
            MisuseError: the name cannot name a blob.
            DiskFullError: there is no room; nothing has changed.
            BlobsAwayError: they cannot be reached; it is not known whether this was written.
            StorageError: it could not be written, or there is other content under that name.
        """

    @abstractmethod
    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """The bytes of a blob from `start` up to `stop`, or to its end; read-only.

        Raises:
            DamagedBlobError: there is no such blob, or it is shorter than `stop`.
            StorageError: it cannot be read.
        """

    @abstractmethod
    async def size(self, name: str) -> int | None:
        """The bytes that a blob has; None if there is none of that name."""

    @abstractmethod
    async def names(self, prefix: str) -> list[str]:
        """The names of all blobs that begin with a prefix, sorted."""

    @abstractmethod
    async def erase(self, prefix: str) -> None:
        """Erase the blob of that name, or, where the prefix is empty or ends with a slash, all that begin with it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release what is behind them; a second call does nothing."""

    async def groups(self) -> list[str]:
        """The first parts of all blobs' names, sorted; what a process is erasing may be among them."""
        return sorted({name.partition("/")[0] for name in await self.names("")})

    @abstractmethod
    def usage(self) -> Usage:
        """How they stand; at once, without looking everywhere."""

    async def check_room(self, needed: int) -> None:
        """Check that so many more bytes fit; a place that does not know how much room it has checks nothing.

        Raises:
            StorageError: they do not fit.
        """
        del needed
