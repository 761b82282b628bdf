"""Asking a running server from outside: the other end of `parties.operating.port`, as the commands use it."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from fsl_async.errors import FslError, MisuseError, StorageError
from parties.operating.access import read_operator_token, token_place
from parties.operating.discretion import printable
from parties.operating.resources import host_of
from parties.party_files import ServerFile
from transport import ForeignPeerError, UnreachableError

__all__ = ["Inquiry"]

SECONDS = 30.0
WORD_LENGTH = 500


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

    async def get(self, path: str) -> dict[str, Any]:
        """What the server shows at a path.

        Raises:
            ChannelError: it does not answer, or something else does.
            MisuseError: there is nothing at the path.
            FslError: it cannot show it.
        """
        return await self._ask("GET", path, None, {})

    async def change(self, method: str, path: str, **words: str) -> dict[str, Any]:
        """Have the server change something; shows it the operator's token.

        Raises:
            ChannelError: it does not answer, or something else does.
            MisuseError: the token is not at hand or another, or the words are wrong.
            FslError: it cannot be changed.
        """
        if self._token_file is None:
            raise MisuseError("the operator's token is needed: name the server's TOML file, or give --token-file")
        token = read_operator_token(self._token_file)
        return await self._ask(method, path, json.dumps(words), {"Authorization": f"Bearer {token}"})

    async def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> dict[str, Any]:
        return await trio.to_thread.run_sync(self._ask_plainly, method, path, body, headers, abandon_on_cancel=True)

    def _ask_plainly(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except OSError as error:
            raise UnreachableError(
                f"nothing answers at http://{self._address} ({error}): is the server running, was its file changed "
                "since it started, is this the host it runs on?"
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            raise self._foreign() from error
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise self._foreign()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise self._refused(response.status, answer)
        return answer

    def _foreign(self) -> ForeignPeerError:
        return ForeignPeerError(
            f"what answers at http://{self._address} is not an operator's port of fsl-async; check [operator] listen"
        )

    def _refused(self, status: int, answer: dict[str, Any]) -> FslError:
        words = printable(str(answer.get("error", "")))[:WORD_LENGTH]
        if not words:
            return self._foreign()
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


def _address_in(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "http" or not host_of(parts.netloc) or parts.path not in ("", "/") or parts.query:
        raise MisuseError(f"{url[:200]!r}: the server's TOML file or http://host:port expected")
    return parts.netloc
