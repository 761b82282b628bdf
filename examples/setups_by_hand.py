"""Servers and clients made by hand, without files of settings: for a program that brings its own keys and stores.

Here they share a process and a memory network; with a `TcpTransport` and host:port addresses they need neither.
"""

import os
import tempfile
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import Client, ClientSetup, Identity, Registry, Schedule, Server, ServerSetup, SqliteStore, ThreadLane
from transport import Kind, MemoryNetwork

ITEMS, RING = Sparse("items", rows=500, select=5), Ring(32, fraction_bits=12)
TASK = Task(name="shop", blocks=[ITEMS], ring=RING, min_clients=2, max_clients=2)


async def take_part(setup: ClientSetup) -> None:
    """One client's round."""
    async with Client(setup) as client:
        async with client.taking_part():
            rows = await client.retrieve({"items": [3, 1, 4]})
            await client.submit({"items": ([3, 1, 4], rows["items"] + 1)})
        print(f"{client.name} was counted: {(await client.outcome()).counted}")


async def main() -> None:
    """One round."""
    keys = [Identity.generate(name) for name in ("S0", "S1", "anna", "boris")]
    s0, s1, *clients = (one.public for one in keys)
    live = {"lane": ThreadLane(), "randomness": os.urandom, "kind": Kind.LIVE}
    shared = {"task": TASK, "transport": MemoryNetwork(), **live}
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stores, trio.open_nursery() as servers:
            for index, peer in enumerate((s1, s0)):
                store = await SqliteStore.open(Path(folder) / f"S{index}.sqlite")
                await stores.enter_async_context(aclosing(store))
                own = {"index": index, "identity": keys[index], "address": f"S{index}", "store": store}
                others = {"peer": peer, "peer_address": "S0", "registry": Registry(clients)}
                rounds = {"model": {"items": np.zeros((500, 1))}, "schedule": Schedule(clients=2, rounds=1)}
                await servers.start(Server(ServerSetup(**own, **others, **rounds, **shared)).run)
            async with trio.open_nursery() as nursery:
                for own_keys in keys[2:]:
                    setup = ClientSetup(identity=own_keys, servers=(s0, s1), addresses=("S0", "S1"), **shared)
                    nursery.start_soon(take_part, setup)
            servers.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
