"""The mark beside a store: how many transactions it held when somebody last relied on it.

A store that was put back (an older copy, a snapshot, a log that lost its end) does not show it. So the store counts its
transactions, and once one is durable, its number is written into a small file beside the store, before anybody is told
of it. A store that has counted fewer than its mark is older than what its server has said.

    s0.sqlite.mark    fsl-async mark <the store's identity> <transactions>

The mark is overwritten in place and not synced at every transaction: it outlives the process, and after a loss of power
it may be behind the store, but never ahead of it. It does not help where store and mark are put back together.

When the store was last copied is the time of an empty file beside it, which says nothing of where the copy is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fsl_async.errors import StorageError
from parties.files.disk import exists, refused, replaced_by
from parties.storage.store import StoreLostError

_FORM: Final = re.compile(rb"fsl-async mark ([0-9a-f]{32}) ([0-9]{20})\n")


@dataclass(frozen=True)
class StoreAge:
    """Which store it is, and how many transactions it holds."""

    identity: bytes
    transactions: int


class Mark:
    """A store's mark, held open while the store is.

    Args:
        path: the store.
        descriptor: of the mark's file.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def held(cls, path: Path, life: StoreAge) -> Iterator[Mark]:
        """Compare a store with its mark, and hold the mark open; a store without transactions gets a new mark.

        Raises:
            StorageError: the store is older than its mark, has none, or the mark is another store's.
        """
        marked = read_mark(path)
        if marked is None and not life.transactions:
            write_mark(path, life)
        else:
            _compare(path, life, marked)
        try:
            descriptor = os.open(mark_path(path), os.O_RDWR)
        except OSError as error:
            raise refused(mark_path(path), error) from error
        try:
            mark = cls(path, descriptor)
            mark.set(life)
            yield mark
            mark.sync()
        finally:
            os.close(descriptor)

    def set(self, life: StoreAge) -> None:
        """Write how many transactions the store holds; they must be durable.

        Raises:
            StoreLostError: it cannot be written.
        """
        with self._lost_unless_written():
            os.pwrite(self._descriptor, _text(life), 0)

    def sync(self) -> None:
        """Make what was written outlast a loss of power.

        Raises:
            StoreLostError: the disk failed.
        """
        with self._lost_unless_written():
            os.fsync(self._descriptor)

    @contextmanager
    def _lost_unless_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreLostError(f"{refused(mark_path(self._path), error)}; then start again") from error


def mark_path(path: Path) -> Path:
    """The file of a store's mark."""
    return path.with_name(f"{path.name}.mark")


def read_mark(path: Path) -> StoreAge | None:
    """What the mark beside a store says; None where there is no mark.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        text = mark_path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(mark_path(path), error) from error
    match = _FORM.fullmatch(text)
    if match is None:
        raise StorageError(
            f"{mark_path(path)} is damaged, so nobody knows whether {path} is the newest store; if it is, say so with "
            "`fsl-async restore`, after the mark is put aside"
        )
    return StoreAge(bytes.fromhex(match[1].decode()), int(match[2]))


def refuse_missing(path: Path) -> None:
    """Refuse to make a new store where a mark says that there was one: it would hide from `restore` what is lost.

    Raises:
        StorageError: the mark is there and the store is not.
    """
    if not exists(path) and (marked := read_mark(path)) is not None:
        raise StorageError(
            f"the store is missing: {mark_path(path)} says that {path} was used here and held {marked.transactions} "
            "transactions. Put that file back, with its log; or make it from a copy with `fsl-async restore`; or, to "
            "begin anew on both servers, put the mark aside, as docs/operations.md says. Nothing was created"
        )


def write_mark(path: Path, life: StoreAge) -> None:
    """Replace a store's mark, durably.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        with replaced_by(mark_path(path)) as file:
            file.write(_text(life))
    except OSError as error:
        raise refused(mark_path(path), error) from error


def _compare(path: Path, life: StoreAge, marked: StoreAge | None) -> None:
    if marked is None:
        raise StorageError(
            f"{path} has no mark beside it ({mark_path(path).name}): it was copied or moved by hand. Move the mark "
            "along; if there is none any more, `fsl-async restore` makes a store from this copy"
        )
    if marked.identity != life.identity:
        raise StorageError(
            f"{path} is not the store that was used here last: it is store {_short(life)}, and "
            f"{mark_path(path).name} is of store {_short(marked)}, with {marked.transactions} transactions. Put store "
            f"{_short(marked)} back, or put this file aside and make that store from a copy with `fsl-async restore`; "
            "or, to begin anew on both servers, put the mark aside with the store, as docs/operations.md says"
        )
    if life.transactions < marked.transactions:
        raise StorageError(
            f"{path} is older than what this server has done: it holds {life.transactions} transactions, and "
            f"{mark_path(path).name} counts {marked.transactions}. An older copy was put in its place, or its log "
            f"({path.name}-wal) is missing or damaged. Put back the store of {marked.transactions} transactions, with "
            "its log; if there is none any more, begin anew on both servers, as docs/operations.md says"
        )


def _short(life: StoreAge) -> str:
    return life.identity.hex()[:8]


def _text(life: StoreAge) -> bytes:
    """A text of constant length, because it is overwritten in place."""
    return b"fsl-async mark %s %020d\n" % (life.identity.hex().encode(), life.transactions)


def note_backup(store: Path) -> None:
    """Note that a copy has been made; it is one also where that cannot be noted, as on a full disk."""
    with suppress(OSError):
        _note(store).touch(mode=0o600)


def backed_up_at(store: Path) -> float:
    """When the last copy was made, in seconds since 1970; 0 where none was noted."""
    try:
        return _note(store).stat().st_mtime
    except OSError:
        return 0.0


def _note(store: Path) -> Path:
    return store.with_name(f"{store.name}.backed-up")
