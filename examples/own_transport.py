"""A transport of one's own: channels over Unix sockets.

A transport says how bare streams come about; the handshake, the records and the limits are the same for all. Servers
and clients take this one like any other, as the `transport` of their setups.
"""

import os
import tempfile

import trio

from transport import HandshakeSettings, KeyPair, Kind, Listener, Role, Service, Transport, UnreachableError


class UnixTransport(Transport):
    """Connects processes of one host; an address is a path."""

    async def connect(self, address: str) -> trio.abc.Stream:
        """Open a bare stream; `dial`, which calls this, does the handshake."""
        try:
            return await trio.open_unix_socket(address)
        except OSError as error:
            raise UnreachableError(f"nothing listens at {address} ({error}); does the server run?") from error

    async def listen(self, address: str, service: Service, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the listener calls `accept` and does all the rest."""
        socket = trio.socket.socket(trio.socket.AF_UNIX)
        await socket.bind(address)
        socket.listen()
        async with trio.SocketListener(socket) as sockets:

            async def accept() -> tuple[trio.abc.Stream, str]:
                return await sockets.accept(), "this host"  # what the limits count a connection under

            task_status.started(address)
            await Listener(service).serve(accept)


async def main() -> None:
    """A server that answers one message, and a client that knows its key."""
    server, client = KeyPair.generate(os.urandom), KeyPair.generate(os.urandom)

    async def admit(key: bytes, payload: bytes) -> bytes:
        return b"welcome"  # or a `Refusal`; the key is authenticated

    async def answer(channel) -> None:
        await channel.send(b"you said: ", await channel.receive(limit=1_000))

    service = Service(HandshakeSettings(server.private, Role.SERVER_0, Kind.LIVE, os.urandom), admit, answer)
    settings = HandshakeSettings(client.private, Role.CLIENT, Kind.LIVE, os.urandom)
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            address = await nursery.start(UnixTransport().listen, f"{folder}/socket", service)
            async with await UnixTransport().dial(address, server.public, settings) as channel:
                await channel.send(b"hello")
                print((await channel.receive(limit=1_000)).decode())
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
