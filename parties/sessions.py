"""The trees that outlive their round: one session per client, in tasks whose selection is fixed.

Rules: a session begins when a submission that brought (or rode on) fresh trees was counted, so both servers begin it in the
same round, and its trees are proved; from then on a client sends hints alone. A client that has lost its side brings new
trees, and with them a new session replaces the old one.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsl_async.aggregation import Submission
from parties.desk import RequestRefusedError

__all__ = ["Sessions"]


class Sessions:
    """All sessions of one server."""

    def __init__(self) -> None:
        self._begun: dict[str, Submission] = {}

    def begin(self, counted: Iterable[Submission]) -> None:
        """Keep the trees of submissions that were counted."""
        for submission in counted:
            self._begun[submission.client] = submission

    def of(self, client: str) -> Submission:
        """The submission whose trees a client's session uses.

        Raises:
            RequestRefusedError: it has no session here.
        """
        if client not in self._begun:
            raise RequestRefusedError.because(
                "no-session", "you have no session here: retrieve or submit with new trees, which begins one"
            )
        return self._begun[client]
