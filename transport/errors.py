"""What can go wrong between two endpoints; all of it is a `ChannelError`.

    ChannelError
    ├── HandshakeError                 no channel came about
    │   ├── UnreachableError           nothing listens at the address
    │   ├── TurnedAwayError            closed before anything was said: overloaded, or it limits this address
    │   ├── ForeignPeerError           what answers is not fsl-async
    │   ├── VersionMismatchError       it speaks another version of the protocol
    │   ├── KindMismatchError          live keys met simulated ones
    │   ├── RoleMismatchError          these two roles do not talk to each other in this direction
    │   ├── WrongServerKeyError        it does not hold the pinned key
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
    │   └── UnansweredError            the time to wait is over; closed, whatever its state
    ├── ChannelClosedError             the peer said CLOSE, or we did
    └── ChannelBrokenError             an earlier failure has made the channel unusable

Errors of trio and of PyNaCl never leave this package: `wire` translates the one, `noise` the other.
"""

from __future__ import annotations

from fsl_async.errors import ChannelError


class HandshakeError(ChannelError):
    """No channel came about.

    The classes below say why. Nothing was exchanged besides the handshake.
    """


class UnreachableError(HandshakeError):
    """Nothing listens at the address.

    Check the address, and whether the server runs; a listener raises it where it cannot listen.
    """


class TurnedAwayError(HandshakeError):
    """The server closed the connection before it said anything.

    It is overloaded, or it limits how often this address may connect: wait a moment and dial again.
    """


class ForeignPeerError(HandshakeError):
    """What is at the other end does not begin as fsl-async does.

    The message shows its first bytes; check the address and the port.
    """


class VersionMismatchError(HandshakeError):
    """The two ends speak different versions of the protocol.

    The message names both; install the same release on both sides.
    """


class KindMismatchError(HandshakeError):
    """One end draws live randomness, the other simulated.

    The two never mix: anybody could derive the keys of a simulated party from its seed.
    """


class RoleMismatchError(HandshakeError):
    """The two roles do not talk to each other in this direction.

    Clients dial servers, and servers dial each other; check which address is whose.
    """


class WrongServerKeyError(HandshakeError):
    """The server could not show that it holds the pinned key.

    It holds another key, or bytes were altered on the way.
    """


class RefusedError(HandshakeError):
    """The server knows who asks and refuses.

    Attributes:
        reason: what the server gave as its reason; text.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BusyError(RefusedError):
    """The server knows who asks and has no place now; it may have one later.

    Its `reason` says what is taken: all places, or those of this key.
    """


class HandshakeTimeoutError(HandshakeError):
    """The handshake did not finish before its deadline.

    The deadline is `HandshakeSettings.deadline`; connecting counts too.
    """


class AuthenticationError(ChannelError):
    """The bytes were not made with the expected keys, or were altered on the way.

    The channel, or the handshake, is over; dial again.
    """


class RecordError(ChannelError):
    """An authenticated peer broke the rules of the record layer.

    It runs other software, or another release with a fault; the channel is over.
    """


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
    """The peer delivers a message more slowly than the agreed pace.

    See `Pace`; the rest of the message may still come, but nobody waits for it.
    """


class ConnectionLostError(ChannelError):
    """The stream ended or broke without a CLOSE, so what came before may be incomplete.

    A peer that ends in good order says CLOSE; then `ChannelClosedError` is raised.
    """


class LookedOnlyError(ConnectionLostError):
    """A client has seen who we are, and left before it said who it is.

    It was a check whether the server is there, or the client wants another task. Only servers meet it.
    """


class SilentPeerError(ConnectionLostError):
    """Nothing came for long, not even a sign of life.

    The network has forgotten the connection, or the peer hangs. `Channel.awaited` says when it is raised.
    """


class UnansweredError(ConnectionLostError):
    """The time to wait is over and nothing has been answered.

    The connection was closed, whatever its state; dial again.
    """


class ChannelClosedError(ChannelError):
    """The channel has been closed in good order.

    The peer said CLOSE, or this side has called `aclose`; there is no further message.
    """


class ChannelBrokenError(ChannelError):
    """An earlier failure has made the channel unusable; open a new one.

    The message names that failure, for example a `send` that was cancelled half-way.
    """
