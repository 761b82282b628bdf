"""What a server does for a client's request: count it, have it carried out and answer, or say why not.

Rules: a request's bulk has exactly the size that the task implies, else it is refused before it is read; what a client
asks for in a round is counted before anything is done for it; a contradiction is in the evidence before its refusal is
sent.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias, assert_never

from fsl_async.bounds import private_bytes
from fsl_async.errors import StorageError
from fsl_async.task import ProtocolName, Task
from fsl_async.union import union_task
from fsl_async.wire.messages import (
    AskOutcome,
    AskTask,
    Download,
    Enter,
    FromClient,
    Hint,
    Opened,
    Recall,
    Retrieve,
    Submit,
    TaskIs,
)
from fsl_async.wire.public_part import Layout, Trees, dense_bytes
from parties.events import Warned
from parties.server.actor import Actor
from parties.server.clients.answerer import NOTHING, Reply, Room
from parties.server.clients.retrievals import Retrievals, longest_answer
from parties.server.clients.statements import Statements
from parties.server.clients.submissions import Submissions
from parties.server.evidence import Evidence, either
from parties.server.refusals import ContradictionError, RequestRefusedError
from parties.server.round.quota import Counted
from parties.server.round.records import submission_bytes
from parties.server.round.run import RoundRun
from parties.storage.store import StoreLostError

CountedRequest: TypeAlias = Retrieve | Recall | Download | Submit | Hint
"""Requests of which a client has a limited number in a round."""

FOREIGN: dict[ProtocolName, tuple[type[CountedRequest], ...]] = {
    "ssa": (),
    "psr": (Submit, Hint),
    "psu": (Retrieve, Recall),
}
"""By what a round runs, the requests that do not belong into it."""

RETRY_AFTER = 30
"""Seconds after which to ask a server again that cannot store anything: an operator has to make room."""


class RequestHandler:
    """Answers clients for a server.

    Args:
        actor: has the rounds, and takes what enters a round.

    Attributes:
        longest_bulk: of all requests that the task ever implies, in bytes.
        longest_answer: of all answers that are made for one client, in bytes.
    """

    def __init__(self, actor: Actor) -> None:
        self._rounds = actor.rounds
        self._records = actor.records
        self._setup = actor.setup
        self._task = actor.setup.task
        known = union_task(self._task) if self._task.finds_unions else self._task
        self._sizes = {b"": _bulk_sizes(known)}
        self.longest_bulk = max(*_bulk_sizes(known), submission_bytes(self._task))
        self.longest_answer = longest_answer(self._task, actor.setup.model)
        self._retrievals = Retrievals(actor.records, self.longest_answer)
        self._submissions = Submissions(actor)
        self._statements = Statements(self._task, self._setup.identity)

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes of a request's bulk, in the running round and in the last one, whose clients may be late."""
        run = self._rounds.running
        if run is not None and self._task.finds_unions and run.round_id not in self._sizes:
            self._sizes[run.round_id] = _bulk_sizes(run.config.shape)
        for forgotten in list(self._sizes)[1:-2]:
            del self._sizes[forgotten]
        return frozenset().union(*self._sizes.values())

    def arriving(self, client: str) -> AbstractContextManager[None]:
        """Count a request that has begun to come, until all of it has come; see `Answerer.arriving`."""
        run = self._rounds.running
        return nullcontext() if run is None else run.quota.arriving(client)

    async def reply(self, client: str, message: FromClient, bulk: memoryview, room: Room) -> Reply:
        """Carry a request out; see `Answerer.reply`."""
        try:
            match message:
                case AskTask():
                    return TaskIs(self._task.canonical()), NOTHING
                case Enter(after=after, known=known):
                    strange = bool(known) and not await self._rounds.knows(known)
                    run = await self._rounds.asked(client, 0 if strange else after)
                    return Opened(run.config.canonical(), strange, run.is_drawn(client)), NOTHING
                case AskOutcome(round_id=round_id):
                    return self._statements.sign(await self._rounds.settled_report(round_id), client)
                case Retrieve() | Recall() | Download() | Submit() | Hint():
                    return await self._counted(client, message, bulk, room)
                case _:
                    assert_never(message)
        except RequestRefusedError as refusal:
            return refusal.message, NOTHING
        except StoreLostError:
            raise  # a server that cannot store what it acknowledges must end
        except StorageError as error:
            self._setup.observe(Warned(about="store", explanation=str(error)))
            busy = RequestRefusedError.because("busy", "the server cannot store anything at present", RETRY_AFTER)
            return busy.message, NOTHING

    async def _counted(self, client: str, message: CountedRequest, bulk: memoryview, room: Room) -> Reply:
        """Carry out a request that is counted."""
        found = self._rounds.found
        if isinstance(message, Download) and found is not None and message.round_id == found.round_id:
            with found.quota.request(client, *self._kind(message)):
                return await self._retrievals.download_found(found, message, room)
        run = self._rounds.open_round(message.round_id, client)
        with run.quota.request(client, *self._kind(message)):
            try:
                return await self._carry_out(run, client, message, bulk, room)
            except ContradictionError as seen:
                await self._records.evidence.keep(_evidence(run, client, seen))
                raise

    def _kind(self, message: CountedRequest) -> tuple[Counted, str]:
        """As what a request is counted, and which of several things it asks for."""
        match message:
            case Retrieve() | Recall():
                return Counted.RETRIEVAL, ""
            case Submit() | Hint():
                return Counted.ATTEMPT, ""
            case Download(block=block, union=union, whole=whole):
                names = {entry.name for entry in self._task.blocks}
                return Counted.DOWNLOAD, f"{block}, {union}, {whole}" if block in names else ""
            case _:
                assert_never(message)

    async def _carry_out(
        self, run: RoundRun, client: str, message: CountedRequest, bulk: memoryview, room: Room
    ) -> Reply:
        if isinstance(message, FOREIGN[run.config.protocol]):
            what = "neither retrieves nor recalls" if run.config.protocol == "psu" else "takes no submissions"
            raise RequestRefusedError.because(
                "malformed", f"round {run.config.number} runs {run.config.protocol}: it {what}"
            )
        match message:
            case Download():
                return await self._retrievals.download(run, message, room)
            case Retrieve():
                return await self._retrievals.retrieve(run, client, message, bulk, room)
            case Recall():
                return await self._retrievals.recall(run, client, message, room)
            case Submit():
                return await self._submissions.submit(run, client, message, bulk)
            case Hint():
                return await self._submissions.hint(run, client, message, bulk)
            case _:
                assert_never(message)


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


def _bulk_sizes(shape: Task) -> frozenset[int]:
    """The bytes that a request brings to its client's carrier, for every request that has any."""
    if shape.protocol == "psr":
        return frozenset({Layout.retrieval(shape).size})
    own = dense_bytes(shape) + private_bytes(shape)
    submissions = {Layout.submission(shape, trees).size + own for trees in Trees}
    return frozenset({Layout.retrieval(shape).size, *submissions})
