"""What every transport offers, `dial` an address and `listen` at one, and what a server does with bare connections.

Parties take a `Transport` and never learn which. The handshake, the records and the limits are the same code for all;
a transport only says how bare streams come about.

Rules of a listener:

- A place is taken before a connection is accepted, so that a flood waits in the network's queue and not in our memory;
  there is always a place for one more handshake, because the oldest then yields.
- A connection from an address that comes too often, or whose handshake fails before there are keys, is closed without
  a word.
- A listener continues whatever a peer does: every `FslError`, also one that a handler raises, is observed and ends that
  one connection. Any other exception is a bug of ours and ends the listener; its caller sees it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import trio

from fsl_async.errors import FslError, leaves
from transport.channel import Channel
from transport.errors import HandshakeTimeoutError, TurnedAwayError
from transport.handshake import (
    Admit,
    CheckPayload,
    HandshakeSettings,
    NoPlace,
    Refusal,
    accept_any_payload,
    initiate,
    respond,
)
from transport.limits import HandshakeBook, Limits, PlaceBook, RateLimiter
from transport.needs_trio import NeedsTrio
from transport.sockets import within_descriptors
from transport.wire import Wire

DIAL = NeedsTrio("Transport.dial")
LISTEN = NeedsTrio("Transport.listen")


class Transport(ABC):
    """Connects endpoints that know each other by address and static key.

    `SocketTransport` and `MemoryNetwork` are two; examples/own_transport.py has another, in thirty lines. A subclass
    opens bare streams in `connect`, and in `listen` gives a `Listener` the function that accepts them; `dial`, with the
    handshake and the deadline, is common to all. `transport.testing` tests it.
    """

    @abstractmethod
    async def connect(self, address: str) -> trio.abc.Stream:
        """Makes a bare connection.

        Raises:
            UnreachableError: nothing listens there.
        """

    @abstractmethod
    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address until cancelled; reports the address at which it can be dialled once it can be.

        Raises:
            UnreachableError: the address cannot be listened at.
        """

    async def dial(
        self,
        address: str,
        server_key: bytes,
        settings: HandshakeSettings,
        check: CheckPayload = accept_any_payload,
    ) -> Channel:
        """Opens a channel to the server at `address` that holds `server_key`.

        Args:
            address: as `listen` reported it.
            server_key: the server's pinned static X25519 public key.
            settings: what this endpoint brings, the deadline for all of this among it.
            check: looks at the server's payload before the client says who it is; raises to break off.

        Raises:
            HandshakeError: no channel came about; the class says why.
            AuthenticationError: bytes were altered on the way.
            ConnectionLostError: the server left in the middle.
            MisuseError: no trio task runs here.
        """
        DIAL.require_trio()
        with trio.move_on_after(settings.deadline):
            stream = await self.connect(address)
            try:
                return await initiate(Wire(stream), server_key, settings, check)
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
        raise HandshakeTimeoutError(
            f"no channel with {address} within {settings.deadline:g} s: the server or the network is too slow, "
            "or what listens there is not fsl-async"
        )


_log = logging.getLogger("transport")

Handler = Callable[[Channel], Awaitable[None]]
"""Serves one channel, which is closed when the handler returns."""

Observe = Callable[[str, FslError], None]
"""Called with the address of a connection that failed, and the error."""


Payload = Callable[[], bytes]
"""Says what this endpoint tells the next client of itself, instead of `HandshakeSettings.payload`."""

Place = Callable[[bytes, bytes], bytes]
"""The name under which an admitted connection takes its place, given its static key and its payload.

`Limits.per_key` is the number of places of one name, `Limits.per_key_exceptions` names some with another number.
"""


def place_of_key(key: bytes, payload: bytes) -> bytes:
    """The static key: all connections with one key have their places together."""
    return key


