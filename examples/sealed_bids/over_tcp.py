"""Two bidders over TCP, each with a store of its own; started again, they would go on where they stopped."""

import os
import tempfile
from pathlib import Path

import trio
from bidder import Bidder

from parties import Host, Peer, SqliteStore, free_addresses
from transport import KeyPair, TcpTransport


async def main() -> None:
    """In one process here; each bidder knows only its own keys, and the other's public key and address."""
    ann_keys, bob_keys = KeyPair.generate(os.urandom), KeyPair.generate(os.urandom)
    (address,) = free_addresses(1)
    ann = Bidder(30, ann_keys, Peer("bob", bob_keys.public), address)
    bob = Bidder(20, bob_keys, Peer("ann", ann_keys.public, address))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:

            def tell(result: object) -> None:
                results.append(result)
                if len(results) == 2:
                    nursery.cancel_scope.cancel()

            for name, actor in (("ann", ann), ("bob", bob)):
                store = await SqliteStore.open(Path(folder) / f"{name}.db")
                nursery.start_soon(actor, Host.deployed(name, TcpTransport(), store, tell))
    print(*results, sep="\n")


if __name__ == "__main__":
    trio.run(main)
