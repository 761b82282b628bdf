"""A day of a server, played client by client: they come by a daily curve, are slow, leave, or come late for a round.

A discrete-event simulation of the same parts and the same seconds as in `fsl_async.costs.scaling`: each part is a queue
with as many lanes as work there at a time, first come, first served. Parts that compute share the host's processors;
one that is a single thread is given the next that is free. So it shows what a formula of means does not: where clients
wait, and for how long, when many come at once.

Rounds close at even distances. A client that has come uploads once a round is open; if the round closes before its
upload ends, it is late, and uploads again in the next one. What was uploaded is taken and evaluated, then the round
ends, then the next one opens; if that takes longer than the distance, there are fewer rounds. Everything is drawn from
a seed: the same seed plays the same day.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsl_async.costs.scaling import Part, Stage
from fsl_async.errors import MisuseError

__all__ = ["Crowd", "DayReport", "Passage", "Waiting", "play_all_at_once", "play_day", "play_stream"]

Moments = npt.NDArray[np.float64]

HOUR = 3600.0
DAY = 24 * HOUR
MOST_CLIENTS = 300_000
SLOWER = 20.0
"""A slow client's upload takes so many times as long."""
SPREAD = 0.5
"""Of clients' bandwidths, the standard deviation of the logarithm."""


@dataclass(frozen=True)
class Crowd:
    """Who comes in a day.

    Attributes:
        clients: how many come for each round, on average.
        rounds: how many rounds there are.
        upload: bits that a client of ordinary speed sends in a second.
        slow: the share of slow clients.
        leaving: the share that leaves while it uploads.
        peak: the hour at which most come.
        swing: how much more come then than on average, and fewer twelve hours later; 0: as many at every hour.
        seed: what everything is drawn from.

    Raises:
        MisuseError: a number is out of range.
    """

    clients: int
    rounds: int = 1
    upload: float = 20e6
    slow: float = 0.1
    leaving: float = 0.02
    peak: float = 20.0
    swing: float = 0.8
    seed: int = 1

    def __post_init__(self) -> None:
        if self.clients < 1 or not 1 <= self.rounds <= 10_000:
            raise MisuseError("a day: at least 1 client expected, and from 1 to 10000 rounds")
        if self.clients * self.rounds > MOST_CLIENTS:
            raise MisuseError(
                f"a day: at most {MOST_CLIENTS:,} clients in all rounds together can be played, got "
                f"{self.clients:,} × {self.rounds:,}"
            )
        for name in ("slow", "leaving", "swing"):
            if not 0 <= getattr(self, name) <= 1:
                raise MisuseError(f"{name}: a share from 0 to 1 expected, got {getattr(self, name)}")
        if not self.upload > 0:
            raise MisuseError(f"upload: bits per second above 0 expected, got {self.upload}")


@dataclass(frozen=True)
class Waiting:
    """What was seen of one part.

    Attributes:
        part: which.
        served: how many submissions passed it.
        busy: the share of its time, on all lanes, in which it worked.
        mean: seconds that a submission waited for it, on average.
        late: seconds that one in a hundred waited longer than.
        longest: the most submissions that waited at a time.
    """

    part: Part
    served: int
    busy: float
    mean: float
    late: float
    longest: int


@dataclass(frozen=True)
class Passage:
    """Submissions that went through a server's parts.

    Attributes:
        seconds: from the first one's coming until the last one was done.
        parts: what was seen of each part.
    """

    seconds: float
    parts: tuple[Waiting, ...]

    @property
    def slowest(self) -> Waiting:
        """The part for which submissions waited longest, all together."""
        return max(self.parts, key=lambda part: part.mean * part.served)


@dataclass(frozen=True)
class DayReport:
    """What became of a day.

    Attributes:
        arrived: clients that came.
        counted: those that a round counted.
        left: those that left while they uploaded.
        unserved: those that no round has counted when the last one closed.
        repeated: uploads that came too late, and were done again.
        rounds: by round, seconds from its opening until the next model, and how many it counted.
        receipt: seconds from the end of an upload to its receipt, the median and one in a hundred.
        arrivals: by hour, how many came.
        inside: by hour, the most submissions that were in the server at a time, received in part or waiting.
        passage: what was seen of each part.
    """

    arrived: int
    counted: int
    left: int
    unserved: int
    repeated: int
    rounds: tuple[tuple[float, int], ...]
    receipt: tuple[float, float]
    arrivals: tuple[int, ...]
    inside: tuple[int, ...]
    passage: Passage


# ---- the parts of a server


