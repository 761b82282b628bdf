"""A client: retrieves its rows and submits its updates, privately, with both servers.

The calls below are the whole interface; the order in which a round allows them is `fsl_async.protocols.client`. The
same code runs in memory (`parties.simulate`) and over TCP (`parties.connect`), and what belongs to one concern stands
in a module of its own: requests and repeats (`parties.client.requests`, `parties.client.retries`), entering,
retrieving, drafts of submissions, a round's end, the session, what is kept of all that (`parties.client.state`), and
the client's place in the rounds (`parties.client.participant`).

Rules: nothing is sent before the caller's input has been checked whole; a submission's bytes are made once, kept before
the first of them is sent, and the same in every repeat; a server's statement counts only with its signature.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.client.planting import Grove, rows_by_block
from fsl_async.client.upload import SparseUpdate
from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError
from fsl_async.protocols import client as protocol
from fsl_async.ring import Elements
from fsl_async.wire.messages import Receipt
from fsl_async.wire.public_part import Trees
from parties.client.arguments import Rows, encoded_updates, refuse_fractions, wanted_rows
from parties.client.participant import Participant
from parties.client.retrieval import Retriever, check_session_rows
from parties.client.session import NoSession, TreeSession, submitted
from parties.client.setup import ClientSetup
from parties.client.state import LastSubmission, Retrieval
from parties.client.statements import check_receipt
from parties.client.submission import Draft, Ride, draft_submission, fresh_marks, update_mark
from parties.client.trees import Planting
from parties.errors import RequestDeniedError, RoundClosedError
from parties.outcome import ClientOutcome, SubmissionReceipt


class Client(Participant):
    """A client of both servers; made by `simulate` or `connect`, used as an async context manager.

    A connection that is lost is made anew, and what was asked over it is asked again with the same bytes, for as long
    as `ClientSetup.patience` says. Every call may be cancelled at any point, and the next one goes on from there.

    Attributes:
        setup: what it is made of.
        task: what is learnt.
        name: its own.
        deferred: by sparse block, the rows of the last retrieval that found no place, or are outside the round's union.
    """

    def __init__(self, setup: ClientSetup) -> None:
        super().__init__(setup)
        self._retriever = Retriever(setup, self._requests, self._answered)

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
            await self._state.claim()
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

    # ---- the calls

    async def retrieve(self, rows: Rows, *, wait: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Fetch rows of sparse blocks privately, and dense blocks whole.

        A retrieval always moves as much for every sparse block, named or not: its shape tells the servers nothing. One
        that fails or is cancelled does not end the round for this client: the next one goes on in it.

        Args:
            rows: by sparse block, the distinct rows wanted, at most `select`; by dense block, `...`.
            wait: where this client has submitted to the round that is open, wait for the next one.

        Returns:
            By block, an array (rows, width) or (size,) of the model's own dtype, bit for bit, in the order asked.
            Rows that found no place (with probability 2^-40), and those outside the union of a round that is aligned
            on one, are zero and named in `deferred`.

        Raises:
            MisuseError: a block or a row is not what the task allows, a submission is pending, or this client has
                submitted to the open round; nothing was sent.
            RoundClosedError: the round closed meanwhile; call again.
            AlreadyCountedError: a pending submission was counted, and nothing was retrieved; call again.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            ChannelError: a connection was lost, and patience is over.
        """
        wanted, dense = wanted_rows(self.task, rows)
        async with self._in_round("main", wait=wait) as config:
            arrays = await self._retrieve_sparse(config, wanted) if wanted else {}
            return arrays | {name: await self._downloads.dense(config, name) for name in dense}

    async def submit(self, updates: Mapping[str, Any], *, wait: bool = False) -> SubmissionReceipt:
        """Add updates to the round's sum; the only submission of this client in this round.

        An error whose `in_doubt` is a round's number came after a byte of the submission may have left. Then the
        submission may count: `resume` or `outcome` tells, and until both servers have signed that it was not counted,
        its values must not be sent again in another round, for the difference of the two sums would tell them. Errors
        without it are harmless in that respect.

        Nobody proves that retrieved rows are right, and a client that stays away because of them shows a server that it
        holds the rows which that server has spoilt. So whoever retrieves submits: where what was retrieved is not
        plausible, or what was made of it is refused here, `submit({})` submits zeros, which look the same, and the
        trouble is told to people.

        Args:
            updates: by sparse block, a pair of rows and values (rows, width); by dense block, values (size,). Values
                are floats or integers, both numbers, or `RingIntegers`. Blocks left out are submitted as zeros.
            wait: where this client has submitted to the round that is open, wait for the next one.

        Returns:
            Both servers' receipts. With them the submission counts, unless `outcome` says otherwise. Rows that found no
            place, or are outside the union of a round that is aligned on one, are named in `left_out`: a client that
            stayed away for their sake would show its servers that it has some.

        Raises:
            MisuseError: a block, row or value is not what the task allows, this client has submitted to the open round,
                or a submission to it is pending (see `resume`); nothing was sent.
            RoundClosedError: the round closed meanwhile, and where something had been sent both servers have signed
                that it was not counted; call again.
            AlreadyCountedError: an earlier, pending submission was counted, and this call has sent nothing.
            SumRefusedError: this or an earlier, pending submission is in a sum that was opened and refused.
            OutcomeUnknownError: whether this or an earlier, pending submission was counted cannot be learnt any more.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            ChannelError: a connection was lost, and patience is over; `resume` goes on.
            StorageError: the submission could not be kept; nothing was sent.
        """
        sparse, dense = encoded_updates(self.task, updates)
        async with self._in_round("main", wait=wait) as config:
            refuse_fractions(config, sparse, dense)
            return await self._submit(config, sparse, dense, update_mark(self.setup.identity, "main", sparse, dense))

    async def unite(self, rows: Mapping[str, npt.ArrayLike], *, wait: bool = False) -> SubmissionReceipt:
        """Take part in finding the union of all clients' rows, in a task with `alignment="union"`.

        Both servers and all clients learn the union, and nothing else; the rounds after it work on those rows alone.

        Args:
            rows: by sparse block, the distinct rows this client selects, at most `select`.
            wait: where the round that is open finds no union, or this client has submitted to it, wait for one that
                does.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: the task has no union rounds, its only one is over, the open round is none, or the rows are not
                what it allows.
            FslError: as for `submit`.
        """
        if self.task.alignment != "union":
            raise MisuseError('this task is aligned on all rows; only one with alignment="union" has union rounds')
        wanted = rows_by_block(self.task, rows)
        async with self._in_round("union", wait=wait) as config:
            draw = self.setup.randomness
            marks = {index: (chosen, fresh_marks(len(chosen), draw)) for index, chosen in wanted.items()}
            return await self._submit(config, marks, {}, self._mark_of(wanted))

    async def resume(self) -> SubmissionReceipt:
        """Finish the pending submission: send its bytes, as they were, to each server that owes its receipt.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: none is pending; see `pending`.
            RoundClosedError: its round has ended without it, as both servers have signed; it counts nowhere.
            FslError: as for `submit`.
        """
        async with self._turn:
            match self._round:
                case protocol.Submitting(digest=digest):
                    return await self._deliver(self._drafts[digest])
                case _:
                    raise MisuseError("no submission is pending: there is nothing to resume")

    async def outcome(self) -> ClientOutcome:
        """Wait until the round of the last submission has ended, and tell whether it was counted.

        Raises:
            MisuseError: nothing was submitted.
            SumRefusedError: it is in a sum that was opened and refused; its values must not be submitted again.
            OutcomeUnknownError: a server denies the round; what the other one has signed is in `accounts`.
            PeerViolationError: the servers tell different outcomes, or a signature is wrong.
            ChannelError: a connection was lost, and patience is over.
        """
        async with self._turn:
            return await self._learn_outcome()

    @property
    def untold(self) -> LastSubmission | None:
        """What an earlier process of this client submitted, if whoever ran it may not know what became of it."""
        return self._untold[0] if self._untold else None

    def mark(self, updates: Mapping[str, Any]) -> bytes:
        """What tells an update from others, to this client alone: compare `untold.mark`."""
        return update_mark(self.setup.identity, "main", *encoded_updates(self.task, updates))

    def mark_of_rows(self, rows: Mapping[str, npt.ArrayLike]) -> bytes:
        """The same of the rows that `unite` is given."""
        return self._mark_of(rows_by_block(self.task, rows))

    def _mark_of(self, rows: Mapping[int, npt.NDArray[np.uint32]]) -> bytes:
        chosen = {index: (array, array) for index, array in rows.items()}
        return update_mark(self.setup.identity, "union", chosen, {})

    async def note_told(self) -> None:
        """Note that whoever made the last submission knows what became of it; see `untold`."""
        self._untold = []
        with trio.CancelScope(shield=True):
            for last in self._last:
                await self._state.keep_told(last.digest)

    @asynccontextmanager
    async def _session_there(self) -> AsyncIterator[None]:
        """Forget the session, if a server turns out to have other trees of it, or none.

        So a client whose state was put back begins a new session with its next call, and is not refused for ever.
        """
        try:
            yield
        except RequestDeniedError as error:
            if error.reason == "no-session":
                self.forget_session()
                await self._state.forget_session()
            raise

    def forget_session(self) -> None:
        """Begin anew: the next retrieval or submission brings new trees, and may select other rows."""
        self._session = NoSession()
        self._answered_trees.clear()

    # ---- retrieving

    async def _retrieve_sparse(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> dict[str, npt.NDArray[Any]]:
        """The wanted rows by their block's name, zeros in place of those that this round or its trees lack."""
        within = {index: self._downloads.within(config, index, rows) for index, rows in wanted.items()}
        ranks = {index: self._downloads.named(config, index, rows[within[index]]) for index, rows in wanted.items()}
        found, grove = await self._retrieve_these(config, ranks)
        arrays: dict[str, npt.NDArray[Any]] = {}
        self.deferred = {}
        for index, rows in wanted.items():
            name, there = self.task.sparse(index).name, within[index]
            arrays[name] = np.zeros((len(rows), *found[index].shape[1:]), dtype=found[index].dtype)
            arrays[name][there] = found[index]
            there[there] = ~np.isin(ranks[index], grove.deferred.get(index, ()))
            if not there.all():
                self.deferred[name] = rows[~there]
        return arrays

    async def _retrieve_these(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> tuple[dict[int, npt.NDArray[Any]], Grove]:
        match self._session:
            case TreeSession(planting=planting) as session if session.stands:
                check_session_rows(self.task, session, wanted)
                self._step(protocol.Recollect())
                async with self._session_there():
                    answers = await self._retriever.recall(config, session.commitments)
            case _:
                planting, answers = await self._query(config, wanted)
        found = await self._retriever.read(config, planting.grove, answers, wanted)
        return found | await self._downloads.plain(config, wanted), planting.grove

    async def _query(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> tuple[Planting, tuple[memoryview, memoryview]]:
        """Plant trees at the wanted rows and have them answered.

        A number that this client has used in this round before it was started anew is passed over.
        """
        while True:
            self._step(protocol.Ask())
            query = protocol.number_asked(self._round)
            planting = await self._retriever.plant(config, wanted)
            await self._state.keep_retrieval(Retrieval(config, query), self._session)
            try:
                answers = await self._retriever.query(planting, query)
            except RequestDeniedError as error:
                if error.reason != "conflict":
                    raise
                continue
            self._answered_trees[query] = planting
            return planting, answers

    # ---- submitting

    async def _submit(
        self, config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements], mark: bytes
    ) -> SubmissionReceipt:
        within = {index: self._downloads.within(config, index, rows) for index, (rows, _) in sparse.items()}
        renamed = {
            index: (self._downloads.named(config, index, rows[within[index]]), values[within[index]])
            for index, (rows, values) in sparse.items()
        }
        ride = await self._ride(config, renamed)
        for index, (names, values) in list(renamed.items()):
            placed = ~np.isin(names, ride.planting.grove.deferred.get(index, ()))
            renamed[index] = names[placed], values[placed]
            within[index][within[index]] = placed
        left_out = {self.task.sparse(index).name: rows[~within[index]].tolist() for index, (rows, _) in sparse.items()}
        public = self.setup.identity.public
        unions = self._downloads.known(config)
        draft = await self.setup.lane.run(partial(draft_submission, config, public, ride, renamed, dense, unions))
        draft = replace(draft, mark=mark, left_out={name: rows for name, rows in left_out.items() if rows})
        session, last = submitted(self._session, draft, ride), LastSubmission(config, draft.words.digest, mark)
        with trio.CancelScope(shield=True):  # what is kept and what is known here do not part
            await self._state.keep_draft(draft, session)
            self._step(protocol.Submit(draft.words.digest))
            self._session, self._drafts, self._last = session, {draft.words.digest: draft}, [last]
        return await self._deliver(draft)

    async def _ride(self, config: RoundConfig, sparse: Mapping[int, SparseUpdate]) -> Ride:
        """Which trees a submission rides on: decided by the task and by what went before, never by its rows."""
        if isinstance(self._session, TreeSession) and self._session.stands:
            return self._session.ride()
        match self._round:
            case protocol.Holding(query=int(query)) if (
                self.task.updates == "retrieved" and query in self._answered_trees
            ):
                trees, planting = Trees.RETRIEVAL, self._answered_trees[query]
                if not any(config.shape.sparse_blocks()):
                    trees, query = Trees.OWN, 0  # the servers know of no retrieval, and there are no trees
            case _:
                rows = {index: rows for index, (rows, _) in sparse.items()}
                trees, query, planting = Trees.OWN, 0, await self._retriever.plant(config, rows)
        return Ride(trees, query, planting, planting.grove.seeds.commitments(config.round_id(), self.name))

    async def _deliver(self, draft: Draft) -> SubmissionReceipt:
        """Send a draft to each server that owes its receipt, until both are in or its round is over.

        From the first byte on only the outcome that both servers sign says that it was not counted.
        """
        before = self.bytes_sent
        with self._in_doubt(draft.config):
            try:
                signatures = await self._requests.both(partial(self._receipt, draft))
                receipt = SubmissionReceipt(draft.config.number, draft.words.digest, signatures, 0, draft.left_out)
            except RoundClosedError as closed:
                receipt = await self._receipt_by_outcome(self._drafts[draft.words.digest], closed)
        self._drafts = {}
        return replace(receipt, bytes_sent=self.bytes_sent - before)

    async def _receipt(self, draft: Draft, server: int) -> bytes:
        """One server's receipt: the one that is here, or the one it sends."""
        if server not in draft.receipts:
            async with self._session_there():
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
