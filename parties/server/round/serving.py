"""A round of retrievals on one server: the machine of `fsl_async.protocols.psr`, and the answers to clients."""

from __future__ import annotations

from collections.abc import Iterator

from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import psr
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.wire.messages import Abort, Closing, Conclusion, OfRound
from parties.events import Warned
from parties.outcome import Aborted, Done, RoundOutcome, RoundReport
from parties.server.evidence import Evidence
from parties.server.round.conclusion import report_without_sum
from parties.server.round.engine import RoundStart
from parties.server.round.outbox import Outbox
from parties.server.round.records import RoundRecords
from parties.server.round.services import RoundServices
from parties.server.round.waiting import Timers
from parties.storage.store import Change


class Serving:
    """What a round of retrievals does; see `parties.server.round.run`.

    Args:
        start: what the round began with.
        records: what it keeps in the store.
        services: what it has of its server.
        outbox: what it sends to the other server.

    Attributes:
        state: the machine's.
        terms: what the machine has to know.
        retrievals: answers the clients.
    """

    machine = psr.MACHINE
    events = psr.RoundEvent

    submissions, evaluated, seconds = 0, 0, 0.0
    """Nothing is submitted."""

    opened = None
    """Nor is anything summed."""

    is_full = False
    """However many clients come."""

    def __init__(self, start: RoundStart, records: RoundRecords, services: RoundServices, outbox: Outbox) -> None:
        self.state: psr.Round = psr.Open()
        self._done = report_without_sum(start.config, Done())
        self.terms = psr.Terms(start.config.round_id(), start.server, self._done.digest())
        self.retrievals = services.engine.answers(start, start.model, records)
        self._start = start
        self._services = services
        self._outbox = outbox

    # ---- how it stands

    @property
    def takes_requests(self) -> bool:
        """Whether any client's request can still come in."""
        return isinstance(self.state, psr.Open)

    def submitters(self) -> frozenset[str]:
        """Nobody's submission is in."""
        return frozenset()

    def admits(self, client: str) -> bool:
        """Nobody's submission comes in."""
        return False

    def serves(self, client: str) -> bool:
        """Whether this client's requests are answered."""
        return self.takes_requests

    # ---- how it ended

    def outcome(self) -> RoundOutcome:
        """That of a round that is done: nobody was counted, and there is no update.

        Raises:
            MisuseError: the round was aborted.
        """
        number = self._start.config.number
        if isinstance(self.state, psr.Aborted):
            raise MisuseError(f"round {number} has no outcome: it was aborted")
        return RoundOutcome(number=number, clients=(), excluded={}, update={}, elements={})

    @property
    def concluded(self) -> bytes:
        """The digest of the outcome; empty where the round was aborted."""
        return self.terms.outcome if isinstance(self.state, psr.Done) else b""

    def report(self) -> RoundReport:
        """The public account of a settled round.

        Raises:
            UnexpectedEvent: it is not settled.
        """
        match self.state:
            case psr.Aborted(explanation=explanation):
                return report_without_sum(self._start.config, Aborted(explanation))
            case psr.Done():
                return self._done
        raise UnexpectedEvent(self.state, psr.CloseRound(), psr.ACCEPTS)

    def release(self) -> None:
        """Nothing to free: the answers' memory ends with the task that makes them."""

    # ---- what its run does

    async def foresee(self, event: Event) -> None:
        """Nothing takes long."""

    def after(self, event: Event, *more: Event) -> psr.Round:
        """The state to which events lead."""
        state = self.state
        for each in (event, *more):
            state = psr.step(state, each, self.terms)
        return state

    def adopt(self, event: Event) -> None:
        """Take an event that is recorded."""
        self.state = self.after(event)

    async def replay(self, event: Event) -> None:
        """Take an event of before a restart."""
        self.adopt(event)

    def begin(self) -> None:
        """Begin to answer retrievals."""
        self._services.nursery.start_soon(self.retrievals.work)

    def seen(self, event: Event) -> Iterator[Evidence | Warned]:
        """What an event shows about clients: nothing."""
        yield from ()

    def changes(self, event: Event) -> list[Change]:
        """What is stored together with an event: nothing."""
        return []

    def taken(self, event: Event) -> None:
        """Go on with what an event has brought besides the new state: nothing."""

    def effects(self) -> tuple[psr.Send, ...]:
        """What the state asks for."""
        return psr.effects(self.state, self.terms)

    def perform(self, effect: psr.Send, timers: Timers) -> None:
        """Do it."""
        self._outbox.send(effect)

    def resend(self) -> None:
        """Send again what the state says the peer may lack."""
        for effect in self.effects():
            self._outbox.send(effect)

    async def read(self, message: OfRound, bulk: memoryview) -> Event:
        """The event that a message of the peer's is.

        Raises:
            PeerViolationError: such a message belongs to a round of submissions.
        """
        match message:
            case Closing():
                return psr.PeerClosed()
            case Conclusion(outcome=outcome):
                return psr.PeerConclusion(outcome)
            case Abort(explanation=explanation):
                return psr.PeerAbort(explanation)
            case _:
                what = type(message).__name__
                raise PeerViolationError(self.terms.peer, f"sends a {what} in a round that only serves retrievals")
