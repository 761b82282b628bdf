"""Authenticated channels between parties, over sockets, WebSockets or in memory; knows no message.

A server listens with a `Service`, a client dials; both get a `Channel`, which moves whole messages:

    service = Service(settings, admit, handler)
    address = await nursery.start(transport.listen, "127.0.0.1:0", service)

    async with await transport.dial(address, server_key, settings) as channel:
        await channel.send(header, body)
        answer = await channel.receive(limit)

Here `transport` is a `SocketTransport` (TCP, Unix-domain sockets or WebSockets, by the address), a `MemoryNetwork`, or
one of your own: a subclass of `Transport` whose `connect` opens a bare stream, and whose `listen` gives a `Listener`
the function that accepts the next one. `transport.testing` has the tests that every transport must pass.
"""

from fsl_async.randomness import Randomness
from transport.arriving import Progress, Room
from transport.channel import Channel, Introduction
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
from transport.handshake import Admit, CheckPayload, HandshakeSettings, NoPlace, Refusal
from transport.listener import Transport
from transport.limits import Limits
from transport.listener import Accept, Handler, Listener, Observe, Service
from transport.memory import MemoryNetwork
from transport.noise import KeyPair
from transport.arriving import Pace
from transport.preamble import Kind, Role
from transport.socket_transport import SocketTransport
from transport.tcp import TcpTransport
from transport.unix import UnixTransport

__all__ = [
    "Accept",
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
    "Listener",
    "LookedOnlyError",
    "MemoryNetwork",
    "MessageTooLongError",
    "NoPlace",
    "Observe",
    "Pace",
    "Progress",
    "Randomness",
    "RecordError",
    "Refusal",
    "RefusedError",
    "Role",
    "RoleMismatchError",
    "Room",
    "Service",
    "SilentPeerError",
    "SocketTransport",
    "TcpTransport",
    "TooSlowError",
    "Transport",
    "TurnedAwayError",
    "UnansweredError",
    "UnixTransport",
    "UnreachableError",
    "VersionMismatchError",
    "WrongServerKeyError",
]
