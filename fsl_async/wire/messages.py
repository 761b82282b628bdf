"""Every message that crosses a channel, as frozen types; and which of them carry bulk data.

Rules: fields are small and public to the receiver; bulk data (trees, hints, answers, shares) is not a field but follows
the message, in the exact size that the task implies. A message is one of a closed union per direction, so a
client can never be made to read a server's internal message, nor a server a local event. A field's type says its length
and its range, and its reader enforces them.

    client → server    AskTask Enter Retrieve Recall Download Submit Hint AskOutcome
    server → client    TaskIs Opened Answer Block Receipt Finished Refused
    server → server    Known TossCommitment TossReveal AskedList HeldParts Forward Closing Held RosterList Proofs
                       RowCounts Commitment Share AskPieces SharePiece Conclusion Abort Refused
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from fsl_async.digests import DIGEST_BYTES, KEY_BYTES
from fsl_async.foreign_text import LONGEST_NAME, is_client_name
from fsl_async.wire.codec import Message as Message
from fsl_async.wire.codec import also

SIGNATURE_BYTES = 64

NO_RETRIEVAL = 0
"""In a retrieval's place where there is none: the trees are the submission's own, or the session's."""


LONGEST_RELEASE = 64
"""Characters of a release's name."""


def _of(size: int) -> msgspec.Meta:
    return msgspec.Meta(min_length=size, max_length=size)


def _empty_or(size: int) -> msgspec.Meta:
    return also(f"{size} bytes or none", lambda value: len(value) in (0, size))


Digest: TypeAlias = Annotated[bytes, _of(DIGEST_BYTES)]
"""Also a commitment or a nonce."""

Key: TypeAlias = Annotated[bytes, _of(KEY_BYTES)]
Signature: TypeAlias = Annotated[bytes, _of(SIGNATURE_BYTES)]
DigestIfAny: TypeAlias = Annotated[bytes, _empty_or(DIGEST_BYTES)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Progress: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10)]
ClientName: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME), also("a client's name", is_client_name)]


class Bare(Message, frozen=True):
    """The base of the messages that are never followed by bulk."""

    carries_bulk: ClassVar[bool] = False


# ---- client to server


class AskTask(Bare, frozen=True, tag="ask-task"):
    """Asks for the task; sent by a client whose task has another digest, so that it can name the difference."""


class Enter(Bare, frozen=True, tag="enter"):
    """Asks for the configuration of the first round after number `after`; answered when it opens.

    `known` names the last round in which this client took part, if any. A server that does not know that round has
    started with a new store or an older copy, and announces whichever round is open.
    """

    after: Number
    known: DigestIfAny = b""


class Retrieve(Message, frozen=True, tag="retrieve", kw_only=True):
    """One private retrieval; to the carrier with the public part as bulk, to the other server without."""

    hidden: ClassVar[frozenset[str]] = frozenset({"seed"})
    round_id: Digest
    query: Number
    seed: Key
    commitments: tuple[Digest, Digest]
    public_digest: Digest


class Recall(Bare, frozen=True, tag="recall"):
    """Asks again for the rows of the client's session; the servers have the trees, so nothing is uploaded.

    `session` names the trees, by the commitment to this server's master seed that came with them.
    """

    round_id: Digest
    session: Digest


class Download(Bare, frozen=True, tag="download", kw_only=True):
    """Asks for a part of a block that moves without trees; with `whole`, of all rows of a sparse one; or for its union.

    `union` and `whole` are not true together. A union is one part, number 0.
    """

    round_id: Digest
    block: str
    union: bool = False
    whole: bool = False
    part: Number = 0


