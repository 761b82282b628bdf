"""The files that say which clients a server admits, read again while it runs: the list of clients, and the tokens.

Rules: a change is noticed within a second, or at once on `call`; a file that cannot be used is reported, and what was
read before stays in force; a client that is not on the list any more, or is revoked, is disconnected.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError
from parties.events import Observer, Revoked, Warned
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook
from parties.server.admission import Enrolment

_log = logging.getLogger("parties.serving")

PAUSE = 1.0
"""Seconds between two looks at a file."""

_Stamp: TypeAlias = tuple[int, int, int]
_NEVER_READ: _Stamp = (-1, -1, -1)


class WatchedFile:
    """A file of one server's operator.

    Args:
        path: the file.
        about: what the file is, for warnings.
        take: reads the file and applies it.
        observe: hears of a file that cannot be used.
    """

    def __init__(self, path: Path, about: str, take: Callable[[], Awaitable[None]], observe: Observer) -> None:
        self._path = path
        self._about = about
        self._take = take
        self._observe = observe
        self._stamp = _NEVER_READ  # what is in force may have been read before the file's last change
        self._called = trio.Event()

    def call(self) -> None:
        """Have the file read again now, even if it has not changed."""
        self._called.set()

    async def keep(self) -> None:
        """Watch the file until cancelled."""
        while True:
            with trio.move_on_after(PAUSE):
                await self._called.wait()
            stamp = self._present_stamp()
            if stamp != self._stamp or self._called.is_set():
                self._stamp, self._called = stamp, trio.Event()
                await self._read()

    async def _read(self) -> None:
        try:
            await self._take()
        except MisuseError as error:
            self._observe(Warned(about=self._about, explanation=f"{error}; the file as read before stays in force"))

    def _present_stamp(self) -> _Stamp:
        """What changes when the file does; zeros where there is no file, for instance while an editor replaces it."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return found.st_mtime_ns, found.st_size, found.st_ino


def watched_clients(path: Path, enrolment: Enrolment, observe: Observer) -> WatchedFile:
    """The list of clients; `observe` hears of each client that is disconnected."""

    async def take() -> None:
        registry = await trio.to_thread.run_sync(Registry.load, path)
        gone = enrolment.reload(registry)
        _log.info("%s: %d clients, %d removed", path, len(registry), len(gone))
        for client in gone:
            observe(Revoked(client=client.name))

    return WatchedFile(path, "clients", take, observe)


def watched_tokens(path: Path, task: bytes, server: int, enrolment: Enrolment, observe: Observer) -> WatchedFile:
    """The file of enrolment tokens; a token that was removed from it admits nobody any more."""

    async def take() -> None:
        book = await trio.to_thread.run_sync(TokenBook.load, path, task, server)
        enrolment.take_tokens(book)
        _log.info("%s: %d tokens", path, len(book))

    return WatchedFile(path, "tokens", take, observe)
