"""The clients' places in a round: each has one, for one submission; and how much else one client may ask for in it.

A place is claimed before the submission is stored, so that two submissions of one client, or of one client too many,
never both get there; and the submission is entered when it stands in the round's list. A claim whose submission could
not be stored is given back.

What a client asks for is counted as long as the round and this process live; one that starts again counts anew. Rules:

- A request counts when it comes, before anything is done for it, whatever becomes of it, unless the server could not
  store it or had no room.
- A request that breaks off on its way counts as well, so that no client occupies a server for ever by declaring much
  and sending little.
- A request above a limit is refused with the numbers. A client that goes on all the same loses its connection, and in
  this round any later connection at once.
- One client's requests never change another client's counts.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from fsl_async.errors import StorageError
from parties.server.replies import AbuseError, ContradictionError, RequestRefusedError


class ClientPlaces:
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


REFUSALS_BORNE = 3
"""Requests above a limit that are still answered, because a client may have sent some ahead."""


class Counted(enum.Enum):
    """What is counted: its name for people."""

    ATTEMPT = "submission attempts"
    CONFLICT = "contradicting requests"
    RETRIEVAL = "attempts to retrieve"
    DOWNLOAD = "downloads of one block"
    UNFINISHED = "requests that broke off"


LIMITS = {Counted.ATTEMPT: 10, Counted.CONFLICT: 3, Counted.DOWNLOAD: 16, Counted.UNFINISHED: 20}
"""How many a client has in one round; the task says how many retrievals, and downloads are at least twice as many."""


class RoundQuota:
    """What every client has asked for in one round.

    Args:
        retrievals: how many retrievals a client has.
    """

    def __init__(self, retrievals: int) -> None:
        # A retrieval downloads what moves plainly, and may have to be repeated.
        downloads = max(LIMITS[Counted.DOWNLOAD], 2 * retrievals)
        self._limits = LIMITS | {Counted.RETRIEVAL: retrievals, Counted.DOWNLOAD: downloads}
        self._counts: defaultdict[tuple[Counted, str], Counter[str]] = defaultdict(Counter)
        self._refused: Counter[str] = Counter()

    @contextmanager
    def request(self, client: str, kind: Counted, what: str = "") -> Iterator[None]:
        """Count a request before it is carried out, and afterwards what became of it; see `count` and `carried_out`."""
        self.count(client, kind, what)
        with self.carried_out(client, kind, what):
            yield

    def count(self, client: str, kind: Counted, what: str = "") -> None:
        """Count a request before anything is done for it.

        Args:
            client: who asks.
            kind: the kind of the request.
            what: what it asks for, if each of several things has a count of its own.

        Raises:
            RequestRefusedError: the request is above the limit.
            AbuseError: the client went on above its limits.
        """
        limit, counts = self._limits[kind], self._counts[kind, what]
        if counts[client] < limit:
            counts[client] += 1
            return
        self._refused[client] += 1
        refusal = RequestRefusedError.because(
            "limit",
            f"at most {limit} {kind.value} of one client are taken in a round, refused ones included, and this is one "
            "more: ask again in the next round, which opens when this one is over",
        )
        if self._refused[client] > REFUSALS_BORNE:
            raise AbuseError(client, refusal.message)
        raise refusal

    def give_back(self, client: str, kind: Counted, what: str = "") -> None:
        """Take a request back that was counted: it counts as another kind, or the client is not to blame for it."""
        counts = self._counts[kind, what]
        counts[client] -= 1
        if not counts[client]:
            del counts[client]

    @contextmanager
    def carried_out(self, client: str, kind: Counted, what: str = "") -> Iterator[None]:
        """Count a conflict if a request that was counted ends in one in this context.

        It is taken back if the server could not store it or had no room.

        Raises:
            RequestRefusedError: the request is refused by the code in this context.
            AbuseError: the client went on above its limits.
        """
        try:
            yield
        except RequestRefusedError as refusal:
            if refusal.message.reason == "conflict":
                self.count(client, Counted.CONFLICT)
            if refusal.message.reason == "busy":
                self.give_back(client, kind, what)
            raise
        except StorageError:
            self.give_back(client, kind, what)
            raise
