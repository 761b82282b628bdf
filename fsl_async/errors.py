"""Every error a user of fsl-async can meet.

    FslError
    ├── MisuseError            the caller asked for something impossible; nothing has been sent or changed
    ├── PeerViolationError     a peer broke the protocol; names the peer
    ├── ChannelError           a connection could not be made or was lost
    └── StorageError           what must be durable could not be stored

Each message says what was expected, what came instead and what to do about it. Errors of the libraries underneath are
translated into these once, where they enter.
"""

from __future__ import annotations

__all__ = [
    "ChannelError",
    "FslError",
    "MisuseError",
    "PeerViolationError",
    "StorageError",
]


class FslError(Exception):
    """The root of all errors raised on purpose by this distribution."""


class MisuseError(FslError, ValueError):
    """The caller asked for something impossible; nothing has been sent or changed."""


class PeerViolationError(FslError):
    """A peer broke the protocol.

    Attributes:
        peer: the name of the party that broke it.
    """

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(f"{peer}: {message}")
        self.peer = peer


class ChannelError(FslError, ConnectionError):
    """A connection could not be made, was refused or was lost."""


class StorageError(FslError):
    """What must be durable before it is acknowledged could not be stored."""
