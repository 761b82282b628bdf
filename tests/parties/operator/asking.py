"""Asking the operator's port of a stage, without a socket and on one."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair

from parties.operator import serve_operator
from parties.operator.http import HttpLimits, serve_connection
from parties.operator.resources import Resources
from parties.operator.token import OperatorToken
from tests.parties.operator.stage import Host, OneTask, Stage

LIMITS = HttpLimits()


class Port:
    """The port of a stage, without a socket.

    Attributes:
        stage: the server behind it.
        token: the operator's, as a header.
    """

    def __init__(self, stage: Stage | OneTask | None = None, *hosts: str) -> None:
        self.stage = stage or Stage()
        token = OperatorToken()
        with TemporaryDirectory() as folder:
            token.write(Path(folder, "token"))
            self.token = f"Bearer {Path(folder, 'token').read_text(encoding='ascii').strip()}"
        self.resources = Resources(Host(self.stage), token, hosts)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own, through all of HTTP."""
        client = h11.Connection(h11.CLIENT)
        head = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close"} | headers
        request = h11.Request(method=method, target=path, headers=list(head.items()))
        data = client.send(request) + (client.send(h11.Data(data=body)) if body else b"")
        client.receive_data(await self.exchange(data + client.send(h11.EndOfMessage())))
        client.receive_data(b"")
        answer = client.next_event()
        content = b""
        while isinstance(event := client.next_event(), h11.Data):
            content += bytes(event.data)
        return answer.status_code, {k.decode(): v.decode() for k, v in answer.headers}, content

    async def exchange(self, data: bytes) -> bytes:
        """All that is answered to some bytes, after which the client says nothing more."""
        async with self.reached() as ours:
            await ours.send_all(data)
            await ours.send_eof()
            return await everything(ours)

    async def json(self, path: str, status: int = 200) -> dict:
        found, headers, body = await self.ask("GET", path)
        assert (found, headers["content-type"]) == (status, "application/json"), body
        return json.loads(body)

    async def order(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict]:
        """One request with the token."""
        status, _, answer = await self.ask(method, path, body, Authorization=self.token)
        return status, json.loads(answer)

    @asynccontextmanager
    async def reached(self, streams: Callable[[], tuple[Any, Any]] = memory_stream_pair) -> AsyncGenerator[Any, None]:
        """The other end of a connection that it serves until the connection ends."""
        ours, theirs = streams()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_connection, theirs, self.resources.answer, LIMITS)
            yield ours


@asynccontextmanager
async def serving(
    host: Stage | Host, token: Path, address: str = "127.0.0.1:0", **settings: Any
) -> AsyncGenerator[str, None]:
    """The port on a socket; where it listens."""
    async with trio.open_nursery() as nursery:
        host = Host(host) if isinstance(host, Stage) else host
        yield await nursery.start(partial(serve_operator, host, address, token, **settings))
        nursery.cancel_scope.cancel()


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    data = b""
    try:
        while piece := await stream.receive_some():
            data += bytes(piece)
    except trio.BrokenResourceError:
        pass
    return data
