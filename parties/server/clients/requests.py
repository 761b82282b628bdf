"""What a server does for a client's request: count it, have it carried out and answer, or say why not.

Rules: a request's bulk has exactly the size that the task implies, else it is refused before it is read; what a client
asks for in a round is counted before anything is done for it; a contradiction is in the evidence before its refusal is
sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar, assert_never

from fsl_async.bin_count import planned
from fsl_async.errors import StorageError
from fsl_async.task import ProtocolName
from fsl_async.union import union_task
from fsl_async.wire import messages
from fsl_async.wire.pieces import parts_of
from parties.events import Warned
from parties.server.clients.deposits import Deposit, Depositor, Wanted, bulk_sizes, check_carried
from parties.server.clients.retrievals import Retrievals, longest_answer
from parties.server.clients.statements import Statements
from parties.server.clients.submissions import Submissions
from parties.server.evidence import Evidence, either
from parties.server.inbox import Inbox
from parties.server.records import ServerRecords
from parties.server.replies import NOTHING, BulkRequest, ContradictionError, Reply, RequestRefusedError, ReserveMemory
from parties.server.round.places import Counted
from parties.server.round.records import submission_bytes
from parties.server.round.run import RoundRun
from parties.server.rounds import Rounds
from parties.server.setup import ServerSetup
from parties.storage.store import StoreLostError

RETRY_AFTER = 30
"""Seconds after which to ask a server again that cannot store anything: an operator has to make room."""

LONGEST_WEIGHT = 8
"""Bytes of a weight of a model at most."""

CountedRequest: TypeAlias = messages.Retrieve | messages.Recall | messages.Download | messages.Submit | messages.Hint
"""Requests of which a client has a limited number in a round."""

FOREIGN: dict[ProtocolName, tuple[type[CountedRequest], ...]] = {
    "ssa": (),
    "psr": (messages.Submit, messages.Hint),
    "psu": (messages.Retrieve, messages.Recall),
}
"""By what a round runs, the requests that do not belong into it."""

Complete: TypeAlias = Callable[[memoryview, ReserveMemory], Awaitable[Reply]]
"""Takes the bulk of a request that has begun, and carries it out; see `RequestHandler.complete`."""

ResultT = TypeVar("ResultT")


class RequestHandler:
    """Answers clients for a server.

    Args:
        setup: what the server is made of.
        records: what it keeps beyond a round.
        rounds: its rounds.
        inbox: takes what enters a round.

    Attributes:
        longest_bulk: of all requests that the task ever implies, in bytes.
        longest_answer: of all answers that are made for one client, in bytes.
    """

    def __init__(self, setup: ServerSetup, records: ServerRecords, rounds: Rounds, inbox: Inbox) -> None:
        self._rounds = rounds
        self._records = records
        self._setup = setup
        self._task = setup.task
        known = planned(self._task)
        self._sizes = bulk_sizes(union_task(known) if self._task.finds_unions else known)
        self.longest_bulk = max(*self._sizes, submission_bytes(self._task))
        self.longest_answer = longest_answer(self._task, setup.model)
        self._retrievals = Retrievals(records.sessions, self.longest_answer)
        self._submissions = Submissions(records.sessions, records.enrolment, setup.identity, inbox)
        self._statements = Statements(self._task, setup.identity, setup.lane)
        self._depositor = Depositor(setup.bulk, setup.lane, records.recent.hold)

    def expects(self, length: int, head: int) -> bool:
        """Whether a request of this length can have come: a bulk of one of the task's sizes, and so much of a head.

        Where rounds are aligned on unions, a round's union decides about sizes, and a client may be rounds late: any
        length may have come up to the longest, and the head alone decides.
        """
        if self._task.alignment == "union":
            return length <= self.longest_bulk + head
        return any(0 < length - size <= head for size in self._sizes)

    @asynccontextmanager
    async def begin(self, client: str, message: BulkRequest, size: int) -> AsyncIterator[Complete]:
        """Check and count a request, and decide whether its bulk may come, before it is read.

        A request that ends in the context before it is completed counts as one that has broken off.

        Args:
            client: who asks.
            message: the request.
            size: the bytes of bulk that come with it.

        Raises:
            RequestRefusedError: they may not.
            AbuseError: the client went on above its limits.
        """
        run, counted = self._rounds.open_round(message.round_id, client), self._kind(message)
        run.quota.count(client, *counted)
        try:
            wanted = await self._judged(run, client, message, self._wanted(run, client, message, size))
        except StoreLostError:
            raise  # a server that cannot store what it acknowledges must end
        except StorageError as error:
            raise self._storage_refusal(error) from error
        run.quota.count(client, Counted.UNFINISHED)
        begun = BegunRequest(run, client, message, wanted)
        try:
            yield partial(self.complete, begun)
        finally:
            if not begun.has_come:
                run.quota.give_back(client, *counted)

    async def _wanted(self, run: RoundRun, client: str, message: BulkRequest, size: int) -> Wanted:
        """What a request's bulk has to be, if this much of it may come."""
        wanted = Wanted.of(run.config, client, message, await self._checked(run, client, message))
        check_carried(run, client)
        wanted.check_size(size)
        return wanted

    def at_once(self, client: str, message: messages.Enter | messages.AskOutcome) -> Reply | None:
        """The reply to a request that may have to wait, where it need not; None where it has to, or is refused."""
        if isinstance(message, messages.Enter):
            if message.known and not self._rounds.is_at_hand(message.known):
                return None
            run = self._rounds.asked_at_once(client, message.after)
            return None if run is None else _opened(run, client, strange=False)
        return self._statements.at_hand(self._rounds.report_at_hand(message.round_id), client)

    async def ask(self, client: str, message: messages.FromClient, reserve: ReserveMemory) -> Reply:
        """Carry out a request that brings no bulk; the answer to a request that is refused is the reason.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """
        return await self._replying(partial(self._asked, client, message, reserve))

    async def _asked(self, client: str, message: messages.FromClient, reserve: ReserveMemory) -> Reply:
        match message:
            case messages.AskTask():
                return messages.TaskIs(self._task.canonical()), NOTHING
            case messages.Enter(known=known):
                strange = bool(known) and not await self._rounds.knows(known)
                run = await self._rounds.asked(client, 0 if strange else message.after)
                return _opened(run, client, strange=strange)
            case messages.AskOutcome(round_id=round_id):
                return await self._statements.sign(await self._rounds.settled_report(round_id), client)
            case messages.Retrieve() | messages.Recall() | messages.Download() | messages.Submit() | messages.Hint():
                return await self._counted(client, message, reserve)
            case _:
                assert_never(message)

    async def _counted(self, client: str, message: CountedRequest, reserve: ReserveMemory) -> Reply:
        """Carry out a request that is counted, and brings no bulk."""
        found, counted = self._rounds.found, self._kind(message)
        if isinstance(message, messages.Download) and found is not None and message.round_id == found.round_id:
            with found.quota.request(client, *counted):
                return await self._retrievals.download_found(found, message, reserve)
        run = self._rounds.open_round(message.round_id, client)
        run.quota.count(client, *counted)
        return await self._judged(run, client, message, self._without_bulk(run, client, message, reserve))

    async def _without_bulk(self, run: RoundRun, client: str, message: CountedRequest, reserve: ReserveMemory) -> Reply:
        if isinstance(message, messages.Retrieve | messages.Submit | messages.Hint):
            await self._checked(run, client, message)
        return await self._carry_out(run, client, message, None, reserve)

    async def _judged(self, run: RoundRun, client: str, message: CountedRequest, work: Awaitable[ResultT]) -> ResultT:
        """What comes of a counted request; where it is refused, note how it counts, and what it is evidence of."""
        try:
            return await work
        except (RequestRefusedError, StorageError) as error:
            with run.quota.carried_out(client, *self._kind(message)):
                if isinstance(error, ContradictionError):
                    await self._records.evidence.keep(_evidence(run, client, error))
                raise

    async def _replying(self, carry_out: Callable[[], Awaitable[Reply]]) -> Reply:
        """Carry something out; the answer to what is refused is the reason."""
        try:
            return await carry_out()
        except RequestRefusedError as refusal:
            return refusal.message, NOTHING
        except StoreLostError:
            raise  # a server that cannot store what it acknowledges must end
        except StorageError as error:
            return self._storage_refusal(error).message, NOTHING

    def _storage_refusal(self, error: StorageError) -> RequestRefusedError:
        """What a client is told of a server that cannot store, whose operator is told why."""
        self._setup.observe(Warned(about="store", explanation=str(error)))
        return RequestRefusedError.because("busy", "the server cannot store anything at present", RETRY_AFTER)

    def _kind(self, message: CountedRequest) -> tuple[Counted, str]:
        """As what a request is counted, and which of several things it asks for."""
        match message:
            case messages.Retrieve() | messages.Recall():
                return Counted.RETRIEVAL, ""
            case messages.Submit() | messages.Hint():
                return Counted.ATTEMPT, ""
            case messages.Download(block=block, union=union, whole=whole, part=part):
                parts = {entry.name: len(parts_of(entry.weights * LONGEST_WEIGHT)) for entry in self._task.blocks}
                there = part < parts.get(block, 0)
                return Counted.DOWNLOAD, f"{block}, {union}, {whole}, {part}" if there else ""
            case _:
                assert_never(message)

    async def _checked(self, run: RoundRun, client: str, message: BulkRequest) -> bytes:
        """Check what a request's message says, and return the client's master seed here.

        Raises:
            RequestRefusedError: it is not carried out, whatever its bulk is.
        """
        _check_foreign(run, message)
        match message:
            case messages.Retrieve():
                self._retrievals.check(run, client, message)
                return message.seed
            case messages.Submit() | messages.Hint():
                return await self._submissions.check(run, client, message)
            case _:
                assert_never(message)

    async def _carry_out(
        self, run: RoundRun, client: str, message: CountedRequest, deposit: Deposit | None, reserve: ReserveMemory
    ) -> Reply:
        _check_foreign(run, message)
        match message:
            case messages.Download():
                return await self._retrievals.download(run, message, reserve)
            case messages.Retrieve():
                return await self._retrievals.retrieve(run, client, message, deposit, reserve)
            case messages.Recall():
                return await self._retrievals.recall(run, client, message, reserve)
            case messages.Submit() | messages.Hint():
                return await self._submissions.submit(run, client, message, deposit)
            case _:
                assert_never(message)

    async def complete(self, begun: BegunRequest, bulk: memoryview, reserve: ReserveMemory) -> Reply:
        """Carry a request out, now that all of it has come; the answer to a request that is refused is the reason.

        Raises:
            AbuseError: the client goes on beyond its limits; the error carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """
        carry_out = partial(self._with_bulk, begun, bulk, reserve)
        return await self._replying(lambda: self._judged(begun.run, begun.client, begun.message, carry_out()))

    async def _with_bulk(self, begun: BegunRequest, bulk: memoryview, reserve: ReserveMemory) -> Reply:
        try:
            deposit = await self._depositor.take(begun.wanted, bulk)
        except (RequestRefusedError, StorageError):
            begun.note_come()
            raise
        begun.note_come()
        await self._erase_if_late(begun)
        run = self._rounds.open_round(begun.message.round_id, begun.client)
        return await self._carry_out(run, begun.client, begun.message, deposit, reserve)

    async def _erase_if_late(self, begun: BegunRequest) -> None:
        """Erase bulk that was put when its round's had been erased already."""
        past, number = self._rounds.past, begun.run.config.number
        if past and self._setup.blobs is not None and number <= past[-1].report.number - self._setup.schedule.retention:
            await self._records.blobs.erase(f"{begun.wanted.prefix}/")


