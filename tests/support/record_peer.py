"""A client that makes its records itself: it sends what it likes, when it likes, and may vanish without a CLOSE."""

from __future__ import annotations

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
    RECORD_SIZE,
    REKEY_INTERVAL,
    Body,
    Closed,
    Finished,
    NeedData,
    RecordReader,
    RecordType,
)
from transport.wire import Wire

PADDED = LONGEST_PAYLOAD + 2
BODY = RECORD_SIZE - TAG_SIZE - 1


class RecordPeer:
    """The client's end of a connection, after a handshake by hand.

    Attributes:
        wire: takes any bytes.
    """

    def __init__(self, wire: Wire, cipher: CipherState, reader: RecordReader) -> None:
        self.wire = wire
        self._cipher = cipher
        self._reader = reader
        self._made = 0

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
        await peer.receive()  # the welcome
        return peer

    def record(self, kind: RecordType, body: bytes = b"") -> bytes:
        """Returns the next record, behind a REKEY where that is due."""
        rekey = b""
        if self._made == REKEY_INTERVAL - 1:
            rekey = self._sealed(RecordType.REKEY, b"")
            self._cipher.rekey()
            self._made = 0
        return rekey + self._sealed(kind, body)

    def message(self, *parts: bytes) -> Iterator[bytes]:
        """Gives one message's records, each made when it is taken."""
        content = b"".join(parts)
        content = len(content).to_bytes(8, "big") + content
        for start in range(0, len(content), BODY):
            last = start + BODY >= len(content)
            yield self.record(RecordType.END if last else RecordType.MORE, content[start : start + BODY])

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
        content = b""
        while True:
            match self._reader.next_event():
                case NeedData():
                    await self.read(RECORD_SIZE)
                case Body(data=data):
                    content += data
                    assert len(content) <= limit
                case Finished():
                    return content
                case Closed():
                    raise ChannelClosedError("the peer has closed the channel")

    async def aclose(self) -> None:
        """Says CLOSE if the other side takes it, and closes."""
        with trio.move_on_after(1), suppress(ChannelError):
            await self.wire.send(self.record(RecordType.CLOSE))
        await self.wire.aclose()

    def _sealed(self, kind: RecordType, body: bytes) -> bytes:
        ciphertext = self._cipher.encrypt(b"", bytes([kind]) + body)
        self._made += 1
        return len(ciphertext).to_bytes(2, "big") + ciphertext
