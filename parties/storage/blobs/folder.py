"""Blobs as files in a folder on a local disk.

    blobs/
        .owner                                  whose they are
        round-00000012/                         the first part of their names: what is erased together
            parts,alice,submit-0,5f…            the rest of a name, its slashes as commas
            parts,ben,submit-0,a0…~             the same of a blob that is not durable
        .erased-…/                              what is being erased

A file is written without a name, synced, and then given its name, so no half of a durable blob ever has one. One that
is not durable may lose its content in a power failure and keep its name; so its name shows what it is, and a server
that starts erases it. Each put has a thread of its own, up to `WRITERS` at a time: the file system syncs together what
waits together.

An error of the disk other than a full one ends all writing: after a failed sync nobody knows what the disk holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.files.disk import NO_ROOM, REMEDIES, InUseError, check_room, refuse_network, refused, sync_folder
from parties.storage.blobs.blobs import Blobs, Usage, checked, checked_prefix, is_below
from parties.storage.blobs.memory import missing, too_short
from parties.storage.store import DiskFullError, StoreLostError
from transport.needs_trio import NeedsTrio

OWNER = ".owner"
UNFINISHED = f"{OWNER}-"
"""How what a crash may leave of the owner's file begins; it lies in the folder, which may be a disk of its own."""


def check_private(folder: Path) -> None:
    """Check that nobody else can read a folder.

    Raises:
        StorageError: it is another user's, or others can.
    """
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StorageError(
            f"{folder} must belong to the user who runs this command, and to nobody else: `chmod 700 {folder}`"
        )


def check_owner(folder: Path, owner: bytes, create: bool) -> None:
    """Compare whose blobs they are; a new folder gets its owner's name before anything else.

    Raises:
        StorageError: they are another server's, or something else lies in the folder.
    """
    path = folder / OWNER
    if create and not path.exists():
        others = [other.name for other in folder.iterdir() if not other.name.startswith(UNFINISHED)]
        if others:
            raise StorageError(f"{folder} has {others[0]!r} in it and no owner; name a folder of its own for blobs")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=UNFINISHED, delete=False) as file:
            file.write(owner)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(file.name, path)  # another process may have been quicker
            except FileExistsError:
                pass
            finally:
                os.unlink(file.name)
        sync_folder(path)
        sync_folder(folder)
    if path.read_bytes() != owner:
        raise StorageError(
            f"{folder} holds the blobs of another server, or of another task; give every server a folder of its own, "
            "and a new one after its keys were replaced"
        )


def sole(folder: Path) -> int:
    """The lock of a folder, held until it is closed or the process ends.

    Raises:
        InUseError: another process has it.
    """
    lock = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise InUseError(f"{folder} is in use by another process of the same server; stop that one first") from error
    return lock


def size_below(folder: Path) -> int:
    """Bytes of all files below a folder; what is erased meanwhile does not count."""
    size = 0
    for above, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                size += os.lstat(Path(above, file)).st_size
    return size


ResultT = TypeVar("ResultT")

WRITERS = 16
"""Puts at a time. Measured: blobs of 84 kB take 0.54 ms each one by one, 0.24 ms four at a time, 0.16 ms sixteen."""

ERASED = ".erased-"
PASSING = "~"
"""At the end of the names of files whose blobs are not durable."""

LONGEST_PART = 240
"""Bytes of a file's name; a longer name is cut into folders, each but the last with a plus behind it."""


