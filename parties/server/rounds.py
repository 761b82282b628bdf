"""What a server is doing, and its last rounds: read and waited for by every task, moved on by the actor alone.

See `parties.server.round_sequence` for how one round follows another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, assert_never

import trio

from fsl_async.protocols.sampling import Gathering
from parties.concurrency import RecurringEvent
from parties.outcome import RoundReport
from parties.server.history import PastRounds
from parties.server.peer.link import PeerLink
from parties.server.replies import RequestRefusedError
from parties.server.round.drawing import SampleRun, WaitingClients
from parties.server.round.places import RoundQuota
from parties.server.round.run import RoundRun
from parties.server.round.toss import TossRun
from parties.status import PastRound
from parties.status import Stage as StageName

ROUNDS_REMEMBERED = 16

AWAY_SECONDS = 3.0
"""Seconds without a connection to the peer after which clients are told that it is away."""

AGAIN_SECONDS = 2
"""Seconds after which a client may ask again that was told that the other server is away."""


@dataclass(frozen=True)
class Resting:
    """No round is on, and none will be: the schedule's last is over, the server is about to stop, or may open no more.

    Attributes:
        number: the last round that was settled.
        explanation: why no more is opened; empty where nothing is wrong.
    """

    name: ClassVar[StageName] = "resting"
    number: int
    explanation: str = ""


@dataclass(frozen=True)
class Tossing:
    """The two servers toss for the round's seed."""

    name: ClassVar[StageName] = "preparing"
    toss: TossRun


@dataclass(frozen=True)
class Sampling:
    """The two servers draw who takes part in the round."""

    name: ClassVar[StageName] = "drawing"
    toss: TossRun
    sample: SampleRun


@dataclass(frozen=True)
class Running:
    """A round is on, from open to settled; `sample` is None where everybody takes part."""

    name: ClassVar[StageName] = "running"
    toss: TossRun
    sample: SampleRun | None
    run: RoundRun


Stage: TypeAlias = Resting | Tossing | Sampling | Running


@dataclass(frozen=True)
class FoundUnion:
    """The union that a round has found, for clients to read.

    Attributes:
        round_id: the round, which is over.
        packed: by sparse block, the union as it travels.
        quota: how often each client has asked for it.
    """

    round_id: bytes
    packed: dict[str, bytes]
    quota: RoundQuota


