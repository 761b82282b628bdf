"""Queries to a running server's operator port: the client of `parties.operator.server`, as the commands use it."""

from __future__ import annotations

import json
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import trio

from fsl_async.errors import FslError, MisuseError, StorageError
from fsl_async.foreign_text import printable
from parties.operator.answers import Refusal, read_answer
from parties.operator.token import read_operator_token
from transport import ForeignPeerError, UnreachableError

AnswerT = TypeVar("AnswerT")

TIMEOUT = 30.0
LONGEST_EXPLANATION = 500
PIECE = 65_536
LONGEST_ANSWER = 2**28
"""The most bytes of an answer: the summaries of a million rounds are shorter."""


class OperatorPort:
    """A running server's operator port.

    Example:
        >>> status = await OperatorPort("127.0.0.1:9464").get("/status.json", StatusAnswer)

    Args:
        address: host:port.
        token_file: the file into which the server has written its token; None to query only, and change nothing.
    """

    def __init__(self, address: str, token_file: Path | None = None) -> None:
        self._address = address
        self._token_file = token_file

    async def get(self, path: str, kind: type[AnswerT], *, task: str = "") -> AnswerT:
        """The server's answer to GET.

        Args:
            path: the path, with its query.
            kind: the type of the answer, one of `parties.operator.answers`.
            task: the name of the task that it is about; empty: of the only one.

        Raises:
            ChannelError: nothing answers at the address, or something that is not an operator port.
            MisuseError: there is nothing at the path; no such task; or several, and none is named.
            FslError: the server cannot answer now.
        """
        return await self._ask(kind, "GET", _of_task(path, task))

    async def change(self, method: str, path: str, kind: type[AnswerT], *, task: str = "", **arguments: str) -> AnswerT:
        """The server's answer to a request that changes something, which carries the operator's token.

        Args:
            method: POST or PUT.
            path: the path.
            kind: the type of the answer, one of `parties.operator.answers`.
            task: the name of the task that it is about; empty: of the only one, or of none.
            arguments: the request's body, as a JSON object.

        Raises:
            ChannelError: nothing answers at the address, or something that is not an operator port.
            MisuseError: the token is missing or not the server's, or the arguments are invalid.
            FslError: the server cannot carry it out now.
        """
        if self._token_file is None:
            raise MisuseError(
                "the operator's token is needed: name the server's TOML file, or give its token_file=FILE"
            )
        token = read_operator_token(self._token_file)
        return await self._ask(
            kind, method, _of_task(path, task), json.dumps(arguments), {"Authorization": f"Bearer {token}"}
        )

    async def _ask(self, kind: type[AnswerT], *request: Any) -> AnswerT:
        return await trio.to_thread.run_sync(self._ask_in_thread, kind, *request, abandon_on_cancel=True)

    def _ask_in_thread(self, kind: type[AnswerT], *request: Any) -> AnswerT:
        with closing(self._dial()) as connection:
            status, body = self._asked(connection, *request)
        if status >= HTTPStatus.BAD_REQUEST:
            raise self._refused(status, self._read(body, Refusal).error)
        return self._read(body, kind)

    def _dial(self) -> HTTPConnection:  # tests put hostile answers here
        return HTTPConnection(self._address, timeout=TIMEOUT)

    def _asked(self, connection: HTTPConnection, *request: Any) -> tuple[int, bytearray]:
        """The answer's status and body."""
        try:
            connection.request(*request)
            with connection.getresponse() as response:
                return response.status, _body(response)
        except OSError as error:
            raise UnreachableError(
                f"nothing answers at http://{self._address} ({error}): is the server running, was its file changed "
                "since it started, is this the host it runs on?"
            ) from error
        except (HTTPException, ValueError, OverflowError) as error:  # OverflowError: a port number above 65535
            raise self._foreign() from error

    def _read(self, body: bytearray, kind: type[AnswerT]) -> AnswerT:
        try:
            return read_answer(body, kind)
        except ValueError as error:
            raise self._foreign() from error

    def _foreign(self) -> ForeignPeerError:
        return ForeignPeerError(
            f"what answers at http://{self._address} is not an operator's port of fsl-async, or is one of another "
            "release; check [operator] listen, or ask with the release that runs there"
        )

    def _refused(self, status: int, explanation: str) -> FslError:
        explanation = printable(explanation)[:LONGEST_EXPLANATION]
        match status:
            case HTTPStatus.UNAUTHORIZED:
                return MisuseError(
                    f"{self._token_file} does not hold the running server's token; it has another store?"
                )
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return StorageError(explanation)
            case HTTPStatus.CONFLICT:
                return FslError(explanation)
        return MisuseError(explanation)


def _of_task(path: str, task: str) -> str:
    """A path that names a task, if there is one to name."""
    if not task:
        return path
    return f"{path}{'&' if '?' in path else '?'}task={quote(task, safe='')}"


def _body(response: HTTPResponse) -> bytearray:
    """The whole body of an answer; memory is allocated for the bytes that arrive, not for the length that is declared.

    Raises:
        ValueError: it is longer than any answer of an operator port.
    """
    body = bytearray()
    while piece := response.read(PIECE):
        body += piece
        if len(body) > LONGEST_ANSWER:
            raise ValueError(f"an answer of more than {LONGEST_ANSWER:,} bytes")
    return body
