"""What a server tells its clients of a round that is over: to each a statement of its own, signed for it.

Rules: a client is told about itself and how many others there were; the same question gets the same bytes, however
often it is asked, because a statement is a function of the round's account and signatures are deterministic.
"""

from __future__ import annotations

from fsl_async.digests import Domain
from fsl_async.task import Task
from fsl_async.wire.messages import Finished
from parties.identity.keys import Identity
from parties.outcome import RoundReport
from parties.server.clients.answerer import Reply
from parties.statement import Statement

ROUNDS_AT_HAND = 4
"""Of so many rounds who was in the sum is looked up without a search: all clients of a round ask at once."""


class Statements:
    """Signs statements.

    Args:
        task: what is learnt; it says whether clients are told names.
        identity: the server's own keys.
    """

    def __init__(self, task: Task, identity: Identity) -> None:
        self._named = task.participants == "names"
        self._identity = identity
        self._included: dict[bytes, frozenset[str]] = {}

    def sign(self, report: RoundReport, client: str) -> Reply:
        """The statement of a round for one client."""
        included = client in self._clients(report)
        content = Statement.of(report, client, included=included, named=self._named).canonical()
        signature = self._identity.sign(Domain.STATEMENT, content)
        return Finished(round_id=report.round_id, signature=signature), content

    def _clients(self, report: RoundReport) -> frozenset[str]:
        """Who is in the sum of a round."""
        if report.round_id not in self._included:
            self._included[report.round_id] = frozenset(report.clients)
            for forgotten in list(self._included)[:-ROUNDS_AT_HAND]:
                del self._included[forgotten]
        return self._included[report.round_id]
