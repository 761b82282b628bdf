"""Where a client is: its round, its session and its last submission.

The rules of a round are in `fsl_async.protocols.client` and the machines that it names, those of a session in
`fsl_async.protocols.epochs`; what is stored, and when it is erased, in `parties.client.state`. Here the three change
together. A change of the submission, or of the session with it, is stored before it is adopted, and a call that is
cancelled finishes it, so that the store and the memory do not disagree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import WrongAnswerError
from fsl_async.protocols import client as protocol
from fsl_async.protocols.entry import Announced, Inside, Leave, RoundGone
from fsl_async.protocols.psr import client as psr
from fsl_async.protocols.ssa import client as ssa
from parties.client.session import NoSession, OwnSession, settled, submitted
from parties.client.state import ClientState, Ended, Fresh, Pending, Received, Retrieval, Submission, last_of
from parties.client.submission import Draft, LastSubmission, TreeSource
from parties.client.trees import MadeTrees
from parties.errors import RequestDeniedError


class Participation:
    """One client's part in the rounds, one after the other.

    Attributes:
        round: where it is in its round.
        session: the trees that outlive their round.
        submission: the last one.
        unreported: what an earlier process submitted last, until its caller is known to have heard what became of it.
        last_round: the last round that this client entered; None before the first.
        charged: the ids of the rounds that are charged to its privacy budget.
        doubts: by their marks, updates that may be in a sum that a server knows, with their rounds' numbers.
    """

    def __init__(self, client: str, state: ClientState) -> None:
        self.round: protocol.ClientRound = protocol.outside(0)
        self.session: OwnSession = NoSession()
        self.submission: Submission = Fresh()
        self.unreported: LastSubmission | None = None
        self.last_round: RoundConfig | None = None
        self.charged: frozenset[bytes] = frozenset()
        self.doubts: dict[bytes, int] = {}
        self._client = client
        self._state = state
        self._answered_trees: dict[int, MadeTrees] = {}

    async def load(self) -> bool:
        """Resume where an earlier process of this client was; tells whether there was one.

        Raises:
            MisuseError: the store is another client's or another task's.
            StorageError: what is stored cannot be read.
        """
        stored = await self._state.load()
        self.session, self.submission, self.unreported = stored.session, stored.submission, stored.unreported
        self.charged, self.doubts = stored.charged, dict(stored.doubts)
        last = last_of(stored.submission)
        self.last_round = last.config if last else None
        match stored.submission:
            case Pending(draft=draft):
                self.round = protocol.submitted_before(draft.config, draft.digest, draft.receipts)
            case Received(last=last):
                self.round = protocol.submitted_before(last.config, last.digest, (0, 1))
        if stored.retrieval:
            self.round = protocol.retrieved_before(stored.retrieval.config, stored.retrieval.query)
            self.last_round = stored.retrieval.config
        return stored.existed

    async def claim(self) -> None:
        """Note whose store it is, once both servers have shown that they run this task."""
        await self._state.claim()

    @property
    def number(self) -> int:
        """The number of the round this client is in; 0 outside."""
        return self.round.entry.config.number if isinstance(self.round.entry, Inside) else 0

    # ---- the round

    def step(self, event: protocol.ClientEvent) -> None:
        """Take an event of the round that needs no storing."""
        self.round = protocol.step(self.round, event)

    def announced(self, announced: Announced) -> None:
        """A server has announced a round; once both have announced the same, this client is in it, or not drawn."""
        self.step(announced)
        if isinstance(self.round.entry, Inside):
            self.last_round = announced.config

    def answered(self, server: int, query: psr.QueryId) -> None:
        """A server has answered a query."""
        self.step(psr.Answered(server, query))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Within this context a query is asked; it is interrupted by whatever ends the context early."""
        try:
            yield
        finally:
            if isinstance(self.round.psr, psr.Asked | psr.HalfAnswered):
                self.step(psr.Interrupt())

    async def begin_query(self, config: RoundConfig) -> int:
        """Take the number of the round's next retrieval.

        Raises:
            MisuseError: the task allows no more retrievals in this round.
        """
        self.step(psr.Ask())
        query = psr.number_asked(self.round.psr)
        await self._state.store_retrieval(Retrieval(config, query), self.session)
        return query

    def hold(self, query: int, planting: MadeTrees) -> None:
        """Keep a retrieval's trees, which both servers hold, for this round's submission."""
        self._answered_trees[query] = planting

    def have_all_rows(self) -> None:
        """Let this round's submission bring its own trees: what the caller updates are any of a whole block's rows."""
        self._answered_trees.clear()

    def held(self) -> tuple[int, MadeTrees] | None:
        """The round's last retrieval, by number, and its trees.

        None where this process has made none, or has had all rows since.
        """
        match self.round.psr:
            case psr.Holding(query=int(number)) if number in self._answered_trees:
                return number, self._answered_trees[number]
        return None

    async def leave(self, event: RoundGone | Leave) -> None:
        """Be outside, with nothing left of the round's retrievals."""
        self.step(event)
        self._answered_trees.clear()
        await self._state.forget_retrieval()

    # ---- the submission

    async def drafted(self, draft: Draft, source: TreeSource) -> None:
        """A submission's bytes are fixed: it is pending from now on."""
        session = submitted(self.session, draft, source)
        with trio.CancelScope(shield=True):
            await self._state.store_draft(draft, session)
            if draft.config.task.privacy is not None:
                self.charged |= {draft.config.round_id()}
            self.step(ssa.Submit(draft.digest))
            self.session, self.submission = session, Pending(draft)

    async def receipted(self, event: ssa.Receipted, signature: bytes) -> None:
        """A server has acknowledged the pending submission.

        Raises:
            PeerViolationError: it has acknowledged another one.
        """
        with trio.CancelScope(shield=True):
            after = protocol.step(self.round, event)
            if isinstance(self.submission, Pending):
                submission = self.submission.receipted(event.server, signature)
                await self._state.store_receipt(submission)
                self.round, self.submission = after, submission

    async def settle(
        self,
        last: LastSubmission,
        event: ssa.Finish | Leave,
        *,
        counted: bool,
        costs_nothing: bool = False,
        doubtful: bool = False,
    ) -> None:
        """A submission's round has ended; what was stored for it is erased.

        Args:
            last: the submission.
            event: whether how it ended is known.
            counted: whether its trees were counted.
            costs_nothing: whether the round is charged no longer.
            doubtful: whether the update may be in a sum that a server knows.
        """
        with trio.CancelScope(shield=True):
            session = settled(self.session, last.config.epoch, self._client, counted=counted)
            await self._state.store_end(last, session, costs_nothing=costs_nothing, doubtful=doubtful)
            if doubtful:
                self.doubts[last.mark] = last.config.number
            if costs_nothing:
                self.charged -= {last.config.round_id()}
            self.session, self.submission = session, Ended(last)
            if isinstance(self.round.ssa, protocol.UNDECIDED):  # else it is in another round, with trees of that one
                self._answered_trees.clear()
                self.step(event)

    async def mark_reported(self) -> None:
        """The caller knows what became of the last submission; see `unreported`."""
        self.unreported = None
        with trio.CancelScope(shield=True):
            if last := last_of(self.submission):
                await self._state.store_told(last.digest)

    # ---- beginning anew

    def forget_session(self) -> None:
        """Begin a new session with the next retrieval or submission."""
        self.session = NoSession()
        self._answered_trees.clear()

    @asynccontextmanager
    async def session_is_known(self) -> AsyncIterator[None]:
        """Forget the session if a server turns out to have other trees of it, or none.

        So a client whose state was restored begins a new session with its next call, and is not refused for ever.
        """
        try:
            yield
        except RequestDeniedError as error:
            if error.reason == "no-session":
                with trio.CancelScope(shield=True):
                    await self._state.forget_session()
                    self.forget_session()
            raise

    @asynccontextmanager
    async def session_is_trusted(self) -> AsyncIterator[None]:
        """Drop the session's trees if a server turns out to have answered them wrongly."""
        try:
            yield
        except WrongAnswerError:
            with trio.CancelScope(shield=True):
                await self._state.forget_session()
                self.forget_session()
            raise

    async def forget_rounds(self) -> None:
        """Forget every round, session and submission, because the servers have begun anew."""
        undecided = last_of(self.submission) if isinstance(self.submission, Pending | Received) else None
        with trio.CancelScope(shield=True):
            await self._state.forget_rounds(undecided)
            if undecided:
                self.doubts[undecided.mark] = undecided.config.number
            self.round, self.submission, self.unreported, self.last_round = protocol.outside(0), Fresh(), None, None
            self.forget_session()
