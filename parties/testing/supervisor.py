"""Keeps simulated processes running, as a service manager would."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import trio

from fsl_async.error_groups import leaves
from fsl_async.errors import ChannelError, FslError, StorageError
from parties.testing.processes import Life, Process
from parties.testing.story import Began, Failed, Killed, Left, StoryEvent

__all__ = ["Ended", "Live", "Recoverable", "Supervisor", "is_of_surroundings"]

RESTART_SECONDS = 1.0
"""Seconds until a process that has ended with an error is started again."""

Recoverable: TypeAlias = Callable[[BaseException], bool]
"""Whether a process that has ended with an error is started again."""

Live: TypeAlias = Callable[[Life], Awaitable[None]]
"""What a process does in one life."""


def is_of_surroundings(error: BaseException) -> bool:
    """Whether an error comes from the network or the disk."""
    return isinstance(error, ChannelError | StorageError)


@dataclass(frozen=True)
class Ended:
    """A process that ended with an error, and is not started again."""

    party: str
    at: float
    error: BaseException


class Supervisor:
    """Starts processes, and starts them again after they were killed or have failed with a recoverable error.

    Args:
        tell: called with a party's name and what happens to its process.
        died: called when a process is killed.
        ended: called with an error after which a process is not started again.
        recoverable: after which errors a process is started again; by default a lost connection and a failed disk.
    """

    def __init__(
        self,
        tell: Callable[[str, StoryEvent], None],
        died: Callable[[Process], None],
        ended: Callable[[Process, BaseException], None],
        recoverable: Recoverable = is_of_surroundings,
    ) -> None:
        self._tell = tell
        self._died = died
        self._ended = ended
        self._recoverable = recoverable

    async def keep(self, process: Process, live: Live) -> None:
        """Run life after life until one ends by itself.

        Raises:
            BaseException: a life's error that is a defect of the tested code, or a misuse by the test.
        """
        while process.down != float("inf"):
            process.down = RESTART_SECONDS
            if await self._run_life(process.begin(), live):
                return
            await trio.sleep(process.down)

    async def _run_life(self, life: Life, live: Live) -> bool:
        """Run one life; returns whether its process is finished. What a killed process still does has no effect."""
        process = life.process
        self._tell(process.name, Began(life.number))
        life.ending.append(partial(self._was_killed, process))
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_enter, life, live)
                self._tell(process.name, Left())
                return True
        except BaseException as error:
            if life.alive:
                return self._failed(life, error)
        await trio.lowlevel.checkpoint_if_cancelled()
        return False

    def _was_killed(self, process: Process) -> None:
        self._tell(process.name, Killed(process.down))
        self._died(process)

    def _failed(self, life: Life, error: BaseException) -> bool:
        """Handle an error of a life; returns whether the process is finished. A defect or a misuse is raised."""
        life.alive = False
        reasons = leaves(error)
        if life.mistaken or not all(isinstance(reason, FslError) for reason in reasons):
            raise error
        self._tell(life.process.name, Failed(reasons[0]))
        if all(self._recoverable(reason) for reason in reasons):
            return False
        self._ended(life.process, reasons[0])
        return True


async def _enter(life: Life, live: Live) -> None:
    life.enter()
    await live(life)
