"""The clients' places in a round: each has one, for one submission.

A place is claimed before the submission is stored, so that two submissions of one client, or of one client too many,
never both get there; and the submission is entered when it stands in the round's list. A claim whose submission could
not be stored is given back.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from parties.server.refusals import ContradictionError, RequestRefusedError


class Claims:
    """Which clients have a place in one round, and whose submission is in its list.

    Args:
        places: how many there are.
        admits: whether a client's submission can still come in, by the round's state.
    """

    def __init__(self, places: int, admits: Callable[[str], bool]) -> None:
        self._places = places
        self._admits = admits
        self._claimed: dict[str, bytes] = {}
        self._coming: set[str] = set()
        self._awaited: dict[str, trio.Event] = {}

    @property
    def entered(self) -> int:
        """How many submissions are in."""
        return len(self._claimed) - len(self._coming)

    def names(self) -> frozenset[str]:
        """The clients whose submissions are in."""
        return frozenset(self._claimed.keys() - self._coming)

    def has_entered(self, client: str) -> bool:
        """Whether a submission of this client is in."""
        return client in self._claimed and client not in self._coming

    def claim(self, client: str, submission: bytes) -> bool:
        """Claim the client's place for a submission; False if the place is already claimed for the same one.

        Args:
            client: whose place.
            submission: the submission's digest.

        Raises:
            ContradictionError: the place is claimed for another submission.
            RequestRefusedError: the round is full.
        """
        known = self._claimed.get(client, submission)
        if known != submission:
            explanation = "another submission of yours is in for this round"
            raise ContradictionError("conflict", explanation, "two-contents", known, submission)
        if client in self._claimed:
            return False
        self.check_place(client)
        self._claimed[client] = submission
        self._coming.add(client)
        return True

    def check_place(self, client: str) -> None:
        """Check that there is a place for this client, or that it has claimed one.

        Raises:
            RequestRefusedError: the round is full.
        """
        if client not in self._claimed and len(self._claimed) >= self._places:
            raise RequestRefusedError.because("limit", f"the round has all of its {len(self._claimed)} clients")

    def give_back(self, client: str) -> None:
        """Give a claim back, because its submission could not be stored: the client may come again, as may others."""
        del self._claimed[client]
        self._coming.remove(client)
        self._wake(client)

    def enter(self, client: str, submission: bytes) -> None:
        """Note that a submission stands in the round's list; a restart reads it back without a claim."""
        self._claimed[client] = submission
        self._coming.discard(client)
        self._wake(client)

    def wake(self) -> None:
        """Let everyone who waits look again: the round's state has changed."""
        for client in list(self._awaited):
            self._wake(client)

    def _wake(self, client: str) -> None:
        """Let those look again who wait for this client's submission."""
        if client in self._awaited:
            self._awaited.pop(client).set()

    async def wait_entered(self, client: str) -> bool:
        """Wait until the submission that a place is claimed for is in; False if the round closed before.

        Raises:
            RequestRefusedError: it could not be stored, as another connection of the client has found out.
        """
        while not self.has_entered(client):
            if not self._admits(client):
                return False
            if client not in self._claimed:
                raise RequestRefusedError.because("busy", "it could not be stored; send it again", 1)
            await self._awaited.setdefault(client, trio.Event()).wait()
        return True
