"""The connection of docs/wire-vectors.json: a server and a channel of ours send it, and so does the page's client."""

from dataclasses import replace

import numpy as np
import trio

from fsl_async.task import Task
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskTask
from parties import Identity, Registry, Schedule, Server
from parties.identity.handshake import Credentials
from tests.support.page_client import Connection, Keys, PageClient
from tests.support.shop import Shop
from tests.support.wire_page import CLOSE, VECTORS, of
from tests.transport.endpoints import NO_FAULT, Tap
from transport import HandshakeSettings, Kind, Role

CASE = VECTORS["connection"]
SENT, CAME = (b"".join(map(of, CASE[side])) for side in ("client", "server"))
CHANNEL, STATEMENT, SERVER = (
    of(CASE[f"{key} key, private"]) for key in ("client's channel", "client's statement", "server's channel")
)
EPHEMERAL = [*map(of, CASE["ephemeral keys, private"])]
TASK = Task.parse(of(CASE["task"]), "the example")


class Replay:
    """A socket on which the example's server answers: what it says is there at once, and what it hears is kept."""

    def __init__(self, came: bytes) -> None:
        self.came, self.heard = came, bytearray()
        self.sendall = self.heard.extend

    def recv(self, most: int) -> bytes:
        data, self.came = self.came[:most], self.came[most:]
        return data

    def close(self) -> None:
        pass


def test_the_page_s_client_sends_every_byte_of_it_and_reads_the_answers() -> None:
    client, replay = PageClient(Keys(CASE["name"], CHANNEL, STATEMENT), [], of(CASE["task"])), Replay(CAME)
    server_key = Identity("S0", SERVER, bytes(32), bytes(32)).public.channel
    connection = Connection(replay)
    greeted = (0, server_key, client.keys, client.task, client.credentials, 6, EPHEMERAL[0])
    assert connection.greet(*greeted) == CASE["name"]
    connection.send("ask-task")
    connection.ping()
    assert connection.reply("task-is") == ({"task": of(CASE["task"])}, b"")
    connection.close()
    assert [*connection.incoming.open(replay.came)] == [(CLOSE, b"")]
    assert replay.heard.hex() == SENT.hex()


class Recording(Tap):
    """One end of a stream, which keeps what goes out and what comes in, and closes once the other end has."""

    async def aclose(self) -> None:
        while await self.receive_some():
            pass
        await super().aclose()


async def test_a_server_and_a_channel_of_ours_send_every_byte_of_it() -> None:
    alice = Identity(CASE["name"], CHANNEL, STATEMENT, bytes(32))
    server = Identity("S0", SERVER, bytes(32), bytes(32))
    taps: list[Tap] = []
    model = {"items": np.zeros((40, 2)), "head": np.zeros(3)}
    credentials = Credentials.of(alice, TASK.digest()).encode()
    settings = HandshakeSettings(CHANNEL, Role.CLIENT, Kind.LIVE, lambda size: EPHEMERAL[0], credentials)

    async def recorded(address: str) -> trio.abc.Stream:
        taps.append(Recording(await connect(address), NO_FAULT))
        return taps[-1]

    async with trio.open_nursery() as nursery:
        shop = Shop.in_memory(nursery, task=TASK, models=(model, model), registry=Registry([alice.public]))
        shop.identities, network = (server, Identity.generate("S1")), shop.transports[0]
        connect, network.connect = network.connect, recorded  # type: ignore[method-assign]
        setup = replace(shop.setup_of(0), randomness=lambda size: EPHEMERAL[1][:size], schedule=Schedule(clients=2))
        await nursery.start(Server(setup).run)
        async with await network.dial("S0", server.public.channel, settings) as channel:
            await channel.send(*encode(AskTask()))
            await channel.ping()
            await channel.receive(2**16)
        nursery.cancel_scope.cancel()
    (tap,) = taps
    assert tap.sent.hex() == SENT.hex()
    assert tap.received.hex() == CAME.hex()
