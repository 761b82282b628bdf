"""Single-use enrolment tokens: their text, the vouchers that servers are shown, and the file that recognises these.

    token (16 bytes, 32 hexadecimal digits)     made by the operators, printed once, given to one client
      └─ voucher for S0, voucher for S1         all that the client shows, each to one server
           └─ digest                            all that a server's file holds

Rules: a voucher is valid for one task at one server only, because otherwise that server could let an accomplice enrol
at the other one, or in another task, in the client's place; nobody who reads the file learns a token; digests are
compared in constant time.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fsl_async.digests import DIGEST_BYTES, KEY_BYTES, Domain, digest, same
from fsl_async.errors import MisuseError, StorageError
from fsl_async.randomness import Randomness
from parties.files.disk import exists
from parties.files.toml import parse_toml

TOKEN_BYTES = 16
MOST_TOKENS = 1_000_000
SERVERS = ("S0", "S1")

_HANDLE_BYTES = 8


def new_tokens(count: int, randomness: Randomness = os.urandom) -> list[str]:
    """Make tokens, as the text that clients are given.

    Raises:
        MisuseError: the number is 0, or more than a file holds.
    """
    if not 1 <= count <= MOST_TOKENS:
        raise MisuseError(f"tokens: from 1 to {MOST_TOKENS:,} can be made at once, not {count:,}")
    return [randomness(TOKEN_BYTES).hex() for _ in range(count)]


def read_token(text: str) -> bytes:
    """A token from its text; spaces and hyphens do not matter.

    Raises:
        MisuseError: it is not a token. The message does not repeat it, because it may be a mistyped token.
    """
    plain = re.sub(r"[\s-]", "", text)
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * TOKEN_BYTES}}}", plain):
        raise MisuseError(
            f"token: {2 * TOKEN_BYTES} hexadecimal digits expected, as `fsl-async enrol` prints them, "
            f"got {len(plain)} characters"
        )
    return bytes.fromhex(plain)


def voucher(token: bytes, task: bytes, server: int) -> bytes:
    """What a client shows one server of its token: 16 bytes that say nothing about any other voucher.

    Args:
        token: the client's.
        task: the digest of the task that it is for.
        server: which server is shown it.
    """
    return digest(Domain.VOUCHER, token, task, bytes([server]))[:KEY_BYTES]


class TokenBook:
    """The tokens that one server accepts, by the digests of their vouchers.

    `TokenBook.load` reads the file that `fsl-async enrol` writes; `TokenBook.of` makes one of tokens.
    """

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._by_handle = {known[:_HANDLE_BYTES]: known for known in digests}

    @staticmethod
    def of(tokens: Iterable[str], task: bytes, server: int) -> TokenBook:
        """The book of these tokens for the task with that digest."""
        return TokenBook(_voucher_digest(read_token(text), task, server) for text in tokens)

    @staticmethod
    def load(path: Path, task: bytes, server: int) -> TokenBook:
        """Read a file that `add_tokens` has written for the task with that digest.

        Raises:
            MisuseError: it is missing or malformed, or for another task.
        """
        return TokenBook(bytes.fromhex(entry) for entry in _read(path, task)[SERVERS[server]])

    def find(self, shown: bytes) -> bytes:
        """The digest of a voucher in the book; empty if it is not there.

        The entry is found by a part of the digest; the whole digest is compared in constant time.
        """
        wanted = digest(Domain.TOKEN, shown)
        known = self._by_handle.get(wanted[:_HANDLE_BYTES], b"")
        return known if same(known, wanted) else b""

    def __len__(self) -> int:
        return len(self._by_handle)


def add_tokens(path: Path, task: bytes, tokens: Sequence[str]) -> int:
    """Add tokens for the task with that digest to its file, which is made if there is none; it is replaced as a whole.

    Returns:
        How many tokens the file has now.

    Raises:
        MisuseError: the file is malformed, is for another task, or would hold more than `MOST_TOKENS`.
        StorageError: it cannot be written.
    """
    known = _read(path, task) if exists(path) else {name: [] for name in SERVERS}
    if len(known[SERVERS[0]]) + len(tokens) > MOST_TOKENS:
        raise MisuseError(f"{path}: holds {len(known[SERVERS[0]]):,} tokens, at most {MOST_TOKENS:,} fit")
    for server, name in enumerate(SERVERS):
        known[name] += [_voucher_digest(read_token(text), task, server).hex() for text in tokens]
    _write(path, task, known)
    return len(known[SERVERS[0]])


def _voucher_digest(token: bytes, task: bytes, server: int) -> bytes:
    return digest(Domain.TOKEN, voucher(token, task, server))


def _read(path: Path, task: bytes) -> dict[str, list[str]]:
    try:
        table = parse_toml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise MisuseError(
            f"{path} cannot be read: {error.strerror}; copy the other server's, which is the same, or make one with "
            "`fsl-async enrol`"
        ) from error
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path} is not TOML: {error}") from error
    if set(table) != {"task", *SERVERS} or not _are_digests([table["task"]]):
        raise MisuseError(
            f"{path}: a task's digest and two lists of digests, S0 and S1, expected; make it with `fsl-async enrol`, "
            "and copy it as it is"
        )
    made_for = table.pop("task")
    if made_for != task.hex():
        raise MisuseError(
            f"{path}: its tokens are for the task whose digest is {made_for[:16]}…, and this one's is "
            f"{task.hex()[:16]}…; make tokens for this task with `fsl-async enrol`, in a file of their own"
        )
    if not all(_are_digests(entries) for entries in table.values()):
        raise MisuseError(
            f"{path}: S0 and S1 are lists of digests; make it with `fsl-async enrol`, and copy it as it is"
        )
    return table


def _are_digests(entries: Any) -> bool:
    digits = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
    return isinstance(entries, list) and all(isinstance(entry, str) and digits.fullmatch(entry) for entry in entries)


def _write(path: Path, task: bytes, known: dict[str, list[str]]) -> None:
    lines = ["# Digests of enrolment tokens, the same file for both servers; tokens cannot be learnt from it."]
    lines += [f'task = "{task.hex()}"']
    for name in SERVERS:
        lines += [f"{name} = [", *(f'    "{entry}",' for entry in known[name]), "]"]
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".toml", delete=False) as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
