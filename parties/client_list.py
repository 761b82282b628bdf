"""A server's list of clients, kept as the operator's file has it while the server runs.

Rules: a change is noticed within a second, or at once when somebody calls; a file that cannot be used is reported, and
the list as it was stays in force; whoever is not on the list any more, or is revoked, is let go.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError
from parties.enrolment import Enrolment
from parties.happenings import Observe, Revoked, Warned
from parties.identity import Registry

__all__ = ["ClientList"]

_log = logging.getLogger("parties.serving")

PAUSE = 1.0
"""Seconds between two looks at the file."""

_Stamp: TypeAlias = tuple[int, int, int]
_NEVER_READ: _Stamp = (-1, -1, -1)


class ClientList:
    """The list of one server.

    Args:
        path: the file.
        enrolment: what goes by it; it has the list as it is now.
        observe: hears who was let go, and of a file that cannot be used.
    """

    def __init__(self, path: Path, enrolment: Enrolment, observe: Observe) -> None:
        self._path = path
        self._enrolment = enrolment
        self._observe = observe
        self._stamp = _NEVER_READ  # the list at hand may have been read before the file's last change
        self._called = trio.Event()

    def call(self) -> None:
        """Have the file read again now, whatever its date."""
        self._called.set()

    async def keep(self) -> None:
        """Watch the file until cancelled."""
        while True:
            with trio.move_on_after(PAUSE):
                await self._called.wait()
            stamp = self._present_stamp()
            if stamp != self._stamp or self._called.is_set():
                self._stamp, self._called = stamp, trio.Event()
                await self._reload()

    async def _reload(self) -> None:
        try:
            registry = await trio.to_thread.run_sync(Registry.load, self._path)
        except MisuseError as error:
            self._observe(Warned(about="clients", explanation=f"{error}; the list as it was stays in force"))
            return
        gone = self._enrolment.reload(registry)
        _log.info("%s: %d clients, %d let go", self._path, len(registry), len(gone))
        for client in gone:
            self._observe(Revoked(client=client.name))

    def _present_stamp(self) -> _Stamp:
        """What changes when the file does; zeros where there is none, as while an editor replaces it."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return found.st_mtime_ns, found.st_size, found.st_ino
