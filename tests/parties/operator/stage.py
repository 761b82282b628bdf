"""A fake server: its status is what a test sets, and it reports events as a real server does."""

from __future__ import annotations

import random

import msgspec

from fsl_async.config import BlockModel
from fsl_async.errors import MisuseError
from parties.events import (
    ClientLeft,
    ClientMet,
    ConnectionFailed,
    Evaluated,
    MessageReceived,
    MessageSent,
    PeerLost,
    PeerMet,
    RequestRefused,
    RoundMoved,
    RoundOpened,
    RoundSettled,
    ServerEvent,
    SubmissionIn,
    Warned,
)
from parties.operator import Log, ObserverSetup, OperatorObserver
from parties.outcome import Aborted, Done, RoundReport
from parties.status import PastRound, RoundStatus, ServerStatus

NASTY = "<img src=x onerror=alert(1)>"
"""A name that a client may have, and that would be markup on a page that lets it."""

NAMES = ["alice", "bob", "carol", NASTY, "Γιώργος", *(f"phone-{number:03}" for number in range(60))]
WALL = 1_790_000_000.0


class Stage:
    """An `Overview` under a test's control, with the observer that hears it.

    Attributes:
        observer: receives every event.
        aborted: the rounds that were aborted, and why.
        now: the wall clock.
    """

    def __init__(self, log: Log | None = None, *, now: float = WALL, store: str = "") -> None:
        self.now = now
        self.store = store
        self.log = log or Log("S0", "json")
        self.observer = OperatorObserver(ObserverSetup(0, "goods", self.log, self._store, lambda: self.now))
        self.aborted: list[tuple[int, str]] = []
        self.past: list[PastRound] = []
        self.peer = False
        self.connected: list[str] = []
        self.running: RoundStatus | None = None

    async def _store(self) -> str:
        return self.store

    # ---- the overview

    def status(self) -> ServerStatus:
        done = sum(1 for past in self.past if past.report.ended == "done")
        return ServerStatus(
            server=0,
            task="goods",
            peer_connected=self.peer,
            clients_connected=len(self.connected),
            round=self.running,
            waiting_for="" if self.peer else "S1, which is not connected",
            rounds_done=done,
            rounds_aborted=len(self.past) - done,
        )

    async def past_rounds(self, most: int, before: int | None = None) -> list[PastRound]:
        self.read = most
        return [past for past in self.past if before is None or past.report.number < before][-most:]

    async def abort_round(self, number: int, explanation: str) -> None:
        if self.running is None or self.running.number != number:
            raise MisuseError(f"round {number} is not running")
        self.aborted.append((number, explanation))

    # ---- what a test plays

    def meet_peer(self) -> None:
        self.peer = True
        self.tell(PeerMet())

    def lose_peer(self) -> None:
        self.peer = False
        self.tell(PeerLost(explanation="the stream ended without a CLOSE"))

    def connect(self, *clients: str) -> None:
        for client in clients:
            self.connected.append(client)
            self.tell(ClientMet(client=client))

    def leave(self, client: str) -> None:
        self.connected.remove(client)
        self.tell(ClientLeft(client=client))

    def open_round(self, number: int, *, seconds: float = 300.0, minimum: int = 16, maximum: int = 100) -> None:
        self.running = RoundStatus(
            number=number,
            round_id=number.to_bytes(32, "big"),
            protocol="ssa",
            state="Open",
            opened_at=self.now,
            closes_at=self.now + seconds,
            submissions=0,
            evaluated=0,
            minimum=minimum,
            maximum=maximum,
            waiting_for="clients",
        )
        self.tell(
            RoundOpened(number=number, round_id=self.running.round_id, protocol="ssa", closes_at=self.running.closes_at)
        )

    def submit(self, client: str) -> None:
        run = self._run(submissions=self._run().submissions + 1)
        self.tell(MessageReceived(sender=client, kind="Submit", size=123_456))
        self.tell(SubmissionIn(number=run.number, client=client, total=run.submissions))
        self.tell(MessageSent(receiver=client, kind="Receipt", size=200))

    def evaluate(self, client: str, seconds: float = 0.02) -> None:
        run = self._run(evaluated=self._run().evaluated + 1)
        self.tell(Evaluated(number=run.number, client=client, seconds=seconds, total=run.evaluated))

    def move(self, state: str, waiting_for: str = "") -> None:
        run = self._run(state=state, waiting_for=waiting_for)
        self.tell(RoundMoved(number=run.number, state=state))

    def settle(
        self, counted: list[str], excluded: dict[str, str], *, aborted: str = "", evaluating: float = 1.0
    ) -> None:
        run = self._run()
        past = settled_round(run.number, counted, excluded, aborted, run.opened_at, self.now, evaluating)
        self.past.append(past)
        self.running = None
        self.tell(RoundSettled(past=past))

    def tell(self, event: ServerEvent) -> None:
        self.observer(event)

    def _run(self, **changes: object) -> RoundStatus:
        assert self.running is not None
        self.running = msgspec.structs.replace(self.running, **changes)
        return self.running