@dataclass
class _Station:
    """One part: who waits, who is worked on, and what was seen."""

    stage: Stage
    queue: deque[tuple[int, float]] = field(default_factory=deque)
    free: int = 0
    waits: list[float] = field(default_factory=list)
    longest: int = 0

    def seen(self, seconds: float) -> Waiting:
        waits = np.asarray(self.waits) if self.waits else np.zeros(1)
        room = max(seconds, 1e-12) * self.stage.lanes
        return Waiting(
            part=self.stage.part,
            served=len(self.waits),
            busy=len(self.waits) * self.stage.work / room,
            mean=float(waits.mean()),
            late=float(np.percentile(waits, 99)),
            longest=self.longest,
        )


class _Server:
    """All parts of a server, and the clock."""

    def __init__(self, stages: Sequence[Stage], passed: Callable[[int, Part], None]) -> None:
        """Begin at zero.

        Args:
            stages: the parts in order; one named "processors" says how many there are.
            passed: hears of each submission that is done with a part; what it returns false for goes no further.
        """
        self.now = 0.0
        self._stations = [_Station(stage, free=stage.lanes) for stage in stages if stage.part != "processors"]
        shared = [stage.lanes for stage in stages if stage.part == "processors"]
        self._processors = shared[0] if shared else sum(stage.lanes for stage in stages)
        places = range(len(self._stations))
        self._turns = sorted(places, key=lambda place: (self._stations[place].stage.lanes, -place))
        self._passed = passed
        self._events: list[tuple[float, int, Callable[[int], None], int]] = []
        self._numbers = 0

    def at(self, moment: float, action: Callable[[int], None], subject: int) -> None:
        """Do something then."""
        self._numbers += 1
        heapq.heappush(self._events, (moment, self._numbers, action, subject))

    def run(self) -> None:
        """Play until nothing is left to happen."""
        while self._events:
            self.now, _, action, subject = heapq.heappop(self._events)
            action(subject)

    def enter(self, client: int) -> None:
        """A submission begins to come in."""
        self._join(0, client)
        self._begin()

    def seen(self, seconds: float) -> Passage:
        """What was seen of all parts in so many seconds."""
        return Passage(seconds, tuple(station.seen(seconds) for station in self._stations))

    def _join(self, place: int, client: int) -> None:
        station = self._stations[place]
        station.queue.append((client, self.now))

    def _begin(self) -> None:
        """Every part takes what it can."""
        for place in self._turns:
            station = self._stations[place]
            while station.queue and station.free and (self._processors or not station.stage.computes):
                client, since = station.queue.popleft()
                station.free -= 1
                self._processors -= station.stage.computes
                station.waits.append(self.now - since)
                self.at(self.now + station.stage.work, self._done_at(place), client)
            station.longest = max(station.longest, len(station.queue))

    def _done_at(self, place: int) -> Callable[[int], None]:
        station = self._stations[place]

        def done(client: int) -> None:
            station.free += 1
            self._processors += station.stage.computes
            if place + 1 < len(self._stations):
                self._join(place + 1, client)
            self._passed(client, station.stage.part)
            self._begin()

        return done


def play_stream(arrivals: Sequence[float] | Moments, stages: Sequence[Stage]) -> Passage:
    """Submissions come at these moments, and go through all parts."""
    server = _Server(stages, lambda client, part: None)
    for client, moment in enumerate(arrivals):
        server.at(float(moment), server.enter, client)
    server.run()
    return server.seen(server.now - min(map(float, arrivals), default=0.0))


def play_all_at_once(clients: int, stages: Sequence[Stage]) -> Passage:
    """So many submissions come at the same moment: what `Limit.collecting` says in one formula."""
    return play_stream(np.zeros(clients), stages)


# ---- a day


def play_day(crowd: Crowd, stages: Sequence[Stage], size: float, ending: float) -> DayReport:
    """Play a day.

    Args:
        crowd: who comes.
        stages: the server's parts.
        size: bytes that a client uploads.
        ending: seconds from the moment when all is evaluated until the next model.
    """
    return _Day(crowd, stages, size, ending).report()


def arrivals_of(crowd: Crowd) -> Moments:
    """The moments at which clients come, in order: by the daily curve."""
    rng = np.random.default_rng((crowd.seed, 0))
    moments = np.linspace(0.0, DAY, 1441)
    hours = moments / HOUR
    rate = 1 + crowd.swing * np.cos(2 * np.pi * (hours - crowd.peak) / 24)
    reached = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2)])
    drawn = np.sort(rng.random(crowd.clients * crowd.rounds))
    return np.interp(drawn, reached / reached[-1], moments)


