"""Connections that are lost at a chosen message, and the round that goes on beside the client who lost them."""

import trio

from fsl_async.wire.messages import Hint, Message, Submit
from parties import Client, Network
from tests.support.shop import Hook, assert_exact, meddled, take_part
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


def stalled(network: Network, kind: type[Message], *servers: str) -> Client:
    """Carol, whose first message of a kind, to or from one of these servers, is never done; those after it are.

    Her transport's `sent` has her submissions.
    """
    stalls, sent = [True], []

    async def stall(address: str, said: Message, data: bytes) -> bytes:
        if stalls and isinstance(said, kind) and address in (servers or ("S0", "S1")):
            stalls.clear()
            await trio.sleep_forever()
        return data

    async def note(address: str, said: Message, data: bytes) -> bytes:
        if isinstance(said, Submit | Hint):
            sent.append(data)
        return await stall(address, said, data)

    client = meddled(network.client("carol"), outgoing=note, incoming=stall)
    client.setup.transport.sent = sent
    return client
