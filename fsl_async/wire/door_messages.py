"""Every message between a server's core and its doors, as frozen types.

A door takes clients' connections and their bulk; the core decides. A door calls, under numbers of its own, and the core
answers each call once, in any order; what the core says unasked has no call's number. Rules:

- A message of a client's, and a reply to it, travel as the client's channel has them, without bulk: the core reads them
  with its own decoder, and a door passes replies on unread.
- A visit is one connection of one client's at one door. The door numbers its visits; the core knows whose they are, so
  a request names its visit alone.
- Bulk of a submission or a retrieval never comes to the core: a door puts it under its name and says what it has put.

    door → core    AdmitKey Leave Ask Begin Deposited Withdraw Offer Kept Forwarded NotForwarded
    core → door    Admitted TurnedAway Answered Abused NotYet Granted Wanted Unwanted Later Taken
                   RoundOpened RoundSettled Dismissed ForwardOrder Leaving
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from fsl_async.digests import DIGEST_BYTES
from fsl_async.wire.codec import Message
from fsl_async.wire.messages import LONGEST_RELEASE

__all__ = [
    "LONGEST_DOOR",
    "MOST_DOORS",
    "Abused",
    "AdmitKey",
    "Admitted",
    "Answered",
    "Ask",
    "Begin",
    "CoreHello",
    "CoreToDoor",
    "Deposited",
    "Dismissed",
    "DoorHello",
    "DoorToCore",
    "ForwardOrder",
    "Forwarded",
    "Granted",
    "Kept",
    "Later",
    "Leave",
    "Leaving",
    "NotForwarded",
    "NotYet",
    "Offer",
    "RoundOpened",
    "RoundSettled",
    "Taken",
    "TurnedAway",
    "Unwanted",
    "Wanted",
    "Withdraw",
]

MOST_DOORS = 64
"""Doors of one server at a time."""

LONGEST_DOOR = 64
"""Characters of a door's name."""

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a call, a visit, an order, a round, or bytes."""

DigestBytes: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=64)]

PartDigest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
"""Of a public part; blobs are named by it."""


# ---- in the handshake


class DoorHello(Message, frozen=True, tag="door-hello", kw_only=True, omit_defaults=True):
    """What a door says of itself in the handshake; a core refuses another release or task by name.

    Attributes:
        release: of the door's software.
        task: the digest of its task.
        door: its name, one of a kind among the doors of a server.
        host: where it runs, and `process` its number there: for the operator.
    """

    release: Annotated[str, msgspec.Meta(max_length=LONGEST_RELEASE)]
    task: DigestBytes
    door: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_DOOR)]
    host: Annotated[str, msgspec.Meta(max_length=64)] = ""
    process: Number = 0


class CoreHello(Message, frozen=True, tag="core-hello", kw_only=True):
    """What the core answers: what a door has to know before its first client.

    Attributes:
        longest_answer: bytes of the longest answer that is made for one client.
        connections: how many connections one key may have over all doors.
    """

    longest_answer: Number
    connections: Number


# ---- door to core: clients


class AdmitKey(Message, frozen=True, tag="admit-key", kw_only=True, omit_defaults=True):
    """Asks about the holder of an authenticated channel key, which takes one of its places if it is let in.

    Attributes:
        call: the call's number, and the visit's from now on.
        key: the client's channel key, or the other server's.
        payload: what came with it in the handshake.
        origin: the address that it came from, for messages.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"payload"})
    call: Number
    key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    payload: Annotated[bytes, msgspec.Meta(max_length=1_024)]
    origin: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Leave(Message, frozen=True, tag="leave"):
    """A visit is over, and its place is free; what it still asked for is forgotten."""

    visit: Number


class Ask(Message, frozen=True, tag="ask", kw_only=True):
    """A client's question whose answer may take long: `AskTask`, `Enter` or `AskOutcome`.

    The answer is `Answered`, or `NotYet`: the door asks again when a round opens or is settled. A visit that has been
    told `NotYet` about an `Enter` counts among those that ask to take part, until it leaves or asks for something else.
    """

    call: Number
    visit: Number
    request: Annotated[bytes, msgspec.Meta(max_length=4_096)]


