"""A client's place in the rounds: which one it is in, and what became of what it submitted.

Rules:

- Once a byte of a submission may have left, one server's word decides nothing: not that the round has closed, not that
  it is refused. What both servers have signed decides; else an error says that the submission may count (`in_doubt`).
- A submission that was interrupted is brought to its end before another round is entered. If it was counted, whoever
  wants to go on is told so, for the next thing he would do is to send the same values again.

Why: a server that could make a client send the same values in two rounds would read them off the difference of the two
sums, which it needs only to leave the client out of one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import FslError, MisuseError
from fsl_async.protocols import client as protocol
from fsl_async.protocols.machine import Event
from parties.client.downloads import Downloads
from parties.client.requests import Requests
from parties.client.round_entry import Entrance
from parties.client.session import NoSession, OwnSession, TreeSession, settled
from parties.client.setup import ClientSetup
from parties.client.state import ClientState, Ended, LastSubmission, Received, Remembered, Retrieval
from parties.client.statements import learn_outcome
from parties.client.submission import Draft
from parties.client.trees import Planting
from parties.errors import (
    AlreadyCountedError,
    OutcomesDifferError,
    OutcomeUnknownError,
    RoundClosedError,
    SumRefusedError,
)
from parties.outcome import BY_OUTCOME, ClientOutcome, SubmissionReceipt

__all__ = ["Participant", "Phase"]

Phase: TypeAlias = Literal["main", "union"]


class Participant:
    """Who takes part in rounds, one after the other; see `parties.client.client.Client`.

    Attributes:
        setup: what it is made of.
        task: what is learnt.
        name: its own.
        deferred: by sparse block, the rows of the last retrieval that found no place, or are outside the round's union.
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
        self._round: protocol.ClientRound = protocol.Outside(0)
        self._session: OwnSession = NoSession()
        self._answered_trees: dict[int, Planting] = {}
        self._drafts: dict[bytes, Draft] = {}
        self._last: list[LastSubmission] = []
        self._untold: list[LastSubmission] = []
        self._taken_part: list[RoundConfig] = []
        self._turn = trio.Lock()
        self._noting = trio.Lock()

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

    @property
    def undecided(self) -> int:
        """The round of the last submission, as long as this client is in it and does not know its end; else 0."""
        return self._round.config.number if isinstance(self._round, protocol.Submitting | protocol.Submitted) else 0

    # ---- where it stands

    def _step(self, event: Event) -> None:
        self._round = protocol.step(self._round, event)

    def _answered(self, server: int, query: protocol.QueryId) -> None:
        self._step(protocol.Answered(server, query))

    def _take_up(self, remembered: Remembered) -> None:
        """Stand where an earlier life of this client stood."""
        self._session = remembered.session
        match remembered.submission:
            case Draft(config=config, words=words, receipts=receipts) as draft:
                self._round = protocol.Submitting(config, words.digest, frozenset(receipts))
                self._drafts = {words.digest: draft}
                self._last = [LastSubmission(config, words.digest, draft.mark)]
            case Received(config=config, digest=digest, mark=mark):
                self._round = protocol.Submitted(config, digest)
                self._last = [LastSubmission(config, digest, mark)]
            case Ended(config=config, digest=digest, mark=mark):
                self._last = [LastSubmission(config, digest, mark)]
        self._untold = [last for last in self._last if last.digest != remembered.told]
        self._taken_part = [last.config for last in self._last]
        match remembered.retrieval:
            case Retrieval(config=config, query=query):
                self._round = protocol.Retrieving(config, query, frozenset())
                self._taken_part = [config]

    @asynccontextmanager
    async def _in_round(self, phase: Phase, *, wait: bool) -> AsyncIterator[RoundConfig]:
        """Have a turn in an open round of a phase; one that turns out to be gone is left."""
        async with self._turn:
            try:
                yield await self._enter(phase, wait=wait)
            except RoundClosedError:
                if isinstance(self._round, protocol.Inside | protocol.Retrieving | protocol.Holding):
                    await self._leave(protocol.RoundGone())
                raise

    async def _leave(self, event: protocol.RoundGone | protocol.Leave) -> None:
        """Be outside, with nothing left of the round's retrievals."""
        self._step(event)
        self._answered_trees.clear()
        await self._state.forget_retrieval()

    async def _enter(self, phase: Phase, *, wait: bool) -> RoundConfig:
        """Be in an open round of a phase: the present one, or the first after the last submission.

        Args:
            phase: which.
            wait: whether to let a round pass that is open and is not for this call.
        """
        while True:
            config = await self._enter_next(wait=wait)
            if config.phase == phase:
                await self._downloads.unions(config)
                return config
            if phase == "main":
                raise MisuseError(f"round {config.number} finds the union first: call `unite` with this client's rows")
            if self.task.selection == "fixed":
                raise MisuseError("the union of this session has been found; retrieve and submit rows that are in it")
            if not wait:
                raise MisuseError(
                    f"round {config.number} finds no union: `retrieve` and `submit` take part in it, and "
                    "`unite(rows, wait=True)` (--wait-next) waits for a round that does"
                )
            await self._leave(protocol.Leave())

    async def _enter_next(self, *, wait: bool) -> RoundConfig:
        heard: list[RoundConfig] = []
        match self._round:
            case protocol.Inside(config=config) | protocol.Holding(config=config):
                if protocol.may_ask(self._round) or await self._entrance.still_open(config, self._session):
                    return config
            case protocol.Retrieving(config=config) if await self._entrance.still_open(config, self._session):
                return config
            case protocol.Submitting(config=config, digest=digest):
                await self._end_pending(config, self._drafts[digest])
            case protocol.Submitted(config=config):
                heard = [] if wait else [await self._round_after(config)]
                if isinstance(self._session, TreeSession) and not self._session.stands:
                    await self._learn_outcome()  # whether its trees are a session now
        if not isinstance(self._round, protocol.Outside):
            await self._leave(protocol.Leave())
        for config in heard:
            self._step(protocol.Announced(0, config))
        while isinstance(self._round, protocol.Outside | protocol.HalfEntered):
            await self._hear(self._round)
        return await self._enter_next(wait=wait)

    async def _round_after(self, config: RoundConfig) -> RoundConfig:
        """What S0 announces after the round that this client has submitted to; that one itself may be open for long.

        Raises:
            MisuseError: it is open.
        """
        announced = await self._entrance.announced(0, config.number - 1, self._session, config)
        if announced.round_id() == config.round_id():
            raise MisuseError(
                f"round {config.number} is open, and this client has submitted to it: `outcome` waits for its end, and "
                "the same call with wait=True (--wait-next) for the round after it"
            )
        return announced

    async def _hear(self, state: protocol.Outside | protocol.HalfEntered) -> None:
        """Hear of a round from the server that is behind."""
        match state:
            case protocol.Outside(after=after):
                server = 0
            case protocol.HalfEntered(server=other, config=config):
                server, after = 1 - other, config.number - 1
        last = self._taken_part[-1] if self._taken_part else None
        announced = await self._entrance.announced(server, after, self._session, last)
        self._step(protocol.Announced(server, announced))
        if isinstance(self._round, protocol.Inside):
            self._taken_part = [announced]

    async def _end_pending(self, config: RoundConfig, draft: Draft) -> None:
        """Before another round is entered: learn what became of a pending submission whose round is gone.

        Raises:
            MisuseError: its round is still open.
            AlreadyCountedError: it was counted; the next call goes on.
            SumRefusedError: it is in a sum that was refused; likewise.
            OutcomeUnknownError: nobody can tell any more; the next call goes on without it.
        """
        with self._in_doubt(config):
            if await self._entrance.still_open(config, self._session):
                raise MisuseError(
                    f"a submission to round {config.number} is pending, and the round is open: `resume` finishes it"
                )
        outcome = await self._learn_outcome()
        if outcome.counted:
            raise AlreadyCountedError(_receipt_of(draft), outcome)

    async def forget_rounds(self) -> None:
        """Forget every round, session and submission, one that is pending among them: the servers have begun anew.

        What has been submitted may be in a sum that a server knows: do not submit the same values again.
        """
        async with self._turn:
            with trio.CancelScope(shield=True):
                await self._state.forget_rounds()
                self._round, self._session = protocol.Outside(0), NoSession()
                self._drafts, self._last, self._untold, self._taken_part = {}, [], [], []
                self._answered_trees.clear()

    # ---- the end

    @contextmanager
    def _in_doubt(self, config: RoundConfig) -> Iterator[None]:
        """Whatever goes wrong while a submission's end is open says so; that it was not counted is an end."""
        try:
            yield
        except RoundClosedError:
            raise
        except FslError as error:
            error.in_doubt = config.number
            raise

    async def _receipt_by_outcome(self, draft: Draft, error: RoundClosedError) -> SubmissionReceipt:
        """Of a submission whose round closed before both receipts were here: what the outcome says.

        Raises:
            SumRefusedError: both servers have signed that it is in a sum that was opened and refused.
            RoundClosedError: both servers have signed that it was not counted.
        """
        outcome = await self._learn_outcome()
        if not outcome.counted:
            raise RoundClosedError(
                f"round {outcome.number} has ended without this submission ({outcome.reason}), and both servers have "
                "signed that: it counts nowhere, and may be sent again"
            ) from error
        return _receipt_of(draft)

    async def _learn_outcome(self) -> ClientOutcome:
        if not self._last:
            raise MisuseError("nothing has been submitted yet")
        (last,) = self._last
        config = last.config
        with self._in_doubt(config):
            try:
                outcome = await learn_outcome(self.setup, self._requests, config)
            except (OutcomeUnknownError, OutcomesDifferError):
                await self._settle(last, protocol.Leave(), counted=False)
                raise
        await self._settle(last, protocol.Finish(), counted=outcome.counted)
        if outcome.opened:  # "not counted" would invite the caller to submit the same values again
            raise SumRefusedError(outcome.number, outcome.reason)
        return outcome

    async def _settle(self, last: LastSubmission, event: protocol.Finish | protocol.Leave, *, counted: bool) -> None:
        """Note how a submission's round ended, and erase what was kept for it."""
        with trio.CancelScope(shield=True):
            session = settled(self._session, last.config.epoch, self.name, counted=counted)
            await self._state.keep_end(last, session)
            self._session, self._drafts = session, {}
            self._answered_trees.clear()
            if isinstance(self._round, protocol.Submitting | protocol.Submitted):
                self._step(event)


def _receipt_of(draft: Draft) -> SubmissionReceipt:
    """The receipt of a submission that both servers have signed to have counted."""
    first, second = (draft.receipts.get(server, BY_OUTCOME) for server in (0, 1))
    return SubmissionReceipt(draft.config.number, draft.words.digest, (first, second), 0, draft.left_out)
