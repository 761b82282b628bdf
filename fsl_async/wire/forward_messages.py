"""Every message on a link over which one server forwards public parts to the other, as frozen types.

A server whose bulk is with doors forwards over links of their own, beside the one between the servers: a door of one
dials the address at which the other takes clients. A part is offered before its bytes are sent. Rules:

- An offer has a number of the sender's, which every message about it repeats.
- A part is sent only once it is wanted, and is what the offer said, byte for byte.
- What is taken need not be offered again; what is not, when the link is lost, is offered again on another one.

    sender → keeper    OfferPart PartFollows
    keeper → sender    PartWanted PartUnwanted PartLater PartTaken
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from fsl_async.digests import DIGEST_BYTES
from fsl_async.wire.codec import Message

__all__ = [
    "FromKeeper",
    "FromSender",
    "OfferPart",
    "PartFollows",
    "PartLater",
    "PartTaken",
    "PartUnwanted",
    "PartWanted",
    "forwarding",
    "is_forwarding",
    "served_task",
]

_FORWARDS = b"forwards"

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
DigestBytes: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class OfferPart(Message, frozen=True, tag="offer-part", kw_only=True):
    """A client's public part is ready to be forwarded; the answer says whether it is to come.

    Attributes:
        number: of the offer.
        round_id, client, purpose, query: which request of which client it is.
        part: the digest of the part.
        size: its bytes.
    """

    number: Number
    round_id: DigestBytes
    client: Annotated[str, msgspec.Meta(max_length=64)]
    purpose: Literal["retrieve", "submit"]
    query: Number
    part: DigestBytes
    size: Number


class PartFollows(Message, frozen=True, tag="part-follows"):
    """The part that was offered under this number and is wanted, as bulk."""

    number: Number


class PartWanted(Message, frozen=True, tag="part-wanted"):
    """The offered part may come."""

    number: Number


class PartUnwanted(Message, frozen=True, tag="part-unwanted"):
    """The offered part is here already, or is not needed."""

    number: Number


class PartLater(Message, frozen=True, tag="part-later"):
    """The round of the offered part is not known here yet; it is to be offered again a little later."""

    number: Number


class PartTaken(Message, frozen=True, tag="part-taken"):
    """The part has come, is the one that was offered, and is kept."""

    number: Number


FromSender: TypeAlias = OfferPart | PartFollows
"""What the server that carries a client's part says."""

FromKeeper: TypeAlias = PartWanted | PartUnwanted | PartLater | PartTaken
"""What the other server says."""


def forwarding(task: bytes) -> bytes:
    """What a server says in its handshake when it opens such a link for the task of that digest."""
    return _FORWARDS + task


def is_forwarding(payload: bytes, task: bytes) -> bool:
    """Whether a handshake's payload opens such a link for the task of that digest."""
    return payload == forwarding(task)


def served_task(payload: bytes) -> bytes:
    """The digest of the task that a server speaks of which dials the other one, for a link of either kind."""
    return payload.removeprefix(_FORWARDS)[:DIGEST_BYTES]