class Rounds:
    """The rounds of one server, as its tasks see them.

    Args:
        peer: the other server's name.
        history: where the rounds that are over are found.

    Attributes:
        stage: what the server is doing.
        found: the last union that was found for clients to read; none where the task finds none, or not yet.
        opened: occurs whenever a round opens.
        settled: occurs whenever a round's end is in the store.
        waiting: the clients that wait for a round to open.
    """

    def __init__(self, peer: str, history: PastRounds) -> None:
        self.stage: Stage = Resting(0)
        self.found: FoundUnion | None = None
        self.opened = RecurringEvent()
        self.settled = RecurringEvent()
        self.waiting = WaitingClients()
        self._peer = peer
        self._history = history
        self._peer_away_since: float | None = None
        self._past: dict[bytes, PastRound] = {}

    @property
    def running(self) -> RoundRun | None:
        """The round that is on."""
        return self.stage.run if isinstance(self.stage, Running) else None

    def find(self, round_id: bytes) -> RoundRun | None:
        """The round of that name, if it is on."""
        run = self.running
        return run if run is not None and run.round_id == round_id else None

    @property
    def past(self) -> tuple[PastRound, ...]:
        """The last rounds that are over, in order: as many as are remembered without the store."""
        return tuple(self._past.values())

    def remember(self, *past: PastRound) -> None:
        """Take rounds that are over, in order."""
        self._past |= {over.report.round_id: over for over in past}
        for forgotten in list(self._past)[:-ROUNDS_REMEMBERED]:
            del self._past[forgotten]

    def is_past(self, round_id: bytes) -> bool:
        """Whether that round is one of the last that are over."""
        return round_id in self._past

    def open_round(self, round_id: bytes, client: str) -> RoundRun:
        """The round of that name, if it is open for this client, or has its submission: a repeat is answered.

        Raises:
            RequestRefusedError: it is not open (any more).
        """
        run = self.running
        if run is not None and run.round_id == round_id and not run.start.is_drawn(client):
            raise RequestRefusedError.because("not-drawn", "this client was not drawn for the round of this request")
        if run is not None and run.round_id == round_id and run.driver.serves(client):
            return run
        raise RequestRefusedError.because("round-closed", "the round of this request is not open")

    async def knows(self, round_id: bytes) -> bool:
        """Whether a round of that name is on, or is over."""
        return self.is_at_hand(round_id) or await self._history.find(round_id) is not None

    def is_at_hand(self, round_id: bytes) -> bool:
        """Whether a round of that name is on, or is one of the last that are over."""
        return self.find(round_id) is not None or round_id in self._past

    async def watch_peer(self, link: PeerLink) -> None:
        """Let clients know when the peer has been away for a while: they wait for it, and know it only from us."""
        while True:
            since = trio.current_time()
            with trio.move_on_after(AWAY_SECONDS) as shortly:
                await link.until(connected=True)
            if shortly.cancelled_caught:
                self._note_peer_away(since)
                await link.until(connected=True)
                self._note_peer_away(None)
            await link.until(connected=False)

    def _note_peer_away(self, since: float | None) -> None:
        """Take since when the other server has been away, on trio's clock, or that it is back."""
        self._peer_away_since = since
        self.opened.set()
        self.settled.set()

    def _refuse_while_peer_is_away(self) -> None:
        """Let no client wait for what the other server's absence holds up; who gathers for a draw still waits.

        Raises:
            RequestRefusedError: it has been away for a while.
        """
        gathers = isinstance(self.stage, Sampling) and isinstance(self.stage.sample.state, Gathering)
        if self._peer_away_since is not None and not gathers:
            seconds = trio.current_time() - self._peer_away_since
            explanation = f"{self._peer} has been away for {seconds:.0f} s, and without it no round opens or ends"
            raise RequestRefusedError.because("busy", explanation, AGAIN_SECONDS)

    async def asked(self, client: str, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`; meanwhile, this client asks to take part in it.

        Raises:
            RequestRefusedError: the other server has been away for a while.
        """
        with self.waiting.asking(client, after):
            while (run := self._open_after(after)) is None:
                self._refuse_while_peer_is_away()
                await self.opened.wait()
            return run

    def asked_at_once(self, client: str, after: int) -> RoundRun | None:
        """The same without a wait; None where one is needed."""
        with self.waiting.asking(client, after):
            return self._open_after(after)

    async def next_round(self, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`."""
        while (run := self._open_after(after)) is None:
            await self.opened.wait()
        return run

    def _open_after(self, after: int) -> RoundRun | None:
        """The open round, if its number is above `after`; one that opened for nobody is about to be given up."""
        run = self.running
        is_asked_for = run is not None and run.config.number > after and run.is_open and run.start.drawn != frozenset()
        return run if is_asked_for else None

    async def settled_report(self, round_id: bytes) -> RoundReport:
        """Wait until a round is settled, and return its account.

        Raises:
            RequestRefusedError: it is unknown, or too long ago; or the other server has been away for a while.
        """
        run = self.find(round_id)
        if run is not None:
            while not run.settled.is_set():
                self._refuse_while_peer_is_away()
                await self.settled.wait()
            return run.report()
        past = self._past.get(round_id) or await self._history.find(round_id)
        if past is None:
            raise RequestRefusedError.because("round-closed", "that round is unknown here")
        return past.report

    def report_at_hand(self, round_id: bytes) -> RoundReport | None:
        """The account of a round that is over, if it is one of the last."""
        past = self._past.get(round_id)
        return None if past is None else past.report

    async def until_settled(self, run: RoundRun) -> RoundReport:
        """Wait until a round's end is in the store, and return its account."""
        while run.round_id not in self._past:
            await self.settled.wait()
        return run.report()

    @property
    def number(self) -> int:
        """Of the round that runs, is tossed for, or was the last."""
        match self.stage:
            case Running(run=run):
                return run.config.number
            case Tossing(toss=toss) | Sampling(toss=toss):
                return toss.number
            case Resting(number=number):
                return number
            case _:
                assert_never(self.stage)

    def state_name(self) -> str:
        """What the server is doing, for people."""
        match self.stage:
            case Running(run=run):
                return f"round {run.config.number}: {type(run.state).__name__}"
            case Tossing(toss=toss):
                return f"round {toss.number}: {type(toss.state).__name__}, waiting for {self._peer}"
            case Sampling(sample=sample):
                asked = len(self.waiting.of(sample.number))
                return f"round {sample.number}: {type(sample.state).__name__}, waiting for {sample.waiting_for(asked)}"
            case Resting(number=number, explanation=explanation):
                return f"resting after round {number}" + (f": {explanation}" if explanation else "")
            case _:
                assert_never(self.stage)
