"""What a server does for a client that submits: check, store, enter, and sign that it is in.

Rules: a receipt is sent only after the submission is stored and stands in the round's list; the same bytes again get
the same receipt, other bytes get a conflict.
"""

from __future__ import annotations

import trio

from fsl_async.derivation import dense_digest, submission_digest
from fsl_async.digests import Domain, same
from fsl_async.errors import StorageError
from fsl_async.protocols import epochs, ssa
from fsl_async.wire.messages import Hint, Receipt, Submit
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees, dense_bytes
from parties.server.actor import Actor
from parties.server.clients.answerer import NOTHING, Reply
from parties.server.clients.parts import assemble, check_seed, session_trees
from parties.server.refusals import RequestRefusedError
from parties.server.round.assembly import RequestKey
from parties.server.round.records import StoredSubmission
from parties.server.round.run import RoundRun


class Submissions:
    """Takes submissions.

    Args:
        actor: enters them in their round.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._records = actor.records

    async def submit(self, run: RoundRun, client: str, message: Submit, bulk: memoryview) -> Reply:
        """Take a submission with trees of its own, or with those of a retrieval.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        check_seed(run, client, message)
        trees = Trees.RETRIEVAL if message.query else Trees.OWN
        layout = Layout.submission(run.config.shape, trees)
        announced, dense = await _take_parts(run, client, message, layout, bulk, message.seed)
        query_part = _query_part(run, client, message)
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
        return await self._receipt(run, submission, dense, epochs.Brought(run.config.epoch, announced))

    async def hint(self, run: RoundRun, client: str, message: Hint, bulk: memoryview) -> Reply:
        """Take a submission for the trees of the client's session.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        session = await session_trees(self._records.sessions, run, client, message)
        layout = Layout.submission(run.config.shape, Trees.SESSION)
        announced, dense = await _take_parts(run, client, message, layout, bulk, session.msk)
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
        return await self._receipt(run, submission, dense, epochs.Hinted(run.config.epoch, announced))

    def _name(
        self,
        run: RoundRun,
        client: str,
        message: Submit | Hint,
        announced: bytes,
        tree: bytes,
        commitments: tuple[bytes, bytes],
    ) -> bytes:
        """A submission's digest; that the announced digest is the part's has been checked before."""
        identity = self._records.enrolment.identity(client).digest()
        of_dense = message.dense_salt + message.dense_digest
        return submission_digest(run.round_id, identity, announced, tree, commitments, of_dense)

    async def _receipt(
        self,
        run: RoundRun,
        submission: StoredSubmission,
        dense: memoryview,
        event: epochs.Brought | epochs.Hinted,
    ) -> Reply:
        """Enter a submission, once, however often it comes, and sign that it is in.

        Its session is changed only if the round can still settle it: the store may be so slow that the round has
        closed, or is settled, since the request came.
        """
        client, name = submission.client, submission.name
        if not run.serves(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was stored")
        claims = run.aggregation.claims
        if claims.claim(client, name):
            is_fixed = run.config.task.selection == "fixed"
            with trio.CancelScope(shield=True):
                try:
                    changes = [self._records.sessions.take(client, event)] if is_fixed else []
                    await run.records.store.commit(*changes, *run.records.submission_changes(submission, dense))
                except (StorageError, RequestRefusedError):
                    claims.give_back(client)
                    raise
                await self._actor.post_event(run.round_id, ssa.Submitted(client, name))
        if not await claims.wait_entered(client):
            raise RequestRefusedError.because("round-closed", "the round closed before the submission was in")
        signature = self._actor.setup.identity.sign(Domain.RECEIPT, run.round_id, client.encode(), name)
        return Receipt(round_id=run.round_id, digest=name, signature=signature), NOTHING


async def _take_parts(
    run: RoundRun, client: str, message: Submit | Hint, layout: Layout, bulk: memoryview, msk: bytes
) -> tuple[bytes, memoryview]:
    """The digest of a submission's public part, and this server's dense share if no seed gives it."""
    is_carrier = run.config.carrier(client) == run.server
    public, dense = (bulk[: layout.size], bulk[layout.size :]) if is_carrier else (bulk, NOTHING)
    _check_dense(run, message, dense, is_carrier, msk)
    return await assemble(run, RequestKey(client, "submit", 0), message.public_digest, public, layout), dense


def _check_dense(run: RoundRun, message: Submit | Hint, dense: memoryview, is_carrier: bool, msk: bytes) -> None:
    expected = dense_bytes(run.config.shape) if is_carrier else 0
    if len(dense) != expected:
        raise RequestRefusedError.because("malformed", f"{expected} bytes of dense share expected, {len(dense)} came")
    if len(message.dense_salt) != (SALT_BYTES if dense_bytes(run.config.shape) else 0):
        raise RequestRefusedError.because("malformed", "the salt of the dense share is not one")
    if is_carrier and not same(dense_digest(dense, msk), message.dense_digest):
        raise RequestRefusedError.because("malformed", "the dense share does not match its digest")


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
