"""What a server does for a client that submits: check, store, enter, and sign that it is in.

Rules: a receipt is sent only after the submission is stored and stands in the round's list; the same bytes again get
the same receipt, other bytes get a conflict.
"""

from __future__ import annotations

import trio

from fsl_async.derivation import binding, submission_digest
from fsl_async.digests import Domain
from fsl_async.errors import StorageError
from fsl_async.protocols import epochs, ssa
from fsl_async.wire.messages import NO_RETRIEVAL, Hint, Receipt, Submit
from fsl_async.wire.public_part import Layout, Trees
from parties.identity.keys import Identity
from parties.server.admission import Enrolment
from parties.server.clients.deposits import (
    Deposit,
    assemble,
    check_bound_digest,
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
    """Takes submissions."""

    def __init__(self, sessions: Sessions, enrolment: Enrolment, identity: Identity, inbox: Inbox) -> None:
        self._sessions = sessions
        self._enrolment = enrolment
        self._identity = identity
        self._inbox = inbox

    async def check(self, run: RoundRun, client: str, message: Submit | Hint) -> bytes:
        """Check what a submission's message says, whatever becomes of its bulk; the client's master seed here.

        Raises:
            RequestRefusedError: it is not taken.
        """
        run.aggregation.places.check_place(client)
        check_bound_digest(run.config.shape, message)
        seed = await self._seed(run, client, message)
        run.requests.check_direct(RequestKey(client, "submit", 0), message.public_digest)
        return seed

    async def _seed(self, run: RoundRun, client: str, message: Submit | Hint) -> bytes:
        if isinstance(message, Hint):
            return (await session_origin(self._sessions, run, client, message)).msk
        check_seed(run, client, message)
        _query_part(run, client, message)
        return message.seed

    async def submit(self, run: RoundRun, client: str, message: Submit | Hint, deposit: Deposit | None) -> Reply:
        """Take a submission, whose message is checked.

        Args:
            run: the round.
            client: whose submission it is.
            message: its message.
            deposit: what it has brought to its carrier; None on the other server.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        key, announced = RequestKey(client, "submit", 0), message.public_digest
        await assemble(run, key, announced, deposit, Layout.submission(run.config.shape, trees_of(message)))
        stored = await self._stored(run, client, message, deposit)
        event = epochs.Hinted if stored.trees is Trees.SESSION else epochs.Brought
        return await self._receipt(run, stored, event(run.config.epoch, announced))

    async def _stored(
        self, run: RoundRun, client: str, message: Submit | Hint, deposit: Deposit | None
    ) -> StoredSubmission:
        """A submission as it is stored; that the announced digest is the part's is checked.

        Only its carrier, which has a deposit, has its private bulk.
        """
        query_part = b"" if isinstance(message, Hint) else _query_part(run, client, message)
        origin = await self._origin(run, client, message, query_part)
        identity = self._enrolment.identity(client).digest()
        bind = binding(run.round_id, identity, message.public_digest, origin.tree, origin.commitments)
        return StoredSubmission(
            client=client,
            name=submission_digest(bind, message.bound_digest),
            msk=origin.msk,
            commitments=origin.commitments,
            tree=origin.tree,
            trees=trees_of(message),
            query=NO_RETRIEVAL if isinstance(message, Hint) else message.query,
            query_part=query_part,
            part=message.public_digest,
            bind=bind,
            dense=b"" if deposit is None else deposit.dense,
            private=b"" if deposit is None else message.bound_digest,
        )

    async def _origin(self, run: RoundRun, client: str, message: Submit | Hint, query_part: bytes) -> StoredOrigin:
        """The seeds of a submission's trees, and the trees' digest."""
        if isinstance(message, Hint):
            return await session_origin(self._sessions, run, client, message)
        shape, trees = run.config.shape, trees_of(message)
        key, name, layout = RequestKey(client, "submit", 0), message.public_digest, Layout.submission(shape, trees)
        if message.query:
            key, name, layout = RequestKey(client, "retrieve", message.query), query_part, Layout.retrieval(shape)
        tree = await run.records.tree_digest(key, name, layout)
        return StoredOrigin(
            msk=message.seed, commitments=message.commitments, tree=tree, trees=trees, protocol=run.config.protocol
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
        signature = self._identity.sign(Domain.RECEIPT, name)
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
