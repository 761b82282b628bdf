"""The moments at which a process can be told to kill itself: those at which a crash could leave a trace."""

import os
import signal

from .site import say


class Steps:
    """Counts steps, and ends the process at one of them.

    Attributes:
        taken: so many so far.
    """

    def __init__(self, die_at: int, armed: bool = True) -> None:
        """Begin.

        Args:
            die_at: at which step, counted from 1; 0 for none.
            armed: whether steps are counted from now on, or only from `arm`.
        """
        self._die_at = die_at
        self._armed = armed
        self.taken = 0

    def arm(self) -> None:
        """Count from now on, if not before."""
        self._armed = True

    def step(self, what: str) -> None:
        """One step further, or none ever again."""
        self.taken += self._armed
        if self._armed and self.taken == self._die_at:
            say(dies=what)
            os.kill(os.getpid(), signal.SIGKILL)