def log_failure(origin: str, error: FslError) -> None:
    """Writes one line to the logger `transport`."""
    _log.warning("connection from %s: %s: %s", origin, type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class Service:
    """What a listener needs to know.

    Attributes:
        settings: what this endpoint brings to handshakes.
        admit: decides about each client.
        handler: serves each admitted one.
        limits: what strangers are allowed.
        observe: called for every connection that failed.
        payload: says what each client is told of this endpoint, where that changes while it listens; None: what
            `settings` say.
        place: the name under which an admitted connection takes its place.
    """

    settings: HandshakeSettings
    admit: Admit
    handler: Handler
    limits: Limits = field(default_factory=Limits)
    observe: Observe = log_failure
    payload: Payload | None = None
    place: Place = place_of_key

    def present_settings(self) -> HandshakeSettings:
        """What this endpoint brings to the next handshake."""
        return self.settings if self.payload is None else replace(self.settings, payload=self.payload())


Accept: TypeAlias = Callable[[], Awaitable[tuple[trio.abc.Stream, str]]]
"""Waits for the next connection; returns it with the address that limits count it under."""


class Listener:
    """The server's side of a transport: gives a bare connection its handshake, its limits and its handler.

    A transport's `listen` makes one for its service, and calls `serve` for each socket, or whatever it accepts from:

        async def accept():
            return await socket.accept(), "the address that limits count it under"

        task_status.started(address)
        await Listener(service).serve(accept)

    The limits hold for all sources of one listener together.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._room = trio.Semaphore(service.limits.most_at_once)
        self._handshakes = HandshakeBook(service.limits.half_open)
        self._rate = RateLimiter(service.limits.handshakes_per_second, service.limits.burst)
        self._places = PlaceBook(service.limits)

    async def serve(self, accept: Accept) -> None:
        """Serves all connections that `accept` returns, until it is cancelled or a bug comes out of a handler."""
        async with trio.open_nursery() as nursery:
            while True:
                with ExitStack() as taken:
                    await self._room.acquire()
                    taken.callback(self._room.release)
                    stream, origin = await accept()
                    nursery.start_soon(self._attend, stream, origin)
                    taken.pop_all()

    async def _attend(self, stream: trio.abc.Stream, origin: str) -> None:
        """Handles one connection, for which a place has been taken."""
        with ExitStack() as taken:
            taken.callback(self._room.release)
            channel = None
            try:
                channel = await self._welcome(stream, origin, taken)
                async with channel:
                    await self._service.handler(channel)
            except* FslError as errors:
                for error in leaves(errors):
                    self._service.observe(origin, error)
            finally:
                if channel is None:  # which else has closed the stream
                    await trio.aclose_forcefully(stream)

    async def _welcome(self, stream: trio.abc.Stream, origin: str, taken: ExitStack) -> Channel:
        """Shakes hands in time; the places that the connection occupies from then on go into `taken`."""
        if not self._rate.admits(origin):
            raise TurnedAwayError(f"more than {self._service.limits.handshakes_per_second:g} connections per second")
        deadline = self._service.settings.deadline
        scope = trio.CancelScope(deadline=trio.current_time() + deadline)
        with scope, self._handshakes.entered(origin, scope):
            return await respond(Wire(stream), self._service.present_settings(), partial(self._admit, taken))
        if self._handshakes.gave_way(scope):
            raise TurnedAwayError("its handshake hung while newer ones waited; it was the oldest where there were most")
        raise HandshakeTimeoutError(f"the client did not finish its handshake within {deadline:g} s")

    async def _admit(self, taken: ExitStack, key: bytes, payload: bytes) -> bytes | Refusal:
        answer = await self._service.admit(key, payload)
        if isinstance(answer, Refusal):
            return answer
        place = self._service.place(key, payload)
        shortage = self._places.shortage(place)
        if shortage is not None:
            return NoPlace(shortage)
        taken.enter_context(self._places.entered(place))
        return answer


class SocketsTransport(Transport):
    """A transport over the system's sockets: one listener, and so one set of limits, for all that it has bound."""

    @abstractmethod
    def bound(self, address: str) -> AbstractAsyncContextManager[tuple[str, Sequence[Accept]]]:
        """Binds sockets to an address, for as long as the context lasts; says how it is dialled, and what accepts.

        Raises:
            UnreachableError: the address cannot be listened at.
        """

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address; see `Transport.listen`.

        Connections are limited, with a warning, to half of the descriptors that the process may open.
        """
        LISTEN.require_trio()
        async with self.bound(address) as (reported, sources), trio.open_nursery() as nursery:
            listener = Listener(replace(service, limits=within_descriptors(service.limits)))
            for accept in sources:
                nursery.start_soon(listener.serve, accept)
            task_status.started(reported)
