"""The token that a request must carry to change anything: it is in a file that only the server's own user can read.

The server writes a fresh token when it starts and deletes it when it ends. Queries need no token, which is why the port
should be a local one.
"""

from __future__ import annotations

import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsl_async.digests import same
from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import NO_ROOM, replaced_by
from parties.storage.store import DiskFullError

TOKEN_BYTES = 32

_TOKEN = re.compile(f"[0-9a-f]{{{2 * TOKEN_BYTES}}}")


class OperatorToken:
    """The token of one run of a server.

    Attributes:
        written: whether it has been written into its file.
    """

    def __init__(self) -> None:
        self.written = False
        self._text = secrets.token_hex(TOKEN_BYTES)

    def __repr__(self) -> str:
        return "OperatorToken()"

    def opens(self, header: bytes) -> bool:
        """Whether an Authorization header carries this token; takes the same time for every wrong token."""
        return same(b"Bearer " + self._text.encode(), header)

    def write(self, path: Path) -> None:
        """Write it into a file that only this user can read, replacing an older one.

        Raises:
            DiskFullError: the disk is full.
            StorageError: it cannot be written there.
        """
        try:
            with replaced_by(path) as file:  # mode 0600 from the start
                file.write(f"{self._text}\n".encode())
        except OSError as error:
            kind = DiskFullError if error.errno in NO_ROOM else StorageError
            raise kind(f"{path}: the operator's token cannot be written: {error.strerror}") from error
        self.written = True


@contextmanager
def written_token(path: Path) -> Iterator[OperatorToken]:
    """A fresh token, in a file for as long as the block lasts; not yet written if the disk is full.

    Raises:
        StorageError: it cannot be written there.
    """
    token = OperatorToken()
    with suppress(DiskFullError):
        token.write(path)
    try:
        yield token
    finally:
        with suppress(OSError, MisuseError):  # a server that started later has written its own token
            if token.opens(b"Bearer " + read_operator_token(path).encode()):
                path.unlink()


def read_operator_token(path: Path) -> str:
    """The token of the server that is running.

    Raises:
        MisuseError: there is none, it is not a token, or other users can read it.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError as error:
        raise MisuseError(
            f"{path}: no operator's token; the server writes it when it starts: is it running?"
        ) from error
    except (OSError, ValueError) as error:
        raise MisuseError(f"{path}: the operator's token cannot be read: {error}; run as the server's user") from error
    if stat.S_IMODE(mode) & 0o077:
        raise MisuseError(f"{path}: others can read the operator's token; `chmod 600 {path}`, then restart the server")
    if not _TOKEN.fullmatch(text):
        raise MisuseError(f"{path}: this is no operator's token; name the file that the running server has written")
    return text
