"""A bidder: the actor that drives the auction's machine, over any transport."""

from functools import partial

from auction import MACHINE, Bidding, PeerRevealed, PeerSealed, Sold, effects
from messages import MESSAGES, Bid, Sealed

from parties import Host, MessageChannel, Peer
from parties.peers import dial_peer, serve_peers
from parties.storage.journal import Journal
from transport import KeyPair


class Bidder:
    """One of the two: it dials the other if it knows where that listens, and else listens itself."""

    def __init__(self, price: int, keys: KeyPair, peer: Peer, address: str = "") -> None:
        self.price = price
        self.keys = keys
        self.peer = peer
        self.address = address

    async def __call__(self, host: Host) -> None:
        """Bid, in each life of this party, until cancelled: the other may still need our bid when we know its."""
        first = Bidding(Bid(self.price, host.randomness(32)))
        journal = await Journal.open(host.store, "auction", MACHINE, first, self.peer.name)
        talk = partial(self.talk, host, journal)
        if self.peer.address:
            await dial_peer(host, self.keys, self.peer, MESSAGES, talk)
        else:
            await serve_peers(host, self.keys, self.address, [self.peer], MESSAGES, talk)

    async def talk(self, host: Host, journal: Journal, channel: MessageChannel) -> None:
        """One connection, from its beginning: say what the state says, and take what comes."""
        said = ()
        while True:
            for message in effects(journal.state, host.name):
                if message not in said:
                    await channel.send(message)
            said = effects(journal.state, host.name)
            if isinstance(journal.state, Sold):
                host.tell(self.result(journal.state, host.name))
            match (await channel.receive()).message:
                case Sealed(seal=seal):
                    await journal.take(PeerSealed(seal))
                case Bid() as bid:
                    await journal.take(PeerRevealed(bid))

    def result(self, state: Sold, us: str) -> str:
        """Who gets it; of two equal bids that of the later name."""
        price, winner = max((state.bid.price, us), (state.peer_bid.price, self.peer.name))
        return f"sold to {winner} for {price}"
