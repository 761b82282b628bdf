"""The asyncio front, for programs and notebooks: `connect` and `simulate`, with the same calls, on an asyncio loop.

    async with parties.aio.connect("alice.toml") as client:
        rows = await client.retrieve({"items": ids})
        await client.submit({"items": (ids, delta)})

Each client, and each simulation, lives in a trio loop in a thread of its own, so the asyncio loop goes on while a call
is under way. A call that is cancelled, by `task.cancel()`, `asyncio.timeout` or the end of the loop, is cancelled in
that thread before `CancelledError` comes out, and the next call resumes from there. Errors are those of the other
fronts.
"""

from parties.aio.client import Client
from parties.aio.connecting import connect
from parties.aio.simulation import Network, simulate

__all__ = ["Client", "Network", "connect", "simulate"]
