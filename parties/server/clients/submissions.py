"""What a server does for a client that submits: check, store, enter, and sign that it is in.

Rules: a receipt is sent only after the submission is stored and stands in the round's list; the same bytes again get
the same receipt, other bytes get a conflict.
"""

from __future__ import annotations

import trio

from fsl_async.bounds import SALT_BYTES as BOUND_SALT_BYTES
from fsl_async.bounds import binding, check_private, private_digest, terms_of
from fsl_async.derivation import dense_digest, submission_digest
from fsl_async.digests import DIGEST_BYTES, Domain, same
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import epochs, ssa
from fsl_async.wire.messages import Hint, Receipt, Submit
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees, dense_bytes
from parties.server.actor import Actor
from parties.server.clients.answerer import NOTHING, Reply
from parties.server.clients.parts import assemble, check_seed, session_trees
from parties.server.refusals import RequestRefusedError
from parties.server.round.assembly import RequestKey
from parties.server.round.records import OwnBulk, StoredSubmission
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
        announced, own = await _take_parts(run, client, message, layout, bulk, message.seed)
        query_part = _query_part(run, client, message)
        key, bringing, name = RequestKey(client, "submit", 0), layout, announced
        if message.query:
            key, bringing = RequestKey(client, "retrieve", message.query), Layout.retrieval(run.config.shape)
            name = query_part
        tree = await run.records.tree_digest(key, name, bringing)
        submission = StoredSubmission(
            client=client,
            **self._names(run, client, message, announced, tree, message.commitments),
            msk=message.seed,
            commitments=message.commitments,
            tree=tree,
            trees=trees,
            query=message.query,
            query_part=query_part,
            part=announced,
            dense_salt=message.dense_salt,
        )
        return await self._receipt(run, submission, own, epochs.Brought(run.config.epoch, announced))

    async def hint(self, run: RoundRun, client: str, message: Hint, bulk: memoryview) -> Reply:
        """Take a submission for the trees of the client's session.

        Raises:
            RequestRefusedError: it is not taken.
            StorageError: it could not be stored.
        """
        session = await session_trees(self._records.sessions, run, client, message)
        layout = Layout.submission(run.config.shape, Trees.SESSION)
        announced, own = await _take_parts(run, client, message, layout, bulk, session.msk)
        submission = StoredSubmission(
            client=client,
            **self._names(run, client, message, announced, session.tree, session.commitments),
            msk=session.msk,
            commitments=session.commitments,
            tree=session.tree,
            trees=Trees.SESSION,
            query=0,
            query_part=b"",
            part=announced,
            dense_salt=message.dense_salt,
        )
        return await self._receipt(run, submission, own, epochs.Hinted(run.config.epoch, announced))

    def _names(
        self,
        run: RoundRun,
        client: str,
        message: Submit | Hint,
        announced: bytes,
        tree: bytes,
        commitments: tuple[bytes, bytes],
    ) -> dict[str, bytes]:
        """A submission's digest, and the binding of its bound; that the announced digest is the part's is checked."""
        identity = self._records.enrolment.identity(client).digest()
        named = run.round_id, identity, announced, tree, commitments
        of_dense, of_bound = message.dense_salt + message.dense_digest, message.bound_salt + message.bound_digest
        bind = binding(*named, message.dense_digest, message.dense_salt, message.bound_salt) if of_bound else b""
        return {"name": submission_digest(*named, of_dense, of_bound), "bind": bind}

    async def _receipt(
        self,
        run: RoundRun,
        submission: StoredSubmission,
        own: OwnBulk,
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
                    await run.records.store.commit(*changes, *run.records.submission_changes(submission, own))
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
) -> tuple[bytes, OwnBulk]:
    """The digest of a submission's public part, and what is for this server alone: nothing but on the carrier."""
    is_carrier = run.config.carrier(client) == run.server
    public, own = (bulk[: layout.size], bulk[layout.size :]) if is_carrier else (bulk, NOTHING)
    size = dense_bytes(run.config.shape) if terms_of(run.config.shape) else len(own)
    parts = OwnBulk(own[:size], own[size:])
    _check_dense(run, message, parts.dense, is_carrier, msk)
    _check_bound(run, client, message, parts.private, is_carrier, msk)
    return await assemble(run, RequestKey(client, "submit", 0), message.public_digest, public, layout), parts


def _check_dense(run: RoundRun, message: Submit | Hint, dense: memoryview, is_carrier: bool, msk: bytes) -> None:
    expected = dense_bytes(run.config.shape) if is_carrier else 0
    if len(dense) != expected:
        raise RequestRefusedError.because("malformed", f"{expected} bytes of dense share expected, {len(dense)} came")
    if len(message.dense_salt) != (SALT_BYTES if dense_bytes(run.config.shape) else 0):
        raise RequestRefusedError.because("malformed", "the salt of the dense share is not one")
    if is_carrier and not same(dense_digest(dense, msk), message.dense_digest):
        raise RequestRefusedError.because("malformed", "the dense share does not match its digest")


def _check_bound(
    run: RoundRun, client: str, message: Submit | Hint, private: memoryview, is_carrier: bool, msk: bytes
) -> None:
    """Check the form of a bound's proof, so that an honest client with a bug hears of it before its receipt."""
    terms = terms_of(run.config.shape)
    sizes = (BOUND_SALT_BYTES, DIGEST_BYTES) if terms else (0, 0)
    if (len(message.bound_salt), len(message.bound_digest)) != sizes:
        explanation = f"a salt of {sizes[0]} bytes and a digest of {sizes[1]} expected of the bound's proof"
        raise RequestRefusedError.because("malformed", explanation)
    if terms is None or not is_carrier:
        return
    try:
        check_private(terms, private, client)
    except PeerViolationError as error:
        raise RequestRefusedError.because("malformed", str(error)) from error
    if not same(private_digest(private, msk), message.bound_digest):
        raise RequestRefusedError.because("malformed", "the bound's private part does not match its digest")


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
