"""A small HTTP/1.1 server on trio streams: h11 speaks, this file listens, limits and times out.

Rules: room is taken before a connection is accepted; a request's head, body and time are limited, and so is the time in
which an answer must be taken; whatever a client sends, it gets an answer or loses its connection, and nobody else
notices. What is answered is not decided here (see `parties.operator.resources`).
"""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

__all__ = ["Answer", "HttpLimits", "Request", "Response", "attend", "refusal", "serve_http", "with_json"]

CHUNK = 4_096
PARTING = 1.0
_ACCEPT_AGAIN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
_ACCEPT_PAUSE = 0.1

ALWAYS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response: nothing is cached, embedded, guessed at, or loaded from elsewhere."""


@dataclass(frozen=True)
class HttpLimits:
    """What whoever connects is allowed.

    Attributes:
        connections: at a time.
        head: bytes of a request's line and headers.
        body: bytes of a request's body.
        request_seconds: for a request to be sent in full, from the end of the last one.
        send_seconds: for each piece of a response to be taken.
    """

    connections: int = 64
    head: int = 8_192
    body: int = 4_096
    request_seconds: float = 15.0
    send_seconds: float = 15.0


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        method: in capitals.
        path: without the query, decoded.
        query: the last value of each name in it.
        headers: by name in small letters; of one that comes twice, the first.
        body: whole.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """One response: a body, or pieces of one that come as they come and end when the client leaves."""

    status: HTTPStatus
    content_type: str
    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


def with_json(value: Any, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> Response:
    """A response that carries a JSON value."""
    body = json.dumps(value, allow_nan=False).encode() + b"\n"
    return Response(status, "application/json", body, {name.replace("_", "-"): text for name, text in headers.items()})


def refusal(status: HTTPStatus, words: str, **headers: str) -> Response:
    """A response that says why there is no other."""
    return with_json({"error": words}, status, **headers)


class _RefusedRequest(Exception):  # noqa: N818 - it never leaves this module
    """A request that is answered with a refusal, after which the connection ends."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


async def serve_http(sockets: list[trio.SocketListener], answer: Answer, limits: HttpLimits) -> None:
    """Serve everybody who connects, until cancelled."""
    room = trio.Semaphore(limits.connections)

    async def visit(stream: trio.SocketStream) -> None:
        try:
            await attend(stream, answer, limits)
        finally:
            room.release()

    async def welcome(socket: trio.SocketListener) -> None:
        async with socket:
            while True:
                await room.acquire()
                nursery.start_soon(visit, await _accept(socket))

    async with trio.open_nursery() as nursery:
        for socket in sockets:
            nursery.start_soon(welcome, socket)


async def attend(stream: trio.abc.HalfCloseableStream, answer: Answer, limits: HttpLimits) -> None:
    """Serve one connection until either side ends it."""
    connection = _Connection(stream, limits)
    try:
        while await connection.serve_one(answer):
            pass
    except trio.BrokenResourceError:
        pass  # the client has gone
    finally:
        await trio.aclose_forcefully(stream)


class _Connection:
    """One connection: requests come in, responses go out, one after the other."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, limits: HttpLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)

    async def serve_one(self, answer: Answer) -> bool:
        """Serve one request; tells whether another may come."""
        request = None
        try:
            with trio.move_on_after(self._limits.request_seconds) as patience:
                request = await self._request()
        except h11.RemoteProtocolError as error:
            return await self._refuse(HTTPStatus(error.error_status_hint), "the request is malformed, or too long")
        except _RefusedRequest as refused:
            return await self._refuse(refused.status, str(refused))
        if patience.cancelled_caught:
            return await self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time")
        if request is None:
            return False
        await self._send(await answer(request), bodiless=request.method == "HEAD")
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _refuse(self, status: HTTPStatus, words: str) -> bool:
        """Say what is wrong, to a client that has asked anything, and part."""
        asked = self._http.their_state is not h11.IDLE or bool(self._http.trailing_data[0])
        if asked and self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(refusal(status, words, Connection="close"))
            await self._part()
        return False

    async def _part(self) -> None:
        """Let the client read our last words, which a reset would take from it while it is still sending."""
        with trio.move_on_after(PARTING):
            await self._stream.send_eof()
            while await self._stream.receive_some(CHUNK):
                pass

    # ---- in

    async def _request(self) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None  # the client has closed the connection
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
            if len(body) > self._limits.body:
                words = f"a request's body has at most {self._limits.body} bytes here"
                raise _RefusedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words)
        return _read(head, bytes(body))

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))
        return event

    # ---- out

    async def _send(self, response: Response, *, bodiless: bool = False) -> None:
        body = response.body
        ending = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {"Connection": "close"}
        headers = {"Content-Type": response.content_type, **ending, **ALWAYS, **response.headers}
        await self._write(h11.Response(status_code=response.status, headers=list(headers.items())))
        if not isinstance(body, bytes):
            async with aclosing(body) as pieces:
                if not bodiless:
                    async for piece in pieces:
                        await self._write(h11.Data(data=piece))
        elif not bodiless:
            await self._write(h11.Data(data=body))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        data = self._http.send(event) or b""
        with trio.move_on_after(self._limits.send_seconds) as patience:
            await self._stream.send_all(data)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not take its response")


async def _accept(socket: trio.SocketListener) -> trio.SocketStream:
    while True:
        try:
            return await socket.accept()
        except OSError as error:
            if error.errno not in _ACCEPT_AGAIN:
                raise
            await trio.sleep(_ACCEPT_PAUSE)


def _read(head: h11.Request, body: bytes) -> Request:
    """A request from what h11 has read; only paths are asked for here, no other servers."""
    try:
        target = urlsplit(head.target.decode("ascii"))
    except ValueError as error:
        raise _RefusedRequest(HTTPStatus.BAD_REQUEST, "the request's target cannot be read") from error
    if target.scheme or target.netloc or not target.path.startswith("/"):
        raise _RefusedRequest(HTTPStatus.BAD_REQUEST, "a path is expected as the request's target")
    return Request(
        method=head.method.decode("ascii"),
        path=unquote(target.path),
        query=dict(parse_qsl(target.query)),
        headers=dict(reversed(head.headers)),
        body=body,
    )
