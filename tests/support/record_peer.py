"""A client that makes its records itself: it sends what it likes, when it likes, and may vanish without a CLOSE."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import trio

from fsl_async.errors import ChannelError
from transport import ChannelClosedError, HandshakeSettings, KeyPair, Transport
from transport.handshake import LONGEST_PAYLOAD
from transport.noise import KEY_SIZE, TAG_SIZE, CipherState, HandshakeState
from transport.preamble import PREAMBLE_SIZE, prologue
from transport.records import (
    BODY_SIZE,
    RECORD_SIZE,
    REKEY_INTERVAL,
    Closed,
    NeedData,
    RecordReader,
    RecordType,
    wire_size,
)
from transport.wire import Wire

PADDED = LONGEST_PAYLOAD + 2


class RecordPeer:
    """The client's end of a connection, after a handshake by hand.

    Attributes:
        wire: takes any bytes.
    """

    def __init__(self, wire: Wire, cipher: CipherState, reader: RecordReader) -> None:
        self.wire = wire
        self._cipher = cipher
        self._reader = reader

    @classmethod
    async def dial(cls, transport: Transport, address: str, server_key: bytes, settings: HandshakeSettings) -> Self:
        wire = Wire(await transport.connect(address))
        ours = settings.preamble.encode()
        await wire.send(ours)
        agreed = prologue(ours, await wire.receive_exactly(PREAMBLE_SIZE))
        noise = HandshakeState(KeyPair.from_private(settings.private_key), server_key, agreed, settings.randomness)
        await wire.send(noise.write_message(b""))
        noise.read_message(await wire.receive_exactly(KEY_SIZE + PADDED + TAG_SIZE))
        payload = len(settings.payload).to_bytes(2, "big") + settings.payload
        await wire.send(noise.write_message(payload.ljust(PADDED, b"\0")))
        sending, receiving = noise.split()
        peer = cls(wire, sending, RecordReader(receiving))
        peer._reader.feed(await wire.receive_exactly(wire_size(PADDED)))
        await peer.receive()  # the welcome
        return peer

    def record(self, kind: RecordType, body: bytes = b"") -> bytes:
        """Returns the next record."""
        ciphertext = self._cipher.encrypt(b"", bytes([kind]) + body)
        if self._cipher.nonce % REKEY_INTERVAL == 0:
            self._cipher.rekey()
        return len(ciphertext).to_bytes(2, "big") + ciphertext

    def message(self, *parts: bytes) -> Iterator[bytes]:
        """Gives one message's records, each made when it is taken."""
        content = b"".join(parts)
        content = len(content).to_bytes(8, "big") + content
        for start in range(0, len(content), BODY_SIZE):
            yield self.record(RecordType.DATA, content[start : start + BODY_SIZE])

    async def send(self, *parts: bytes) -> None:
        for record in self.message(*parts):
            await self.wire.send(record)

    async def read(self, most: int) -> int:
        """Reads once from the wire and returns how many bytes came."""
        data = await self.wire.receive_some(most)
        if data:
            self._reader.feed(data)
        else:
            self._reader.feed_end()
        return len(data)

    async def receive(self, limit: int = 10**9) -> bytes:
        while isinstance(event := self._reader.next_event(), NeedData):
            await self.read(RECORD_SIZE)
        if isinstance(event, Closed):
            raise ChannelClosedError("the peer has closed the channel")
        assert event.total <= limit
        content, taken = event.body.ljust(event.total, b"\0"), len(event.body)
        while taken < event.total:
            size = self._reader.take(content, taken)
            taken += size
            if not size:
                await self.read(RECORD_SIZE)
        return bytes(content)

    async def aclose(self) -> None:
        """Says CLOSE if the other side takes it, and closes."""
        with trio.move_on_after(1), suppress(ChannelError):
            await self.wire.send(self.record(RecordType.CLOSE))
        await self.wire.aclose()
