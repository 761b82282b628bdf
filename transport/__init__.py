"""Authenticated channels between parties, over TCP or in memory; knows no message.

    service = Service(settings, admit, handler)
    address = await nursery.start(transport.listen, "127.0.0.1:0", service)

    async with await transport.dial(address, server_key, settings) as channel:
        await channel.send(header, body)
        answer = await channel.receive(limit)

where `transport` is a `TcpTransport` or a memory `Network`.
"""

from transport.arriving import Progress, Room, unseen
from transport.channel import (
    CLOSE_PATIENCE,
    HEARTBEAT,
    REMINDER,
    SILENCE,
    Channel,
    Introduction,
    SecureChannel,
)
from transport.errors import (
    AuthenticationError,
    BusyError,
    ChannelBrokenError,
    ChannelClosedError,
    ConnectionLostError,
    ForeignPeerError,
    HandshakeError,
    HandshakeTimeoutError,
    KindMismatchError,
    LookedOnlyError,
    MessageTooLongError,
    RecordError,
    RefusedError,
    RoleMismatchError,
    SilentPeerError,
    TooSlowError,
    TurnedAwayError,
    UnansweredError,
    UnreachableError,
    VersionMismatchError,
    WrongServerKeyError,
)
from transport.handshake import (
    LONGEST_PAYLOAD,
    LONGEST_REASON,
    Admit,
    CheckPayload,
    HandshakeSettings,
    NoPlace,
    Refusal,
    accept_any_payload,
)
from transport.interface import Transport
from transport.limits import Limits, RateLimiter
from transport.listener import Handler, Observe, Service, log_failure
from transport.memory import Network
from transport.noise import KEY_SIZE, KeyPair, Randomness, is_public_key
from transport.pace import UNHURRIED, Pace
from transport.preamble import PROTOCOL_VERSION, Kind, Role
from transport.records import LONGEST_MESSAGE, wire_size
from transport.tcp import TcpTransport, raise_descriptor_limit

__all__ = [
    "CLOSE_PATIENCE",
    "HEARTBEAT",
    "KEY_SIZE",
    "LONGEST_MESSAGE",
    "LONGEST_PAYLOAD",
    "LONGEST_REASON",
    "PROTOCOL_VERSION",
    "REMINDER",
    "SILENCE",
    "UNHURRIED",
    "Admit",
    "AuthenticationError",
    "BusyError",
    "Channel",
    "ChannelBrokenError",
    "ChannelClosedError",
    "CheckPayload",
    "ConnectionLostError",
    "ForeignPeerError",
    "Handler",
    "HandshakeError",
    "HandshakeSettings",
    "HandshakeTimeoutError",
    "Introduction",
    "KeyPair",
    "Kind",
    "KindMismatchError",
    "Limits",
    "LookedOnlyError",
    "MessageTooLongError",
    "Network",
    "NoPlace",
    "Observe",
    "Pace",
    "Progress",
    "Randomness",
    "RateLimiter",
    "RecordError",
    "Refusal",
    "RefusedError",
    "Role",
    "RoleMismatchError",
    "Room",
    "SecureChannel",
    "Service",
    "SilentPeerError",
    "TcpTransport",
    "TooSlowError",
    "Transport",
    "TurnedAwayError",
    "UnansweredError",
    "UnreachableError",
    "VersionMismatchError",
    "WrongServerKeyError",
    "accept_any_payload",
    "is_public_key",
    "log_failure",
    "raise_descriptor_limit",
    "unseen",
    "wire_size",
]
