"""Processes that may be killed at any moment, and that never outlive the command that started them.

Rules: a child is started from the main thread and asks the kernel to be killed with it, whatever ends the parent; it
has a process group of its own, so that an interrupt at the terminal reaches the parent alone; what it tells (a JSON
object a line, on stdout) is read to the end even where it was killed; what it says (stderr) goes to a file.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import trio

from tests import ROOT

from .site import SERVERS, Site

Heard: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes what a child tells, line by line."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_CHUNK = 2**16


class ChildFailedError(Exception):
    """A child that nobody killed ended with an error; the message carries its last lines."""


def python_module(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *map(str, arguments)]


class Child:
    """One process.

    Attributes:
        name: for people.
        log: the file its stderr is added to.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, heard: Heard) -> None:
        """Start it."""
        self.name = name
        self.log = log
        self._heard = heard
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                process_group=0,
                preexec_fn=_prepare,
                cwd=ROOT,
            )
        self._watched = os.pidfd_open(self._process.pid)  # before anybody can reap it

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; to one that has ended, none."""
        self._process.send_signal(number)

    async def run(self) -> int:
        """Hear it out; returns its exit code, negative where a signal ended it. Cancelled, it is killed."""
        try:
            await self._hear()
            await trio.lowlevel.wait_readable(self._watched)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._watched)
        return self._process.returncode

    async def run_well(self) -> None:
        """Hear it out.

        Raises:
            ChildFailedError: it did not end well.
        """
        code = await self.run()
        if code:
            raise ChildFailedError(f"{self.name} ended with code {code}: {self.last_words()}")

    def last_words(self, count: int = 15) -> str:
        """The last lines of its stderr."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        async with trio.lowlevel.FdStream(os.dup(self._process.stdout.fileno())) as stream:
            self._process.stdout.close()
            rest = b""
            while data := await stream.receive_some(_CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._heard(json.loads(line))


async def start_servers(site: Site, nursery: trio.Nursery) -> list[Child]:
    """Both servers as `fsl-async serve` runs them, once they listen."""
    servers = []
    for index, name in enumerate(SERVERS):
        command = python_module("parties", "serve", site.server_file(index))
        servers.append(Child(name, command, site.log(name), lambda told: None))
        nursery.start_soon(servers[-1].run_well)
    while not all("listens at" in server.last_words() for server in servers):  # noqa: ASYNC110 - they tell nobody
        await trio.sleep(0.1)
    return servers


def _prepare() -> None:
    """In the child: end with the parent, and have all the descriptors there are for the asking."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
