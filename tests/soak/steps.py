"""The moments at which a process can be told to kill itself: those at which a crash could leave a trace."""

from __future__ import annotations

import os
import signal

from .site import say

__all__ = ["Steps"]


class Steps:
    """Counts steps, and ends the process at one of them.

    Attributes:
        taken: so many so far.
    """

    def __init__(self, die_at: int) -> None:
        """Args: die_at: the step, counted from 1; 0 for never."""
        self._die_at = die_at
        self.taken = 0

    def step(self, what: str) -> None:
        """One step further, or none ever again."""
        self.taken += 1
        if self.taken == self._die_at:
            say(dies=what)
            os.kill(os.getpid(), signal.SIGKILL)
