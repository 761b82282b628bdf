"""How a client submits: the bytes are made and stored once, then sent to each server until its receipt is here.

Rule: from the first byte on, only the outcome that both servers have signed says that a submission was not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fsl_async.client.upload import SparseUpdate
from fsl_async.config import RoundConfig
from fsl_async.protocols.ssa.client import Deliver, Receipted, effects
from fsl_async.ring import Elements
from fsl_async.wire.messages import NO_RETRIEVAL, Receipt
from fsl_async.wire.public_part import Trees
from parties.client.downloads import Unions
from parties.client.outcomes import Outcomes, check_budget, check_receipt, in_doubt
from parties.client.participation import Participation
from parties.client.requests import Requests
from parties.client.session import TreeSession
from parties.client.setup import ClientSetup
from parties.client.state import Pending
from parties.client.submission import Draft, TreeSource, draft_submission
from parties.client.trees import TreeMaker
from parties.errors import RoundClosedError
from parties.outcome import SubmissionReceipt


@dataclass(eq=False, repr=False)
class Submitter:
    """One client's submissions to the rounds that it is in."""

    _setup: ClientSetup
    _requests: Requests
    _participation: Participation
    _unions: Unions
    _planter: TreeMaker
    _outcomes: Outcomes

    async def submit(
        self, config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements], mark: bytes
    ) -> SubmissionReceipt:
        """Make a submission of an update, and deliver it.

        Args:
            config: the round that this client is in.
            sparse: by sparse block, the rows as the caller names them, and their elements.
            dense: the elements of dense blocks.
            mark: of the update; see `update_mark`.

        Raises:
            BudgetSpentError: the privacy budget does not last for it; nothing of it was sent.
        """
        check_budget(self._setup.task, self._participation.charged)
        within = {index: self._unions.within(config, index, rows) for index, (rows, _) in sparse.items()}
        renamed = {
            index: (self._unions.named(config, index, rows[within[index]]), values[within[index]])
            for index, (rows, values) in sparse.items()
        }
        source = await self._tree_source(config, renamed)
        for index, (names, values) in list(renamed.items()):
            placed = ~np.isin(names, source.planting.client_trees.deferred.get(index, ()))
            renamed[index] = names[placed], values[placed]
            within[index][within[index]] = placed
        task, public = self._setup.task, self._setup.identity.public
        left_out = {task.sparse(index).name: rows[~within[index]].tolist() for index, (rows, _) in sparse.items()}
        unions = self._unions.known(config)
        make = partial(draft_submission, config, public, source, renamed, dense, unions, self._setup.randomness)
        draft = await self._setup.lane.run(make)
        draft = replace(draft, mark=mark, left_out={name: rows for name, rows in left_out.items() if rows})
        await self._participation.drafted(draft, source)
        return await self.deliver(draft)

    async def deliver(self, draft: Draft) -> SubmissionReceipt:
        """Send the pending draft to each server that owes its receipt, until both are here or its round is over.

        Raises:
            RoundClosedError: both servers have signed that it was not counted.
            FslError: otherwise; the error's `in_doubt` is the round.
        """
        before = self._requests.bytes_sent
        with in_doubt(draft.config):
            try:
                receipt = self._outcomes.receipt_of(await self._receipted(draft))
            except RoundClosedError as closed:
                receipt = await self._outcomes.receipt(self._latest(draft), closed)
        return replace(receipt, bytes_sent=self._requests.bytes_sent - before)

    async def _tree_source(self, config: RoundConfig, sparse: Mapping[int, SparseUpdate]) -> TreeSource:
        """Which trees a submission uses: decided by the task and by what went before, never by its rows."""
        here = self._participation
        if isinstance(here.session, TreeSession) and here.session.stands:
            return here.session.source()
        trees, query = Trees.OWN, NO_RETRIEVAL
        held = here.held() if self._setup.task.updates == "retrieved" else None
        if held is None:
            planting = await self._planter.plant(config, {index: rows for index, (rows, _) in sparse.items()})
        elif any(config.shape.sparse_blocks()):
            trees, (query, planting) = Trees.RETRIEVAL, held
        else:  # the servers know of no retrieval, and there are no trees
            planting = held[1]
        commitments = planting.client_trees.seeds.commitments(config.round_id(), self._setup.identity.name)
        return TreeSource(trees, query, planting, commitments)

    async def _receipted(self, draft: Draft) -> Draft:
        """The draft with both receipts: those that are here, and those that the servers send."""
        here = self._participation
        owing = [effect.server for effect in effects(here.round.ssa) if isinstance(effect, Deliver)]
        async with here.session_is_known(), self._requests.replies(partial(self._send, draft), owing) as replies:
            async for server, receipt in replies:
                signature = check_receipt(self._setup, server, receipt)
                await here.receipted(Receipted(server, receipt.digest), signature)
                draft = draft.receipted(server, signature)
        return draft

    async def _send(self, draft: Draft, server: int) -> Receipt:
        return (await self._requests.ask(server, draft.message(server), draft.bulk(server), Receipt)).message

    def _latest(self, draft: Draft) -> Draft:
        """The draft with the receipts that have come meanwhile."""
        submission = self._participation.submission
        return submission.draft if isinstance(submission, Pending) else draft
