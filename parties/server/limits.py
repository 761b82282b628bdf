"""What limits the rounds and the clients of a server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fsl_async.errors import MisuseError
from transport import Pace

ORDINARY_MEMORY = 2**28

NEVER = 2**62
"""As a number of submissions that closes a round: none does."""


@dataclass(frozen=True)
class Schedule:
    """When rounds close, and how many there are.

    Attributes:
        clients: close as soon as so many submissions are in, or as many as clients were drawn; with `NEVER`, only when
            the time is over or somebody says so.
        seconds: close so long after opening; infinity waits for the clients.
        gather: in a task with a sample, let clients ask for so long before it is drawn, or until all that there are
            have asked; infinity gathers until the operator says so. Where too few have asked by then, others may for
            `patience` seconds more; then the round is aborted, and the next one gathers.
        rounds: stop after the round of this number; 0 never stops.
        grace: when the peer has closed, wait so many seconds for submissions that are still on their way to us.
        patience: wait so many seconds for the peer's list and its proofs, then abort the round; infinity waits.
        retention: how many settled rounds keep their submissions and shares; 0 erases them with the round.
    """

    clients: int
    seconds: float = float("inf")
    gather: float = float("inf")
    rounds: int = 0
    grace: float = 5.0
    patience: float = float("inf")
    retention: int = 0

    def enough(self, drawn: Collection[str] | None) -> int:
        """How many submissions close a round at once: no more than clients were drawn, unless it is never closed so."""
        return self.clients if drawn is None or self.clients == NEVER else min(self.clients, len(drawn))


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """What a server allows the clients that it has admitted.

    Attributes:
        memory_bytes: for requests that are coming in or being carried out, and for answers until they have been taken,
            all clients together; unless it is given, 256 MiB or room for the task's two longest requests and answers,
            whichever is more.
        minimum_rate: bytes per second that a message under way must keep, in either direction.
        message_seconds: in which a whole message must be through: a long one must be faster accordingly.
        idle_seconds: after so long without a request a client is disconnected; it may come back at any time.
        queue_seconds: that a request waits for room before its client is told to come back later.
        requests_per_second: by one client, in the long run; further ones wait.
        request_burst: by one client, at once.
    """

    memory_bytes: int | None = None
    minimum_rate: float = 8_192
    message_seconds: float = 1_800
    idle_seconds: float = 60
    queue_seconds: float = 30
    requests_per_second: float = 50
    request_burst: int = 200

    def __post_init__(self) -> None:
        for name in (
            "minimum_rate",
            "message_seconds",
            "idle_seconds",
            "queue_seconds",
            "requests_per_second",
            "request_burst",
        ):
            if not getattr(self, name) > 0:
                raise MisuseError(f"{name} must be positive, not {getattr(self, name)}")

    @property
    def pace(self) -> Pace:
        """How fast a message must move once it has begun."""
        return Pace(bytes_per_second=self.minimum_rate, message_seconds=self.message_seconds)

    def memory(self, longest: int, longest_answer: int) -> tuple[int, int]:
        """The memory for requests and for answers of which the longest have so many bytes.

        Raises:
            MisuseError: what is given is not enough for one of each.
        """
        least = longest + longest_answer
        given = max(ORDINARY_MEMORY, 2 * least) if self.memory_bytes is None else self.memory_bytes
        if given < least:
            raise MisuseError(
                f"memory_bytes is {given:,}, and one request of this task and one answer take {least:,}: allow the "
                "server at least as much, better twice"
            )
        requests = given * longest // least
        return requests, given - requests