class _Day:
    """One day while it is played."""

    def __init__(self, crowd: Crowd, stages: Sequence[Stage], size: float, ending: float) -> None:
        self.crowd = crowd
        self.ending = ending
        parts = {stage.part for stage in stages}
        self.added: Part = "partial sums" if "partial sums" in parts else "evaluation"
        self.server = _Server(stages, self._passed)
        self.arrivals = arrivals_of(crowd)
        many, rng = len(self.arrivals), np.random.default_rng((crowd.seed, 1))
        bandwidth = crowd.upload * np.exp(SPREAD * rng.standard_normal(many))
        bandwidth[rng.random(many) < crowd.slow] /= SLOWER
        self.uploading = 8 * size / bandwidth
        self.leaves = rng.random(many) < crowd.leaving
        self.round = -1
        self.open = False
        self.opened_at = 0.0
        self.of_round = np.full(many, -1)
        self.uploaded_at = np.zeros(many)
        self.adding = 0
        self.in_round = 0
        self.inside_now = 0
        self.waiting: list[int] = []
        self.counted = self.left = self.repeated = 0
        self.rounds: list[tuple[float, int]] = []
        self.receipts: list[float] = []
        self.inside = [0] * 25

    def report(self) -> DayReport:
        """Play it to its end."""
        server = self.server
        server.at(0.0, self._open, 0)
        for client, moment in enumerate(self.arrivals):
            server.at(float(moment), self._come, client)
        server.run()
        receipts = np.asarray(self.receipts) if self.receipts else np.zeros(1)
        by_hour = np.bincount((self.arrivals // HOUR).astype(int).clip(0, 23), minlength=24)
        return DayReport(
            arrived=len(self.arrivals),
            counted=self.counted,
            left=self.left,
            unserved=len(self.waiting),
            repeated=self.repeated,
            rounds=tuple(self.rounds),
            receipt=(float(np.median(receipts)), float(np.percentile(receipts, 99))),
            arrivals=tuple(map(int, by_hour)),
            inside=tuple(self.inside[:24]),
            passage=server.seen(max(DAY, server.now)),
        )

    # ---- clients

    def _come(self, client: int) -> None:
        if self.open:
            self._upload(client)
        else:
            self.waiting.append(client)

    def _upload(self, client: int) -> None:
        self.of_round[client] = self.round
        taking = float(self.uploading[client])
        if self.leaves[client]:
            self.server.at(self.server.now + taking / 2, self._leave, client)
        else:
            self.server.at(self.server.now + taking, self._uploaded, client)

    def _leave(self, client: int) -> None:
        self.left += 1

    def _uploaded(self, client: int) -> None:
        if self._late(client):
            return
        self.uploaded_at[client] = self.server.now
        self.inside_now += 1
        hour = min(24, int(self.server.now // HOUR))
        self.inside[hour] = max(self.inside[hour], self.inside_now)
        self.adding += 1
        self.server.enter(client)

    def _late(self, client: int) -> bool:
        """Whether its round has closed meanwhile; then it uploads again in the next one."""
        if self.open and self.of_round[client] == self.round:
            return False
        self.repeated += 1
        self._come(client)
        return True

    def _passed(self, client: int, part: Part) -> None:
        if part == "writer":
            self.receipts.append(self.server.now - float(self.uploaded_at[client]))
            self.counted += 1
            self.in_round += 1
        elif part == self.added:
            self.inside_now -= 1
            self.adding -= 1
            self._end_if_done()

    # ---- rounds

    def _open(self, _: int) -> None:
        self.round += 1
        self.open, self.opened_at, self.in_round = True, self.server.now, 0
        period = DAY / self.crowd.rounds
        self.server.at(period * (math.floor(self.server.now / period + 1e-9) + 1), self._close, 0)
        waiting, self.waiting = self.waiting, []
        for client in waiting:
            self._upload(client)

    def _close(self, _: int) -> None:
        self.open = False
        self._end_if_done()

    def _end_if_done(self) -> None:
        """The next model is made when all that has been received is evaluated."""
        if self.open or self.adding or len(self.rounds) > self.round:
            return
        done = self.server.now + self.ending
        self.rounds.append((done - self.opened_at, self.in_round))
        if done < DAY and len(self.rounds) < self.crowd.rounds:
            self.server.at(done, self._open, 0)


def hours_chart(values: Sequence[int]) -> str:
    """A bar of eighths for each value; a dot for none."""
    most = max(values, default=0)
    bars = "▁▂▃▄▅▆▇█"
    return "".join("·" if not value else bars[math.ceil(8 * value / most) - 1] for value in values)
