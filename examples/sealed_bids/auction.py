"""A sealed-bid auction of two as a machine: both seal their bids, then both reveal them, and the higher one wins.

Neither can choose its bid after it has seen the other's. There is no network, no disk and no clock in here.
"""

from typing import assert_never

from messages import Bid, Sealed
from states import Auction, AuctionEvent, Bidding, PeerRevealed, PeerSealed, Revealing, Sold

from fsl_async import PeerViolationError
from fsl_async.protocols.machine import Machine

MACHINE: Machine[Auction] = Machine(Auction, AuctionEvent, initial=(Bidding,), final=(Sold,))


@MACHINE.transition
def _take_seal(state: Bidding, event: PeerSealed, peer: str) -> Revealing:
    return Revealing(state.bid, event.seal)


@MACHINE.transition
def _take_bid(state: Revealing, event: PeerRevealed, peer: str) -> Sold:
    if event.bid.seal(peer) != state.peer_seal:
        raise PeerViolationError(peer, "revealed a bid that it had not sealed")
    return Sold(state.bid, event.bid)


@MACHINE.repetition
def _said_before(state: Revealing | Sold, event: AuctionEvent, peer: str) -> bool:
    sealed = state.peer_seal if isinstance(state, Revealing) else state.peer_bid.seal(peer)
    return sealed == (event.seal if isinstance(event, PeerSealed) else event.bid.seal(peer))


MACHINE.complete()


def effects(state: Auction, us: str) -> tuple[Sealed | Bid, ...]:
    """What to say in a state; after a restart, and to a peer that restarts, it is said again."""
    match state:
        case Bidding(bid=bid):
            return (Sealed(bid.seal(us)),)
        case Revealing(bid=bid):
            return (Sealed(bid.seal(us)), bid)
        case Sold(bid=bid):
            return (bid,)
        case _:
            assert_never(state)
