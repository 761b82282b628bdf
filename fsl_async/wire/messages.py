"""Every message that crosses a channel, as frozen types; and which of them carry bulk data.

Rules: fields are small and public to the receiver; bulk data (trees, hints, answers, shares) is not a field but follows
the message as one `bin` whose exact size the task implies. A message is one of a closed union per direction, so a
client can never be made to read a server's internal message, nor a server a local event.

    client → server    AskTask Enter Retrieve Recall Download Submit Hint AskOutcome
    server → client    TaskIs Opened Answer Block Receipt Finished Refused
    server → server    Known TossCommitment TossReveal AskedList Forward Closing Held RosterList Proofs RowCounts
                       Commitment Share AskPieces SharePiece Conclusion Abort
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from fsl_async.wire.codec import Message as Message

NO_RETRIEVAL = 0
"""In a retrieval's place where there is none: the trees are the submission's own, or the session's."""


LONGEST_RELEASE = 64
"""Characters of a release's name."""


# ---- client to server


class AskTask(Message, frozen=True, tag="ask-task"):
    """Asks for the task; sent by a client whose task has another digest, so that it can name the difference."""


class Enter(Message, frozen=True, tag="enter", omit_defaults=True):
    """Asks for the configuration of the first round after number `after`; answered when it opens.

    `known` names the last round in which this client took part, if any. A server that does not know that round has
    started with a new store or an older copy, and announces whichever round is open.
    """

    after: int
    known: bytes = b""


class Retrieve(Message, frozen=True, tag="retrieve", kw_only=True):
    """One private retrieval; to the carrier with the public part as bulk, to the other server without."""

    hidden: ClassVar[frozenset[str]] = frozenset({"seed"})
    round_id: bytes
    query: int
    seed: bytes
    commitments: tuple[bytes, bytes]
    public_digest: bytes


class Recall(Message, frozen=True, tag="recall"):
    """Asks again for the rows of the client's session; the servers have the trees, so nothing is uploaded.

    `session` names the trees, by the commitment to this server's master seed that came with them.
    """

    round_id: bytes
    session: bytes


class Download(Message, frozen=True, tag="download", kw_only=True, omit_defaults=True):
    """Asks for a part of a block that moves without trees; with `whole`, of all rows of a sparse one; or for its union.

    `union` and `whole` are not true together. A union is one part, number 0.
    """

    round_id: bytes
    block: str
    union: bool = False
    whole: bool = False
    part: Annotated[int, msgspec.Meta(ge=0)] = 0


class Submit(Message, frozen=True, tag="submit", kw_only=True, omit_defaults=True):
    """One submission; to the carrier with public part, dense shares and bound's private part as bulk, to the other not.

    `query` names the retrieval whose trees the hints ride on, or is `NO_RETRIEVAL` if the public part brings its own.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"seed"})
    round_id: bytes
    query: int
    seed: bytes
    commitments: tuple[bytes, bytes]
    public_digest: bytes
    dense_digest: bytes
    dense_salt: bytes = b""
    bound_digest: bytes = b""
    bound_salt: bytes = b""


class Hint(Message, frozen=True, tag="hint", omit_defaults=True):
    """A session's submission: hints, dense shares and bound's private part as bulk to the carrier; digests to both.

    `session` says which trees the hints are for, as in `Recall`.
    """

    round_id: bytes
    session: bytes
    public_digest: bytes = b""
    dense_digest: bytes = b""
    dense_salt: bytes = b""
    bound_digest: bytes = b""
    bound_salt: bytes = b""


class AskOutcome(Message, frozen=True, tag="ask-outcome"):
    """Asks how a round ended; answered once it has ended."""

    round_id: bytes


# ---- server to client


class TaskIs(Message, frozen=True, tag="task-is"):
    """The canonical bytes of the server's task."""

    task: bytes


class Opened(Message, frozen=True, tag="opened", omit_defaults=True):
    """The canonical bytes of an open round's configuration; `strange` if the server does not know the client's.

    `drawn` is false where the round is only for those that were drawn of the clients that asked, and this one was not.
    """

    config: bytes
    strange: bool = False
    drawn: bool = True


class Answer(Message, frozen=True, tag="answer", kw_only=True):
    """One server's answer to a `Retrieve`, or to a `Recall` (`NO_RETRIEVAL`); the bulk is one row per tree."""

    round_id: bytes
    query: int


class Block(Message, frozen=True, tag="block", kw_only=True):
    """The answer to `Download`; the bulk is a part of the model's own bytes, or the packed union."""

    round_id: bytes
    block: str


class Receipt(Message, frozen=True, tag="receipt", kw_only=True):
    """A server's signed statement that it has stored a submission and everything that belongs to it."""

    round_id: bytes
    digest: bytes
    signature: bytes