class FolderBlobs(Blobs):
    """Blobs in a folder.

    `open` makes them, and the caller closes them:

        blobs = await FolderBlobs.open(Path("s0.blobs"), owner=b"…")

    A server and its workers have one folder in use together; other servers are refused.
    """

    def __init__(self, folder: Path, stored: int = 0, lock: int | None = None) -> None:
        self._folder = folder
        self._stored = stored
        self._unlock = None if lock is None else weakref.finalize(self, os.close, lock)
        self._limiter = trio.CapacityLimiter(WRITERS)
        self._lost: StoreLostError | None = None

    @classmethod
    async def open(cls, folder: Path, owner: bytes, *, create: bool = True) -> FolderBlobs:
        """Open a folder; it is made if there is none.

        Args:
            folder: where it is; the folder above it must be there.
            owner: whose blobs they are: what the processes of one server have in common, and no other server has.
            create: whether it may be made; a worker opens what its server has made.

        Raises:
            InUseError: another process of the same server has it; a server's workers do not count.
            DiskFullError: the disk is full.
            StorageError: it belongs to another server, lies on another host's disk, is read-only, open to other users,
                or something else.
        """
        NeedsTrio("FolderBlobs.open").require_trio()
        return await trio.to_thread.run_sync(cls._opened, folder, owner, create)

    @classmethod
    def _opened(cls, folder: Path, owner: bytes, create: bool) -> FolderBlobs:
        folder = Path(os.path.realpath(folder))
        refuse_network(folder)
        try:
            if create:
                folder.mkdir(mode=0o700, exist_ok=True)
            check_private(folder)
            check_owner(folder, owner, create)
            with ExitStack() as unless_opened:
                lock = _tidied(folder, unless_opened) if create else None
                _try_out(folder)
                unless_opened.pop_all()
        except FileNotFoundError as error:
            above = "the folder above it does not exist" if create else "the server makes it when it starts"
            raise StorageError(f"{folder} is not there: {above}") from error
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFullError(f"{folder} takes nothing: the disk is full; free some of it") from error
            raise refused(folder, error) from error
        return cls(folder) if lock is None else cls(folder, _stored(folder), lock)

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`; it is not cancelled once it waits for the disk.

        Raises:
            StoreLostError: the disk failed; nothing more can be stored.
        """
        path = self._path(checked(name))
        await self._run(lambda: self._put(name, path, pieces, durable))

    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """See `Blobs.read`."""
        path = self._path(checked(name))
        return await self._run(lambda: _read(name, path, start, stop))

    async def size(self, name: str) -> int | None:
        """See `Blobs.size`."""
        path = self._path(checked(name))
        return await self._run(lambda: _size(path))

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        checked_prefix(prefix)
        return await self._run(lambda: sorted({name for name, _ in self._found(prefix) if name.startswith(prefix)}))

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`; the files' room is free when it returns."""
        checked_prefix(prefix)
        await self._run(lambda: self._erase(prefix))

    async def check_room(self, needed: int) -> None:
        """See `Blobs.check_room`; a tenth of the disk must stay free, or 4 GiB."""
        await self._run(lambda: check_room(self._folder / OWNER, needed))

    async def groups(self) -> list[str]:
        """See `Blobs.groups`."""
        return await self._run(lambda: sorted(_unescaped(group.name) for group in self._visible()))

    def usage(self) -> Usage:
        """See `Blobs.usage`; what other processes put is counted when something is erased."""
        with suppress(OSError):
            return Usage(str(self._folder), self._stored, shutil.disk_usage(self._folder).free)
        return Usage(str(self._folder), self._stored)

    async def aclose(self) -> None:
        """See `Blobs.aclose`."""
        await trio.lowlevel.checkpoint()
        if self._unlock is not None:
            self._unlock()

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    # ---- names

    def _path(self, name: str) -> Path:
        first, _, rest = name.partition("/")
        return self._folder.joinpath(_escaped(first), *(_cut(_escaped(rest)) if rest else ()))

    def _found(self, prefix: str) -> Iterator[tuple[str, Path]]:
        """Every blob that a prefix may mean: its name, and its file."""
        first, slash, _ = prefix.partition("/")
        for group in [self._folder / _escaped(first)] if slash else self._visible():
            if not group.is_dir():
                with suppress(FileNotFoundError):
                    group.stat()
                    yield _unescaped(group.name), group
                continue
            for folder, _, files in os.walk(group):
                inner = "".join(part.removesuffix("+") for part in Path(folder).relative_to(group).parts)
                for file in files:
                    yield f"{_unescaped(group.name)}/{_unescaped(inner + file)}", Path(folder, file)

    def _visible(self) -> Iterator[Path]:
        return (group for group in self._folder.iterdir() if not group.name.startswith("."))

    # ---- in threads

    def _put(self, name: str, path: Path, pieces: tuple[Buffer, ...], durable: bool) -> None:
        if self._lost is not None:
            raise self._lost
        try:
            if durable:
                self._write(name, path, pieces, durable)
                _passing(path).unlink(missing_ok=True)
            elif path.exists():
                _require_same(name, path, pieces)
            else:
                self._write(name, _passing(path), pieces, durable)
        except OSError as error:
            raise self._failed(name, error) from error

    def _write(self, name: str, path: Path, pieces: tuple[Buffer, ...], durable: bool) -> None:
        with self._made(path.parent) as folder, _nameless(folder) as file:
            for piece in pieces:
                data = memoryview(piece).cast("B")
                while data:
                    data = data[os.write(file, data) :]
            if durable:
                os.fdatasync(file)
            try:
                # With a folder's descriptor, though the path is absolute: only so is the link followed.
                os.link(f"/proc/self/fd/{file}", path, src_dir_fd=folder, follow_symlinks=True)
                self._stored += os.fstat(file).st_size
            except FileExistsError:
                _require_same(name, path, pieces)
            if durable:
                os.fsync(folder)  # also of a name that another call has just given: it may not have come so far

    @contextmanager
    def _made(self, folder: Path) -> Iterator[int]:
        """A folder's descriptor; it is made if there is none, with its own name durable."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        try:
            descriptor = os.open(folder, flags)
        except FileNotFoundError:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for made in (folder, *folder.parents):
                if made == self._folder:
                    break
                sync_folder(made)
            descriptor = os.open(folder, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _failed(self, name: str, error: OSError) -> StorageError:
        if error.errno in NO_ROOM:
            return DiskFullError(f"the blob {name} was not stored: the disk of {self._folder} is full; free some of it")
        if error.errno == errno.EIO:
            self._lost = StoreLostError(f"the disk of {self._folder} failed ({error.strerror}); start on another one")
            return self._lost
        remedy = REMEDIES.get(error.errno or 0) or str(error.strerror)
        return StorageError(f"the blob {name} cannot be stored in {self._folder}: {remedy}")

    def _erase(self, prefix: str) -> None:
        first, slash, rest = prefix.partition("/")
        try:
            if slash and not rest:
                self._erase_group(self._folder / _escaped(first))
            elif not prefix:
                for group in list(self._folder.iterdir()):
                    if group.name != OWNER:
                        self._erase_group(group)
            else:
                for name, path in list(self._found(prefix)):
                    if is_below(name, prefix):
                        path.unlink(missing_ok=True)
            self._stored = _stored(self._folder)
        except OSError as error:
            raise refused(self._folder, error) from error

    def _erase_group(self, group: Path) -> None:
        """Erase a folder at once: it first gets a name that no blob has."""
        with suppress(FileNotFoundError):
            if not group.is_dir():
                group.unlink()
                return
            gone = _fresh_name(self._folder)
            group.replace(gone)
            sync_folder(gone)
            shutil.rmtree(gone)


@contextmanager
def _nameless(folder: int) -> Iterator[int]:
    """A new file in a folder, which has no name yet; without one it is gone when this ends."""
    descriptor = os.open(f"/proc/self/fd/{folder}", os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _passing(path: Path) -> Path:
    """The file of the same blob where it is not durable."""
    return path.with_name(f"{path.name}{PASSING}")


def _read(name: str, path: Path, start: int, stop: int | None) -> memoryview:
    try:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            file = os.open(_passing(path), os.O_RDONLY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(name) from error
    except OSError as error:
        raise StorageError(f"the blob {name} cannot be read: {error.strerror}") from error
    try:
        size = os.fstat(file).st_size
        if stop is not None and stop > size:
            raise too_short(name, size, stop)
        content = bytearray(max(0, (size if stop is None else stop) - start))
        view, done = memoryview(content), 0
        while done < len(content):
            got = os.preadv(file, [view[done:]], start + done)
            if not got:
                raise too_short(name, start + done, start + len(content))
            done += got
        return view.toreadonly()
    except OSError as error:
        raise StorageError(f"the blob {name} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)


def _size(path: Path) -> int | None:
    for place in (path, _passing(path)):
        with suppress(FileNotFoundError, NotADirectoryError):
            return place.stat(follow_symlinks=False).st_size
    return None


def _require_same(name: str, path: Path, pieces: tuple[Buffer, ...]) -> None:
    """Refuse other content than what is stored already.

    Raises:
        StorageError: it is other content.
    """
    size, start = sum(len(memoryview(piece).cast("B")) for piece in pieces), 0
    if _size(path) == size:
        stored = _read(name, path, 0, size)
        for piece in pieces:
            view = memoryview(piece).cast("B")
            if stored[start : start + len(view)] != view:
                break
            start += len(view)
        else:
            return
    raise StorageError(f"{name} is stored already, with other content")


def _stored(folder: Path) -> int:
    """Bytes of all blobs in a folder."""
    return size_below(folder) - os.lstat(folder / OWNER).st_size


def _tidied(folder: Path, held: ExitStack) -> int:
    """Take the lock that keeps others out, and erase what a life before this one has left: it may fill the disk."""
    lock = sole(folder)
    held.callback(os.close, lock)
    for left in folder.glob(f"{ERASED}*"):
        shutil.rmtree(left, ignore_errors=True)
    for left in folder.rglob(f"*{PASSING}"):
        left.unlink(missing_ok=True)
    return lock


def _try_out(folder: Path) -> None:
    """Write a file as blobs are written.

    Raises:
        OSError: it cannot be written.
        StorageError: the file system cannot do it, or the disk is full.
    """
    place, blobs = _fresh_name(folder), FolderBlobs(folder)
    place.mkdir(mode=0o700)
    try:
        blobs._write("trial", place / "trial", (b"trial",), durable=True)
        if bytes(_read("trial", place / "trial", 0, None)) != b"trial":
            raise StorageError(f"{folder} does not give back what was written; it is no place for blobs")
    except OSError as error:
        raise blobs._failed("trial", error) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fresh_name(folder: Path) -> Path:
    """A name for what is about to be erased; what is left of it after a crash goes at the next start."""
    return folder / f"{ERASED}{secrets.token_hex(8)}"


def _escaped(part: str) -> str:
    """A part of a name, or several with their slashes as commas, as a file is named, without what means something."""
    for character in "%,+.~":
        part = part.replace(character, f"%{ord(character):02X}")
    return part.replace("/", ",")


def _unescaped(file: str) -> str:
    return unquote(file.removesuffix(PASSING).replace(",", "/"))


def _cut(file: str) -> list[str]:
    """A file's name in pieces that a file system takes: folders, each with a plus behind it, and the file."""
    pieces = [file[start : start + LONGEST_PART] for start in range(0, len(file), LONGEST_PART)]
    return [*(f"{piece}+" for piece in pieces[:-1]), pieces[-1]]
