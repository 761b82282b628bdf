"""Connections that are lost at a chosen message, and the round that goes on beside the client who lost them."""

import trio

from fsl_async.wire.messages import Message
from parties import Network
from tests.support.shop import Hook, assert_exact, take_part
from transport import ConnectionLostError


async def finish_with(network: Network, *names: str) -> None:
    """Ann and Ben submit, and the round is closed; it must be the exact sum over them and these."""
    for name in ("ann", "ben"):
        async with network.client(name) as client:
            await take_part(client, retrieves=False)
    assert_exact(await network.finish_round(), "ann", "ben", *names)


def away_from(message: type[Message], *servers: str) -> tuple[Hook, list[float]]:
    """A hook over which servers are lost (S1, unless told) from a message on, and the times at which it was tried."""
    times: list[float] = []

    async def lose(address: str, sent: Message, data: bytes) -> bytes:
        if address in (servers or ("S1",)) and isinstance(sent, message):
            times.append(trio.current_time())
            raise ConnectionLostError("the peer vanished")
        return data

    return lose, times