class Finished(Message, frozen=True, tag="finished", kw_only=True):
    """How a round ended, signed for the client that asked; the bulk is the canonical statement."""

    round_id: bytes
    signature: bytes


class Refused(Message, frozen=True, tag="refused", kw_only=True):
    """A request was refused, and why; a busy server says after how many seconds to ask again."""

    reason: Literal["round-closed", "no-session", "conflict", "limit", "malformed", "aborted", "not-drawn", "busy"]
    explanation: str
    retry_after: int = 0


# ---- server to server


class Known(Message, frozen=True, tag="known", kw_only=True, omit_defaults=True):
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

    settled: int = 0
    last: bytes = b""
    aborted: bool = False
    present: bytes = b""
    said: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    heard: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    toss: bytes = b""
    peer_toss: bytes = b""
    asked: bytes = b""
    peer_asked: bytes = b""
    roster: bytes = b""
    peer_roster: bytes = b""
    release: Annotated[str, msgspec.Meta(max_length=LONGEST_RELEASE)] = ""


class TossCommitment(Message, frozen=True, tag="toss-commitment", kw_only=True):
    """A commitment to this server's half of the next round's seed, and the digest of the model it holds."""

    number: int
    commitment: bytes
    model: bytes


class TossReveal(Message, frozen=True, tag="toss-reveal", kw_only=True, omit_defaults=True):
    """The half that was committed to; `past` if its round is over here, and the peer may not know that it began."""

    hidden: ClassVar[frozenset[str]] = frozenset({"seed", "nonce"})
    number: int
    seed: bytes
    nonce: bytes
    past: bool = False


class AskedList(Message, frozen=True, tag="asked", kw_only=True, omit_defaults=True):
    """Who has asked this server to take part in the next round; the bulk is the packed list of names.

    `past` if the round is over here, and the peer may not know that it began.
    """

    number: int
    past: bool = False


class Forward(Message, frozen=True, tag="forward", kw_only=True):
    """A client's public part, from the carrier to the other server, as bulk."""

    round_id: bytes
    client: str
    purpose: Literal["retrieve", "submit"]
    query: int


class Closing(Message, frozen=True, tag="closing"):
    """In a round that only serves retrievals: this server answers no more of them."""

    round_id: bytes


class Held(Message, frozen=True, tag="held"):
    """How many submissions of clients that the receiver carries this server has in full, in a round that is open.

    A server says so once it has as many submissions as close the round by its schedule, or has been told so, and again
    whenever that number grows: it knows of every client that the other one carries that both have its submission, and
    nothing of those that it carries itself.
    """

    round_id: bytes
    clients: Annotated[int, msgspec.Meta(ge=0)]


class RosterList(Message, frozen=True, tag="roster"):
    """The submissions a server has in full; the bulk is the packed list."""

    round_id: bytes


class Proofs(Message, frozen=True, tag="proofs"):
    """The proofs of the agreed roster; the bulk is the packed list of clients and proof digests.

    Where the task has a bound, this server's share of its proof follows each digest.
    """

    round_id: bytes


class RowCounts(Message, frozen=True, tag="row-counts"):
    """This server's share of how many clients contribute to each row; the bulk is one 32-bit word for each."""

    round_id: bytes


class Commitment(Message, frozen=True, tag="commitment"):
    """A commitment to this server's share of the aggregate."""

    round_id: bytes
    commitment: bytes


class Share(Message, frozen=True, tag="share"):
    """What opens this server's commitment: its nonce, and as bulk the digests of all pieces of its share, in order."""

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    round_id: bytes
    nonce: bytes


class AskPieces(Message, frozen=True, tag="ask-pieces"):
    """Asks for the pieces of the other server's share from number `first` on: this server has those before it."""

    round_id: bytes
    first: Annotated[int, msgspec.Meta(ge=0)]


class SharePiece(Message, frozen=True, tag="share-piece"):
    """One piece of this server's share as bulk, and its number, from 0; all that were asked for come in order."""

    round_id: bytes
    place: Annotated[int, msgspec.Meta(ge=0)]


class Conclusion(Message, frozen=True, tag="conclusion"):
    """The digest of the outcome this server arrived at."""

    round_id: bytes
    outcome: bytes


class Abort(Message, frozen=True, tag="abort"):
    """This server has aborted the round before committing to its share."""

    round_id: bytes
    explanation: str


FromClient: TypeAlias = AskTask | Enter | Retrieve | Recall | Download | Submit | Hint | AskOutcome
FromServer: TypeAlias = TaskIs | Opened | Answer | Block | Receipt | Finished | Refused
OfRound: TypeAlias = (
    Closing | Held | RosterList | Proofs | RowCounts | Commitment | Share | AskPieces | SharePiece | Conclusion | Abort
)
"""What the servers say to each other in an open round, besides what they forward."""

FromPeer: TypeAlias = Known | TossCommitment | TossReveal | AskedList | Forward | OfRound
