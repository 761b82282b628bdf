"""What two bidders say to each other: a closed union of messages under the protocol's name."""

from hashlib import sha256

from fsl_async import Message, MessageSet


class Sealed(Message, frozen=True, tag="sealed"):
    """The seal of a bid: a hash that fixes it and hides it."""

    seal: bytes


class Bid(Message, frozen=True, tag="bid"):
    """A bid, and the nonce that opens its seal."""

    price: int
    nonce: bytes

    def seal(self, bidder: str) -> bytes:
        """The seal has the bidder's name in it, so that who copies it cannot open it."""
        return sha256(f"{bidder}: {self.price}: ".encode() + self.nonce).digest()


MESSAGES = MessageSet("sealed bids 1", Sealed | Bid)
