"""A client: retrieves its rows and submits its updates, privately, with both servers.

The calls below are the whole interface; the order in which a round allows them is `fsl_async.protocols.client`. The
same code runs in memory (`parties.simulate`) and over TCP (`parties.connect`). A client is an actor: its calls are
posted to the inbox of the task `Client.run`, which carries them out. Each concern has a module of its own:

    inbox           how a caller waits for what it asks for; actor: what can be asked for, and the task that does it
    participation   which round, session and submission the client is in; state: how that is stored
    entering        entering a round: what servers announce, and whether it is believed
    retrieval       private retrievals; downloads: what is fetched openly, and which rows a round works on
    submitting      submissions; submission: their bytes; outcomes: what became of them; abstaining: zeros
    requests        requests and repeats; connection, retries

Rules: nothing is sent before the caller's input has been checked whole; a submission's bytes are made once, stored
before the first of them is sent, and the same in every repeat; a server's statement counts only with its signature.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.client.planting import rows_by_block
from fsl_async.errors import MisuseError, sole_error
from fsl_async.protocols import client as protocol
from fsl_async.task import ProtocolName
from parties.client.abstaining import taking_part
from parties.client.actor import Actor, mark_of_rows
from parties.client.arguments import Rows, check_late, encoded_updates, wanted_rows
from parties.client.inbox import ResultT
from parties.client.outcomes import privacy_spent
from parties.client.setup import ClientSetup
from parties.client.state import Pending
from parties.client.submission import LastSubmission, update_mark
from parties.outcome import ClientOutcome, PrivacySpent, Retrieved, SubmissionReceipt
from transport.needs_trio import NeedsTrio

NEEDS_TRIO = NeedsTrio(
    "Client",
    asyncio="use `parties.aio`, or `parties.connect_blocking` and `parties.simulate_blocking`",
    blocking="use `parties.connect_blocking` or `parties.simulate_blocking`, or start trio with `trio.run(main)`",
)


class Client:
    """A client of both servers; made by `simulate` or `connect`, used as an async context manager.

        rows = await client.retrieve({"items": [3, 14], "head": ...})      # {"items": (2, width), "head": (size,)}
        await client.submit({"items": ([3, 14], delta), "head": change})
        outcome = await client.outcome()                                    # once the round is over

    A client is a task, `run`, that both forms start in a nursery of the caller's:

        async with client: ...                      # opens the nursery, and closes it with the client

        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            ...
            await client.aclose()

    A connection that is lost is made anew, and what was asked over it is asked again with the same bytes, for as long
    as `ClientSetup.patience` says. Every call may be cancelled at any point, and the next one resumes from there. Calls
    from several tasks take turns. Once the client is closed, every call raises `MisuseError`; where its store was lost,
    or a call failed for a reason that is no `FslError`, the client has ended, and every later call raises
    `ClientEndedError`.

    Attributes:
        setup: what it is made of.
        task: what is learnt.
        name: its own.
    """

    def __init__(self, setup: ClientSetup) -> None:
        self.setup = setup
        self.task = setup.task
        self.name = setup.identity.name
        self._actor = Actor(setup)
        self._life = AsyncExitStack()

    # ---- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be this client, until it is closed or cancelled: `await nursery.start(client.run)`.

        It has started once the stored state is loaded, and both servers are connected and run the same task. Errors of
        calls go to their callers, and not to the nursery.

        Raises:
            ChannelError: a server could not be reached, or does not know this client; the class says which.
            MisuseError: a server runs another task, and the message names the first field that differs; or the store is
                another client's.
            StorageError: what is stored cannot be read.
        """
        NEEDS_TRIO.require_trio()
        await self._actor.run(task_status=task_status)

    async def aclose(self) -> None:
        """End `run`, and close both connections; calls that are not done raise `MisuseError`."""
        await self._actor.aclose()

    async def __aenter__(self) -> Self:
        NEEDS_TRIO.require_trio()
        await self._life.enter_async_context(self._running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._life.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Run within a nursery; what the caller's body raises is none of its errors, and stays as it is."""
        raised: BaseException | None = None
        with sole_error():
            async with trio.open_nursery() as nursery:
                await nursery.start(self.run)
                try:
                    yield
                except BaseException as error:
                    raised = error
                await self.aclose()
        if raised is not None:
            raise raised

    @property
    def deferred(self) -> dict[str, npt.NDArray[np.uint32]]:
        """By sparse block, the rows of the last retrieval that found no place, or are outside the round's union."""
        return self._actor.deferred

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to both servers so far: handshakes, framing and all."""
        return self._actor.requests.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes received from both servers so far: handshakes, framing and all."""
        return self._actor.requests.bytes_received

    @property
    def round_number(self) -> int:
        """The number of the round this client is in; 0 outside."""
        return self._actor.participation.number

    @property
    def pending(self) -> int:
        """The round of a submission that is on its way, lacks a receipt, and can be finished with `resume`; else 0."""
        submission = self._actor.participation.submission
        return submission.draft.config.number if isinstance(submission, Pending) else 0

    @property
    def undecided(self) -> int:
        """The round of the last submission, as long as this client is in it and does not know its end; else 0."""
        undecided = isinstance(self._actor.participation.round.ssa, protocol.UNDECIDED)
        return self.round_number if undecided else 0

    @property
    def left_out(self) -> Mapping[str, Sequence[int]]:
        """By sparse block, the rows that the pending submission does not carry; see `SubmissionReceipt.left_out`."""
        submission = self._actor.participation.submission
        return submission.draft.left_out if isinstance(submission, Pending) else {}

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What this client has spent of the privacy budget, and what its next submission would make of it.

        It is this client's own ledger, in its state; None in a task without noise.
        """
        return privacy_spent(self.task, self._actor.participation.charged)

    # ---- the calls

    async def retrieve(self, rows: Rows, *, wait: bool = False) -> Retrieved:
        """Fetch rows of sparse blocks privately, and blocks whole.

            rows = await client.retrieve({"items": [3, 14], "head": ...})
            table = await client.retrieve({"items": ...})                  # all its rows, as for an evaluation

        A retrieval of rows always moves as much for every sparse block, named or not: its shape tells the servers
        nothing. A call with whole blocks alone plants no trees; it tells the servers which blocks it wants whole. One
        that fails or is cancelled does not end the round for this client: the next one continues in it. Where a
        round that an earlier call has entered is over, it retrieves in the next one; see `round_number`.

        Args:
            rows: by sparse block, the distinct rows wanted, at most `select`; or `...`, of a dense block or for all
                rows of a sparse one, which then moves as it is, at most 4 GiB.
            wait: where this client has submitted to the round that is open, wait for the next one.

        Returns:
            By block, an array (rows, width) or (size,) of the model's own dtype, bit for bit, in the order asked. A
            whole block is the one whose digest both servers have announced, with all rows of the model, also in a round
            that is aligned on a union. After it a submission of this round brings its own trees, so any rows can be
            updated with `updates="retrieved"`, too; the rows of a session stay as they are.
            Rows that found no place (with probability 2^-40), and those outside the union of a round that is aligned
            on one, are zero and named in the `deferred` of what is returned, as in the client's.

        Raises:
            MisuseError: a block or a row is not what the task allows, a submission is pending, or this client has
                submitted to the open round; nothing was sent.
            NotDrawnError: the open round is for clients that were drawn, and this one was not; nothing was computed.
                With `wait` it waits for a round for which it is drawn.
            RoundClosedError: the round closed meanwhile; call again. With `protocol="psr"` the call itself goes on in
                the next round.
            AlreadyCountedError: a pending submission was counted, and nothing was retrieved; call again.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            WrongAnswerError: one of the servers answered wrongly, and no row is handed out; the trees, and the session
                if there is one, are dropped, so that the next call begins anew.
            ChannelError: a connection was lost, and patience is over.
        """
        self._refuse("psu", "the rounds of this task only find a union: call `unite`, `outcome` and `union`")
        wanted, whole = wanted_rows(self.task, rows)
        return await self._ask(partial(self._actor.retrieve, wanted, whole, wait=wait))

    async def submit(
        self,
        updates: Mapping[str, Any],
        *,
        wait: bool = False,
        again: bool = False,
        late: Literal["next"] | None = None,
    ) -> SubmissionReceipt:
        """Add updates to the round's sum; the only submission of this client in this round.

        If an error's `in_doubt` is a round's number, a byte of the submission may have left, and the submission may
        count: `resume` or `outcome` tells. Until both servers have signed that it was not counted, its values must not
        be sent again in another round, because the difference of the two sums would reveal them. After an error
        without it, nothing that this call sent counts; what an earlier call sent may.

        The rows that `retrieve` hands out are those of the model that both servers announced, but a server can have
        marked that model with an error in an earlier sum, and a client that stays away because of such a row shows that
        it holds it. So submit after every retrieval: in `taking_part` zeros are submitted if what was retrieved is not
        plausible, or what was made of it is refused here. Then report the rows to a person.

        Args:
            updates: by sparse block, a pair of rows and values (rows, width); by dense block, values (size,). Values
                are floats or integers, both numbers, or `RingIntegers`. Blocks left out are submitted as zeros.
            wait: where this client has submitted to the round that is open, wait for the next one.
            again: send it although an update with exactly these values is in doubt, or in a sum that was refused.
            late: "next" brings the update into the next round, with trees of its own, where the round has closed in
                which its rows were retrieved; the receipt says which round it is in. Needs `updates="any"`.

        Returns:
            Both servers' receipts. With them the submission counts, unless `outcome` says otherwise. Rows that found no
            place, or are outside the union of a round that is aligned on one, are named in `left_out`: a client that
            stayed away because of them would show its servers that it has some.

        Raises:
            MisuseError: a block, row or value is not what the task allows, this client has submitted to the open round,
                or a submission to it is pending (see `resume`); or late="next" is not for this task, and the message
                says by which calls to go on. Nothing was sent.
            StillInDoubtError: an update with exactly these values may be in a sum already; nothing was sent.
            BoundExceededError: the update is longer than the task's `bound`; nothing was sent. Submit it in the same
                round, scaled down as `fsl_async.learning.clipped` does.
            BudgetSpentError: one more submission would exceed this client's privacy budget; nothing was sent.
            NotDrawnError: the open round is for clients that were drawn, and this one was not; nothing was computed.
                With `wait` it waits for a round for which it is drawn.
            RoundClosedError: the round closed meanwhile, and where something had been sent both servers have signed
                that it was not counted; call again.
            AlreadyCountedError: an earlier, pending submission was counted, and this call has sent nothing.
            SumRefusedError: this or an earlier, pending submission is in a sum that was opened and refused.
            OtherCountedError: the round has counted another submission of this client than this, or the pending, one.
            OutcomeUnknownError: whether this or an earlier, pending submission was counted cannot be learnt.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            ChannelError: a connection was lost, and patience is over; `resume` continues.
            StorageError: the submission could not be stored; nothing was sent.
        """
        self._refuse_without_updates()
        check_late(self.task, late)
        sparse, dense = encoded_updates(self.task, updates)
        return await self._ask(
            partial(self._actor.submit, sparse, dense, wait=wait, again=again, late=late is not None)
        )

    def taking_part(self) -> AbstractAsyncContextManager[None]:
        """Take part in a round whatever happens: where its block submits nothing, zeros are submitted.

            async with client.taking_part():
                rows = await client.retrieve({"items": ids})
                await client.submit({"items": (ids, trained(rows))})

        Where the block ends without a submission, the client abstains: see `abstain`. Where that is because of an error
        in the caller's own training, or a `MisuseError` of `submit`, the error is logged with its traceback and goes no
        further, so that the program goes on to the next round as the others do: servers then learn nothing about the
        rows that were retrieved, neither now nor from who is missing later. Every other error is raised.

        Logged at level ERROR by the logger `parties.client`, on the node alone; then report the rows to a person.
        """
        return taking_part(self.abstain)

    async def abstain(self) -> bool:
        """Submit zeros to the round that this client has entered, if it has submitted nothing there; `unite` no rows.

        Outside a round, or where only retrievals are served, it does nothing. Servers cannot tell zeros from another
        update. They cost a round of the privacy budget like any other, and weigh nothing in a weighted mean.

        Returns:
            Whether there was something to do.

        Raises:
            FslError: as for `submit`.
        """
        return await self._ask(self._actor.abstain)

    async def unite(self, rows: Mapping[str, npt.ArrayLike], *, wait: bool = False) -> SubmissionReceipt:
        """Take part in finding the union of all clients' rows, in a task with `alignment="union"` or `protocol="psu"`.

        Both servers and all clients learn the union (see `union`), and nothing else; with `alignment="union"` the
        rounds after it work on those rows alone.

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
        self._refuse_without_unions()
        return await self._ask(partial(self._actor.unite, rows_by_block(self.task, rows), wait=wait))

    async def union(self, *, wait: bool = False) -> dict[str, npt.NDArray[np.uint32]]:
        """The union on which the round that this client is in is aligned, else the last one that was found.

            await client.unite({"items": [3, 14]})
            await client.outcome()                     # the round is over
            (await client.union())["items"]            # array([3, 14, 15, ...], dtype=uint32)

        A client that has not taken part learns it as well: it enters the round that is open. In a task with
        `protocol="psu"` the servers say there which round has found the last union, and sign what that was. In a task
        with `alignment="union"`, while the next union is being found, only a client that was there knows the last one.

        Args:
            wait: where this client has submitted to the round that is open, wait for the next one.

        Returns:
            By sparse block the row numbers, ascending, uint32, as both servers describe them by their digest.

        Raises:
            NoUnionError: none has been found yet.
            MisuseError: the task has no rounds that find a union, a submission is pending, or this client has submitted
                to the open round: `outcome` waits for its end.
            RoundClosedError: another union was found meanwhile; call again.
            PeerViolationError: the servers describe different unions, or one has sent another than they describe.
            FslError: otherwise as for `retrieve`.
        """
        self._refuse_without_unions()
        return await self._ask(partial(self._actor.union, wait=wait))

    async def resume(self) -> SubmissionReceipt:
        """Finish the pending submission: send its bytes, as they were, to each server that owes its receipt.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: none is pending; see `pending`.
            RoundClosedError: its round has ended without it, as both servers have signed; it counts nowhere.
            FslError: as for `submit`.
        """
        return await self._ask(self._actor.resume)

    async def outcome(self) -> ClientOutcome:
        """Wait until the round of the last submission has ended, and tell whether it was counted.

        Raises:
            MisuseError: nothing was submitted.
            SumRefusedError: it is in a sum that was opened and refused; its values must not be submitted again.
            OtherCountedError: another submission of this client, of which this process does not know, is in the sum.
            OutcomeUnknownError: a server denies the round; what the other one has signed is in `accounts`.
            PeerViolationError: the servers tell different outcomes, or a signature is wrong.
            ChannelError: a connection was lost, and patience is over.
        """
        return await self._ask(self._actor.outcomes.learn)

    @property
    def unreported(self) -> LastSubmission | None:
        """What an earlier process of this client submitted, if its caller may not know what became of it."""
        return self._actor.participation.unreported

    untold = unreported
    """The earlier name of `unreported`."""

    def mark(self, updates: Mapping[str, Any]) -> bytes:
        """A digest by which this client alone recognises an update: compare `unreported.mark`."""
        self._refuse_without_updates()
        return update_mark(self.setup.identity, "ssa", *encoded_updates(self.task, updates))

    def mark_of_rows(self, rows: Mapping[str, npt.ArrayLike]) -> bytes:
        """The same for the rows that `unite` is given."""
        return mark_of_rows(self.setup, rows_by_block(self.task, rows))

    async def mark_reported(self) -> None:
        """Note that the caller knows what became of the last submission; see `unreported`."""
        await self._ask(self._actor.participation.mark_reported)

    note_told = mark_reported
    """The earlier name of `mark_reported`."""

    def forget_session(self) -> None:
        """Begin anew: the next retrieval or submission brings new trees, and may select other rows."""
        self._actor.post(self._actor.forget_session)

    async def forget_rounds(self) -> None:
        """Forget every round, session and submission, a pending one among them: the servers have begun anew.

        What has been submitted may be in a sum that a server knows: do not submit the same values again.
        """
        await self._ask(self._actor.forget_rounds)

    def _refuse(self, protocol: ProtocolName, why: str) -> None:
        if self.task.protocol == protocol:
            raise MisuseError(f"{why} (protocol={protocol!r})")

    def _refuse_without_updates(self) -> None:
        self._refuse("psu", "the rounds of this task only find a union: call `unite`, `outcome` and `union`")
        self._refuse("psr", "the rounds of this task only serve retrievals: nothing is submitted in them")

    def _refuse_without_unions(self) -> None:
        if not self.task.finds_unions:
            raise MisuseError(
                'the rounds of this task find no union; those of a task with alignment="union" or protocol="psu" do'
            )

    async def _ask(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        return await self._actor.post(work).result()
