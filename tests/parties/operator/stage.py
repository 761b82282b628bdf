"""A fake server: its status is what a test sets, and it reports events as a real server does."""

import math
import random
from dataclasses import dataclass
from typing import Any

import msgspec

from fsl_async.config import BlockModel
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError
from fsl_async.protocols import ssa
from parties import events
from parties.operator import Log, ObserverSetup, OperatorObserver, Place
from parties.operator.metrics import exposed
from parties.outcome import Aborted, Done, RoundReport
from parties.server.round.waiting import Measured
from parties.status import (
    BlobsStatus,
    EngineStatus,
    Fingerprints,
    HostedTaskStatus,
    Note,
    PastRound,
    RoundStatus,
    RoundTimes,
    ServerStatus,
    WorkerStatus,
    fingerprint,
)

NASTY = "<img src=x onerror=alert(1)>"
"""A name that a client may have, and that would be markup on a page that lets it."""

NAMES = ["alice", "bob", "carol", NASTY, "Γιώργος", *(f"phone-{number:03}" for number in range(60))]
TIMES = RoundTimes(collecting=3.0, computing=1.0)
WALL = 1_790_000_000.0
PLACES = (
    Place("Example Hospital", "s0.hospital.example.org:7000"),
    Place("Beispiel-Institut für Statistik", "s1.statistik.example.org:7000"),
)


ACTIVITIES = {state.__name__: state.activity for state in ssa.MACHINE.states if state.activity}
"""What a server does in each state of a round that is not over."""

NOTE = Note(
    title="Privacy spent",
    text="ε 0.91 of 4",
    more="3 of 9 rounds",
    poor=False,
    figures={"privacy_rounds": 3, "privacy_epsilon": 0.91, "privacy_budget": 4},
)


