"""When rounds close and what clients may do: said once, for a server's file and for programs.

A field says in `About` what it means in a file: the tables `[rounds]` and `[limits]` are these, with defaults for
deployed servers (see `parties.settings.party_file`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, TypeAlias

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import LARGEST_CLIENTS
from parties.files.toml import About
from transport import Pace

HOUR, DAY, YEAR = 3_600, 86_400, 31_536_000
TIB = 2**40
ORDINARY_MEMORY = 2**28

NEVER = 2**62
"""As a number of submissions that closes a round: none does."""

RoundClients: TypeAlias = Annotated[
    int,
    About(
        "a round closes after this many submissions that both servers have; 0: after the task's max_clients",
        low=0,
        high=LARGEST_CLIENTS,
    ),
]
RoundSeconds: TypeAlias = Annotated[
    float,
    About(
        "a round closes this long after it opened; 0: only when enough submissions are in, which a task with "
        "protocol psr has none of",
        unit="seconds",
        low=0,
        high=YEAR,
    ),
]
GatherSeconds: TypeAlias = Annotated[
    float,
    About(
        "where the task has a sample: clients may ask this long to take part in a round before it is drawn who "
        "does; it is drawn at once when all that are on the list have asked; where too few have, the round is "
        "aborted after rounds.patience",
        unit="seconds",
        low=0,
        high=YEAR,
    ),
]
PatienceSeconds: TypeAlias = Annotated[
    float,
    About(
        "wait this long for the other server while the round can still be aborted; once a server has committed to "
        "its share, wait without limit",
        unit="seconds",
        low=1,
        high=30 * DAY,
    ),
]


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When rounds close, and how many there are.

    Infinity for `seconds` waits for the clients, for `gather` until the operator draws or all have asked, for
    `patience` without limit. With `clients` = `NEVER`, a round closes only when the time is over or somebody says so.
    Where clients are drawn, as many as were drawn close a round as well.
    """

    clients: RoundClients
    seconds: RoundSeconds = float("inf")
    gather: GatherSeconds = float("inf")
    grace: Annotated[
        float,
        About(
            "once the other server has closed the round, wait this long for submissions that only it has",
            unit="seconds",
            low=0,
            high=HOUR,
        ),
    ] = 5.0
    patience: PatienceSeconds = float("inf")
    retention: Annotated[
        int,
        About(
            "the number of settled rounds of which the clients' shares and seeds are stored before they are erased",
            low=0,
            high=10_000,
        ),
    ] = 0
    rounds: Annotated[int, About("the server ends after the round with this number; 0: never", low=0, high=10**9)] = (
        msgspec.field(default=0, name="count")
    )

    def enough(self, drawn: Collection[str] | None) -> int:
        """How many submissions close a round at once: no more than clients were drawn, unless it is never closed so."""
        return self.clients if drawn is None or self.clients == NEVER else min(self.clients, len(drawn))


class ConversationLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server allows the clients that it has admitted.

    `memory_bytes` is for all clients together; whatever is a rate or a time is for one client, or one message.
    """

    memory_bytes: Annotated[
        int,
        About(
            "memory for requests while they are received and carried out, and for answers until they are sent; 0: 256 "
            "MiB, or room for the task's two longest requests and answers, whichever is more",
            unit="bytes",
            low=0,
            high=TIB,
        ),
    ] = 0
    queue_seconds: Annotated[
        float,
        About(
            "a request or an answer waits this long for that memory; then the client is told to come back",
            unit="seconds",
            low=1,
            high=HOUR,
        ),
    ] = 30.0
    minimum_rate: Annotated[
        float,
        About(
            "a message that is slower than this, in either direction, is cut off",
            unit="bytes per second",
            low=1,
            high=TIB,
        ),
    ] = 8_192.0
    message_seconds: Annotated[
        float, About("a message must be complete within this time", unit="seconds", low=1, high=DAY)
    ] = 1_800.0
    idle_seconds: Annotated[
        float,
        About(
            "a client that requests nothing for this long is disconnected; it may come back",
            unit="seconds",
            low=1,
            high=DAY,
        ),
    ] = 60.0
    requests_per_second: Annotated[
        float, About("requests of one client, on average; further ones wait", unit="per second", low=0.01, high=10**6)
    ] = 50.0
    request_burst: Annotated[int, About("requests of one client in a burst", low=1, high=10**6)] = 200

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
        given = self.memory_bytes or max(ORDINARY_MEMORY, 2 * least)
        if given < least:
            raise MisuseError(
                f"memory_bytes is {given:,}, and one request of this task and one answer take {least:,}: allow the "
                "server at least as much, better twice"
            )
        requests = given * longest // least
        return requests, given - requests