@dataclass
class BegunRequest:
    """A request whose bulk may come; it counts among those that are arriving until all of it has come."""

    run: RoundRun
    client: str
    message: BulkRequest
    wanted: Wanted
    has_come: bool = False

    def note_come(self) -> None:
        """Note that all of it has come."""
        self.has_come = True
        self.run.quota.give_back(self.client, Counted.UNFINISHED)


def _opened(run: RoundRun, client: str, *, strange: bool) -> Reply:
    return messages.Opened(run.config.canonical(), strange, run.start.is_drawn(client)), NOTHING


def _check_foreign(run: RoundRun, message: CountedRequest) -> None:
    if isinstance(message, FOREIGN[run.config.protocol]):
        what = "neither retrieves nor recalls" if run.config.protocol == "psu" else "takes no submissions"
        raise RequestRefusedError.because(
            "malformed", f"round {run.config.number} runs {run.config.protocol}: it {what}"
        )


def _evidence(run: RoundRun, client: str, seen: ContradictionError) -> Evidence:
    peer = run.peer
    doubt = f": one of them has lied, {client!r} or {peer}" if seen.or_peer else ""
    return Evidence(
        number=run.config.number,
        about=either(client, peer) if seen.or_peer else client,
        kind=seen.kind,
        first=seen.first,
        second=seen.second,
        explanation=f"{client!r} was told: {seen}{doubt}",
    )
