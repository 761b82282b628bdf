"""What can go wrong between two endpoints; all of it is a `ChannelError`.

    ChannelError
    ├── HandshakeError                 no channel came about
    │   ├── UnreachableError           nothing listens at the address
    │   ├── TurnedAwayError            closed before a word was said: overloaded, or it limits this address
    │   ├── ForeignPeerError           what answers is not fsl-async
    │   ├── VersionMismatchError       it speaks another version of the protocol
    │   ├── KindMismatchError          live keys met simulated ones
    │   ├── RoleMismatchError          these two roles do not talk to each other in this direction
    │   ├── WrongServerKeyError        it does not hold the pinned key, or serves another context
    │   ├── RefusedError               it knows who we are and says no; carries the reason
    │   │   └── BusyError              it says no for now: all its places are taken; ask again later
    │   └── HandshakeTimeoutError      the deadline passed first
    ├── AuthenticationError            bytes that the expected keys did not make, or that were altered
    ├── RecordError                    an authenticated peer broke the record rules
    ├── MessageTooLongError            the announced length exceeds the receiver's limit; nothing was read
    ├── TooSlowError                   the peer fell below the agreed pace
    ├── ConnectionLostError            the stream ended or broke without a CLOSE
    │   ├── LookedOnlyError            it has seen who we are, and left before it said who it is
    │   ├── SilentPeerError            nothing came for long, not even a sign of life
    │   └── UnansweredError            the time to wait is over; given up, whatever its state
    ├── ChannelClosedError             the peer said CLOSE, or we did
    └── ChannelBrokenError             an earlier failure has made the channel unusable

Errors of trio and of PyNaCl never leave this package: `wire` translates the one, `noise` the other.
"""

from __future__ import annotations

from fsl_async.errors import ChannelError

__all__ = [
    "AuthenticationError",
    "BusyError",
    "ChannelBrokenError",
    "ChannelClosedError",
    "ConnectionLostError",
    "ForeignPeerError",
    "HandshakeError",
    "HandshakeTimeoutError",
    "KindMismatchError",
    "LookedOnlyError",
    "MessageTooLongError",
    "RecordError",
    "RefusedError",
    "RoleMismatchError",
    "SilentPeerError",
    "TooSlowError",
    "TurnedAwayError",
    "UnansweredError",
    "UnreachableError",
    "VersionMismatchError",
    "WrongServerKeyError",
]


class HandshakeError(ChannelError):
    """No channel came about."""


class UnreachableError(HandshakeError):
    """Nothing listens at the address."""


class TurnedAwayError(HandshakeError):
    """The server closed the connection before it said anything."""


class ForeignPeerError(HandshakeError):
    """What is at the other end does not begin as fsl-async does."""


class VersionMismatchError(HandshakeError):
    """The two ends speak different versions of the protocol."""


class KindMismatchError(HandshakeError):
    """One end draws live randomness, the other simulated."""


class RoleMismatchError(HandshakeError):
    """The two roles do not talk to each other in this direction."""


class WrongServerKeyError(HandshakeError):
    """The server could not show that it holds the pinned key."""


class RefusedError(HandshakeError):
    """The server knows who asks and refuses.

    Attributes:
        reason: the server's words.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BusyError(RefusedError):
    """The server has no place for us now; it may have one later."""


class HandshakeTimeoutError(HandshakeError):
    """The handshake did not finish before its deadline."""


class AuthenticationError(ChannelError):
    """The bytes were not made with the expected keys, or were altered on the way."""


class RecordError(ChannelError):
    """An authenticated peer broke the rules of the record layer."""


class MessageTooLongError(ChannelError):
    """The next message is longer than its receiver allows; none of it has been taken.

    Attributes:
        announced: the message's length in bytes, as its sender declared it.
        limit: the longest message the receiver allows here, in bytes.
    """

    def __init__(self, announced: int, limit: int) -> None:
        super().__init__(
            f"the next message is announced with {announced:,} bytes and at most {limit:,} are allowed here; "
            "receive it with a higher limit or close the channel"
        )
        self.announced = announced
        self.limit = limit


class TooSlowError(ChannelError):
    """The peer delivers a message more slowly than the agreed pace."""


class ConnectionLostError(ChannelError):
    """The stream ended or broke without a CLOSE, so what came before may be incomplete."""


class LookedOnlyError(ConnectionLostError):
    """A client has seen who we are, and left before it said who it is: it was a check, or it wants another task."""


class SilentPeerError(ConnectionLostError):
    """Nothing came for long, not even a sign of life: the network has forgotten the connection, or the peer stands."""


class UnansweredError(ConnectionLostError):
    """The time to wait is over and nothing has been answered; the connection was given up, whatever its state."""


class ChannelClosedError(ChannelError):
    """The channel has been closed in good order."""


class ChannelBrokenError(ChannelError):
    """An earlier failure has made the channel unusable; open a new one."""
