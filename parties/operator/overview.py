"""What the operator's side needs of a server: its status, its past rounds, and a way to abort a round."""

from __future__ import annotations

from typing import Protocol

from parties.status import PastRound, ServerStatus

__all__ = ["Overview"]


class Overview(Protocol):
    """A server as `parties.operator` sees it, besides its events."""

    def status(self) -> ServerStatus:
        """The server's status at this moment."""

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
