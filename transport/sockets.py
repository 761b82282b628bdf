"""What transports over the system's sockets share: accepting, and the descriptors that connections may take."""

from __future__ import annotations

import errno
import logging
import resource
from collections.abc import Callable
from dataclasses import replace

import trio

from transport.limits import Limits

_log = logging.getLogger("transport")

_ACCEPT_AGAIN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
_ACCEPT_PAUSE = 0.1
_SHARE = 2
"""Connections may take one in so many of a process's descriptors; handshakes one in `_HANDSHAKES_SHARE`."""
_HANDSHAKES_SHARE = 8


async def accept(
    listening: trio.SocketListener, origin: Callable[[trio.SocketStream], str]
) -> tuple[trio.SocketStream, str]:
    """Returns the next connection to a listening socket, and what limits count it under.

    Args:
        listening: the socket.
        origin: says what limits count a connection under; raises `OSError` if the peer has left.
    """
    while True:
        try:
            stream = await listening.accept()
        except OSError as error:
            if error.errno not in _ACCEPT_AGAIN:
                raise
            await trio.sleep(_ACCEPT_PAUSE)
            continue
        try:
            return stream, origin(stream)
        except OSError:  # the peer left before we could ask who it is
            await stream.aclose()


def within_descriptors(limits: Limits) -> Limits:
    """Lowers connections and handshakes, with a warning, to the shares of the descriptors that they may have."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits
    lowered = replace(
        limits,
        connections=max(1, min(limits.connections, descriptors // _SHARE)),
        half_open=max(1, min(limits.half_open, descriptors // _HANDSHAKES_SHARE)),
    )
    if lowered != limits:
        _log.warning(
            "this process may open %d descriptors: %d connections and %d handshakes at a time instead of %d and %d; "
            "raise the limit (ulimit -n, LimitNOFILE)",
            descriptors,
            lowered.connections,
            lowered.half_open,
            limits.connections,
            limits.half_open,
        )
    return lowered
