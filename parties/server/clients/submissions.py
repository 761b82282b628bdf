"""What a server does for a client that submits: check, store, enter, and sign that it is in.

Rules: a receipt is sent only after the submission is stored and stands in the round's list; the same bytes again get
the same receipt, other bytes get a conflict.
"""

from __future__ import annotations

import trio

from fsl_async.bounds import binding, private_bytes
from fsl_async.derivation import submission_digest
from fsl_async.digests import Domain
from fsl_async.errors import StorageError
from fsl_async.protocols import epochs, ssa
from fsl_async.wire.messages import NO_RETRIEVAL, Hint, Receipt, Submit
from fsl_async.wire.public_part import Layout, Trees, dense_bytes
from parties.identity.keys import Identity
from parties.server.admission import Enrolment
from parties.server.clients.deposits import (
    Deposit,
    assemble,
    check_salts,
    check_seed,
    keep,
    session_origin,
    trees_of,
)
from parties.server.inbox import Inbox
from parties.server.replies import NOTHING, Reply, RequestRefusedError
from parties.server.round.reading import StoredSubmission
from parties.server.round.run import RoundRun
from parties.server.sessions import Sessions, StoredOrigin
from parties.server.store_layout import RequestKey
from parties.storage.store import Change


class Submissions:
    """Takes submissions.

    Args:
        sessions: the clients'.
        enrolment: the clients that are known.
        identity: signs receipts.
        inbox: brings them to their round.
    """

    def __init__(self, sessions: Sessions, enrolment: Enrolment, identity: Identity, inbox: Inbox) -> None:
        self._sessions = sessions
        self._enrolment = enrolment
        self._identity = identity
        self._inbox = inbox

    def check(self, run: RoundRun, client: str, message: Submit) -> None:
        """Check what a submission's message says, whatever becomes of its bulk.

        Raises:
            RequestRefusedError: it is not taken.
        """
        run.aggregation.places.check_place(client)
        check_seed(run, client, message)
        check_salts(run.config.shape, message)
        _query_part(run, client, message)
        run.requests.check_direct(RequestKey(client, "submit", 0), message.public_digest)

    async def origin(self, run: RoundRun, client: str, message: Hint) -> StoredOrigin:
        """Check what the message of a submission with a session's trees says, and return where they come from.

        Raises:
            RequestRefusedError: it is not taken.
        """
        run.aggregation.places.check_place(client)
        origin = await session_origin(self._sessions, run, client, message)
        check_salts(run.config.shape, message)
        if bool(message.public_digest) == (run.config.carrier(client) == run.server):
            explanation = "a hint names its public part to the server that is not the carrier, and to that one alone"
            raise RequestRefusedError.because("malformed", explanation)
        if message.public_digest:
            run.requests.check_direct(RequestKey(client, "submit", 0), message.public_digest)
        return origin

    async def submit(self, run: RoundRun, client: str, message: Submit, deposit: Deposit | None) -> Reply:
        """Take a submission with trees of its own, or with those of a retrieval.

        Args:
            run: the round.
            client: whose submission it is.
            message: its message, which is checked.
            deposit: what it has brought to its carrier; None on the other server.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        trees = trees_of(message)
        layout = Layout.submission(run.config.shape, trees)
        key, query_part = RequestKey(client, "submit", 0), _query_part(run, client, message)
        announced = await assemble(run, key, message.public_digest, deposit, layout)
        bringing, name = layout, announced
        if message.query:
            key, bringing = RequestKey(client, "retrieve", message.query), Layout.retrieval(run.config.shape)
            name = query_part
        tree = await run.records.tree_digest(key, name, bringing)
        origin = StoredOrigin(
            msk=message.seed, commitments=message.commitments, tree=tree, trees=trees, protocol=run.config.protocol
        )
        submission = self._stored(run, client, message, deposit, announced, origin, query_part)
        return await self._receipt(run, submission, epochs.Brought(run.config.epoch, announced))

    async def hint(self, run: RoundRun, client: str, message: Hint, deposit: Deposit | None) -> Reply:
        """Take a submission for the trees of the client's session; see `submit`.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        session = await session_origin(self._sessions, run, client, message)
        layout = Layout.submission(run.config.shape, Trees.SESSION)
        announced = await assemble(run, RequestKey(client, "submit", 0), message.public_digest, deposit, layout)
        submission = self._stored(run, client, message, deposit, announced, session)
        return await self._receipt(run, submission, epochs.Hinted(run.config.epoch, announced))

    def _stored(
        self,
        run: RoundRun,
        client: str,
        message: Submit | Hint,
        deposit: Deposit | None,
        announced: bytes,
        origin: StoredOrigin,
        query_part: bytes = b"",
    ) -> StoredSubmission:
        """A submission as it is stored; that the announced digest is the part's is checked.

        Args:
            run: the round.
            client: whose submission it is.
            message: its message.
            deposit: what it has brought to its carrier, which alone has its private bulk.
            announced: the digest of its public part.
            origin: the seeds of its trees.
            query_part: the digest of the retrieval's public part that has brought them.
        """
        identity, shape = self._enrolment.identity(client).digest(), run.config.shape
        named = run.round_id, identity, announced, origin.tree, origin.commitments
        of_dense, of_bound = message.dense_salt + message.dense_digest, message.bound_salt + message.bound_digest
        bind = binding(*named, message.dense_digest, message.dense_salt, message.bound_salt) if of_bound else b""
        return StoredSubmission(
            client=client,
            name=submission_digest(*named, of_dense, of_bound),
            msk=origin.msk,
            commitments=origin.commitments,
            tree=origin.tree,
            trees=trees_of(message),
            query=message.query if isinstance(message, Submit) else NO_RETRIEVAL,
            query_part=query_part,
            part=announced,
            dense_salt=message.dense_salt,
            bind=bind,
            dense=message.dense_digest if deposit is not None and dense_bytes(shape) else b"",
            private=message.bound_digest if deposit is not None and private_bytes(shape) else b"",
        )

    async def _receipt(
        self,
        run: RoundRun,
        submission: StoredSubmission,
        event: epochs.Brought | epochs.Hinted,
    ) -> Reply:
        """Enter a submission, once, however often it comes, and sign that it is in.

        Its session is changed only if the round can still settle it: the store may be so slow that the round has
        closed, or is settled, since the request came.
        """
        client, name = submission.client, submission.name
        if not run.driver.serves(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was stored")
        places = run.aggregation.places
        if places.claim(client, name):
            is_fixed = run.config.task.selection == "fixed"
            with trio.CancelScope(shield=True):
                try:
                    changes: list[Change] = [self._sessions.take(client, event)] if is_fixed else []
                    changes += run.records.submission_changes(submission)
                    await keep(run, RequestKey(client, "submit", 0), submission.part, *changes)
                    run.records.hold_submission(submission)
                except (StorageError, RequestRefusedError):
                    places.give_back(client)
                    raise
                await self._inbox.post(run.round_id, ssa.Submitted(client, name))
        if not await places.wait_entered(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was in")
        signature = self._identity.sign(Domain.RECEIPT, run.round_id, client.encode(), name)
        return Receipt(round_id=run.round_id, digest=name, signature=signature), NOTHING


def _query_part(run: RoundRun, client: str, message: Submit) -> bytes:
    """The digest of the public part of the retrieval whose trees a submission uses; empty if it brings its own."""
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