class Begin(Message, frozen=True, tag="begin", kw_only=True, omit_defaults=True):
    """A client's counted request, before any of its bulk is stored.

    The answer is `Granted` where there is bulk to be taken, and otherwise `Answered` or `Abused`.

    Attributes:
        request: the message, without its bulk.
        size: the bytes of bulk that it declares.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"request"})
    call: Number
    visit: Number
    request: Annotated[bytes, msgspec.Meta(max_length=4_096)]
    size: Number = 0


class Deposited(Message, frozen=True, tag="deposited", kw_only=True):
    """All bulk of a granted request has come, has the form that it must have, and is put, durably, under its names.

    Where the part's digest is not the one that the client has announced, nothing is put: the core says what follows.

    Attributes:
        call: the call that was granted; the answer is `Answered` or `Abused`.
        part: the digest of the public part.
        tree: the digest of the trees in it.
        size: bytes of the public part.
    """

    call: Number
    part: PartDigest
    tree: DigestBytes
    size: Number


class Withdraw(Message, frozen=True, tag="withdraw", kw_only=True):
    """A granted request comes to nothing; the call has no answer.

    Attributes:
        why: `broken-off` counts against the client's quota; `refused`: its bulk is not what it must be, which the
            client has been told; `no-room`: the door could not take it, and nothing counts.
    """

    call: Number
    why: Literal["broken-off", "refused", "no-room"]


# ---- door to core: what the servers forward


class Offer(Message, frozen=True, tag="offer", kw_only=True):
    """The other server offers a client's public part, of which nothing has come yet.

    The answer is `Wanted`, `Unwanted` or `Later`.
    """

    call: Number
    visit: Number
    round_id: DigestBytes
    client: Annotated[str, msgspec.Meta(max_length=64)]
    purpose: Literal["retrieve", "submit"]
    query: Number
    part: PartDigest
    size: Number


class Kept(Message, frozen=True, tag="kept", kw_only=True):
    """A wanted part has come and is put under its name; the answer is `Taken`, or `Unwanted` if the round is over.

    Attributes:
        call: that of the offer.
        part: the part's digest, as the door has found it, and `tree` that of its trees.
    """

    call: Number
    part: DigestBytes
    tree: DigestBytes


class Forwarded(Message, frozen=True, tag="forwarded"):
    """The other server has taken the part of this order, or does not want it: the order is carried out."""

    order: Number


class NotForwarded(Message, frozen=True, tag="not-forwarded"):
    """The door has no link to the other server at present, or has lost it: the order stands, and is given again."""

    order: Number


# ---- core to door: answers


class Admitted(Message, frozen=True, tag="admitted", kw_only=True, omit_defaults=True):
    """The holder of the key is let in, and the visit has begun.

    Attributes:
        name: the client's, or the other server's.
        welcome: what its handshake ends with.
        peer: whether it is the other server, which forwards.
    """

    call: Number
    name: Annotated[str, msgspec.Meta(max_length=64)]
    welcome: Annotated[bytes, msgspec.Meta(max_length=1_024)]
    peer: bool = False


class TurnedAway(Message, frozen=True, tag="turned-away", kw_only=True):
    """The holder of the key is not let in; the kind is that of its handshake's answer."""

    call: Number
    kind: Literal["refused", "no-place"]
    reason: Annotated[str, msgspec.Meta(max_length=256)]


class Answered(Message, frozen=True, tag="answered"):
    """The reply to a client; the bulk is that reply as the client's channel has it, its own bulk and all."""

    call: Number


class Abused(Message, frozen=True, tag="abused"):
    """The last reply to a client that goes on beyond its limits, as in `Answered`: its connection ends."""

    call: Number


class NotYet(Message, frozen=True, tag="not-yet"):
    """The question cannot be answered now: ask again when a round opens or is settled."""

    call: Number


class Granted(Message, frozen=True, tag="granted", kw_only=True, omit_defaults=True):
    """The bulk of a request may come.

    Attributes:
        seed: the master seed that keyed digests of a hint's bulk are made with; empty where the request brings it, and
            where no bulk of the task has such a digest.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"seed"})
    call: Number
    seed: Annotated[bytes, msgspec.Meta(max_length=32)] = b""


class Wanted(Message, frozen=True, tag="wanted"):
    """The offered part may come."""

    call: Number


class Unwanted(Message, frozen=True, tag="unwanted"):
    """The offered part is here, or is not to be kept: the other server need not forward it."""

    call: Number


class Later(Message, frozen=True, tag="later"):
    """The round of the offered part is not known here yet: it is offered again later."""

    call: Number


class Taken(Message, frozen=True, tag="taken"):
    """A part that was kept is noted."""

    call: Number


# ---- core to door: unasked


class RoundOpened(Message, frozen=True, tag="round-opened", kw_only=True):
    """A round is open; the bulk is its configuration. Also said first to a door that comes while a round is on."""

    number: Number
    round_id: DigestBytes


class RoundSettled(Message, frozen=True, tag="round-settled"):
    """A round is over, and its outcome can be asked for; nothing is put for it any more."""

    round_id: DigestBytes


class Dismissed(Message, frozen=True, tag="dismissed"):
    """The client of this visit is not known any more: its connection ends."""

    visit: Number
    reason: Annotated[str, msgspec.Meta(max_length=256)]


class ForwardOrder(Message, frozen=True, tag="forward-order", kw_only=True):
    """Forward a stored public part to the other server; the answer is `Forwarded` or `NotForwarded`."""

    order: Number
    round_id: DigestBytes
    number: Number
    client: Annotated[str, msgspec.Meta(max_length=64)]
    purpose: Literal["retrieve", "submit"]
    query: Number
    part: DigestBytes


class Leaving(Message, frozen=True, tag="leaving"):
    """The server is about to stop: the door takes nobody in, and tells them why."""

    explanation: Annotated[str, msgspec.Meta(max_length=256)]


DoorToCore: TypeAlias = AdmitKey | Leave | Ask | Begin | Deposited | Withdraw | Offer | Kept | Forwarded | NotForwarded
"""What a door says to its core."""

CoreToDoor: TypeAlias = (
    Admitted
    | TurnedAway
    | Answered
    | Abused
    | NotYet
    | Granted
    | Wanted
    | Unwanted
    | Later
    | Taken
    | RoundOpened
    | RoundSettled
    | Dismissed
    | ForwardOrder
    | Leaving
)
"""What a core says to its doors."""
