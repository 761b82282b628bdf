"""Channels over Unix-domain sockets, between processes of one host.

An address is "unix:" and the absolute path of the socket. No port is taken, and the folder's permissions say who can
connect at all; the handshake is the same as everywhere, so whoever can connect is still a stranger without a known key.
The limits count connections by the user who makes them.
"""

from __future__ import annotations

import fcntl
import os
import socket as system
import stat
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from fsl_async.errors import MisuseError
from transport.errors import UnreachableError
from transport.listener import Accept, SocketsTransport
from transport.sockets import SocketStream, accept_from

SCHEME = "unix:"

_LONGEST_PATH = 107
"""What sockaddr_un holds on Linux, without the zero at the end."""

_BACKLOG = 1_024
_OTHERS_TAKE, _BETWEEN_LOOKS = 5.0, 0.01
"""Seconds for which others may take a path in the same folder, and between two looks whether they have."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class UnixTransport(SocketsTransport):
    """Connects processes of one host.

    An address is "unix:" and an absolute path of at most 107 bytes, such as "unix:/run/fsl-async/s0.sock".
    """

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a connection to a socket; see `Transport.connect`."""
        path = socket_path(address)
        try:
            return SocketStream(await trio.open_unix_socket(str(path)))
        except OSError as error:
            raise UnreachableError(
                f"nothing listens at {address} ({error.strerror}); check the path, that this user may use it, and that "
                "the server runs"
            ) from error

    @asynccontextmanager
    async def bound(self, address: str) -> AsyncIterator[tuple[str, Sequence[Accept]]]:
        """Binds to a path; see `SocketsTransport.bound`.

        A socket that an ended process has left at the path is replaced, anything else there is not. When the context
        ends, its socket is removed.
        """
        async with _bound(socket_path(address), address) as listening:
            yield address, [partial(accept_from, trio.SocketListener(listening), _origin)]


def socket_path(address: str) -> Path:
    """Returns the path of an address.

    Raises:
        MisuseError: it is not an address of this kind, or its path is longer than the system takes.
    """
    path = Path(address.removeprefix(SCHEME))
    if not address.startswith(SCHEME) or not path.is_absolute() or "\0" in address:
        raise MisuseError(f"{address!r} is not an address of the form unix:/absolute/path")
    try:
        length = len(os.fsencode(path))
    except UnicodeError as error:
        raise MisuseError(f"{address!r} is not an address: no path can have such a name ({error})") from error
    if length > _LONGEST_PATH:
        raise MisuseError(
            f"{address!r} is not an address: the path of a socket has at most {_LONGEST_PATH} bytes, this one {length}"
        )
    return path


@asynccontextmanager
async def _bound(path: Path, address: str) -> AsyncIterator[trio.socket.SocketType]:
    """A socket that listens at a path, and is removed from there afterwards if it still is ours.

    It listens until it is removed: what does not answer may be replaced by somebody else.
    """
    with system.socket(system.AF_UNIX, system.SOCK_STREAM) as bare:
        bare.setblocking(False)
        try:
            async with _alone_in(path.parent):
                _remove_left_over(path, address)
                bare.bind(str(path))
                bare.listen(_BACKLOG)
            ours = _place(path)
        except UnreachableError:
            raise
        except BlockingIOError as error:
            raise _cannot_listen(address, "another process keeps its folder to itself") from error
        except OSError as error:
            raise _cannot_listen(address, error.strerror) from error
        try:
            yield trio.socket.from_stdlib_socket(bare)
        finally:
            _remove_own(path, ours)


def _remove_own(path: Path, ours: tuple[int, int]) -> None:
    """Removes a socket from its path, unless another one has taken its place."""
    with suppress(OSError):
        if _place(path) == ours:
            path.unlink()


def _place(path: Path) -> tuple[int, int]:
    """What tells the socket at a path from another one that takes its place."""
    found = path.lstat()
    return found.st_dev, found.st_ino


@asynccontextmanager
async def _alone_in(folder: Path) -> AsyncIterator[None]:
    """Keep other listeners from taking a path in a folder: of two, the second would remove the first one's socket.

    Raises:
        BlockingIOError: another one has kept it for longer than it takes to listen.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with trio.move_on_after(_OTHERS_TAKE) as waiting:
            while not _locked(number):  # noqa: ASYNC110 - nobody tells when a lock is free
                await trio.sleep(_BETWEEN_LOOKS)
        if waiting.cancelled_caught:
            raise BlockingIOError
        yield
    finally:
        os.close(number)


def _locked(number: int) -> bool:
    """Whether a folder is ours now."""
    with suppress(BlockingIOError):
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _remove_left_over(path: Path, address: str) -> None:
    """Removes a socket at which nobody listens any more.

    Raises:
        UnreachableError: somebody listens there, or there is something else than a socket.
    """
    obstacle: str | None = ""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            obstacle = "there is a file that is no socket"
        elif _answers(path):
            obstacle = "another process listens there"
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        obstacle = error.strerror
    if obstacle:
        raise _cannot_listen(address, obstacle)


def _answers(path: Path) -> bool:
    """Whether somebody listens at a socket, even if its queue is full."""
    with system.socket(system.AF_UNIX, system.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
        return True


def _cannot_listen(address: str, why: str | None) -> UnreachableError:
    return UnreachableError(f"cannot listen at {address} ({why}); is the folder there, is it this user's to write?")


def _origin(stream: trio.SocketStream) -> str:
    """Names the user who has connected."""
    _, user, _ = _CREDENTIALS.unpack(stream.getsockopt(system.SOL_SOCKET, system.SO_PEERCRED, _CREDENTIALS.size))
    return f"user-{user}"
