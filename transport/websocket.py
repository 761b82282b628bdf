"""The byte stream of a channel in the binary frames of a WebSocket (RFC 6455), which lets it pass where HTTPS does.

Rules:

- The stream is cut into frames anywhere, and put together without regard to the cuts: a message of WebSocket may be in
  fragments, as browsers and proxies make them.
- Only binary frames carry it. A frame has at most `FRAME_SIZE` bytes. No extension is negotiated, so nothing is
  compressed. A page of any origin may connect: what it shows in the channel's handshake says who it is.
- Nobody keeps us busy with frames that carry next to nothing: there is an allowance of them.
- Pings are answered at once, unless we send: then the answer follows what is sent.
- What the end of a WebSocket says is not authenticated, so it is no more than the end of the stream.

wsproto reads and writes the protocol; here are its input and output.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection, ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from transport.errors import ForeignPeerError, TurnedAwayError, UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

FRAME_SIZE: Final = 2**20
"""Bytes that one frame may carry."""

_SENT_SIZE = 2**18
_READ_SIZE = 2**16

_FRAMES, _FRAMES_A_SECOND, _BYTES_A_FRAME = 1_024, 10, 64
"""The allowance of frames: so many, so many more each second, and one more for so many bytes that frames carry."""

_PATIENCE = 1.0
"""Seconds within which the answer to a ping, or the end of a WebSocket, must leave."""

_BROKEN = (h11.ProtocolError, ProtocolError, UnicodeError)
"""What wsproto raises for what the peer has sent, or for what cannot be said to it any more."""


class WebSocketStream(trio.abc.Stream):
    """What a channel runs over, once one side has asked for a WebSocket and the other has agreed; see the subclasses.

    Args:
        stream: the bare connection, with or without TLS; this one takes it.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._frames: Connection | None = None
        self._data = bytearray()
        self._ended = self._closed = False
        self._sending = trio.Lock()
        self._allowance = _Allowance()

    async def open(self) -> Connection:
        """Agrees on a WebSocket, once; how, depends on the side.

        Raises:
            HandshakeError: none came about; the class says why.
            trio.BrokenResourceError: the connection was lost.
        """
        raise NotImplementedError

    async def send_all(self, data: Buffer) -> None:
        """Sends all of `data`, in one frame or several."""
        frames = await self.open()
        async with self._sending:
            with memoryview(data) as view:
                for start in range(0, len(view), _SENT_SIZE):
                    await self._send(frames, BytesMessage(bytes(view[start : start + _SENT_SIZE])))

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until there is room."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Returns what is there, at least one byte; none at the end of the stream.

        Raises:
            ForeignPeerError: the peer sent what this transport does not take; the message says what.
        """
        frames = await self.open()
        if self._data:
            await trio.lowlevel.checkpoint()
        while not (self._data or self._ended or self._closed):
            data = bytes(await self._stream.receive_some(_READ_SIZE))
            await self._take(frames, data)
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")
        taken = bytes(memoryview(self._data)[: max_bytes or _READ_SIZE])
        del self._data[: len(taken)]
        return taken

    async def aclose(self) -> None:
        """Says that the WebSocket ends, where that leaves soon, and closes the connection."""
        is_first, self._closed = not self._closed, True
        try:
            if is_first and self._frames is not None and not self._sending.locked():
                await self._answer(self._frames, CloseConnection(CloseReason.NORMAL_CLOSURE))
        finally:
            await self._stream.aclose()

    async def _take(self, frames: Connection, data: bytes) -> None:
        """Takes what has come; nothing of it is lost where the reader is cancelled meanwhile."""
        if not data:
            self._ended = True
            return
        answers: list[Event] = []
        frames.receive_data(data)
        for event in frames.events():
            self._allowance.take(event)
            match event:
                case BytesMessage(data=carried):
                    self._data += carried
                case Ping():
                    answers.append(event.response())
                case TextMessage():
                    await self._refuse(frames, CloseReason.UNSUPPORTED_DATA, "a text frame; send binary frames")
                case CloseConnection() if frames.state is ConnectionState.OPEN:  # so it is not the peer's
                    await self._refuse(frames, CloseReason(event.code), event.reason or "a malformed frame")
                case CloseConnection():
                    answers.append(event.response())
                    self._ended = True
        if self._allowance.is_large:
            await self._refuse(
                frames, CloseReason.MESSAGE_TOO_BIG, f"a frame of more than {FRAME_SIZE:,} bytes; cut it"
            )
        if self._allowance.is_spent:
            await self._refuse(frames, CloseReason.POLICY_VIOLATION, "too many frames that carry next to nothing")
        for answer in answers[-1:]:
            await self._answer(frames, answer)

    async def _refuse(self, frames: Connection, code: CloseReason, what: str) -> None:
        await self._answer(frames, CloseConnection(code, what[:100]))
        raise ForeignPeerError(f"the peer sent over its WebSocket what fsl-async does not take: {what}")

    async def _answer(self, frames: Connection, answer: Event) -> None:
        """Sends a few bytes, soon or not at all; where it was cut off, the stream is broken for sending."""
        with trio.CancelScope(deadline=trio.current_time() + _PATIENCE, shield=not self._closed) as scope:
            async with self._sending:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._send(frames, answer)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)

    async def _send(self, frames: Connection, event: Event) -> None:
        try:
            data = frames.send(event)
        except ProtocolError as error:
            raise trio.BrokenResourceError(f"the WebSocket has ended: {error}") from error
        await self._stream.send_all(data)


class _Allowance:
    """Counts frames, and what they carry."""

    def __init__(self) -> None:
        self._since = trio.current_time()
        self._frames = self._bytes = self._of_frame = 0
        self.is_large = False

    def take(self, event: Event) -> None:
        """Counts what has come of a frame."""
        self._frames += 1
        if isinstance(event, BytesMessage):
            self._bytes += len(event.data)
            self._of_frame += len(event.data)
            self.is_large |= self._of_frame > FRAME_SIZE
            self._of_frame = 0 if event.frame_finished else self._of_frame

    @property
    def is_spent(self) -> bool:
        """Whether there were more frames than are allowed."""
        seconds = trio.current_time() - self._since
        return self._frames > _FRAMES + _FRAMES_A_SECOND * seconds + self._bytes / _BYTES_A_FRAME


class AskingStream(WebSocketStream):
    """A client's side.

    Args:
        stream: the bare connection.
        host: the server's name and port, as the request has it.
        path: what is asked for.
        address: what messages call the server.
    """

    def __init__(self, stream: trio.abc.Stream, host: str, path: str, address: str) -> None:
        super().__init__(stream)
        self._request = Request(host=host, target=path)
        self._address = address

    async def open(self) -> Connection:
        """Asks for a WebSocket; see `WebSocketStream.open`."""
        if self._frames is None:
            handshake = WSConnection(ConnectionType.CLIENT)
            await self._stream.send_all(handshake.send(self._request))
            answer = None
            while answer is None:
                data = bytes(await self._stream.receive_some(_READ_SIZE))
                if not data:
                    raise TurnedAwayError(
                        f"{self._address} closed the connection and did not answer: it is overloaded, or it limits how "
                        "often this address may connect; wait a moment and try again"
                    )
                answer = self._read(handshake, data)
            if isinstance(answer, RejectConnection):
                raise UnreachableError(f"no WebSocket at {self._address}: {_meaning(answer.status_code)}")
            self._frames = handshake.connection
        assert self._frames is not None  # noqa: S101 - it is there once the answer is
        return self._frames

    def _read(self, handshake: WSConnection, data: bytes) -> Event | None:
        try:
            handshake.receive_data(data)
            return next(handshake.events(), None)
        except _BROKEN as error:
            raise ForeignPeerError(
                f"what answers at {self._address} opens no WebSocket ({error}); check the address, its port and path"
            ) from error


def _meaning(status: int) -> str:
    """What an answer in the place of a WebSocket says."""
    if status in (502, 503, 504):
        return f"the answer is {status}: a proxy is there, and the server behind it does not answer; try again later"
    if 300 <= status < 400:
        return f"the answer is {status}: what was asked for is elsewhere; take the address at which the server is"
    return f"the answer is {status}; check the path of the address, and that a proxy in front passes WebSockets on"


class AnsweringStream(WebSocketStream):
    """A server's side; it answers when it is first read, so that whoever accepts it does not wait.

    Args:
        stream: the bare connection.
        path: where the WebSocket is; elsewhere there is none.
    """

    def __init__(self, stream: trio.abc.Stream, path: str) -> None:
        super().__init__(stream)
        self._path = path

    async def open(self) -> Connection:
        """Answers the request for a WebSocket; see `WebSocketStream.open`."""
        if self._frames is None:
            handshake = WSConnection(ConnectionType.SERVER)
            request = None
            while request is None:
                data = bytes(await self._stream.receive_some(_READ_SIZE))
                if not data:
                    raise trio.BrokenResourceError("the peer left before it asked for a WebSocket")
                try:
                    handshake.receive_data(data)
                    request = next(handshake.events(), None)
                except _BROKEN as error:
                    hint = getattr(error, "event_hint", None) or RejectConnection()
                    await self._reject(handshake, hint.status_code, str(error))
            if not isinstance(request, Request) or request.target.partition("?")[0] != self._path:
                await self._reject(handshake, 404, "there is no WebSocket at this path")
            try:
                answer = handshake.send(AcceptConnection())
            except _BROKEN as error:
                await self._reject(handshake, 400, str(error))
            await self._stream.send_all(answer)
            self._frames = handshake.connection
        assert self._frames is not None  # noqa: S101 - it is there once it was accepted
        return self._frames

    async def _reject(self, handshake: WSConnection, status: int, why: str) -> None:
        text = f"fsl-async: {why}\n".encode()
        headers = [
            (b"content-type", b"text/plain"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        with suppress(*_BROKEN):
            answer = handshake.send(RejectConnection(status_code=status, headers=headers, has_body=True))
            await self._stream.send_all(answer + handshake.send(RejectData(data=text)))
        raise ForeignPeerError(f"the peer asked for no WebSocket of ours, and was told {status}: {why}")