class Submit(Message, frozen=True, tag="submit", kw_only=True):
    """One submission; to the carrier with public part, dense share and bound's private part as bulk, to the other not.

    `query` names the retrieval whose trees the hints ride on, or is `NO_RETRIEVAL` if the public part brings its own.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"seed"})
    round_id: Digest
    query: Number
    seed: Key
    commitments: tuple[Digest, Digest]
    public_digest: Digest
    bound_digest: DigestIfAny = b""


class Hint(Message, frozen=True, tag="hint"):
    """A session's submission, likewise.

    `session` says which trees the hints are for, as in `Recall`.
    """

    round_id: Digest
    session: Digest
    public_digest: Digest
    bound_digest: DigestIfAny = b""


class AskOutcome(Bare, frozen=True, tag="ask-outcome"):
    """Asks how a round ended; answered once it has ended."""

    round_id: Digest


# ---- server to client


class TaskIs(Bare, frozen=True, tag="task-is"):
    """The canonical bytes of the server's task."""

    task: bytes


class Opened(Bare, frozen=True, tag="opened"):
    """The canonical bytes of an open round's configuration; `strange` if the server does not know the client's.

    `drawn` is false where the round is only for those that were drawn of the clients that asked, and this one was not.
    """

    config: bytes
    strange: bool = False
    drawn: bool = True


class Answer(Message, frozen=True, tag="answer", kw_only=True):
    """One server's answer to a `Retrieve`, or to a `Recall` (`NO_RETRIEVAL`); the bulk is one row per tree."""

    round_id: Digest
    query: Number


class Block(Message, frozen=True, tag="block", kw_only=True):
    """The answer to `Download`; the bulk is a part of the model's own bytes, or the packed union."""

    round_id: Digest
    block: str


class Receipt(Bare, frozen=True, tag="receipt", kw_only=True):
    """A server's signed statement that it has stored a submission and everything that belongs to it."""

    round_id: Digest
    digest: Digest
    signature: Signature


class Finished(Message, frozen=True, tag="finished", kw_only=True):
    """How a round ended, signed for the client that asked; the bulk is the canonical statement."""

    round_id: Digest
    signature: Signature


Reason: TypeAlias = Literal["round-closed", "no-session", "conflict", "limit", "malformed", "not-drawn", "busy"]


class Refused(Bare, frozen=True, tag="refused", kw_only=True):
    """A request was refused, and why; a busy server says after how many seconds to ask again.

    Also why a connection is about to end; to the other server "busy" says that this one stops as its operator wants.
    """

    reason: Reason
    explanation: str
    retry_after: Number = 0


# ---- server to server


class Known(Bare, frozen=True, tag="known", kw_only=True):
    """What a server knows when the two meet, before it says anything else; see `protocols.reconciliation`.

    Attributes:
        settled: the number of the last round that is over.
        last: that round's id, and `aborted` whether it was aborted.
        present: the id of the current round; empty while its seed is being tossed.
        said: how far this server has got in what it says of a round, and `heard` how far the other one has.
        toss: the digest of this server's commitment to its half of the present round's seed, and `peer_toss` of the
            other's; empty where there is none.
        asked: the digest of this server's list of who asked, if it was sent; `peer_asked` of the other's.
        roster: the digest of this server's list, if it was sent and is still stored; `peer_roster` of the other's.
        release: the release of the software that this server runs, for the other server's operator; nothing depends on
            it.
    """

    settled: Number = 0
    last: DigestIfAny = b""
    aborted: bool = False
    present: DigestIfAny = b""
    said: Progress = 0
    heard: Progress = 0
    toss: DigestIfAny = b""
    peer_toss: DigestIfAny = b""
    asked: DigestIfAny = b""
    peer_asked: DigestIfAny = b""
    roster: DigestIfAny = b""
    peer_roster: DigestIfAny = b""
    release: Annotated[str, msgspec.Meta(max_length=LONGEST_RELEASE)] = ""


class TossCommitment(Bare, frozen=True, tag="toss-commitment", kw_only=True):
    """A commitment to this server's half of the next round's seed, and the digest of the model it holds."""

    number: Number
    commitment: Digest
    model: Digest


