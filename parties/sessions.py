"""The trees that outlive their round: one session per client, in tasks whose selection is fixed.

Each client's session is the machine of `fsl_async.protocols.session`; beside its state stands the submission whose
trees it uses. A hint that the machine refuses goes into the evidence, with the one it contradicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsl_async.aggregation import Submission
from fsl_async.errors import PeerViolationError
from fsl_async.protocols import session as protocol
from fsl_async.protocols.machine import Event, UnexpectedEvent
from parties.desk import ContradictionError, RequestRefusedError

__all__ = ["Sessions"]


class Sessions:
    """All sessions of one server."""

    def __init__(self) -> None:
        self._states: dict[str, protocol.Session] = {}
        self._trees: dict[str, Submission] = {}

    def of(self, client: str) -> Submission:
        """The submission whose trees a client's session uses.

        Raises:
            RequestRefusedError: it has no session here.
        """
        if not isinstance(self._states.get(client), protocol.Standing):
            raise RequestRefusedError.because(
                "no-session", "you have no session here: retrieve or submit with new trees, which begins one"
            )
        return self._trees[client]

    def take(self, client: str, event: protocol.Brought | protocol.Hinted) -> None:
        """A submission has come.

        Raises:
            RequestRefusedError: its epoch does not rise, it is the epoch's second hint, or it hints at no session.
        """
        try:
            self._step(client, event)
        except PeerViolationError as error:
            known = self._states[client]
            first = known.hint if isinstance(known, protocol.Planted | protocol.Standing) else b""
            raise ContradictionError("conflict", str(error), "two-hints", first, event.hint) from error
        except UnexpectedEvent as error:
            raise RequestRefusedError.because("no-session", str(error)) from error

    def settle(self, epoch: int, counted: Iterable[Submission]) -> None:
        """A round is settled: trees of submissions that were counted stand, others fall."""
        survivors = {submission.client: submission for submission in counted}
        for client, state in list(self._states.items()):
            if client in survivors:
                if isinstance(state, protocol.Planted) and state.epoch == epoch:
                    self._trees[client] = survivors[client]
                self._step(client, protocol.Counted(epoch))
            else:
                self._step(client, protocol.Dropped(epoch))

    def _step(self, client: str, event: Event) -> None:
        self._states[client] = protocol.step(self._states.get(client, protocol.Absent()), event, client)
