"""A log that a test can read back, and an event of every kind to write in it."""

import io
import json

from parties import events
from parties.operator.log import Log
from tests.parties.operator.stage import settled_round

SAMPLES: tuple[events.ServerEvent, ...] = (
    events.RoundOpened(number=3, round_id=bytes(32), protocol="ssa", closes_at=1e9),
    events.RoundOpened(number=4, round_id=bytes(32), protocol="psu", closes_at=float("inf")),
    events.RoundMoved(number=3, state="Closed"),
    events.Resumed(number=3, state="Rostered"),
    events.SubmissionIn(number=3, client="alice", total=1),
    events.Evaluated(number=3, client="alice", seconds=0.25, total=1),
    events.RequestRefused(client="alice", reason="conflict", explanation="another one is in"),
    events.RoundSettled(past=settled_round(3, ["alice"], {"bob": "proof"}, "", 1.0, 5.0, 0.5)),
    events.RoundSettled(past=settled_round(3, [], {}, "S1 was away", 1.0, 5.0, 0.5)),
    events.MessageSent(receiver="S1", kind="Forward", size=100),
    events.MessageReceived(sender="alice", kind="Submit", size=100),
    events.ClientMet(client="alice"),
    events.ClientLeft(client="alice"),
    events.ConnectionFailed(origin="203.0.113.9", kind="TooSlowError", explanation="10 B/s"),
    events.PeerMet(),
    events.PeerLost(explanation="the stream ended"),
    events.Warned(about="disk", explanation="9 % free"),
    events.Enrolled(client="carol", key="00112233aabbccdd"),
    events.Revoked(client="carol"),
    events.Violated(number=3, about="S1", kind="violation", explanation="two rosters"),
    events.BudgetMoved(used=5, limit=10),
    events.ClientsDrawn(number=4, asked=100, drawn=10),
    events.PrivacyCharged(number=4, rounds=3, epsilon=0.91, budget=4.0),
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
