"""What the operator's side needs of a server: to be asked how it stands, and to be told to give a round up."""

from __future__ import annotations

from typing import Protocol

from parties.events import PastRound, ServerStatus

__all__ = ["Overview"]


class Overview(Protocol):
    """A server, as `parties.operator` sees it; `parties.server.server.Server` is one."""

    def standing(self) -> ServerStatus:
        """How the server stands now."""

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
