"""What a retrieval and a submission have in common: a master seed, a public part, and the trees of a session."""

from __future__ import annotations

from fsl_async.derivation import seed_commitment
from fsl_async.digests import KEY_BYTES, same
from fsl_async.server.aggregation import Submission
from fsl_async.task import Task
from fsl_async.wire.messages import Hint, Recall, Retrieve, Submit
from fsl_async.wire.public_part import Layout, Part, first_padding
from parties.server.refusals import RequestRefusedError
from parties.server.round.assembly import RequestKey
from parties.server.round.run import RoundRun
from parties.server.sessions import Sessions


def check_seed(run: RoundRun, client: str, message: Retrieve | Submit) -> None:
    """Check a master seed against its commitment.

    Raises:
        RequestRefusedError: they do not match.
    """
    server = run.server
    expected = seed_commitment(message.seed, run.round_id, client, server)
    if len(message.seed) != KEY_BYTES or not same(expected, message.commitments[server]):
        raise RequestRefusedError.because("malformed", "the master seed does not match its commitment")


async def session_trees(sessions: Sessions, run: RoundRun, client: str, message: Recall | Hint) -> Submission:
    """The submission that brought the trees of a client's session.

    Raises:
        RequestRefusedError: the client has no session here, or means other trees, for which its hints are no values.
    """
    session = await sessions.of(run.config, client)
    if not same(session.commitments[run.server], message.session):
        explanation = "your session has other trees here, as if an older state of yours had been put back"
        raise RequestRefusedError.because("no-session", f"{explanation}; your next call begins a new session")
    return session


async def assemble(run: RoundRun, key: RequestKey, announced: bytes, bulk: memoryview, layout: Layout) -> bytes:
    """Wait until both halves of a request are here, and record that they agree.

    A hint to its carrier announces no digest, because the carrier computes it from the part. A repeat needs no part:
    the part was here and right when the request was recorded.

    Args:
        run: the round.
        key: the request.
        announced: the digest of the public part that the client announces; empty in a hint to its carrier.
        bulk: the public part on its carrier; empty on the other server, to which it is forwarded.
        layout: how the public part lies.

    Returns:
        The digest of the public part.

    Raises:
        RequestRefusedError: a part has another size or form than its layout, the halves differ, or the round closed.
        StorageError: the request could not be recorded.
    """
    is_carrier = run.config.carrier(key.client) == run.server
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
