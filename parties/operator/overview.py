"""What the operator's side needs of a server: its status, its past rounds, and a way to abort a round."""

from __future__ import annotations

from typing import Protocol

from parties.status import PastRound, ServerStatus

__all__ = ["Overview"]


class Overview(Protocol):
    """A server, as `parties.operator` sees it; `parties.server.server.Server` is one."""

    def status(self) -> ServerStatus:
        """The server's status at this moment."""

    async def past_rounds(self, most: int, before: int = 0) -> list[PastRound]:
        """The last settled rounds, oldest first: at most so many, of those with a smaller number than `before`, if any.

        Raises:
            StorageError: they cannot be read.
        """

    async def abort_round(self, number: int, explanation: str) -> object:
        """Give the running round up, and wait until it is over.

        Raises:
            MisuseError: that round is not running, or it is too late for it.
        """