class Stage:
    """A server under a test's control, with the observer that hears it.

    Attributes:
        observer: receives every event.
        aborted: the rounds that were aborted, and why.
        closed: the rounds that were closed.
        drawing: the rounds whose gathering was ended.
        now: the wall clock.
    """

    def __init__(self, log: Log | None = None, *, now: float = WALL, store: str = "", task: str = "goods") -> None:
        self.now = now
        self.task = task
        self.store = store
        self.log = log or Log("S0", "json")
        self.observer = OperatorObserver(
            ObserverSetup(0, task, self.log, self._store, lambda: self.now, places=PLACES, release="0.2.0")
        )
        self.aborted: list[tuple[int, str]] = []
        self.closed: list[int] = []
        self.drawing: list[int] = []
        self.past: list[PastRound] = []
        self.peer = False
        self.connected: list[str] = []
        self.known: list[str] = []
        self.submitted: set[str] = set()
        self.running: RoundStatus | None = None
        self.resting = False
        self.asked = 0
        self.drawn: frozenset[str] | None = None
        self.peer_release = ""
        self.peer_away_since: float | None = None
        self.peer_stops_since: float | None = None
        self.held_up: tuple[str, float] | None = None
        self.blobs: BlobsStatus | None = None
        self.engine: EngineStatus | None = None
        self._measured = Measured(RoundTimes(), now)

    async def _store(self) -> str:
        return self.store

    # ---- what the operator's port asks

    def status(self) -> ServerStatus:
        done = sum(1 for past in self.past if past.report.ended == "done")
        return ServerStatus(
            server="S0",
            task=self.task,
            fingerprints=Fingerprints.of(
                digest(Domain.TASK, self.task.encode()),
                digest(Domain.MODEL, done.to_bytes(8, "little")),
                (digest(Domain.IDENTITY, b"S0"), digest(Domain.IDENTITY, b"S1")),
            ),
            peer_connected=self.peer,
            peer_release=self.peer_release,
            peer_away_since=self.peer_away_since,
            peer_stops_since=self.peer_stops_since,
            held_up=self.held_up[0] if self.held_up else "",
            held_up_since=self.held_up[1] if self.held_up else None,
            clients_connected=len(self.connected),
            clients_known=len(self.known_clients()),
            stage="running"
            if self.running
            else "drawing"
            if self.asked
            else "resting"
            if self.resting
            else "preparing",
            asked=self.asked,
            number=len(self.past) + (not self.resting),
            last=self.past[-1].summary() if self.past else None,
            round=self._measured_run(),
            waiting_for="" if self.peer else "S1, which is not connected",
            rounds_done=done,
            rounds_aborted=len(self.past) - done,
            notes=(NOTE,),
            blobs=self.blobs,
            engine=self.engine,
        )

    def scrape(self) -> str:
        """All metrics in Prometheus' text format."""
        metrics = self.observer.metrics
        metrics.show(self.status())
        return exposed(metrics, [(self.task, metrics)]).decode()

    def _measured_run(self) -> RoundStatus | None:
        if self.running is None:
            return None
        activity = ACTIVITIES.get(self.running.state)
        times = self._measured.until(self.now, activity).times if activity else self._measured.times
        return msgspec.structs.replace(self.running, times=times)

    def known_clients(self) -> list[str]:
        return sorted({*self.known, *self.connected, *self.submitted})

    def submitted_clients(self) -> frozenset[str]:
        return frozenset(self.submitted)

    def drawn_clients(self) -> frozenset[str] | None:
        return self.drawn

    async def past_rounds(self, most: int, before: int | None = None) -> list[PastRound]:
        self.read = most
        return [past for past in self.past if before is None or past.report.number < before][-most:]

    async def abort_round(self, number: int, explanation: str) -> None:
        if self.running is None or self.running.number != number:
            raise MisuseError(f"round {number} is not running")
        self.aborted.append((number, explanation))

    async def close_now(self, number: int) -> int:
        if self.running is None or self.running.number != number:
            raise MisuseError(f"round {number} is not open")
        self.closed.append(number)
        return self.running.submissions

    def draw_round(self, number: int) -> int:
        if not self.asked:
            raise MisuseError(f"nobody is to be drawn for round {number} now")
        self.drawing.append(number)
        return self.asked

    # ---- what a test plays

    def meet_peer(self) -> None:
        self.peer, self.peer_away_since = True, None
        self.peer_release = "0.2.0"
        self.tell(events.PeerMet())

    def lose_peer(self) -> None:
        self.peer, self.peer_away_since = False, self.now
        self.tell(events.PeerLost(explanation="the stream ended without a CLOSE"))

    def connect(self, *clients: str) -> None:
        for client in clients:
            self.connected.append(client)
            self.tell(events.ClientMet(client=client))

    def leave(self, client: str) -> None:
        self.connected.remove(client)
        self.tell(events.ClientLeft(client=client))

    def open_round(
        self, number: int, *, seconds: float = 300.0, minimum: int = 16, maximum: int = 100, protocol: str = "ssa"
    ) -> None:
        self.submitted = set()
        self._measured = Measured(RoundTimes(), self.now)
        round_id = digest(Domain.ROUND, number.to_bytes(8, "big"))
        self.running = RoundStatus(
            number=number,
            round_id=round_id.hex(),
            fingerprint=fingerprint(round_id),
            protocol=protocol,
            state="Open",
            opened_at=self.now,
            activity="collecting",
            since=self.now,
            times=RoundTimes(),
            evaluating=0.0,
            closes_at=self.now + seconds if math.isfinite(seconds) else None,
            submissions=0,
            evaluated=0,
            retrievals=0,
            minimum=minimum,
            maximum=maximum,
            waiting_for="clients",
        )
        self.tell(events.RoundOpened(number=number, round_id=round_id, protocol=protocol, closes_at=self.now + seconds))

    def submit(self, client: str) -> None:
        run = self._run(submissions=self._run().submissions + 1)
        self.submitted.add(client)
        self.tell(events.MessageReceived(sender=client, kind="Submit", size=123_456))
        self.tell(events.SubmissionIn(number=run.number, client=client, total=run.submissions))
        self.tell(events.MessageSent(receiver=client, kind="Receipt", size=200))

    def retrieve(self, client: str) -> None:
        self._run(retrievals=self._run().retrievals + 1)
        self.tell(events.MessageSent(receiver=client, kind="Answer", size=1_000))

    def evaluate(self, client: str, seconds: float = 0.02) -> None:
        run = self._run(evaluated=self._run().evaluated + 1, evaluating=self._run().evaluating + seconds)
        self.tell(events.Evaluated(number=run.number, client=client, seconds=seconds, total=run.evaluated))

    def move(self, state: str, waiting_for: str = "") -> None:
        before, activity = self._run(), ACTIVITIES.get(state, "waiting")
        self._measured = self._measured.until(self.now, ACTIVITIES.get(before.state))
        leaves = before.activity == "collecting" != activity
        run = self._run(
            state=state, waiting_for=waiting_for, activity=activity, since=self.now if leaves else before.since
        )
        self.tell(events.RoundMoved(number=run.number, state=state))

    def settle(
        self, counted: list[str], excluded: dict[str, str], *, aborted: str = "", evaluating: float = 1.0
    ) -> None:
        run = self._run()
        times = self._measured.until(self.now, ACTIVITIES.get(run.state)).times
        past = settled_round(run.number, counted, excluded, aborted, run.opened_at, self.now, evaluating, times)
        self.past.append(past)
        self.running = None
        self.submitted = set()
        self.tell(events.RoundSettled(past=past))

    def tell(self, event: events.ServerEvent) -> None:
        self.observer(event)

    def _run(self, **changes: object) -> RoundStatus:
        assert self.running is not None
        self.running = msgspec.structs.replace(self.running, **changes)
        return self.running


