"""Asking a running server from outside: the other end of `parties.operator.server`, as the commands use it."""

from __future__ import annotations

import json
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import trio

from fsl_async.errors import FslError, MisuseError, StorageError
from fsl_async.foreign_text import printable
from parties.operator.resources import host_of
from parties.operator.response_types import Refusal, read_answer
from parties.operator.token import read_operator_token, token_place
from parties.settings.party_file import ServerFile
from transport import ForeignPeerError, UnreachableError

__all__ = ["Inquiry"]

AnswerT = TypeVar("AnswerT")

SECONDS = 30.0
WORD_LENGTH = 500
PIECE = 65_536
LONGEST = 2**28
"""Bytes of an answer: a million rounds in short are not more."""


class Inquiry:
    """A running server's operator port, and the file of its token where one is at hand.

    Args:
        address: host:port.
        token_file: where the server has written its token; none where nothing is to be changed.
    """

    def __init__(self, address: str, token_file: Path | None) -> None:
        self._address = address
        self._token_file = token_file

    @staticmethod
    def of(where: str, token_file: Path | None = None) -> Inquiry:
        """The port that a server's file names, or that is given as http://host:port.

        Raises:
            MisuseError: it is neither, or the file names no port.
        """
        if where.startswith(("http://", "https://")):
            return Inquiry(_address_in(where), token_file)
        file = ServerFile.load(Path(where))
        listen = file.operator.listen
        if not listen:
            raise MisuseError(
                f'{where}: the server has no operator\'s port; add [operator] with listen = "127.0.0.1:9464", and '
                "restart it"
            )
        if listen.endswith(":0"):
            raise MisuseError(
                f"{where}: the system chooses the operator's port ({listen}); give its address as http://host:port, "
                "as the server said it when it started, or a fixed port in the file"
            )
        return Inquiry(listen, token_file or token_place(file))

    async def get(self, path: str, kind: type[AnswerT]) -> AnswerT:
        """What the server shows at a path.

        Args:
            path: the path, with what follows a question mark.
            kind: what an answer to it is.

        Raises:
            ChannelError: it does not answer, or something else does.
            MisuseError: there is nothing at the path.
            FslError: it cannot show it.
        """
        return await self._ask(kind, "GET", path)

    async def change(self, method: str, path: str, kind: type[AnswerT], **words: str) -> AnswerT:
        """Have the server change something; shows it the operator's token.

        Raises:
            ChannelError: it does not answer, or something else does.
            MisuseError: the token is not at hand or another, or the words are wrong.
            FslError: it cannot be changed.
        """
        if self._token_file is None:
            raise MisuseError("the operator's token is needed: name the server's TOML file, or give --token-file")
        token = read_operator_token(self._token_file)
        return await self._ask(kind, method, path, json.dumps(words), {"Authorization": f"Bearer {token}"})

    async def _ask(self, kind: type[AnswerT], *question: Any) -> AnswerT:
        return await trio.to_thread.run_sync(self._ask_plainly, kind, *question, abandon_on_cancel=True)

    def _ask_plainly(self, kind: type[AnswerT], *question: Any) -> AnswerT:
        with closing(self._dial()) as connection:
            status, body = self._asked(connection, *question)
        if status >= HTTPStatus.BAD_REQUEST:
            raise self._refused(status, self._read(body, Refusal)["error"])
        return self._read(body, kind)

    def _dial(self) -> HTTPConnection:
        return HTTPConnection(self._address, timeout=SECONDS)

    def _asked(self, connection: HTTPConnection, *question: Any) -> tuple[int, bytearray]:
        """Ask; the answer's status and its body, as far as one is worth reading."""
        try:
            connection.request(*question)
            with connection.getresponse() as response:
                return response.status, _body(response)
        except OSError as error:
            raise UnreachableError(
                f"nothing answers at http://{self._address} ({error}): is the server running, was its file changed "
                "since it started, is this the host it runs on?"
            ) from error
        except (HTTPException, ValueError, OverflowError) as error:  # the last for a port that there cannot be
            raise self._foreign() from error

    def _read(self, body: bytearray, kind: type[AnswerT]) -> AnswerT:
        try:
            return read_answer(body, kind)
        except ValueError as error:
            raise self._foreign() from error

    def _foreign(self) -> ForeignPeerError:
        return ForeignPeerError(
            f"what answers at http://{self._address} is not an operator's port of fsl-async, or is one of another "
            "release; check [operator] listen"
        )

    def _refused(self, status: int, words: str) -> FslError:
        words = printable(words)[:WORD_LENGTH]
        match status:
            case HTTPStatus.UNAUTHORIZED:
                return MisuseError(
                    f"{self._token_file} does not hold the running server's token; it has another store?"
                )
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return StorageError(words)
            case HTTPStatus.CONFLICT:
                return FslError(words)
        return MisuseError(words)


def _body(response: HTTPResponse) -> bytearray:
    """All of an answer, piece by piece: room is made for what comes, and not for what is declared.

    Raises:
        ValueError: it goes on where any of ours would have ended.
    """
    body = bytearray()
    while piece := response.read(PIECE):
        body += piece
        if len(body) > LONGEST:
            raise ValueError(f"an answer of more than {LONGEST:,} bytes")
    return body


def _address_in(url: str) -> str:
    address = url.removeprefix("http://").removesuffix("/")
    if url.startswith("https://") or not host_of(address) or not address.isprintable() or set(address) & set("/?#@ "):
        raise MisuseError(f"{url[:200]!r}: the server's TOML file or http://host:port expected")
    return address
