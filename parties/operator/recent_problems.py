"""The last things that went wrong, for whoever looks at the server.

Rules: the same trouble again is counted, not listed again, so a stranger who fails a thousand times does not push out
what matters; a number of troubles at most are kept, the latest ones.
"""

from __future__ import annotations

import msgspec

from parties.events import ConnectionFailed, PeerLost, RequestRefused, RoundSettled, ServerEvent, Violated, Warned
from parties.operator.log_fields import plain_text
from transport import LookedOnlyError

__all__ = ["MOST_TROUBLES", "Trouble", "Troubles", "trouble_of"]

MOST_TROUBLES = 50


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong, once or more often.

    Attributes:
        about: what it is, in a few words: the same words, the same trouble.
        explanation: what was said about it the last time.
        level: info, warning or error.
        first_at: when it came first, in seconds since 1970.
        last_at: when it came last.
        times: how often.
    """

    about: str
    explanation: str
    level: str
    first_at: float = 0.0
    last_at: float = 0.0
    times: int = 1


class Troubles:
    """The latest troubles of one server."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Trouble] = {}

    def hear(self, happening: ServerEvent, now: float) -> None:
        """Keep a happening, if it is a trouble."""
        new = trouble_of(happening)
        if new is None:
            return
        before = self._by_kind.pop(new.about, None)
        first, times = (before.first_at, before.times + 1) if before else (now, 1)
        self._by_kind[new.about] = msgspec.structs.replace(new, first_at=first, last_at=now, times=times)
        if len(self._by_kind) > MOST_TROUBLES:
            del self._by_kind[next(iter(self._by_kind))]

    def latest(self) -> list[Trouble]:
        """All that are kept, the latest first."""
        return list(reversed(self._by_kind.values()))


def trouble_of(happening: ServerEvent) -> Trouble | None:
    """What an operator should know of a happening; none where all is well."""
    match happening:
        case Violated(about=party, kind=kind, explanation=words):
            return _trouble(f"{party} broke the protocol ({kind})", words, "error")
        case RoundSettled(past=past) if past.report.aborted:
            return _trouble("round aborted", f"round {past.report.number}: {past.report.aborted}", "warning")
        case RoundSettled(past=past) if past.report.refused:
            words = f"round {past.report.number}: {past.report.refused}"
            return _trouble("a sum was opened and refused", words, "error")
        case PeerLost(explanation=words):
            return _trouble("peer lost", words, "warning")
        case Warned(about=about, explanation=words):
            return _trouble(about, words, "warning")
        case ConnectionFailed(kind=LookedOnlyError.__name__):
            return None  # a preflight has looked whether we are here; who looks is not known, and has done no harm
        case ConnectionFailed(origin=origin, kind=kind, explanation=words):
            return _trouble(f"connection failed ({kind})", f"{origin}: {words}", "info")
        case RequestRefused(client=client, reason=reason, explanation=words):
            return _trouble(f"request refused ({reason})", f"{client}: {words}", "info")
    return None


def _trouble(about: str, words: str, level: str) -> Trouble:
    return Trouble(about=plain_text(about), explanation=plain_text(words), level=level)
