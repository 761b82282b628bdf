"""A log that a test can read back, and an event of every kind to write in it."""

from __future__ import annotations

import io
import json

from parties.events import (
    BudgetMoved,
    ClientLeft,
    ClientMet,
    ClientsDrawn,
    ConnectionFailed,
    Enrolled,
    Evaluated,
    MessageReceived,
    MessageSent,
    PeerLost,
    PeerMet,
    PrivacyCharged,
    RequestRefused,
    Resumed,
    Revoked,
    RoundMoved,
    RoundOpened,
    RoundSettled,
    ServerEvent,
    SubmissionIn,
    Violated,
    Warned,
)
from parties.operator.log import Log
from tests.parties.operator.stage import settled_round

SAMPLES: tuple[ServerEvent, ...] = (
    RoundOpened(number=3, round_id=bytes(32), protocol="ssa", closes_at=1e9),
    RoundOpened(number=4, round_id=bytes(32), protocol="psu", closes_at=float("inf")),
    RoundMoved(number=3, state="Closed"),
    Resumed(number=3, state="Rostered"),
    SubmissionIn(number=3, client="alice", total=1),
    Evaluated(number=3, client="alice", seconds=0.25, total=1),
    RequestRefused(client="alice", reason="conflict", explanation="another one is in"),
    RoundSettled(past=settled_round(3, ["alice"], {"bob": "proof"}, "", 1.0, 5.0, 0.5)),
    RoundSettled(past=settled_round(3, [], {}, "S1 was away", 1.0, 5.0, 0.5)),
    MessageSent(receiver="S1", kind="Forward", size=100),
    MessageReceived(sender="alice", kind="Submit", size=100),
    ClientMet(client="alice"),
    ClientLeft(client="alice"),
    ConnectionFailed(origin="203.0.113.9", kind="TooSlowError", explanation="10 B/s"),
    PeerMet(),
    PeerLost(explanation="the stream ended"),
    Warned(about="disk", explanation="9 % free"),
    Enrolled(client="carol", key="00112233aabbccdd"),
    Revoked(client="carol"),
    Violated(number=3, about="S1", kind="violation", explanation="two rosters"),
    BudgetMoved(used=5, limit=10),
    ClientsDrawn(number=4, asked=100, drawn=10),
    PrivacyCharged(number=4, rounds=3, epsilon=0.91, budget=4.0),
)


class Paper:
    """A log that a test can read back."""

    def __init__(self, form: str = "json", level: str = "debug", terminal: bool = False) -> None:
        self.stream = io.StringIO()
        self.stream.isatty = lambda: terminal
        self.log = Log("S0", form, level, self.stream)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.text.splitlines()]