@dataclass(frozen=True)
class OneTask:
    """A task that runs for as long as its process."""

    observer: OperatorObserver
    server: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    @property
    def name(self) -> str:
        return self.observer.setup.task

    def standing(self) -> HostedTaskStatus:
        return HostedTaskStatus(state="running", digest="", store="")


class Host:
    """A process with one task or several."""

    def __init__(self, *tasks: Stage | OneTask) -> None:
        self._tasks = [OneTask(task.observer, task) if isinstance(task, Stage) else task for task in tasks]
        self.process = self._tasks[0].observer

    def tasks(self) -> list[OneTask]:
        return self._tasks

    async def drain(self, name: str) -> None:
        raise MisuseError(f"{name} goes on")

    async def start(self, name: str) -> None:
        raise MisuseError(f"{name} is running")


def settled_round(
    number: int,
    counted: list[str],
    excluded: dict[str, str],
    aborted: str,
    opened: float,
    settled: float,
    work: float,
    times: RoundTimes = TIMES,
) -> PastRound:
    report = RoundReport(
        round_id=digest(Domain.ROUND, number.to_bytes(8, "big")),
        number=number,
        ending=Aborted(aborted) if aborted else Done(),
        clients=dict.fromkeys(sorted(counted), bytes(32)),
        excluded=excluded,
        model=(BlockModel("items", "f4", bytes(32)),),
    )
    return PastRound(report=report, protocol="ssa", opened_at=opened, settled_at=settled, times=times, evaluating=work)


def play_day(stage: Stage, rounds: int = 24, seed: int = 5) -> None:
    """A day of a busy server, up to a round that is open."""
    chance = random.Random(seed)
    end = stage.now
    stage.now -= 330.0 * rounds
    stage.known = list(NAMES)
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
    late = "HandshakeTimeoutError"
    for _ in range(2):
        stage.tell(events.ConnectionFailed(origin="203.0.113.9", kind=late, explanation="no handshake in 10 s"))
    stage.now = end - 200
    stage.tell(
        events.RequestRefused(client=NASTY, reason="conflict", explanation="another submission of yours is in already")
    )
    stage.tell(
        events.Warned(
            about="event-loop", explanation="tasks ran 83 ms late, more than 50 ms; is the machine overloaded?"
        )
    )
    stage.now = end - 96
    stage.open_round(rounds + 1)
    for client in NAMES[:37]:
        stage.submit(client)
    for client in NAMES[:29]:
        stage.evaluate(client, 0.6)
    stage.now = end


def play_blobs(stage: Stage) -> None:
    """The server's bulk is in a folder."""
    stage.blobs = BlobsStatus(
        where="/var/lib/fsl-async/s0/blobs", stored_bytes=2_500_000_000, free_bytes=80 * 10**9, to_erase=1
    )


def play_workers(stage: Stage) -> None:
    """Two workers of a cluster compute for the server."""
    stage.engine = EngineStatus(
        engine="dask",
        where="tls://10.0.0.5:8786",
        connected=True,
        workers=(
            WorkerStatus(name="fsl-5f-01", host="10.0.0.6", adding=12, held=180),
            WorkerStatus(name="fsl-5f-02", host="10.0.0.7", adding=9),
        ),
        waiting=1_204,
        open=2,
        sealed=7,
        given_again=31,
        bytes_taken=350_000_000,
    )


def play_computing(stage: Stage) -> None:
    """The open round closes, and the servers compute until they wait for each other's proofs."""
    for client in NAMES[29:37]:
        stage.evaluate(client, 0.6)
    stage.move("Closed", "S1's list of submissions")
    stage.now += 2.5
    stage.move("Rostered", "evaluation")
    stage.now += 7
    stage.move("Proved", "S1's proof digests")
    stage.now += 3.2


def _play_round(stage: Stage, chance: random.Random, names: list[str], *, aborted: bool) -> None:
    for name in names:
        stage.submit(name)
        stage.evaluate(name, chance.uniform(0.4, 0.9))
    if aborted:
        stage.settle([], {}, aborted="S1 was away when the time was over", evaluating=chance.uniform(2, 20))
        return
    for state in ("Closed", "Rostered", "Proved", "Verified", "Committed", "Revealed", "Combined", "Concluded"):
        stage.move(state)
        stage.now += chance.uniform(0.5, 8) if ACTIVITIES[state] == "computing" else chance.uniform(0.2, 3)
    reasons = ["mismatch", "proof", "only_s0", "only_s1"]
    lost = {name: chance.choice(reasons) for name in names[: chance.randint(0, 6)]}
    counted = [name for name in names if name not in lost]
    stage.settle(counted, lost, evaluating=len(names) * chance.uniform(0.5, 0.9))
