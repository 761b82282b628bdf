"""Who is killed or frozen, when, and for how long: drawn from a seed, in proportion to how long a round takes.

Half of the kills come from outside, at moments drawn from an exponential clock; the other half are told to the process
when it starts, as the step at which it kills itself, so that the short states of a round are hit as well as the long
ones. The clock runs so fast that the kills that are wanted fall into the rounds that are left.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .site import SERVERS

LONGEST_INTERVAL = 15.0
LONGEST_PAUSE = 4.0
SERVER_STEPS, CLIENT_STEPS = 100.0, 25.0
"""After so many steps, on average, a process that is told to kill itself does; about a round's."""
CLOSING_STEPS = 40
"""About so many steps a server takes from the end of the open state to that of the round."""

Kind = Literal["kill", "freeze"]


@dataclass(frozen=True)
class Strike:
    """Something done to some processes at the same moment.

    Attributes:
        kind: what.
        victims: to whom.
        pause: seconds until each is started, or wakes, again.
    """

    kind: Kind
    victims: tuple[str, ...]
    pause: tuple[float, ...]


@dataclass
class Fates:
    """Draws what happens.

    Attributes:
        rng: from what.
        clients: the clients' names.
        kills_wanted: in all.
        rounds_wanted: in all.
        kills: so many so far.
        rounds: so many are settled so far.
        round_seconds: what a round takes, on average of late.
        start_seconds: what a process takes to start, likewise.
    """

    rng: np.random.Generator
    clients: Sequence[str]
    kills_wanted: int
    rounds_wanted: int
    kills: int = 0
    rounds: int = 0
    round_seconds: float = 6.0
    start_seconds: float = 1.0
    _settled_at: list[float] = field(default_factory=list)

    @property
    def fulfilled(self) -> bool:
        """Whether there have been enough kills and enough rounds."""
        return self.kills >= self.kills_wanted and self.rounds >= self.rounds_wanted

    def settled(self, rounds: int, at: float) -> None:
        """So many rounds are settled by now."""
        self.rounds = rounds
        if self._settled_at:
            self.round_seconds += (at - self._settled_at[-1] - self.round_seconds) / 4
        self._settled_at.append(at)

    def started(self, seconds: float) -> None:
        """A process has taken so long to start."""
        self.start_seconds += (seconds - self.start_seconds) / 8

    def interval(self) -> float:
        """Seconds until the next strike; on a machine that is slow to start processes they come more slowly, too."""
        left = max(1, self.rounds_wanted - self.rounds)
        mean = self.round_seconds * left / max(1, self.kills_wanted - self.kills)
        return min(LONGEST_INTERVAL, float(self.rng.exponential(max(mean, self.start_seconds / 2))))

    def strike(self, starting: Container[str]) -> Strike:
        """What happens now; most of the time nobody who is `starting`, for to kill those would show little."""
        kind: Kind = "freeze" if self.rng.random() < 0.15 or self.kills >= self.kills_wanted else "kill"
        victims = tuple(name for name in self._victims() if name not in starting or self.rng.random() < 0.1)
        return Strike(kind, victims, tuple(self.pause(kind) for _ in victims))

    def pause(self, kind: Kind = "kill") -> float:
        """How long a victim is away; after a kill as often as not no longer than a start takes."""
        if kind == "kill" and self.rng.random() < 0.5:
            return 0.0
        return min(LONGEST_PAUSE, float(self.rng.exponential(self.round_seconds / 3)))

    def fate(self, name: str) -> list[str]:
        """What a process that starts now is told: when to kill itself, if at all."""
        if self.kills >= self.kills_wanted or self.rng.random() < 0.4:
            return []
        if name not in SERVERS:
            return ["--die-at", str(self.rng.geometric(1 / CLIENT_STEPS))]
        if self.rng.random() < 0.5:
            return ["--die-at", str(self.rng.geometric(1 / SERVER_STEPS))]
        return ["--die-at", str(self.rng.integers(1, CLOSING_STEPS + 1)), "--once-closed"]

    def _victims(self) -> tuple[str, ...]:
        draw = self.rng.random()
        if draw < 0.15:
            return SERVERS
        if draw < 0.6:
            return (SERVERS[int(self.rng.integers(2))],)
        return (str(self.rng.choice(list(self.clients))),)
