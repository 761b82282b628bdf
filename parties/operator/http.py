"""A small HTTP/1.1 server on trio streams: h11 parses, this module listens and enforces limits and timeouts.

Rules: a connection is accepted only when there is a free slot for it; a request's head, body and duration are limited,
and so is the time in which the client must read the response; whatever a client sends, it gets a response or is
disconnected, without effect on other clients. `parties.operator.resources` decides what the response is.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import msgspec
import trio

from transport.sockets import accept

CHUNK = 4_096
CLOSING_SECONDS = 1.0
"""How long a refused client may take to read the refusal."""


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
"""Headers of every response: it is not cached or embedded, its type is not guessed, it loads nothing from elsewhere."""


@dataclass(frozen=True)
class HttpLimits:
    """Limits on what clients may use.

    Attributes:
        connections: the most connections at a time.
        head: the most bytes of a request's line and headers together.
        body: the most bytes of a request's body.
        request_seconds: how long a client may take to send a whole request, counted from the end of the previous one.
        send_seconds: how long a client may take to accept each piece of a response.
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
        method: in upper case.
        path: decoded, without the query.
        query: by name, the last value given for it.
        headers: by name in lower case; of a repeated header, the first.
        body: the whole body.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes = b""


@dataclass(frozen=True)
class Response:
    """One response: its body, or a generator of the body's pieces, which is closed when the client disconnects."""

    status: HTTPStatus
    content_type: str
    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


def as_json(value: Any) -> bytes:
    """A JSON value, or a structure as one."""
    return json.dumps(msgspec.to_builtins(value), allow_nan=False).encode()


def json_response(value: Any, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> Response:
    """A response whose body is a JSON value."""
    body = as_json(value) + b"\n"
    return Response(status, "application/json", body, {name.replace("_", "-"): text for name, text in headers.items()})


def refusal(status: HTTPStatus, explanation: str, **headers: str) -> Response:
    """A response that explains why the request was refused."""
    return json_response({"error": explanation}, status, **headers)


class RefusedRequest(Exception):  # noqa: N818 - it never leaves the operator's port
    """A request that is answered with a refusal; one that cannot be read ends its connection, too."""

    def __init__(self, status: HTTPStatus, explanation: str) -> None:
        super().__init__(explanation)
        self.status = status


async def serve_http(sockets: list[trio.SocketListener], answer: Answer, limits: HttpLimits) -> None:
    """Serve everybody who connects, until cancelled."""
    free = trio.Semaphore(limits.connections)

    async def serve_and_release(stream: trio.SocketStream) -> None:
        try:
            await serve_connection(stream, answer, limits)
        finally:
            free.release()

    async def accept_from(socket: trio.SocketListener) -> None:
        async with socket:
            while True:
                await free.acquire()
                stream, _ = await accept(socket, repr)
                nursery.start_soon(serve_and_release, stream)

    async with trio.open_nursery() as nursery:
        for socket in sockets:
            nursery.start_soon(accept_from, socket)


async def serve_connection(stream: trio.abc.HalfCloseableStream, answer: Answer, limits: HttpLimits) -> None:
    """Serve one connection until either side closes it."""
    connection = _Connection(stream, limits)
    try:
        while await connection.serve_one(answer):
            pass
    except trio.BrokenResourceError:
        pass  # the client has disconnected
    finally:
        await trio.aclose_forcefully(stream)


class _Connection:
    """One connection: it reads a request, sends the response, then reads the next request."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, limits: HttpLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._bodiless = False  # whether the request is a HEAD, whatever becomes of its body

    async def serve_one(self, answer: Answer) -> bool:
        """Serve one request; returns whether another one may follow."""
        request, self._bodiless = None, False
        try:
            with trio.move_on_after(self._limits.request_seconds) as timeout:
                request = await self._request()
        except h11.RemoteProtocolError as error:
            return await self._refuse(HTTPStatus(error.error_status_hint), "the request is malformed, or too long")
        except RefusedRequest as refused:
            return await self._refuse(refused.status, str(refused))
        if timeout.cancelled_caught:
            return await self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time")
        if request is None:
            return False
        await self._send(await answer(request))
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _refuse(self, status: HTTPStatus, explanation: str) -> bool:
        """Tell a client that has sent anything what is wrong, and close the connection."""
        asked = self._http.their_state is not h11.IDLE or bool(self._http.trailing_data[0])
        if asked and self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(refusal(status, explanation, Connection="close"))
            with trio.move_on_after(CLOSING_SECONDS):  # a reset while the client is sending would discard the refusal
                await self._stream.send_eof()
                while await self._stream.receive_some(CHUNK):
                    pass
        return False

    # ---- requests

    async def _request(self) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None  # the client has closed the connection
        self._bodiless = head.method == b"HEAD"
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
            if len(body) > self._limits.body:
                explanation = f"a request's body may have at most {self._limits.body} bytes here"
                raise RefusedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, explanation)
        return _read(head, bytes(body))

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))
        return event

    # ---- responses

    async def _send(self, response: Response) -> None:
        body = response.body
        ending = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {"Connection": "close"}
        headers = {"Content-Type": response.content_type, **ending, **ALWAYS, **response.headers}
        await self._write(h11.Response(status_code=response.status, headers=list(headers.items())))
        if not isinstance(body, bytes):
            async with aclosing(body) as pieces:
                if not self._bodiless:
                    async for piece in pieces:
                        await self._write(h11.Data(data=piece))
        elif not self._bodiless:
            await self._write(h11.Data(data=body))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        data = self._http.send(event) or b""
        with trio.move_on_after(self._limits.send_seconds) as timeout:
            await self._stream.send_all(data)
        if timeout.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read its response")


def _read(head: h11.Request, body: bytes) -> Request:
    """A request, from what h11 has parsed; its target must be a path, not another server's address."""
    try:
        target = urlsplit(head.target.decode("ascii"))
    except ValueError as error:
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "the request's target cannot be read") from error
    if target.scheme or target.netloc or not target.path.startswith("/"):
        raise RefusedRequest(HTTPStatus.BAD_REQUEST, "a path is expected as the request's target")
    return Request(
        method=head.method.decode("ascii"),
        path=unquote(target.path),
        query=dict(parse_qsl(target.query)),
        headers=dict(reversed(head.headers)),
        body=body,
    )
