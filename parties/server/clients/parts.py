"""What a retrieval and a submission have in common: a master seed, a public part, and the trees of a session."""

from __future__ import annotations

from fsl_async.derivation import seed_commitment
from fsl_async.digests import KEY_BYTES, same
from fsl_async.errors import StorageError
from fsl_async.server.aggregation import Submission
from fsl_async.wire.messages import Hint, Recall, Retrieve, Submit
from fsl_async.wire.public_part import Layout
from parties.server.clients.deposits import Deposit, examine
from parties.server.refusals import RequestRefusedError
from parties.server.round.run import RoundRun
from parties.server.sessions import Sessions, StoredOrigin
from parties.server.store_layout import RequestKey, part_name
from parties.storage.store import Change


def check_seed(run: RoundRun, client: str, message: Retrieve | Submit) -> None:
    """Check a master seed against its commitment.

    Raises:
        RequestRefusedError: they do not match.
    """
    server = run.server
    expected = seed_commitment(message.seed, run.round_id, client, server)
    if len(message.seed) != KEY_BYTES or not same(expected, message.commitments[server]):
        raise RequestRefusedError.because("malformed", "the master seed does not match its commitment")


async def session_trees(sessions: Sessions, run: RoundRun, client: str, message: Recall) -> Submission:
    """The submission that brought the trees of a client's session.

    Raises:
        RequestRefusedError: the client has no session here, or means other trees, for which its hints are no values.
    """
    session = await sessions.of(run.config, client)
    _check_meant(run, session.commitments, message)
    return session


async def session_origin(sessions: Sessions, run: RoundRun, client: str, message: Hint) -> StoredOrigin:
    """Where the trees of a client's session come from.

    Raises:
        RequestRefusedError: the client has no session here, or means other trees, for which its hints are no values.
    """
    origin = await sessions.origin(client)
    _check_meant(run, origin.commitments, message)
    return origin


def _check_meant(run: RoundRun, commitments: tuple[bytes, bytes], message: Recall | Hint) -> None:
    if not same(commitments[run.server], message.session):
        explanation = "your session has other trees here, as if an older state of yours had been put back"
        raise RequestRefusedError.because("no-session", f"{explanation}; your next call begins a new session")


def check_carried(run: RoundRun, client: str) -> None:
    """Refuse bulk that is brought to the server that is not its client's carrier.

    Raises:
        RequestRefusedError: this server is not.
    """
    if run.config.carrier(client) != run.server:
        raise RequestRefusedError.because("malformed", "0 bytes of public part expected from you: you are not carried")


async def assemble(run: RoundRun, key: RequestKey, announced: bytes, deposit: Deposit | None, layout: Layout) -> bytes:
    """Wait until both halves of a request are here and agree; `keep` records that.

    A hint to its carrier announces no digest, because the carrier computes it from the part. A repeat needs no part:
    the part was here and right when the request was recorded.

    Args:
        run: the round.
        key: the request.
        announced: the digest of the public part that the client announces; empty in a hint to its carrier.
        deposit: what the client has brought to its carrier; None on the other server, to which it is forwarded.
        layout: how the public part lies.

    Returns:
        The digest of the public part.

    Raises:
        RequestRefusedError: nothing was brought to the carrier, the halves differ, what was forwarded has not the form
            that it must have, or the round closed.
        StorageError: what was forwarded cannot be looked for, or is missing.
    """
    is_carrier = run.config.carrier(key.client) == run.server
    if is_carrier and deposit is None and layout.size == 0:
        deposit = await _empty(run, key, layout)
    if is_carrier and deposit is None:
        raise RequestRefusedError.because(
            "malformed", "the bytes of the public part are expected from you, and nothing came"
        )
    came = b"" if deposit is None else deposit.part
    announced = announced or came
    run.requests.direct(key, announced)
    if deposit is not None:
        run.records.note_tree(key, came, deposit.tree)
        run.requests.public(key, came)
    await run.requests.assembled(key)
    if deposit is None and not run.records.is_noted(key, announced):
        await _check_form(run, key, announced, layout)
    return announced


async def keep(run: RoundRun, key: RequestKey, part: bytes, *changes: Change) -> None:
    """Record that both halves of a request are here and agree, and have its part forwarded from then on.

    Args:
        run: the round.
        key: the request.
        part: the digest of its public part.
        changes: what else the request is, in the same commit.

    Raises:
        StorageError: it could not be recorded.
    """
    await run.records.keep_request(key, part, *changes)
    if run.config.carrier(key.client) == run.server:
        run.outbox.forward(key, part)


async def _empty(run: RoundRun, key: RequestKey, layout: Layout) -> Deposit:
    """The deposit of a part of no bytes, as trees over blocks of a single row have: no bulk comes for it."""
    deposit = examine(run.config.shape, layout, memoryview(b""))
    await run.records.blobs.put(part_name(run.records.prefix, key, deposit.part))
    return deposit


async def _check_form(run: RoundRun, key: RequestKey, part: bytes, layout: Layout) -> None:
    """Refuse a part that was forwarded, and is not what its client's message says: it would fit no evaluation."""
    if wrong := run.records.malformed(key, part):
        raise RequestRefusedError.because("malformed", wrong)
    size = await run.records.part_size(key, part)
    if size is None:  # it was here when this server started, and no client is to blame that it is gone
        raise StorageError(f"{key.client!r}'s part {part.hex()[:8]} has come before, and its blob is missing")
    if size != layout.size:
        raise RequestRefusedError.because("malformed", f"{layout.size} bytes of public part expected, {size} came")
