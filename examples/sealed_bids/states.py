"""What a bidder can know, and what can happen to it."""

from typing import TypeAlias

from messages import Bid

from fsl_async.protocols.machine import Event, State


class Bidding(State, frozen=True):
    """Our seal is out, the peer's is awaited."""

    bid: Bid


class Revealing(State, frozen=True):
    """Both bids are sealed, so ours is revealed; the peer's is awaited."""

    bid: Bid
    peer_seal: bytes


class Sold(State, frozen=True):
    """Both bids are known."""

    bid: Bid
    peer_bid: Bid


class PeerSealed(Event, frozen=True):
    """The peer's seal has come."""

    seal: bytes


class PeerRevealed(Event, frozen=True):
    """The peer's bid has come."""

    bid: Bid


Auction: TypeAlias = Bidding | Revealing | Sold
AuctionEvent: TypeAlias = PeerSealed | PeerRevealed
