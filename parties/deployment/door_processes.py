"""The doors that a server's process has as processes of its own: started with it, started again, ended with it.

    serve ──stdin──> fsl-async door s0.toml --name door-1 --until-stdin-ends
          ──stdin──> fsl-async door s0.toml --name door-2 --until-stdin-ends

Rules: the pipe to a door's stdin is its lifeline: nothing is written to it, and it ends when this process does, however
that happens, so that no door outlives its server. A door that ends by itself is started again, after a pause that grows
with each time, and the operator is told. Doors are in sessions of their own, so Ctrl-C reaches this process alone,
which ends them.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import trio

from parties.status import DoorStatus, ServerStatus

__all__ = ["DoorProcess", "DoorProcesses", "Standing", "door_command", "door_environment", "with_processes"]

_log = logging.getLogger("parties.serving")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a door that ends is started again as soon as one that has never ended."""

ENDING_PATIENCE: Final = 15.0
"""Seconds that a door has to end after SIGTERM; then it is killed."""

Standing: TypeAlias = Literal["starting", "running", "pausing", "ended"]

Command: TypeAlias = Callable[[str], Sequence[str]]
"""The words that start the door of a name."""

Tell: TypeAlias = Callable[[str], None]
"""Tells the operator that a door has ended by itself."""


@dataclass
class DoorProcess:
    """One of them, as the operator sees it.

    Attributes:
        name: door-1, door-2 …
        pid: its process; 0 while there is none.
        restarts: how often it has been started again.
        standing: where it is: it pauses before it is started again.
    """

    name: str
    pid: int = 0
    restarts: int = 0
    standing: Standing = "starting"


def with_processes(status: ServerStatus, processes: Sequence[DoorProcess]) -> ServerStatus:
    """A server's status with the doors that this process keeps: those that are not connected as well, and restarts."""
    if not processes:
        return status
    kept = {process.name: process for process in processes}
    doors = [
        msgspec.structs.replace(door, restarts=kept.pop(door.name).restarts) if door.name in kept else door
        for door in status.doors or ()
    ]
    doors += [DoorStatus(name=each.name, process=each.pid, restarts=each.restarts) for each in kept.values()]
    return msgspec.structs.replace(status, doors=tuple(sorted(doors, key=lambda door: door.name)))


def door_command(config: Path) -> Command:
    """The command line of the doors of a server's file."""
    words = [sys.executable, "-P", "-m", "parties", "door", str(config)]
    return lambda name: [*words, "--name", name, "--until-stdin-ends"]


def door_environment() -> dict[str, str]:
    """The environment of doors: this process's, with the same code, and without the supervisor that it reports to."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    kept = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}


class DoorProcesses:
    """Keeps so many doors running.

        doors = DoorProcesses(2, door_command(Path("s0.toml")), tell)
        nursery.start_soon(doors.run)

    Args:
        count: how many.
        command: the words that start the door of a name.
        tell: tells the operator that a door has ended by itself.

    Attributes:
        doors: all of them.
    """

    def __init__(self, count: int, command: Command, tell: Tell) -> None:
        self.doors = tuple(DoorProcess(f"door-{number}") for number in range(1, count + 1))
        self._command = command
        self._tell = tell

    async def run(self) -> None:
        """Keep them running until cancelled; they have ended when this returns."""
        async with trio.open_nursery() as nursery:
            for door in self.doors:
                nursery.start_soon(self._keep, door)

    def hang_up(self) -> None:
        """Let each of them read its file again; one that is still starting has not read it yet, or only just."""
        for door in self.doors:
            if door.pid and _heeds_hangups(door.pid):
                with suppress(ProcessLookupError):
                    os.kill(door.pid, signal.SIGHUP)

    async def _keep(self, door: DoorProcess) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                began = trio.current_time()
                ending = await self._run_once(door)
                if trio.current_time() - began >= STEADY:
                    pause = FIRST_PAUSE
                door.standing = "pausing"
                self._tell(f"{door.name} {ending}; it is started again in {pause:g} s (restart {door.restarts + 1})")
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                door.restarts += 1
        finally:
            door.standing = "ended"

    async def _run_once(self, door: DoorProcess) -> str:
        """Run a door until it ends by itself; says how."""
        try:
            process = await trio.lowlevel.open_process(
                self._command(door.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=door_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        door.pid, door.standing = process.pid, "running"
        _log.info("%s is process %d", door.name, process.pid)
        try:
            code = await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
            door.pid = 0
        return f"(process {process.pid}) {_how(code)}"


def _heeds_hangups(pid: int) -> bool:
    """Whether a process has a handler for SIGHUP, which ends it otherwise; where the system does not say, it has."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    caught = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")]
    return not caught or bool(caught[0] >> (signal.SIGHUP - 1) & 1)


async def _end(process: trio.Process) -> None:
    """End a door if it has not ended: it is asked to, has some time, and is killed after that."""
    if process.poll() is None:
        process.terminate()
        with trio.move_on_after(ENDING_PATIENCE):
            await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
    if process.stdin is not None:
        await process.stdin.aclose()


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"has ended with exit code {code}" if code else "has ended"
