"""What the operator's side needs of a server's process: its tasks, their status and rounds, and what it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from parties.operator.observer import OperatorObserver
from parties.status import HostedTaskStatus, PastRound, ServerStatus


class OperatedTask(Protocol):
    """One task of a server's process, and its server as `parties.operator` sees it besides its events."""

    @property
    def name(self) -> str:
        """The task's name."""

    @property
    def observer(self) -> OperatorObserver:
        """What has heard its events."""

    def standing(self) -> HostedTaskStatus:
        """Where it is."""

    def status(self) -> ServerStatus:
        """The server's status at this moment."""

    def known_clients(self) -> Sequence[str]:
        """The names of the clients that may take part, sorted."""

    def submitted_clients(self) -> frozenset[str]:
        """The clients whose submission is on the running round's list; nobody where no round runs."""

    def drawn_clients(self) -> frozenset[str] | None:
        """The clients that were drawn for the running round; None where everybody may take part, or no round runs."""

    async def past_rounds(self, most: int, before: int | None = None) -> list[PastRound]:
        """The latest settled rounds, oldest first.

        Args:
            most: how many rounds at most.
            before: only rounds with a smaller number than this, if it is given.

        Raises:
            StorageError: they cannot be read.
        """

    async def abort_round(self, number: int, explanation: str) -> object:
        """Abort the running round, and wait until it is over.

        Args:
            number: the round's number.
            explanation: why it is aborted, as clients are told.

        Raises:
            MisuseError: that round is not running, or can no longer be aborted.
        """

    async def close_now(self, number: int) -> int:
        """Close the open round with those who have submitted; the other server follows.

        Returns:
            How many submissions the round has at this server; a round that was closed before is left as it is.

        Raises:
            MisuseError: no round of that number is open or has been closed, or it would be aborted if it were.
        """

    def draw_round(self, number: int) -> int:
        """End the gathering for a round, and draw of those that have asked.

        Returns:
            How many clients have asked.

        Raises:
            MisuseError: nobody is to be drawn for that round now, or too few have asked.
        """


class OperatedProcess(Protocol):
    """A server's process, as `parties.operator` sees it."""

    @property
    def process(self) -> OperatorObserver:
        """What has heard what concerns the process."""

    def tasks(self) -> Sequence[OperatedTask]:
        """Its tasks, in order."""

    async def drain(self, name: str) -> None:
        """Begin to end a task; the others run on.

        Raises:
            MisuseError: it is not running.
        """

    async def start(self, name: str) -> None:
        """Start a task that has ended, with what its table says now.

        Raises:
            MisuseError: it is running, or its settings cannot be used.
        """
