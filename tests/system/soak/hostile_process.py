"""Connections that only occupy places: `python -m tests.system.soak.hostile_process FOLDER --idle 1000 ...`.

So many connections stand at each server at any time: what the server drops is opened again at once. They come one
after the other, and so they are dropped one after the other, too. Of the idle ones half have shaken hands (with keys
that the servers know, four to a key) and then say nothing, half say nothing at all. The trickling ones send ten bytes a
second, one by one: from the first byte on, from the last message of the handshake on, or from the first byte of a
request on, a third each. Every connection has an address of its own (127.x.y.z).
"""

import argparse
import itertools
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from fsl_async.errors import ChannelError
from parties.identity.handshake import Credentials
from parties.identity.keys import Identity
from parties.settings.task_file import Deployment
from transport import HandshakeSettings, Kind, Role
from transport.handshake import initiate
from transport.wire import Wire

from .site import Site, say

PER_KEY = 4
PAUSE = 0.1
BEFORE_LAST_MESSAGE = 8 + 48
WHOLE_HANDSHAKE = BEFORE_LAST_MESSAGE + 1_088
"""Bytes that a client sends until then (see `transport.handshake`)."""

_FIRST_HOST = (127 << 24) + (1 << 16)


def attacker_name(number: int) -> str:
    """What the holder of a key is called that the servers know and should not have trusted."""
    return f"attacker-{number:04}"


def keys_needed(idle: int, trickling: int) -> int:
    """Keys for all connections that shake hands."""
    return -(-(idle // 2 + trickling) // PER_KEY)


@dataclass(frozen=True)
class Way:
    """How a connection behaves.

    Attributes:
        name: for people.
        quick: bytes that it sends as fast as it can; from then on one every `PAUSE` seconds.
        request: bytes of a request that it begins when it has shaken hands; 0: none.
    """

    name: str
    quick: int
    request: int = 0


SILENT = Way("idle, nothing said", 0)
SHAKEN = Way("idle after the handshake", 10**9)
TRICKLES = (
    Way("trickling from the first byte", 0),
    Way("trickling within the handshake", BEFORE_LAST_MESSAGE),
    Way("trickling within a request", WHOLE_HANDSHAKE, 10_000),
)


class TricklingStream(trio.abc.Stream):
    """A stream that sends so many bytes at once and all others one by one."""

    def __init__(self, inner: trio.SocketStream, quick: int) -> None:
        self._inner = inner
        self._quick = quick

    async def send_all(self, data: bytes) -> None:
        rest = data[self._quick :]
        await self._inner.send_all(data[: self._quick])
        self._quick -= len(data) - len(rest)
        for place in range(len(rest)):
            await trio.sleep(PAUSE)
            await self._inner.send_all(rest[place : place + 1])

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return bytes(await self._inner.receive_some(max_bytes))

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


class Attack:
    """All connections to one server, kept standing.

    Args:
        site: where the keys are.
        server: which of the two.
        hosts: addresses to come from.
    """

    def __init__(self, site: Site, server: int, hosts: Iterator[str]) -> None:
        self._site = site
        self._server = server
        self._deployment = Deployment.load(site.task_file)
        self._host, _, self._port = self._deployment.addresses[server].rpartition(":")
        self._hosts = hosts
        self.standing = Counter[str]()
        self.dropped = Counter[str]()

    async def run(self, idle: int, trickling: int, arrival: float) -> None:
        """Keep so many connections standing, all of them after so many seconds."""
        keys, shaken = self._keys(), idle // 2
        ways = (
            [SILENT] * (idle - shaken) + [SHAKEN] * shaken + [*itertools.islice(itertools.cycle(TRICKLES), trickling)]
        )
        random.Random(0).shuffle(ways)
        async with trio.open_nursery() as nursery:
            for way in ways:
                occupy = (
                    _stay_silent
                    if way is SILENT
                    else partial(shake_hands, self._deployment, self._server, next(keys), way)
                )
                nursery.start_soon(self._keep, way.name, occupy)
                await trio.sleep(arrival / len(ways))

    def _keys(self) -> Iterator[Identity]:
        for number in itertools.count():
            yield from itertools.repeat(Identity.load(self._site.key(attacker_name(number))), PER_KEY)

    async def _keep(self, name: str, occupy: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
        """Open a connection, and another one whenever the server has had enough of it."""
        host = next(self._hosts)
        while True:
            stream = await trio.open_tcp_stream(self._host, int(self._port), local_address=host)
            self.standing[name] += 1
            try:
                async with stream:
                    await occupy(stream)
            except* (ChannelError, trio.BrokenResourceError):
                pass
            self.standing[name] -= 1
            self.dropped[name] += 1


async def shake_hands(
    deployment: Deployment, server: int, identity: Identity, way: Way, stream: trio.SocketStream
) -> None:
    """Shake hands with a server, begin a request if that is the way, and stay until the server has had enough."""
    settings = HandshakeSettings(
        private_key=identity.channel_secret,
        role=Role.CLIENT,
        kind=Kind.LIVE,
        randomness=os.urandom,
        payload=Credentials.of(identity, deployment.task.digest()).encode(),
    )
    channel = await initiate(Wire(TricklingStream(stream, way.quick)), deployment.identity(server).channel, settings)
    async with trio.open_nursery() as nursery:
        if way.request:
            nursery.start_soon(channel.send, bytes(way.request))
        await channel.receive(0)  # until the server says CLOSE, or nothing any more


async def _stay_silent(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)


async def attack(site: Site, idle: int, trickling: int, arrival: float) -> None:
    """Occupy both servers, and tell every second how it goes."""
    hosts = (".".join(map(str, host.to_bytes(4, "big"))) for host in itertools.count(_FIRST_HOST))
    attacks = [Attack(site, server, hosts) for server in (0, 1)]
    async with trio.open_nursery() as nursery:
        for each in attacks:
            nursery.start_soon(each.run, idle, trickling, arrival)
        while True:
            await trio.sleep(1)
            say(standing=[each.standing for each in attacks], dropped=[each.dropped for each in attacks])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle", type=int, required=True)
    parser.add_argument("--trickling", type=int, required=True)
    parser.add_argument("--arrival", type=float, required=True, help="seconds until all of them stand")
    options = parser.parse_args()
    trio.run(attack, Site(options.folder), options.idle, options.trickling, options.arrival)


if __name__ == "__main__":
    main()
