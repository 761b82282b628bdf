"""A laboratory for one transport: a server with known keys at one address, and clients that dial it.

One case of the suite: how it is written, and how it is run.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import trio

from fsl_async.errors import FslError, sole_error
from transport.channel import Channel
from transport.errors import ChannelClosedError
from transport.handshake import HandshakeSettings, Refusal
from transport.limits import Limits
from transport.listener import Handler, Service, Transport
from transport.noise import KeyPair
from transport.preamble import Kind, Role

LARGE = 2**30
"""More than any message of the suite, in bytes."""

SERVER, ALICE, STRANGER = (KeyPair.generate(os.urandom) for _ in range(3))

UNLIMITED = Limits(handshakes_per_second=100_000, burst=100_000, per_key=1_000)


async def admit_known(key: bytes, payload: bytes) -> bytes | Refusal:
    """Admits everybody but the stranger."""
    return Refusal("unknown client") if key == STRANGER.public else b"welcome, " + payload


async def echo(channel: Channel) -> None:
    """Sends every message back."""
    while True:
        try:
            message = await channel.receive(LARGE)
        except ChannelClosedError:
            return
        await channel.send(message)


async def sleep(channel: Channel) -> None:
    """Reads nothing."""
    await trio.sleep_forever()


@dataclass
class Lab:
    """A server at one address of a transport.

    Attributes:
        transport: the one that is tried.
        address: where it listens; afterwards as it has reported it.
        nursery: what the case starts; cancelled when the case ends.
        failures: by connection that failed, where it came from and why, as the listener has observed it.
    """

    transport: Transport
    address: str
    nursery: trio.Nursery
    failures: list[tuple[str, FslError]] = field(default_factory=list)
    _failed: trio.Event = field(default_factory=trio.Event)

    def service(self, handler: Handler = echo, **changes: Any) -> Service:
        """What the server does; by default it sends every message back."""
        settings = HandshakeSettings(SERVER.private, Role.SERVER_0, Kind.LIVE, os.urandom, b"this is S0")
        service = Service(settings, admit_known, handler, UNLIMITED, self._observe)
        return replace(service, **changes)

    async def serve(self, handler: Handler = echo, **changes: Any) -> Callable[[], Awaitable[None]]:
        """Listen; returns what ends the listener, and waits until it has ended."""
        scope, ended = trio.CancelScope(), trio.Event()

        async def run(*, task_status: trio.TaskStatus[str]) -> None:
            with scope:
                await self.transport.listen(self.address, self.service(handler, **changes), task_status=task_status)
            ended.set()

        async def stop() -> None:
            scope.cancel()
            await ended.wait()

        self.address = await self.nursery.start(run)
        return stop

    async def dial(self, keys: KeyPair = ALICE, server: bytes = SERVER.public, **changes: Any) -> Channel:
        """Open a channel to the server, whose key is the one that is given."""
        settings = HandshakeSettings(keys.private, Role.CLIENT, Kind.LIVE, os.urandom)
        return await self.transport.dial(self.address, server, replace(settings, **changes))

    @asynccontextmanager
    async def both_ends(self, payload: bytes) -> AsyncIterator[tuple[Channel, Channel]]:
        """A client's channel to a server that sends everything back, and the server's end of it."""
        met: list[Channel] = []

        async def remember(channel: Channel) -> None:
            met.append(channel)
            await echo(channel)

        await self.serve(remember)
        async with await self.dial(payload=payload) as channel:
            await channel.send(b"")
            await channel.receive(0)
            (far,) = met
            yield channel, far

    async def seen(self, count: int) -> list[tuple[str, FslError]]:
        """The failures, once there are so many."""
        while len(self.failures) < count:
            await self._failed.wait()
        return self.failures

    def _observe(self, origin: str, error: FslError) -> None:
        self.failures.append((origin, error))
        self._failed.set()
        self._failed = trio.Event()


PATIENCE = 60.0
"""Seconds after which a case has hung."""


class ConformanceError(AssertionError):
    """A transport does not do what it must; the message says what."""


@dataclass(frozen=True)
class Case:
    """Something that a transport must do.

    Attributes:
        name: in one word.
        rule: what the transport must do.
        check: tries it in a laboratory.
    """

    name: str
    rule: str
    check: Callable[[Lab], Awaitable[None]]

    def __str__(self) -> str:
        return self.name

    def run(self, make: Callable[[], Transport], address: str) -> None:
        """Try the case in a loop of its own.

        Args:
            make: makes the transport; server and clients share it.
            address: where it can listen; if the transport reports another one, that is dialled.

        Raises:
            ConformanceError: the transport does not keep the rule.
        """
        trio.run(partial(self.attempt, make, address))

    async def attempt(self, make: Callable[[], Transport], address: str) -> None:
        """The same as `run`, in a loop that runs."""
        try:
            with trio.move_on_after(PATIENCE) as scope, sole_error():
                async with trio.open_nursery() as nursery:
                    await self.check(Lab(make(), address, nursery))
                    nursery.cancel_scope.cancel()
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(f"{type(error).__name__}: {error}; but {self.rule}") from error
        if scope.cancelled_caught:
            raise ConformanceError(f"it has hung for {PATIENCE:g} s; but {self.rule}")


def cases_of(module: ModuleType) -> tuple[Case, ...]:
    """The public coroutine functions that a module defines, in its order; a docstring is its case's rule."""
    checks = [(name, check) for name, check in vars(module).items() if inspect.iscoroutinefunction(check)]
    own = [(name, check) for name, check in checks if check.__module__ == module.__name__ and not name.startswith("_")]
    return tuple(Case(name, inspect.getdoc(check) or "", check) for name, check in own)


def require(condition: object, otherwise: str) -> None:
    """Fail the case unless a condition holds.

    Raises:
        ConformanceError: it does not; the message says what is wrong instead.
    """
    if not condition:
        raise ConformanceError(otherwise)


@contextmanager
def expect(*kinds: type[BaseException], text: str = "") -> Iterator[None]:
    """Fail the case unless one of these errors comes out of the context, with a message that matches.

    Raises:
        ConformanceError: none comes, or another one.
    """
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield
    except kinds as error:
        require(re.search(text, str(error)), f"{names} came as expected, but says {str(error)!r}")
    except Exception as error:
        raise ConformanceError(f"{names} expected, and {type(error).__name__} came: {error}") from error
    else:
        raise ConformanceError(f"{names} expected, and nothing came")
