"""A client's actor: only it changes where the client is.

Its inbox takes the calls of the client's users, one after the other, so calls from several tasks take turns. One
coroutine carries them out and drives the machines; the tasks that talk to the two servers report what they hear to it.

    calls ──> inbox ──> actor ──> machines, store
                          ▲ │
                  replies │ ▼ requests
                        S0, S1

Rules: an error that a person can do something about goes to the caller that asked, and the next call is taken. A lost
store and a defect end the actor: the caller that asked gets the error, and every other one, now and later, is told that
the client has ended. Nobody waits for an actor that has ended or is being closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.client.upload import SparseUpdate
from fsl_async.config import RoundConfig
from fsl_async.errors import FslError, MisuseError
from fsl_async.protocols import client as protocol
from fsl_async.protocols.entry import Inside, RoundGone
from fsl_async.protocols.ssa.client import Ready
from fsl_async.ring import Elements
from fsl_async.task import ProtocolName, Sparse
from parties.client.arguments import refuse_fractions
from parties.client.downloads import Downloads, RowsByName, Unions
from parties.client.entering import ANY, RETRIEVING, SUBMITTING, UNITING, Announcements, RoundEntry
from parties.client.inbox import Call, ResultT
from parties.client.outcomes import Outcomes, check_budget
from parties.client.participation import Participation
from parties.client.requests import Requests
from parties.client.retrieval import Retriever, Wanted
from parties.client.setup import ClientSetup
from parties.client.state import ClientState, Pending
from parties.client.submission import fresh_marks, is_nothing, update_mark
from parties.client.submitting import Submitter
from parties.client.trees import TreeMaker
from parties.errors import ClientEndedError, NoUnionError, RoundClosedError, StillInDoubtError
from parties.outcome import Retrieved, SubmissionReceipt


@dataclass(frozen=True)
class _Closed:
    """It takes nothing; `why` is what callers are told, made anew for each."""

    why: type[MisuseError] | type[ClientEndedError]
    words: str

    def error(self) -> FslError:
        return self.why(self.words)


@dataclass(frozen=True)
class _Alive:
    """It takes calls until its scope is cancelled."""

    calls: trio.MemorySendChannel[Call[Any]]
    scope: trio.CancelScope


_State: TypeAlias = _Closed | _Alive

_NOT_CONNECTED = _Closed(MisuseError, "not connected; use the client inside `async with`, or start its `run`")
_CLOSED = _Closed(MisuseError, "the client was closed before this call was done; what was begun can be resumed")


class Actor:
    """The one task of a client that changes anything.

    Args:
        setup: what the client is made of.

    Attributes:
        participation: where the client is.
        requests: the connections to both servers.
        submitter: makes and delivers its submissions.
        outcomes: how their rounds ended.
        deferred: by sparse block, the rows of the last retrieval that found no place.
    """

    def __init__(self, setup: ClientSetup) -> None:
        self.setup = setup
        self.requests = requests = Requests(setup)
        state = ClientState(setup.store, setup.identity.public, setup.task, setup.lane)
        self.participation = here = Participation(setup.identity.name, state)
        self.deferred: dict[str, npt.NDArray[np.uint32]] = {}
        self._unions = unions = Unions(setup, requests)
        self._downloads = downloads = Downloads(setup, requests, unions)
        self._planter = TreeMaker(setup.lane, setup.randomness)
        self.outcomes = Outcomes(setup, requests, here)
        self._entry = RoundEntry(setup.task, here, Announcements(setup, requests), unions, self.outcomes)
        self._retriever = Retriever(setup, requests, here, unions, downloads, self._planter)
        self.submitter = Submitter(setup, requests, here, unions, self._planter, self.outcomes)
        self._state: _State = _NOT_CONNECTED
        self._over = trio.Event()  # of the last `run`
        self._over.set()

    # ---- for callers

    def post(self, work: Callable[[], Awaitable[ResultT]]) -> Call[ResultT]:
        """Put a request into the inbox: what carries it out, one of the calls below.

        Raises:
            MisuseError: the client is not connected, or was closed.
            ClientEndedError: it has ended.
        """
        match self._state:
            case _Closed():
                raise self._refusal()
            case _Alive(calls=calls):
                call = Call(work)
                calls.send_nowait(call)
                return call
            case _:
                assert_never(self._state)

    async def aclose(self) -> None:
        """End it, and wait until both connections are closed; what is under way is cancelled."""
        if isinstance(self._state, _Alive):
            scope, self._state = self._state.scope, _CLOSED
            scope.cancel()
        await self._over.wait()

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what is stored, connect to both servers, and take calls until closed; see `Client.run`."""
        if not self._over.is_set():
            raise MisuseError("this client is running already")
        calls, taken = trio.open_memory_channel[Call[Any]](float("inf"))
        alive = self._state = _Alive(calls, trio.CancelScope())
        self._over = over = trio.Event()
        opened = False
        try:
            with alive.scope:
                existed = await self.participation.load()
                await self.requests.open(met_before=existed)
                await self.participation.claim()
                opened = True
                task_status.started()
                await self._serve(taken)
            if not opened:
                raise _CLOSED.error()
        finally:
            if self._state is alive:
                self._state = _CLOSED
            self._refuse_all(taken)
            try:
                await self.requests.aclose()
            finally:
                over.set()

    async def _serve(self, calls: trio.MemoryReceiveChannel[Call[Any]]) -> None:
        async for call in calls:
            try:
                await call.carry_out()
            except trio.Cancelled:
                raise
            except BaseException as error:  # a lost store, an interrupt, or a defect: its caller has it
                self._state = _Closed(ClientEndedError, f"{type(error).__name__}: {error}")
                return
            finally:
                call.refuse(self._refusal())

    def _refuse_all(self, calls: trio.MemoryReceiveChannel[Call[Any]]) -> None:
        try:
            while True:
                calls.receive_nowait().refuse(self._refusal())
        except trio.WouldBlock:
            calls.close()

    def _refusal(self) -> FslError:
        """What to tell those whose call will not be done."""
        error = self._state.error() if isinstance(self._state, _Closed) else _CLOSED.error()
        if isinstance(self.participation.submission, Pending):
            error.in_doubt = self.participation.submission.draft.config.number
        return error

    # ---- the calls, one at a time

    async def retrieve(self, wanted: Wanted, whole: Sequence[str], *, wait: bool) -> Retrieved:
        """Retrieve in the open round, and in the next one if it turns out that the one entered before has closed.

        Where nothing is ever submitted, also in the next one if this one closes meanwhile.

        Args:
            wanted: rows of sparse blocks, by index.
            whole: blocks, by name.
            wait: see `RoundEntry.enter`.
        """
        before, tried = self.participation.number, -1
        while True:
            try:
                async with self._in_round(RETRIEVING, wait=wait) as config:
                    return await self._retrieve(config, wanted, whole)
            except RoundClosedError:
                last = self.participation.last_round
                if last is None or last.number <= tried:
                    raise  # a server that will not even announce a round
                if self.setup.task.protocol != "psr" and last.number != before:
                    raise
                tried = last.number

    async def _retrieve(self, config: RoundConfig, wanted: Wanted, whole: Sequence[str]) -> Retrieved:
        arrays = Retrieved()
        if wanted:
            arrays = await self._retriever.retrieve(config, wanted)
            self.deferred = arrays.deferred
        arrays.update({name: await self._downloads.whole(config, name) for name in whole})
        self.deferred = {name: rows for name, rows in self.deferred.items() if name not in whole}
        if any(isinstance(config.task.block(name), Sparse) for name in whole):
            self.participation.have_all_rows()
        return arrays

    async def submit(
        self,
        sparse: Mapping[int, SparseUpdate],
        dense: Mapping[int, Elements],
        *,
        wait: bool,
        again: bool,
        late: bool,
    ) -> SubmissionReceipt:
        """Submit in the open round; what may be late, in the next one where it is signed that it counts in none."""
        tried = -1
        mark = update_mark(self.setup.identity, "ssa", sparse, dense)
        doubt = self.participation.doubts.get(mark, 0)
        if doubt and not again and not is_nothing(sparse, dense):
            raise StillInDoubtError(doubt)
        while True:
            if not isinstance(self.participation.submission, Pending):  # one that is may be given back
                check_budget(self.setup.task, self.participation.charged)
            try:
                async with self._in_round(SUBMITTING, wait=wait) as config:
                    refuse_fractions(config, sparse, dense)
                    return await self.submitter.submit(config, sparse, dense, mark)
            except RoundClosedError:
                last = self.participation.last_round
                if not late or last is None or last.number <= tried:
                    raise
                tried = last.number

    async def unite(self, rows: Wanted, *, wait: bool) -> SubmissionReceipt:
        """Have rows be in the union that the open round finds."""
        async with self._in_round(UNITING, wait=wait) as config:
            return await self._unite(config, rows)

    async def _unite(self, config: RoundConfig, wanted: Wanted) -> SubmissionReceipt:
        draw = self.setup.randomness
        marks = {index: (chosen, fresh_marks(len(chosen), draw)) for index, chosen in wanted.items()}
        return await self.submitter.submit(config, marks, {}, mark_of_rows(self.setup, wanted))

    async def abstain(self) -> bool:
        """Submit zeros, if the round that the client is in has nothing of it yet; whether it had not."""
        match self.participation.round:
            case protocol.ClientRound(entry=Inside(config=config), ssa=Ready()):
                with suppress(RoundClosedError):  # nobody misses it there any more
                    async with self._left_if_closed():
                        if config.protocol == "psu":
                            await self._unite(config, {})
                        else:
                            await self.submitter.submit(config, {}, {}, update_mark(self.setup.identity, "ssa", {}, {}))
                return True
        return False

    async def union(self, *, wait: bool) -> RowsByName:
        """The union that is known, or can be learnt now."""
        here = self.participation.round.entry
        if isinstance(here, Inside) and here.config.union:
            with suppress(RoundClosedError):  # restarted since, and its round is over: the next one tells
                await self._unions.of_round(here.config)
                return self._unions.found()
        async with self._in_round(ANY, wait=wait) as config:
            if config.found:
                await self._unions.published(config)
        if not (found := self._unions.found()):
            raise NoUnionError(config.number)
        return found

    async def resume(self) -> SubmissionReceipt:
        """Finish the pending submission."""
        match self.participation.submission:
            case Pending(draft=draft):
                return await self.submitter.deliver(draft)
            case _:
                raise MisuseError("no submission is pending: there is nothing to resume")

    async def forget_session(self) -> None:
        """Have new trees with the next retrieval or submission."""
        self.participation.forget_session()

    async def forget_rounds(self) -> None:
        """The servers have begun anew."""
        await self.participation.forget_rounds()
        self._unions.forget()

    @asynccontextmanager
    async def _in_round(self, wanted: Set[ProtocolName], *, wait: bool) -> AsyncIterator[RoundConfig]:
        """Be in an open round of a wanted protocol; a round that turns out to be closed is left."""
        async with self._left_if_closed():
            yield await self._entry.enter(wanted, wait=wait)

    @asynccontextmanager
    async def _left_if_closed(self) -> AsyncIterator[None]:
        here = self.participation
        try:
            yield
        except RoundClosedError:
            if protocol.may_be_lost(here.round):
                await here.leave(RoundGone())
            raise


def mark_of_rows(setup: ClientSetup, rows: Wanted) -> bytes:
    """A digest by which this client alone recognises the rows that it has submitted to a union."""
    chosen = {index: (array, array) for index, array in rows.items()}
    return update_mark(setup.identity, "psu", chosen, {})
