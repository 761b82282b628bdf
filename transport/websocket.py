"""The byte stream of a channel in the binary frames of a WebSocket (RFC 6455), which lets it pass where HTTPS does.

Rules:

- The stream is cut into frames anywhere, and put together without regard to the cuts: a message of WebSocket may be in
  fragments, as browsers and proxies make them.
- Only binary frames carry it. A frame has at most `FRAME_SIZE` bytes. No extension is negotiated, so nothing is
  compressed. A page of any origin may connect: what it shows in the channel's handshake says who it is.
- Nobody keeps us busy with frames that carry next to nothing: there is an allowance of them.
- Pings are answered, the last one of those that came together; while we send, they are not, which is a sign of life.
- What the end of a WebSocket says is not authenticated, so it is no more than the end of the stream.

wsproto reads and writes the protocol; here are its input and output.
"""

from __future__ import annotations

import re
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
from transport.sockets import PromptStream

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

_HEAD_END = re.compile(rb"\n\r?\n")
"""Where the head of a request ends, and frames may begin in the same packet."""

_BROKEN = (h11.ProtocolError, ProtocolError, UnicodeError)
"""What wsproto raises for what the peer has sent, or for what cannot be said to it any more."""


class WebSocketStream(PromptStream):
    """What a channel runs over, once one side has asked for a WebSocket and the other has agreed; see the subclasses.

    Args:
        stream: the bare connection, with or without TLS; this one takes it.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._socket = stream if isinstance(stream, PromptStream) else None
        self._frames: Connection | None = None
        self._data = bytearray()
        self._ended = self._closed = False
        self._refusal: ForeignPeerError | None = None
        self._sending = trio.Lock()
        self._owed, self._of_caller = b"", 0
        self._answer: Event | None = None
        self._allowance = _Allowance()

    async def open(self) -> Connection:
        """Agrees on a WebSocket, once; how, depends on the side.

        Raises:
            HandshakeError: none came about; the class says why.
            trio.BrokenResourceError: the connection was lost.
        """
        raise NotImplementedError

    async def _more(self) -> bytes:
        """What the other side has sent before there is a WebSocket."""
        data = self._socket.receive_now(_READ_SIZE) if self._socket else None
        return bytes(await self._stream.receive_some(_READ_SIZE)) if data is None else data

    # ---- sending

    def send_now(self, data: Buffer) -> int:
        """Sends one frame as far as it leaves at once; see `PromptStream.send_now`.

        The rest of a frame is owed: the caller sends these bytes next, or nothing more.
        """
        if self._socket is None or self._frames is None or self._owed or self._sending.locked():
            return 0
        with memoryview(data) as view:
            frame = self._framed(self._frames, BytesMessage(bytes(view[:_SENT_SIZE])))
            framed = min(len(view), _SENT_SIZE)
        left = self._socket.send_now(frame)
        self._owed, self._of_caller = frame[left:], min(len(frame) - left, framed)
        return framed - self._of_caller

    async def send_all(self, data: Buffer) -> None:
        """Sends all of `data`, in one frame or several."""
        frames = await self.open()
        async with self._sending:
            with memoryview(data) as view:
                start = self._of_caller
                await self._pay()
                for place in range(start, len(view), _SENT_SIZE):
                    await self._send(frames, BytesMessage(bytes(view[place : place + _SENT_SIZE])))

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until there is room."""
        await self._stream.wait_send_all_might_not_block()

    async def _send(self, frames: Connection, event: Event) -> None:
        self._owed = self._framed(frames, event)
        await self._pay()

    async def _pay(self) -> None:
        """Sends what is owed of a frame; if it is cancelled, that stays owed, and nothing more is sent."""
        if self._owed:
            await self._stream.send_all(self._owed)
            self._owed, self._of_caller = b"", 0

    def _framed(self, frames: Connection, event: Event) -> bytes:
        try:
            return frames.send(event)
        except ProtocolError as error:
            raise trio.BrokenResourceError(f"the WebSocket has ended: {error}") from error

    # ---- receiving

    def wake_at(self, size: int) -> None:
        """Asks to be woken when so many bytes are there; frames have more than they carry."""
        if self._socket is not None:
            self._socket.wake_at(1 if self._data or self._frames is None else size)

    def receive_now(self, most: int) -> bytes | None:
        """Returns what is there; see `PromptStream.receive_now`."""
        if not self._data and self._socket is not None and self._frames is not None and not self._ended:
            data = self._socket.receive_now(max(most, _READ_SIZE))
            if data is None:
                return None
            self._take(self._frames, data)
        return self._taken(most) if self._data or self._ended else None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Returns what is there, at least one byte; none at the end of the stream.

        Raises:
            ForeignPeerError: the peer sent what this transport does not take; the message says what.
        """
        frames = await self.open()
        most = max_bytes or _READ_SIZE
        if self._data:
            await trio.lowlevel.checkpoint()
        while not (self._data or self._ended or self._closed):
            await self._reply(frames)
            self._take(frames, bytes(await self._stream.receive_some(max(most, _READ_SIZE))))
        return self._taken(most)

    def _taken(self, most: int) -> bytes:
        if self._closed:
            raise trio.ClosedResourceError("this end is closed")
        if not self._data and self._refusal is not None:
            raise self._refusal
        taken = bytes(memoryview(self._data)[:most])
        del self._data[: len(taken)]
        return taken

    def _take(self, frames: Connection, data: bytes) -> None:
        """Takes what has come; nothing of it is lost where the reader is cancelled afterwards."""
        if not data:
            self._ended = True
            return
        frames.receive_data(data)
        self._read_events(frames)

    def _read_events(self, frames: Connection) -> None:
        for event in frames.events():
            self._allowance.take(event)
            match event:
                case BytesMessage(data=carried):
                    self._data += carried
                case Ping():
                    self._answer = event.response()
                case TextMessage():
                    self._refuse(CloseReason.UNSUPPORTED_DATA, "a text frame; send binary frames")
                case CloseConnection() if frames.state is ConnectionState.OPEN:  # so it is not the peer's
                    self._refuse(CloseReason(event.code), event.reason or "a malformed frame")
                case CloseConnection():
                    self._answer, self._ended = event.response(), True
            if self._ended:
                return
        if self._allowance.is_large:
            self._refuse(CloseReason.MESSAGE_TOO_BIG, f"a frame of more than {FRAME_SIZE:,} bytes; cut it")
        elif self._allowance.is_spent:
            self._refuse(CloseReason.POLICY_VIOLATION, "too many frames that carry next to nothing")

    def _refuse(self, code: CloseReason, what: str) -> None:
        self._answer, self._ended = CloseConnection(code, what[:100]), True
        self._refusal = ForeignPeerError(f"the peer sent over its WebSocket what fsl-async does not take: {what}")

    async def _reply(self, frames: Connection) -> None:
        """Sends the answer that is due, soon or not at all: whoever does not take it is gone."""
        if self._answer is None or self._sending.locked() or self._owed:
            return
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            answer, self._answer = self._framed(frames, self._answer), None
            self._owed = answer[self._socket.send_now(answer) if self._socket else 0 :]
            if self._owed:
                with trio.CancelScope(deadline=trio.current_time() + _PATIENCE, shield=not self._closed):
                    async with self._sending:
                        await self._pay()
                    return
                await trio.aclose_forcefully(self._stream)

    async def aclose(self) -> None:
        """Says that the WebSocket ends, where that leaves soon, and closes the connection."""
        is_first, self._closed = not self._closed, True
        try:
            if is_first and self._frames is not None:
                self._answer = self._answer or CloseConnection(CloseReason.NORMAL_CLOSURE)
                await self._reply(self._frames)
        finally:
            await self._stream.aclose()


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
                data = await self._more()
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
            self._read_events(self._frames)  # frames may have come together with the answer
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
            request, head, more = None, b"", b""
            while request is None:
                data = await self._more()
                if not data:
                    raise trio.BrokenResourceError("the peer left before it asked for a WebSocket")
                head, fed = head[-2:] + data, len(head[-2:])
                end = _HEAD_END.search(head)
                head, more = (head[: end.end()], head[end.end() :]) if end else (head, b"")
                try:
                    handshake.receive_data(head[fed:])
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
            left = self._socket.send_now(answer) if self._socket else 0
            if left < len(answer):
                await self._stream.send_all(answer[left:])
            self._frames = handshake.connection
            assert self._frames is not None  # noqa: S101 - it is there once it was accepted
            if more:
                self._take(self._frames, more)
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
