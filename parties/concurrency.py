"""What every wing needs beside trio's own: an event that occurs more than once."""

from __future__ import annotations

import trio


class RecurringEvent:
    """An event that occurs again and again; each occurrence wakes the tasks that wait for it at that moment.

    A condition that changes is waited for in a loop; between the check and `wait` there must be no checkpoint:

        while not self._queue:
            await self._queued.wait()

    A task with a checkpoint in between takes `next` before the check and waits for that.
    """

    def __init__(self) -> None:
        self._next: trio.Event | None = None  # made when somebody is about to wait: most occurrences wake nobody

    @property
    def next(self) -> trio.Event:
        """Set by the next occurrence."""
        if self._next is None:
            self._next = trio.Event()
        return self._next

    def set(self) -> None:
        """Let it occur: wake every task that waits."""
        if self._next is not None:
            occurred, self._next = self._next, None
            occurred.set()

    async def wait(self) -> None:
        """Wait for the next occurrence."""
        await self.next.wait()