class TossReveal(Bare, frozen=True, tag="toss-reveal", kw_only=True):
    """The half that was committed to; `past` if its round is over here, and the peer may not know that it began."""

    hidden: ClassVar[frozenset[str]] = frozenset({"seed", "nonce"})
    number: Number
    seed: Digest
    nonce: Digest
    past: bool = False


class AskedList(Message, frozen=True, tag="asked", kw_only=True):
    """Who has asked this server to take part in the next round; the bulk is the packed list of names.

    `past` if the round is over here, and the peer may not know that it began.
    """

    number: Number
    past: bool = False


class Forward(Message, frozen=True, tag="forward", kw_only=True):
    """A client's public part, from the carrier to the other server, as bulk."""

    round_id: Digest
    client: ClientName
    purpose: Literal["retrieve", "submit"]
    query: Number


class HeldParts(Message, frozen=True, tag="held-parts"):
    """Which public parts of the other server's clients are here, in a round that is on where the servers meet.

    The bulk has their marks (see `fsl_async.wire.peer_lists`); all others are forwarded again.
    """

    round_id: Digest


class Closing(Bare, frozen=True, tag="closing"):
    """In a round that only serves retrievals: this server answers no more of them."""

    round_id: Digest


class Held(Bare, frozen=True, tag="held"):
    """How many submissions of clients that the receiver carries this server has in full, in a round that is open.

    A server says so once it has as many submissions as close the round by its schedule, or has been told so, and again
    whenever that number grows: it knows of every client that the other one carries that both have its submission, and
    nothing of those that it carries itself.
    """

    round_id: Digest
    clients: Annotated[int, msgspec.Meta(ge=0)]


class RosterList(Message, frozen=True, tag="roster"):
    """The submissions a server has in full; the bulk is the packed list."""

    round_id: Digest


class Proofs(Message, frozen=True, tag="proofs"):
    """The proofs of the agreed roster; the bulk is the packed list of clients and proof digests.

    Where the task has a bound, this server's share of its proof follows each digest.
    """

    round_id: Digest


class RowCounts(Message, frozen=True, tag="row-counts"):
    """This server's share of how many clients contribute to each row; the bulk is one 32-bit word for each."""

    round_id: Digest


class Commitment(Bare, frozen=True, tag="commitment"):
    """A commitment to this server's share of the aggregate."""

    round_id: Digest
    commitment: Digest


class Share(Message, frozen=True, tag="share"):
    """What opens this server's commitment: its nonce, and as bulk the digests of all pieces of its share, in order."""

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    round_id: Digest
    nonce: Digest


class AskPieces(Bare, frozen=True, tag="ask-pieces"):
    """Asks for the pieces of the other server's share from number `first` on: this server has those before it."""

    round_id: Digest
    first: Number


class SharePiece(Message, frozen=True, tag="share-piece"):
    """One piece of this server's share as bulk, and its number, from 0; all that were asked for come in order."""

    round_id: Digest
    place: Number


class Conclusion(Bare, frozen=True, tag="conclusion"):
    """The digest of the outcome this server arrived at."""

    round_id: Digest
    outcome: Digest


class Abort(Bare, frozen=True, tag="abort"):
    """This server has aborted the round before committing to its share."""

    round_id: Digest
    explanation: str


FromClient: TypeAlias = AskTask | Enter | Retrieve | Recall | Download | Submit | Hint | AskOutcome
FromServer: TypeAlias = TaskIs | Opened | Answer | Block | Receipt | Finished | Refused
OfRound: TypeAlias = (
    Closing | Held | RosterList | Proofs | RowCounts | Commitment | Share | AskPieces | SharePiece | Conclusion | Abort
)
"""What the servers say to each other in an open round, besides what they forward, and what of that they hold."""

FromPeer: TypeAlias = Known | TossCommitment | TossReveal | AskedList | HeldParts | Forward | OfRound | Refused
