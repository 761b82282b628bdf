"""What a server tells its clients of a round that is over: to each a statement of its own, signed for it.

Rules: a client is told about itself and how many others there were; the same question gets the same bytes, however
often it is asked, because a statement is a function of the round's account and signatures are deterministic. The tree
over the list of who is in the sum is made once for all clients of a round, off the event loop: a second for 100,000.
"""

from __future__ import annotations

from functools import partial

import trio

from fsl_async.digests import Domain
from fsl_async.merkle import RosterTree
from fsl_async.task import Task
from fsl_async.wire.messages import Finished
from parties.compute import ComputeLane
from parties.identity.keys import Identity
from parties.outcome import RoundReport
from parties.server.replies import Reply
from parties.statement import Statement

ROUNDS_AT_HAND = 2
"""Of so many rounds the tree is at hand: all clients of a round ask at once."""


class Statements:
    """Signs statements.

    Args:
        task: what is learnt; it says whether clients are told names.
        identity: the server's own keys.
        lane: where trees are made.
    """

    def __init__(self, task: Task, identity: Identity, lane: ComputeLane) -> None:
        self._named = task.participants == "names"
        self._identity = identity
        self._lane = lane
        self._trees: dict[bytes, tuple[dict[str, bytes], RosterTree]] = {}
        self._turn = trio.Lock()

    async def sign(self, report: RoundReport, client: str) -> Reply:
        """The statement of a round for one client."""
        return self._signed(report, client, await self._tree(report))

    def at_hand(self, report: RoundReport | None, client: str) -> Reply | None:
        """The same, if the round's account and its tree are at hand."""
        tree = None if report is None else self._at_hand(report)
        return None if report is None or tree is None else self._signed(report, client, tree)

    def _signed(self, report: RoundReport, client: str, tree: RosterTree) -> Reply:
        content = Statement.of(report, client, tree, named=self._named).canonical()
        signature = self._identity.sign(Domain.STATEMENT, content)
        return Finished(round_id=report.round_id, signature=signature), content

    async def _tree(self, report: RoundReport) -> RosterTree:
        """The tree over those who are in the sum of a round."""
        if not report.clients:
            return RosterTree({}, b"")
        if (tree := self._at_hand(report)) is not None:
            return tree
        async with self._turn:  # of all that wait for it, the first one makes it
            if (tree := self._at_hand(report)) is None:
                tree = await self._lane.run(partial(RosterTree, report.clients, report.blind))
                self._trees[report.round_id] = report.clients, tree
                for forgotten in list(self._trees)[:-ROUNDS_AT_HAND]:
                    del self._trees[forgotten]
        return tree

    def _at_hand(self, report: RoundReport) -> RosterTree | None:
        clients, tree = self._trees.get(report.round_id, ({}, None))
        return tree if clients is report.clients or clients == report.clients else None
