"""What a server does for a client's request: carry it out and answer, or say why not.

Rules: a request's bulk has exactly the size that the task implies, else it is refused before it is read; a receipt is
sent only after the submission is stored and stands in the round's list; the same bytes again get the same receipt,
other bytes get a conflict.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import trio

from fsl_async.config import restricted
from fsl_async.derivation import answer_bytes, dense_digest, seed_commitment, submission_digest
from fsl_async.digests import KEY_BYTES, Buffer, Domain, same
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import round as protocol
from fsl_async.protocols import session as sessions
from fsl_async.server.aggregation import Submission
from fsl_async.server.retrieval import Query
from fsl_async.task import Dense, Sparse, Task
from fsl_async.union import pack_union, union_task
from fsl_async.wire.messages import (
    NO_RETRIEVAL,
    Answer,
    AskOutcome,
    AskTask,
    Block,
    Download,
    Enter,
    Finished,
    Hint,
    Opened,
    Recall,
    Receipt,
    Retrieve,
    Submit,
    TaskIs,
)
from fsl_async.wire.public_part import SALT_BYTES, Layout, Part, Trees, dense_bytes, first_padding
from parties.events import Warned
from parties.server.actor import Actor
from parties.server.clients.connection import Reply, Room
from parties.server.evidence import Evidence, either
from parties.server.refusals import ContradictionError, RequestRefusedError
from parties.server.round.assembly import RequestKey
from parties.server.round.quota import Counted
from parties.server.round.records import StoredSubmission, submission_bytes
from parties.server.round.run import RoundRun
from parties.storage.store import StoreLostError

__all__ = ["RequestHandler"]

NOTHING = memoryview(b"")

CountedRequest: TypeAlias = Retrieve | Recall | Download | Submit | Hint
"""Of these a client has only so many in a round."""

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
        self._actor = actor
        self._rounds = actor.rounds
        self._records = actor.records
        self._setup = actor.setup
        self._task = actor.setup.task
        self._index = actor.setup.index
        known = union_task(self._task) if self._task.alignment == "union" else self._task
        self._sizes = {b"": _bulk_sizes(known)}
        self.longest_bulk = max(*_bulk_sizes(known), submission_bytes(self._task))
        rows = {index: _row_bytes(actor.setup.model[block.name]) for index, block in self._task.sparse_blocks()}
        self.longest_answer = max(answer_bytes(shape, rows) for shape in (known, self._task))
        self._told: dict[bytes, Reply] = {}

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes of a request's bulk: in the running round, and in the last, whose late clients hear so."""
        run = self._rounds.running
        if run is not None and self._task.alignment == "union" and run.round_id not in self._sizes:
            self._sizes[run.round_id] = _bulk_sizes(run.config.shape)
        for forgotten in list(self._sizes)[1:-2]:
            del self._sizes[forgotten]
        return frozenset().union(*self._sizes.values())

    def arriving(self, client: str) -> AbstractContextManager[None]:
        """Counts a request that has begun to come, until it has; see `RetrievalBatcher.arriving`."""
        run = self._rounds.running
        return nullcontext() if run is None else run.quota.arriving(client)

    async def reply(self, client: str, message: Any, bulk: memoryview, room: Room) -> Reply:
        """Carry a request out; see `RetrievalBatcher.reply`."""
        try:
            match message:
                case AskTask():
                    return TaskIs(self._task.canonical()), NOTHING
                case Enter(after=after, known=known):
                    strange = bool(known) and not await self._rounds.knows(known)
                    run = await self._rounds.next_round(0 if strange else after)
                    return Opened(run.config.canonical(), strange), NOTHING
                case Retrieve() | Recall():
                    return await self._counted(Counted.RETRIEVAL, client, message, bulk, room)
                case Submit() | Hint():
                    return await self._counted(Counted.ATTEMPT, client, message, bulk, room)
                case Download():
                    return await self._counted(Counted.DOWNLOAD, client, message, bulk, room)
                case AskOutcome(round_id=round_id):
                    return await self._finished(round_id)
            raise PeerViolationError(client, f"sent {type(message).__name__}, which no server answers")
        except RequestRefusedError as refusal:
            return refusal.message, NOTHING
        except StoreLostError:
            raise  # no server goes on that cannot keep what it acknowledges
        except StorageError as error:
            self._setup.observe(Warned(about="store", explanation=str(error)))
            busy = RequestRefusedError.because("busy", "the server cannot store anything at present", RETRY_AFTER)
            return busy.message, NOTHING

    async def _counted(
        self, kind: Counted, client: str, message: CountedRequest, bulk: memoryview, room: Room
    ) -> Reply:
        """Carry out a request that is counted."""
        run = self._rounds.open_round(message.round_id, client)
        names = {block.name for block in self._task.blocks}
        what = f"{message.block}, {message.union}" if isinstance(message, Download) and message.block in names else ""
        with run.quota.request(client, kind, what):
            try:
                return await self._carry_out(run, client, message, bulk, room)
            except ContradictionError as seen:
                await self._records.evidence.keep(self._evidence(run, client, seen))
                raise

    def _evidence(self, run: RoundRun, client: str, seen: ContradictionError) -> Evidence:
        peer = run.terms.peer
        doubt = f": one of them has lied, {client!r} or {peer}" if seen.or_peer else ""
        return Evidence(
            number=run.config.number,
            about=either(client, peer) if seen.or_peer else client,
            kind=seen.kind,
            first=seen.first,
            second=seen.second,
            explanation=f"{client!r} was told: {seen}{doubt}",
        )

    async def _carry_out(
        self, run: RoundRun, client: str, message: CountedRequest, bulk: memoryview, room: Room
    ) -> Reply:
        match message:
            case Download():
                return await self._download(run, message, room)
            case Retrieve():
                return await self._retrieve(run, client, message, bulk, room)
            case Recall():
                return await self._recall(run, client, message, room)
            case Submit():
                return await self._submit(run, client, message, bulk)
            case Hint():
                return await self._submit_hint(run, client, message, bulk)

    # ---- retrieval

    async def _retrieve(self, run: RoundRun, client: str, message: Retrieve, bulk: memoryview, room: Room) -> Reply:
        if not 1 <= message.query <= self._task.retrievals:
            raise RequestRefusedError.because(
                "malformed", f"retrievals are numbered from 1 to {self._task.retrievals}, not {message.query}"
            )
        key = RequestKey(client, "retrieve", message.query)
        self._check_seed(run, client, message)
        layout = Layout.retrieval(run.config.shape)
        name = await self._assemble(run, key, message.public_digest, bulk, layout)
        await room(self.longest_answer)
        part = bulk or await run.part(key, name)
        answer = await run.retrievals.answer(Query(message.seed, Part(layout, part)))
        return Answer(round_id=run.round_id, query=message.query), answer

    async def _recall(self, run: RoundRun, client: str, message: Recall, room: Room) -> Reply:
        session = await self._session(run, client, message)
        await room(self.longest_answer)
        answer = await run.retrievals.answer(Query(session.msk, session.trees))
        return Answer(round_id=run.round_id, query=NO_RETRIEVAL), answer

    async def _session(self, run: RoundRun, client: str, message: Recall | Hint) -> Submission:
        """What brought the trees of a client's session, if it means these trees: hints at others are no values here."""
        session = await self._records.sessions.of(run.config, client)
        if not same(session.commitments[self._index], message.session):
            explanation = "your session has other trees here, as if an older state of yours had been put back"
            raise RequestRefusedError.because("no-session", f"{explanation}; your next call begins a new session")
        return session

    async def _download(self, run: RoundRun, message: Download, room: Room) -> Reply:
        names = {block.name: block for block in self._task.blocks}
        block = names.get(message.block)
        plain = {entry.name for entry in run.config.plain}
        if isinstance(block, Sparse) and run.config.union and message.union:
            await room(-(-block.rows // 8))
            content: Buffer = pack_union(run.union[block.name], block.rows)
        elif isinstance(block, Dense) and not message.union:
            await room(0)  # it is the model's own memory
            content = np.ascontiguousarray(run.model[block.name]).data.cast("B")
        elif block is not None and block.name in plain and not message.union:
            array, rows = run.model[block.name], run.union[block.name]
            await room(max(1, len(rows)) * array[:1].nbytes)
            content = restricted(array, rows).data.cast("B")
        else:
            raise RequestRefusedError.because("malformed", f"{message.block!r} is not a block to be downloaded here")
        return Block(round_id=run.round_id, block=message.block), content

    # ---- submission

    async def _submit(self, run: RoundRun, client: str, message: Submit, bulk: memoryview) -> Reply:
        self._check_seed(run, client, message)
        trees = Trees.RETRIEVAL if message.query else Trees.OWN
        layout = Layout.submission(run.config.shape, trees)
        announced, dense = await self._take_parts(run, client, message, layout, bulk, message.seed)
        query_part = self._query_part(run, client, message)
        key, bringing, name = RequestKey(client, "submit", 0), layout, announced
        if message.query:
            key, bringing = RequestKey(client, "retrieve", message.query), Layout.retrieval(run.config.shape)
            name = query_part
        tree = await run.records.tree_digest(key, name, bringing)
        submission = StoredSubmission(
            client=client,
            name=self._name(run, client, message, announced, tree, message.commitments),
            msk=message.seed,
            commitments=message.commitments,
            tree=tree,
            trees=trees,
            query=message.query,
            query_part=query_part,
            part=announced,
            dense_salt=message.dense_salt,
        )
        return await self._receipt(run, submission, dense, sessions.Brought(run.config.epoch, announced))

    async def _submit_hint(self, run: RoundRun, client: str, message: Hint, bulk: memoryview) -> Reply:
        session = await self._session(run, client, message)
        layout = Layout.submission(run.config.shape, Trees.SESSION)
        announced, dense = await self._take_parts(run, client, message, layout, bulk, session.msk)
        submission = StoredSubmission(
            client=client,
            name=self._name(run, client, message, announced, session.tree, session.commitments),
            msk=session.msk,
            commitments=session.commitments,
            tree=session.tree,
            trees=Trees.SESSION,
            query=0,
            query_part=b"",
            part=announced,
            dense_salt=message.dense_salt,
        )
        return await self._receipt(run, submission, dense, sessions.Hinted(run.config.epoch, announced))

    async def _take_parts(
        self, run: RoundRun, client: str, message: Submit | Hint, layout: Layout, bulk: memoryview, msk: bytes
    ) -> tuple[bytes, memoryview]:
        """The digest of a submission's public part, and this server's dense share where it does not expand it."""
        is_carrier = run.config.carrier(client) == self._index
        public, dense = (bulk[: layout.size], bulk[layout.size :]) if is_carrier else (bulk, NOTHING)
        self._check_dense(run, message, dense, is_carrier, msk)
        key = RequestKey(client, "submit", 0)
        return await self._assemble(run, key, message.public_digest, public, layout), dense

    def _name(
        self,
        run: RoundRun,
        client: str,
        message: Submit | Hint,
        announced: bytes,
        tree: bytes,
        commitments: tuple[bytes, bytes],
    ) -> bytes:
        """A submission's digest; the desk has compared the announced digest with the part."""
        identity = self._records.enrolment.identity(client).digest()
        of_dense = message.dense_salt + message.dense_digest
        return submission_digest(run.round_id, identity, announced, tree, commitments, of_dense)

    async def _receipt(
        self,
        run: RoundRun,
        submission: StoredSubmission,
        dense: memoryview,
        event: sessions.Brought | sessions.Hinted,
    ) -> Reply:
        """Enter a submission, once, however often it comes, and sign that it is in.

        Its session is touched only where the round can still settle it: a store may be so slow that the round has
        closed, or is settled, since the request came.
        """
        client, name = submission.client, submission.name
        if not run.serves(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was stored")
        if run.claims.claim(client, name):
            with trio.CancelScope(shield=True):
                try:
                    changes = [self._records.sessions.take(client, event)] if self._task.selection == "fixed" else []
                    await run.records.store.commit(*changes, *run.records.submission_changes(submission, dense))
                except (StorageError, RequestRefusedError):
                    run.claims.give_back(client)
                    raise
                await self._actor.post_event(run.round_id, protocol.Submitted(client, name))
        if not await run.claims.wait_entered(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was in")
        signature = self._setup.identity.sign(Domain.RECEIPT, run.round_id, client.encode(), name)
        return Receipt(round_id=run.round_id, digest=name, signature=signature), NOTHING

    def _query_part(self, run: RoundRun, client: str, message: Submit) -> bytes:
        """The digest of the public part of the retrieval whose trees a submission rides on; empty if it brings some."""
        if message.query == 0:
            return b""
        if run.config.shape.updates != "retrieved":
            raise RequestRefusedError.because("malformed", 'with updates="any" a submission brings trees of its own')
        part = run.requests.assembled_part(RequestKey(client, "retrieve", message.query))
        if part is None:
            raise RequestRefusedError.because(
                "malformed", f"retrieval {message.query}, whose trees it rides on, is unknown"
            )
        return part

    def _check_dense(
        self, run: RoundRun, message: Submit | Hint, dense: memoryview, is_carrier: bool, msk: bytes
    ) -> None:
        expected = dense_bytes(run.config.shape) if is_carrier else 0
        if len(dense) != expected:
            raise RequestRefusedError.because(
                "malformed", f"{expected} bytes of dense share expected, {len(dense)} came"
            )
        if len(message.dense_salt) != (SALT_BYTES if dense_bytes(run.config.shape) else 0):
            raise RequestRefusedError.because("malformed", "the salt of the dense share is not one")
        if is_carrier and not same(dense_digest(dense, msk), message.dense_digest):
            raise RequestRefusedError.because("malformed", "the dense share does not match its digest")

    # ---- both

    def _check_seed(self, run: RoundRun, client: str, message: Retrieve | Submit) -> None:
        expected = seed_commitment(message.seed, run.round_id, client, self._index)
        if len(message.seed) != KEY_BYTES or not same(expected, message.commitments[self._index]):
            raise RequestRefusedError.because("malformed", "the master seed does not match its commitment")

    async def _assemble(
        self, run: RoundRun, key: RequestKey, announced: bytes, bulk: memoryview, layout: Layout
    ) -> bytes:
        """The digest of a request's public part: the client's own bulk on the carrier, else what was forwarded.

        A hint to its carrier announces no digest: what the part has is as good. A repeat needs no part: what is noted
        was here, and right.
        """
        is_carrier = run.config.carrier(key.client) == self._index
        expected = layout.size if is_carrier else 0
        if len(bulk) != expected:
            raise RequestRefusedError.because(
                "malformed", f"{expected} bytes of public part expected from you, {len(bulk)} came"
            )
        came = run.records.name(key, Part(layout, bulk)) if is_carrier else b""
        announced = announced or came
        run.requests.direct(key, announced)
        if is_carrier:
            run.requests.public(key, came)
        await run.requests.assembled(key)
        if not run.records.is_noted(key, announced):
            part = bulk if is_carrier else await run.part(key, announced)
            _check_form(run.config.shape, layout, part)
            await run.records.keep_request(key, announced, *((part,) if is_carrier else ()))
        if is_carrier:
            run.outbox.forward(key, announced)
        return announced

    async def _finished(self, round_id: bytes) -> Reply:
        report = await self._rounds.settled_report(round_id)
        if round_id not in self._told:  # a thousand clients ask at once, and all hear the same bytes
            content = report.canonical()
            signature = self._setup.identity.sign(Domain.OUTCOME, content)
            self._told = {round_id: (Finished(round_id=round_id, signature=signature), content)}
        return self._told[round_id]


def _check_form(task: Task, layout: Layout, part: memoryview) -> None:
    """Refuse a part of another size than its layout's, or with bits set that nothing reads: one part, one encoding."""
    if len(part) != layout.size:
        raise RequestRefusedError.because("malformed", f"{layout.size} bytes of public part expected, {len(part)} came")
    padded = first_padding(task, layout, part)
    if padded is not None:
        (block, forest), kind = padded
        raise RequestRefusedError.because(
            "malformed", f"block {block}, forest {forest}: padding behind the bits of its {kind} must be zero"
        )


def _row_bytes(array: np.ndarray[Any, Any]) -> int:
    """Bytes of one row of a sparse block."""
    return int(np.prod(array.shape[1:], initial=array.itemsize))


def _bulk_sizes(shape: Task) -> frozenset[int]:
    """The bytes that a request brings to its client's carrier, for every request that has any."""
    submissions = {Layout.submission(shape, trees).size + dense_bytes(shape) for trees in Trees}
    return frozenset({Layout.retrieval(shape).size, *submissions})
