"""A client: retrieves its rows and submits its updates, privately, with both servers.

The calls below are the whole interface; the order in which a round allows them is `fsl_async.protocols.client`. The
same code runs in memory (`parties.simulate`) and over TCP (`parties.connect`), and what belongs to one concern stands
in a module of its own: requests and repeats (`parties.requests`, `parties.patience`), entering, retrieving, drafts of
submissions, a round's end, the session, and what is kept of all that (`parties.client_state`).

Rules: nothing is sent before the caller's input has been checked whole; a submission's bytes are made once, kept before
the first of them is sent, and the same in every repeat; a server's statement counts only with its signature.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError
from fsl_async.messages import Receipt
from fsl_async.protocols import client as protocol
from fsl_async.protocols.machine import Event
from fsl_async.public_part import Trees
from fsl_async.ring import Elements
from fsl_async.selection import rows_by_block
from fsl_async.upload import SparseUpdate
from parties.arguments import Rows, encoded_updates, refuse_fractions, wanted_rows
from parties.client_session import NoSession, OwnSession, TreeSession, settled, submitted
from parties.client_setup import ClientSetup
from parties.client_state import ClientState, Received, Remembered, Retrieval, Told
from parties.downloads import Downloads
from parties.drafts import Draft, Ride, draft_submission, fresh_marks
from parties.ending import check_receipt, learn_outcome
from parties.entrance import Entrance
from parties.outcome import BY_OUTCOME, ClientOutcome, SubmissionReceipt
from parties.planting import Planting
from parties.refusals import OutcomeUnknownError, RequestDeniedError, RoundClosedError, ServerBusyError
from parties.requests import Requests
from parties.retrieving import Retriever, check_session_rows

__all__ = [
    "Client",
    "ClientSetup",
    "OutcomeUnknownError",
    "RequestDeniedError",
    "RoundClosedError",
    "ServerBusyError",
    "SubmissionReceipt",
]

Phase: TypeAlias = Literal["main", "union"]


class Client:
    """A client of both servers; made by `simulate` or `connect`, used as an async context manager.

    A connection that is lost is made anew, and what was asked over it is asked again with the same bytes, for as long
    as `ClientSetup.patience` says. Every call may be cancelled at any point, and the next one goes on from there.

    Attributes:
        setup: what it is made of.
        task: what is learnt.
        name: its own.
        deferred: by sparse block, the rows of the last retrieval that found no place.
    """

    def __init__(self, setup: ClientSetup) -> None:
        self.setup = setup
        self.task = setup.task
        self.name = setup.identity.name
        self.deferred: dict[str, npt.NDArray[np.uint32]] = {}
        self._requests = Requests(setup)
        self._state = ClientState(setup.store, setup.identity.public, setup.task, setup.lane)
        self._entrance = Entrance(setup, self._requests)
        self._downloads = Downloads(setup.task, self.name, self._requests)
        self._retriever = Retriever(setup, self._requests, self._answered)
        self._round: protocol.ClientRound = protocol.Outside(0)
        self._session: OwnSession = NoSession()
        self._answered_trees: dict[int, Planting] = {}
        self._drafts: dict[bytes, Draft] = {}
        self._last: list[RoundConfig] = []
        self._turn = trio.Lock()
        self._noting = trio.Lock()

    # ---- life

    async def open(self) -> None:
        """Take up what the store remembers, connect to both servers, and check that they run the same task.

        Raises:
            ChannelError: a server could not be reached, or does not know this client; the class says which.
            MisuseError: a server runs another task, and the message names the first field that differs; or the store is
                another client's.
            StorageError: what is kept cannot be read.
        """
        remembered = await self._state.load()
        self._take_up(remembered)
        try:
            await self._requests.open(met_before=remembered.lived)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close both connections."""
        await self._requests.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to both servers so far: handshakes, framing and all."""
        return self._requests.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes received from both servers so far: handshakes, framing and all."""
        return self._requests.bytes_received

    @property
    def round_number(self) -> int:
        """The number of the round this client is in; 0 outside."""
        match self._round:
            case protocol.Outside() | protocol.HalfEntered() | protocol.Over():
                return 0
            case state:
                return state.config.number

    @property
    def pending(self) -> int:
        """The round of a submission that is on its way, lacks a receipt, and can be finished with `resume`; else 0."""
        return self._round.config.number if isinstance(self._round, protocol.Submitting) else 0

    # ---- the calls

    async def retrieve(self, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """Fetch rows of sparse blocks privately, and dense blocks whole.

        A retrieval always moves as much for every sparse block, named or not: its shape tells the servers nothing. One
        that fails or is cancelled does not end the round for this client: the next one goes on in it.

        Args:
            rows: by sparse block, the distinct rows wanted, at most `select`; by dense block, `...`.

        Returns:
            By block, an array (rows, width) or (size,) of the model's own dtype, bit for bit, in the order asked.
            Rows that found no place (with probability 2^-40) are zero and named in `deferred`.

        Raises:
            MisuseError: a block or a row is not what the task allows, or a submission is pending; nothing was sent.
            RoundClosedError: the round closed meanwhile; call again.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            ChannelError: a connection was lost, and patience is over.
        """
        wanted, dense = wanted_rows(self.task, rows)
        async with self._in_round("main") as config:
            ranks = {index: self._downloads.named(config, index, chosen) for index, chosen in wanted.items()}
            found = await self._retrieve_sparse(config, ranks) if ranks else {}
            arrays = {self.task.sparse(index).name: array for index, array in found.items()}
            return arrays | {name: await self._downloads.dense(config, name) for name in dense}

    async def submit(self, updates: Mapping[str, Any]) -> SubmissionReceipt:
        """Add updates to the round's sum; the only submission of this client in this round.

        Args:
            updates: by sparse block, a pair of rows and values (rows, width); by dense block, values (size,). Values
                are floats or integers, both numbers, or `RingIntegers`. Blocks left out are submitted as zeros.

        Returns:
            Both servers' receipts. With them the submission counts, unless `outcome` says otherwise.

        Raises:
            MisuseError: a block, row or value is not what the task allows, or an earlier submission is pending in a
                round that is still open (see `resume`); nothing was sent.
            RoundClosedError: the round closed meanwhile; the submission counts nowhere, call again.
            OutcomeUnknownError: whether this or an earlier, pending submission was counted cannot be learnt any more.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol.
            ChannelError: a connection was lost, and patience is over; `resume` goes on.
            StorageError: the submission could not be kept; nothing was sent.
        """
        sparse, dense = encoded_updates(self.task, updates)
        async with self._in_round("main") as config:
            refuse_fractions(config, sparse, dense)
            renamed = {
                index: (self._downloads.named(config, index, rows), values) for index, (rows, values) in sparse.items()
            }
            return await self._submit(config, renamed, dense)

    async def unite(self, rows: Mapping[str, npt.ArrayLike]) -> SubmissionReceipt:
        """Take part in finding the union of all clients' rows, in a task with `alignment="union"`.

        Both servers and all clients learn the union, and nothing else; the rounds after it work on those rows alone.

        Args:
            rows: by sparse block, the distinct rows this client selects, at most `select`.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: the task has no union rounds, its only one is over, or the rows are not what it allows.
            FslError: as for `submit`.
        """
        if self.task.alignment != "union":
            raise MisuseError('this task is aligned on all rows; only one with alignment="union" has union rounds')
        wanted = rows_by_block(self.task, rows)
        async with self._in_round("union") as config:
            draw = self.setup.randomness
            marks = {index: (chosen, fresh_marks(len(chosen), draw)) for index, chosen in wanted.items()}
            return await self._submit(config, marks, {})

    async def resume(self) -> SubmissionReceipt:
        """Finish the pending submission: send its bytes, as they were, to each server that owes its receipt.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: none is pending; see `pending`.
            RoundClosedError: its round has closed without it; it counts nowhere.
            FslError: as for `submit`.
        """
        async with self._turn:
            match self._round:
                case protocol.Submitting(digest=digest):
                    return await self._deliver(self._drafts[digest], in_doubt=True)
                case _:
                    raise MisuseError("no submission is pending: there is nothing to resume")

    async def outcome(self) -> ClientOutcome:
        """Wait until the round of the last submission has ended, and tell whether it was counted.

        Raises:
            MisuseError: nothing was submitted.
            OutcomeUnknownError: a server denies the round.
            PeerViolationError: the servers tell different outcomes, or a signature is wrong.
            ChannelError: a connection was lost, and patience is over.
        """
        async with self._turn:
            return await self._learn_outcome()

    def forget_session(self) -> None:
        """Begin anew: the next retrieval or submission brings new trees, and may select other rows."""
        self._session = NoSession()
        self._answered_trees.clear()

    # ---- where it stands

    def _step(self, event: Event) -> None:
        self._round = protocol.step(self._round, event)

    def _answered(self, server: int, query: int) -> None:
        self._step(protocol.Answered(server, query))

    def _take_up(self, remembered: Remembered) -> None:
        """Stand where an earlier life of this client stood."""
        self._session = remembered.session
        match remembered.submission:
            case Draft(config=config, words=words, receipts=receipts) as draft:
                self._round = protocol.Submitting(config, words.digest, frozenset(receipts))
                self._drafts = {words.digest: draft}
                self._last = [config]
            case Received(config=config, digest=digest):
                self._round = protocol.Submitted(config, digest)
                self._last = [config]
            case Told(config=config):
                self._last = [config]
        match remembered.retrieval:
            case Retrieval(query=query, planting=planting, answered=answered):
                self._round = protocol.Retrieving(planting.config, query, frozenset())
                self._answered_trees = {query: planting} if answered else {}

    @asynccontextmanager
    async def _in_round(self, phase: Phase) -> AsyncIterator[RoundConfig]:
        """Have a turn in an open round of a phase; one that turns out to be gone is left."""
        async with self._turn:
            try:
                yield await self._enter(phase)
            except RoundClosedError:
                if isinstance(self._round, protocol.Inside | protocol.Retrieving | protocol.Holding):
                    await self._leave(protocol.RoundGone())
                raise

    async def _leave(self, event: protocol.RoundGone | protocol.Leave) -> None:
        """Be outside, with nothing left of the round's retrievals."""
        self._step(event)
        self._answered_trees.clear()
        await self._state.forget_retrieval()

    async def _enter(self, phase: Phase) -> RoundConfig:
        """Be in an open round of a phase: the present one, or the first after the last submission."""
        while True:
            config = await self._enter_next()
            if config.phase == phase:
                await self._downloads.unions(config)
                return config
            if phase == "main":
                raise MisuseError(f"round {config.number} finds the union first: call `unite` with this client's rows")
            if self.task.selection == "fixed":
                raise MisuseError("the union of this session has been found; retrieve and submit rows that are in it")
            await self._leave(protocol.Leave())

    async def _enter_next(self) -> RoundConfig:
        match self._round:
            case protocol.Inside(config=config) | protocol.Holding(config=config):
                return config
            case protocol.Retrieving(config=config, query=query) if await self._entrance.still_open(
                config, self._session
            ):
                for server in (0, 1) if query in self._answered_trees else ():
                    self._answered(server, query)
                return config
            case protocol.Submitting(config=config):
                await self._end_pending(config)
            case protocol.Submitted() if isinstance(self._session, TreeSession) and not self._session.stands:
                await self._learn_outcome()  # whether its trees are a session now
        if not isinstance(self._round, protocol.Outside):
            await self._leave(protocol.Leave())
        while isinstance(self._round, protocol.Outside | protocol.HalfEntered):
            await self._hear(self._round)
        return await self._enter_next()

    async def _hear(self, state: protocol.Outside | protocol.HalfEntered) -> None:
        """Hear of a round from the server that is behind."""
        match state:
            case protocol.Outside(after=after):
                server = 0
            case protocol.HalfEntered(server=other, config=config):
                server, after = 1 - other, config.number - 1
        self._step(protocol.Announced(server, await self._entrance.announced(server, after, self._session)))

    async def _end_pending(self, config: RoundConfig) -> None:
        """Before another round is entered: learn what became of a pending submission whose round is gone.

        Raises:
            MisuseError: its round is still open.
            OutcomeUnknownError: nobody can tell any more; the next call goes on without it.
        """
        if await self._entrance.still_open(config, self._session):
            raise MisuseError(
                f"a submission to round {config.number} is pending, and the round is open: `resume` finishes it"
            )
        await self._learn_outcome()

    # ---- retrieving

    async def _retrieve_sparse(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> dict[int, npt.NDArray[Any]]:
        match self._session:
            case TreeSession(planting=planting) as session if session.stands:
                check_session_rows(self.task, session, wanted)
                self._step(protocol.Recollect())
                answers = await self._retriever.recall(config)
            case _:
                planting, answers = await self._query(config, wanted)
        names = {index: block.name for index, block in self.task.sparse_blocks()}
        self.deferred = {names[index]: rows for index, rows in planting.grove.deferred.items() if len(rows)}
        return await self._retriever.read(config, planting.grove, answers, wanted)

    async def _query(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> tuple[Planting, tuple[memoryview, memoryview]]:
        """Plant trees at the wanted rows and have them answered.

        A number that this client has used in this round before it was started anew is passed over.
        """
        while True:
            self._step(protocol.Ask())
            query = self._round.query if isinstance(self._round, protocol.Retrieving) else 0
            planting = await self._retriever.plant(config, wanted)
            await self._state.keep_retrieval(Retrieval(query, planting, answered=False), self._session)
            try:
                answers = await self._retriever.query(planting, query)
            except RequestDeniedError as error:
                if error.reason != "conflict":
                    raise
                continue
            self._answered_trees[query] = planting
            await self._state.keep_retrieval(Retrieval(query, planting, answered=True), self._session)
            return planting, answers

    # ---- submitting

    async def _submit(
        self, config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements]
    ) -> SubmissionReceipt:
        ride = await self._ride(config, sparse)
        public = self.setup.identity.public
        draft = await self.setup.lane.run(partial(draft_submission, config, public, ride, sparse, dense))
        session = submitted(self._session, draft, ride)
        with trio.CancelScope(shield=True):  # what is kept and what is known here do not part
            await self._state.keep_draft(draft, session)
            self._step(protocol.Submit(draft.words.digest))
            self._session, self._drafts, self._last = session, {draft.words.digest: draft}, [config]
        return await self._deliver(draft, in_doubt=False)

    async def _ride(self, config: RoundConfig, sparse: Mapping[int, SparseUpdate]) -> Ride:
        """Which trees a submission rides on: decided by the task and by what went before, never by its rows."""
        if isinstance(self._session, TreeSession) and self._session.stands:
            return self._session.ride()
        match self._round:
            case protocol.Holding(query=query) if self.task.updates == "retrieved" and query in self._answered_trees:
                trees, planting = Trees.RETRIEVAL, self._answered_trees[query]
            case _:
                rows = {index: rows for index, (rows, _) in sparse.items()}
                trees, query, planting = Trees.OWN, 0, await self._retriever.plant(config, rows)
        return Ride(trees, query, planting, planting.grove.seeds.commitments(config.round_id(), self.name))

    async def _deliver(self, draft: Draft, *, in_doubt: bool) -> SubmissionReceipt:
        """Send a draft to each server that owes its receipt, until both are in or its round is over.

        Args:
            draft: the submission.
            in_doubt: whether a server may have it from a try that this call does not know of.
        """
        before = self.bytes_sent
        try:
            signatures = await self._requests.both(partial(self._receipt, draft))
        except RoundClosedError as error:
            if not in_doubt and not error.unanswered:
                await self._settle(draft.config, protocol.RoundGone(), counted=False)  # one server never lists it
                raise
            signatures = await self._signatures_by_outcome(draft, error)
        self._drafts = {}
        return SubmissionReceipt(draft.config.number, draft.words.digest, signatures, self.bytes_sent - before)

    async def _receipt(self, draft: Draft, server: int) -> bytes:
        """One server's receipt: the one that is here, or the one it sends."""
        if server not in draft.receipts:
            reply = await self._requests.ask(server, draft.message(server), draft.bulk(server), Receipt)
            signature = check_receipt(self.setup, server, draft, reply.message)
            with trio.CancelScope(shield=True):
                await self._take_receipt(protocol.Receipted(server, reply.message.digest), signature)
        return self._drafts[draft.words.digest].receipts[server]

    async def _take_receipt(self, event: protocol.Receipted, signature: bytes) -> None:
        async with self._noting:  # the two servers' come at the same time
            after = protocol.step(self._round, event)
            draft = self._drafts[event.digest].receipted(event.server, signature)
            await self._state.keep_receipt(draft)
            self._round, self._drafts = after, {event.digest: draft}

    async def _signatures_by_outcome(self, draft: Draft, error: RoundClosedError) -> tuple[bytes, bytes]:
        """Of a submission whose round closed while nobody knows who has it: what the outcome says.

        Raises:
            RoundClosedError: it was not counted.
        """
        receipts = self._drafts[draft.words.digest].receipts
        outcome = await self._learn_outcome()
        if not outcome.counted:
            raise RoundClosedError(
                f"round {outcome.number} has ended without this submission ({outcome.reason}); it counts nowhere"
            ) from error
        return receipts.get(0, BY_OUTCOME), receipts.get(1, BY_OUTCOME)

    # ---- the end

    async def _learn_outcome(self) -> ClientOutcome:
        if not self._last:
            raise MisuseError("nothing has been submitted yet")
        (config,) = self._last
        try:
            outcome = await learn_outcome(self.setup, self._requests, config)
        except RoundClosedError as error:
            await self._settle(config, protocol.Leave(), counted=False)
            raise OutcomeUnknownError(
                f"{error}: whether the submission to round {config.number} was counted cannot be learnt any more"
            ) from error
        await self._settle(config, protocol.Finish(), counted=outcome.counted)
        return outcome

    async def _settle(
        self, config: RoundConfig, event: protocol.Finish | protocol.RoundGone | protocol.Leave, *, counted: bool
    ) -> None:
        """Note how a submission's round ended, and erase what was kept for it."""
        with trio.CancelScope(shield=True):
            session = settled(self._session, config.epoch, self.name, counted=counted)
            await self._state.keep_end(config, session)
            self._session, self._drafts = session, {}
            self._answered_trees.clear()
            if isinstance(self._round, protocol.Submitting | protocol.Submitted):
                self._step(event)
