"""What a process tells its supervisor, such as systemd: that it is ready, that it stops. And signals and core dumps.

The protocol is sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names. Without that variable nothing happens.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_log = logging.getLogger("parties.serving")


def tell_supervisor(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send the supervisor lines such as READY=1; where it does not listen, that is only logged."""
    name = environment.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
            connection.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("the supervisor at NOTIFY_SOCKET cannot be told %r: %s", state, error)


def forbid_core_dumps() -> None:
    """Forbid core dumps, which would hold seeds and shares."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def late_hangups_ignored() -> Iterator[None]:
    """Ignore a SIGHUP that comes while the process ends: trio raises what nobody took again, and dies."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
