"""What computes a round's sum, and the answers to its retrievals: one interface, whatever stands behind it.

Nothing else in the server knows which engine it has: threads of its own process (see `InProcess`), or workers on other
hosts (`parties.cluster`).

Rule: an engine takes no part in what a round decides. It adds whoever is put, and says nothing but whose submission is
added; if it has lost what it had computed, it computes it again, and the round waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import trio

from fsl_async.config import RoundConfig
from fsl_async.server.aggregation import Aggregate, Submission
from parties.events import Observer
from parties.outcome import Model
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import RetrievalBatcher
from parties.status import EngineStatus


@dataclass(frozen=True)
class RoundStart:
    """What a round begins with.

    Attributes:
        config: the round.
        server: 0 or 1.
        proof_key: the key under which both servers hash proofs.
        model: the model before the round, equal on both servers.
        state: what the optimizer or the own rule has kept, before the round.
        union: by sparse block, the rows that the round is aligned on.
        opened_at: when it opened, in seconds since 1970.
        closes_at: when it closes, in seconds since 1970; infinity if only enough clients close it.
        enough: how many clients close it at once.
        drawn: who may take part; None where everybody may.
    """

    config: RoundConfig
    server: int
    proof_key: bytes = field(repr=False)
    model: Model
    state: Model
    union: Model
    opened_at: float
    closes_at: float
    enough: int
    drawn: frozenset[str] | None = None

    def is_drawn(self, client: str) -> bool:
        """Whether this client may take part: everybody may, unless the task draws who does."""
        return self.drawn is None or client in self.drawn


Fetch: TypeAlias = Callable[[str], Awaitable[Submission]]
Added: TypeAlias = Callable[[str, float], None]


@dataclass(frozen=True)
class RoundWork:
    """What an engine is given of a round.

    Attributes:
        start: what the round began with.
        records: where its submissions are stored.
        fetch: reads a client's submission with its bulk, and waits for bulk that is altered or missing.
        on_added: called for each submission that is added, with the seconds that it took.
        over: set when the round is over: its records are erased then, and its tasks are about to be cancelled.
    """

    start: RoundStart
    records: RoundRecords
    fetch: Fetch
    on_added: Added
    over: trio.Event


class RoundSum(ABC):
    """The sum of one round as it grows.

    Attributes:
        seconds: how long adding has taken so far.
    """

    seconds: float

    @property
    @abstractmethod
    def added(self) -> int:
        """How many submissions are in the sum."""

    @abstractmethod
    def put(self, client: str) -> None:
        """Have a client's stored submission added."""

    @abstractmethod
    async def work(self) -> None:
        """Add what is put until cancelled."""

    @abstractmethod
    async def proofs(self, roster: frozenset[str]) -> dict[str, bytes]:
        """Wait until everyone on the roster is added, and return their entries (see `Aggregate.batch`)."""

    @abstractmethod
    def settled(self, counted: frozenset[str]) -> AbstractAsyncContextManager[Aggregate]:
        """The sum of exactly these clients, when all are added and all others taken out; nothing is added meanwhile.

        It may be asked for again, then of the same clients.
        """

    @abstractmethod
    def release(self) -> None:
        """Free the sum's memory: its share is formed, or the round is over; nothing is added any more."""


class Engine(ABC):
    """Makes what computes the rounds of one server.

    Attributes:
        reads_blobs: whether others than this process read what clients have sent: all of it must lie in blobs then.
    """

    reads_blobs = False

    @abstractmethod
    def sum(self, work: RoundWork) -> RoundSum:
        """The sum of a round, at zero."""

    @abstractmethod
    def answers(self, start: RoundStart, model: Model, records: RoundRecords) -> RetrievalBatcher[Any]:
        """The answers to a round's retrievals.

        Args:
            start: what the round began with.
            model: as the round retrieves it: of some blocks the union's rows alone.
            records: where the trees of retrievals lie.
        """

    async def run(self, observe: Observer) -> None:
        """Keep what it computes with at hand until cancelled; a round's work waits while there is none.

        Args:
            observe: hears of what an operator should look at.
        """
        await trio.sleep_forever()

    def status(self) -> EngineStatus | None:
        """How it stands, for people; None where there is nothing to say besides the rounds."""
        return None
