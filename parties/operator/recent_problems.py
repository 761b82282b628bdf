"""The most recent problems of a server, for its operator.

Rules: a problem that occurs again is counted, not listed again, so a stranger who fails a thousand times does not
displace other problems; the list is bounded, and drops the problem that has not occurred for the longest time.
"""

from __future__ import annotations

import msgspec

from parties.events import ConnectionFailed, RoundSettled, ServerEvent
from parties.operator.log_fields import plain_text
from parties.outcome import Aborted, RoundReport, SumRefused
from parties.status import Count, Moment, PastRound
from transport import LookedOnlyError

MOST_PROBLEMS = 50


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, which has occurred once or more often.

    Attributes:
        about: a short name; two problems with the same name are the same problem.
        explanation: the explanation of its last occurrence.
        level: info, warning or error.
        first_at: when it first occurred, in seconds since 1970.
        last_at: when it last occurred, in seconds since 1970.
        times: how often it has occurred.
    """

    about: str
    explanation: str
    level: str
    first_at: Moment = 0.0
    last_at: Moment = 0.0
    times: Count = 1


class RecentProblems:
    """The most recent problems of one server."""

    def __init__(self) -> None:
        self._by_name: dict[str, Problem] = {}

    def hear(self, event: ServerEvent, now: float) -> None:
        """Record an event, if it is a problem."""
        new = problem_of(event)
        if new is None:
            return
        before = self._by_name.pop(new.about, None)
        first, times = (before.first_at, before.times + 1) if before else (now, 1)
        self._by_name[new.about] = msgspec.structs.replace(new, first_at=first, last_at=now, times=times)
        if len(self._by_name) > MOST_PROBLEMS:
            del self._by_name[next(iter(self._by_name))]

    def latest(self) -> list[Problem]:
        """All recorded problems, the latest first."""
        return list(reversed(self._by_name.values()))


def problem_of(event: ServerEvent) -> Problem | None:
    """The problem that an event reports; None if it reports none."""
    match event:
        case RoundSettled(past=PastRound(report=RoundReport(number=number, ending=Aborted(explanation=text)))):
            return _problem("round aborted", f"round {number}: {text}", "warning")
        case RoundSettled(past=PastRound(report=RoundReport(number=number, ending=SumRefused(explanation=text)))):
            return _problem("a sum was opened and refused", f"round {number}: {text}", "error")
        case ConnectionFailed(kind=LookedOnlyError.__name__):
            return None  # a preflight checked whether this server answers, which is not a problem
        case ServerEvent(problem=(about, text)):
            fields = msgspec.structs.asdict(event)
            return _problem(about.format_map(fields), text.format_map(fields), event.level)
    return None


def _problem(about: str, text: str, level: str) -> Problem:
    return Problem(about=plain_text(about), explanation=plain_text(text), level=level)