def settled_round(
    number: int, counted: list[str], excluded: dict[str, str], aborted: str, opened: float, settled: float, work: float
) -> PastRound:
    report = RoundReport(
        round_id=number.to_bytes(32, "big"),
        number=number,
        ending=Aborted(aborted) if aborted else Done(),
        clients=tuple(sorted(counted)),
        excluded=excluded,
        model=(BlockModel("items", "f4", bytes(32)),),
    )
    return PastRound(report=report, protocol="ssa", opened_at=opened, settled_at=settled, evaluating=work)


def play_day(stage: Stage, rounds: int = 24, seed: int = 5) -> None:
    """A day of a busy server, up to a round that is open."""
    chance = random.Random(seed)
    end = stage.now
    stage.now -= 330.0 * rounds
    stage.meet_peer()
    for number in range(1, rounds + 1):
        stage.open_round(number)
        many = chance.randint(20, 62)
        names = chance.sample(NAMES, many)
        stage.now += chance.uniform(200, 310)
        _play_round(stage, chance, names, aborted=number in (7, 15))
        stage.now += 10
    stage.now = end - 400
    stage.connect(*NAMES[:23])
    stage.tell(ConnectionFailed(origin="203.0.113.9", kind="HandshakeTimeoutError", explanation="no handshake in 10 s"))
    stage.tell(ConnectionFailed(origin="203.0.113.9", kind="HandshakeTimeoutError", explanation="no handshake in 10 s"))
    stage.now = end - 200
    stage.tell(RequestRefused(client=NASTY, reason="conflict", explanation="another submission of yours is in already"))
    stage.tell(
        Warned(about="event-loop", explanation="tasks ran 83 ms late, more than 50 ms; is the machine overloaded?")
    )
    stage.now = end - 96
    stage.open_round(rounds + 1)
    for client in NAMES[:37]:
        stage.submit(client)
    for client in NAMES[:29]:
        stage.evaluate(client)
    stage.now = end


def _play_round(stage: Stage, chance: random.Random, names: list[str], *, aborted: bool) -> None:
    for name in names:
        stage.submit(name)
        stage.evaluate(name, chance.uniform(0.4, 0.9))
    if aborted:
        stage.settle([], {}, aborted="S1 was away when the time was over", evaluating=chance.uniform(2, 20))
        return
    for state in ("Closed", "Rostered", "Proved", "Verified", "Committed", "Revealed", "Combined", "Concluded"):
        stage.move(state)
    reasons = ["mismatch", "proof", "only_s0", "only_s1"]
    lost = {name: chance.choice(reasons) for name in names[: chance.randint(0, 6)]}
    counted = [name for name in names if name not in lost]
    stage.settle(counted, lost, evaluating=len(names) * chance.uniform(0.5, 0.9))
