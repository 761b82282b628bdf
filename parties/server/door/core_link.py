"""A door's connection to its core: many calls at a time over one channel, made anew when it is lost.

Rules: a call that is under way when the connection is lost fails, and is never repeated here: the core has forgotten
it, and so whoever asked must begin anew. What is said leaves in order, what waits together in one bundle, and nobody
who is cancelled breaks the channel for others. A core that refuses the door for good (another release, another task)
ends it with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import trio

from fsl_async.error_groups import leaves
from fsl_async.errors import ChannelError, MisuseError
from fsl_async.wire.codec import Received, decode
from fsl_async.wire.door_bundles import LONGEST_OF_A_CORE, Outgoing, unbundled
from fsl_async.wire.door_messages import (
    Abused,
    Admitted,
    Answered,
    CoreHello,
    CoreToDoor,
    Dismissed,
    DoorToCore,
    ForwardOrder,
    Granted,
    Later,
    Leaving,
    NotYet,
    RoundOpened,
    RoundSettled,
    Taken,
    TurnedAway,
    Unwanted,
    Wanted,
)
from parties.concurrency import RecurringEvent
from transport import (
    BusyError,
    Channel,
    KindMismatchError,
    Pace,
    RefusedError,
    RoleMismatchError,
    SecureChannel,
    VersionMismatchError,
)

__all__ = ["CoreAwayError", "CoreLink", "CoreListener", "Unasked"]

_log = logging.getLogger("parties.door")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds until a core that could not be reached is dialled again: twice as long each time."""

GATHERING = 0.005
"""Seconds between two bundles at least: a door that says much says it together, and one that says little at once."""

PACE = Pace(grace=30.0, silence=120.0)
"""Of a message under way, in either direction."""

_LASTING = (RefusedError, KindMismatchError, RoleMismatchError, VersionMismatchError)
"""Why a door does not reach its core, where waiting does not help. A core that dies as it is dialled proves no key."""

Answer: TypeAlias = Admitted | TurnedAway | Answered | Abused | NotYet | Granted | Wanted | Unwanted | Later | Taken
Unasked: TypeAlias = RoundOpened | RoundSettled | Dismissed | ForwardOrder | Leaving

Dial: TypeAlias = Callable[[], Awaitable[SecureChannel]]


class CoreAwayError(ChannelError):
    """A door's core cannot be asked at present."""


@dataclass
class _Call:
    """A call under way.

    Attributes:
        ended: set once there is an answer, or never will be.
        answer: what the core said; none if the connection was lost.
    """

    ended: trio.Event = field(default_factory=trio.Event)
    answer: Received[Answer] | None = None


class CoreListener(Protocol):
    """Takes what the core says unasked; in order, and before any answer that it sends later."""

    def core_met(self, hello: CoreHello) -> None:
        """A connection stands."""

    def core_said(self, message: Unasked, bulk: memoryview) -> None:
        """The core has said something unasked."""

    def core_lost(self) -> None:
        """The connection is lost, and the core knows of nothing any more that this door began."""


class CoreLink:
    """Calls to the core.

        link = CoreLink("S0", dial, listener)
        nursery.start_soon(link.keep)
        answer = await link.call(link.number(), AskTask…)

    Args:
        core: the server's name, for messages.
        dial: opens a channel to the core.
        listener: takes what the core says unasked.
    """

    def __init__(self, core: str, dial: Dial, listener: CoreListener) -> None:
        self._core = core
        self._dial = dial
        self._listener = listener
        self._numbers = 0
        self._calls: dict[int, _Call] = {}
        self._outgoing = Outgoing()
        self._posted = RecurringEvent()
        self._connected = False

    @property
    def connected(self) -> bool:
        """Whether the core can be asked."""
        return self._connected

    @property
    def waiting(self) -> int:
        """How many calls have no answer yet."""
        return len(self._calls)

    def number(self) -> int:
        """A number for a call, or a visit: never the same twice."""
        self._numbers += 1
        return self._numbers

    def post(self, message: DoorToCore) -> None:
        """Say something that has no answer; without a connection it is dropped, because the core has forgotten."""
        if self._connected:
            self._outgoing.add(message)
            self._posted.set()

    async def call(self, number: int, message: DoorToCore) -> Received[Any]:
        """Ask the core, and wait for its answer.

        Args:
            number: the call's, as in the message.
            message: what is asked.

        Raises:
            CoreAwayError: there is no connection, or it was lost before the answer came.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # what a lost core knew of is not told to the next one
        if not self._connected:
            await trio.lowlevel.checkpoint()
            raise self._away()
        call = self._calls[number] = _Call()
        self.post(message)
        try:
            await call.ended.wait()
        finally:
            self._calls.pop(number, None)
        if call.answer is None:
            raise self._away()
        return call.answer

    def _away(self) -> CoreAwayError:
        return CoreAwayError(f"{self._core} is not there at present; try again in a little while")

    async def keep(self, *, task_status: trio.TaskStatus[CoreHello] = trio.TASK_STATUS_IGNORED) -> None:
        """Dial the core again and again, and use each channel until it is lost; reports the first one's greeting.

        Raises:
            MisuseError: the core refuses this door for good; the message says why, and what to do.
        """
        pause = FIRST_PAUSE
        while True:
            lost: list[BaseException] = []
            try:
                async with await self._dial() as channel:
                    pause = FIRST_PAUSE
                    hello = decode(channel.introduction.welcome, CoreHello, self._core).message
                    self._connected = True
                    self._listener.core_met(hello)
                    task_status.started(hello)
                    task_status = trio.TASK_STATUS_IGNORED
                    await self._use(channel)
            except* ChannelError as group:
                lost = leaves(group)
            finally:
                self._end()
            for error in lost:
                self._check_lasting(error)
                _log.info("%s cannot be asked: %s; next attempt in %.1f s", self._core, error, pause)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _check_lasting(self, error: BaseException) -> None:
        """Raise what waiting does not help against."""
        if isinstance(error, BusyError) or not isinstance(error, _LASTING):
            return
        reason = error.reason if isinstance(error, RefusedError) else str(error)
        raise MisuseError(
            f"{self._core} does not take this door: {reason}; a door has the release, the task file and the channel "
            "key of its server: give them to this one, then start it again"
        ) from error

    def _end(self) -> None:
        """Forget everything under way."""
        if self._connected:
            self._connected = False
            self._outgoing.clear()
            for call in self._calls.values():
                call.ended.set()
            self._calls.clear()
            self._listener.core_lost()

    async def _use(self, channel: Channel) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all, channel)
            await self._receive_all(channel)

    async def _send_all(self, channel: Channel) -> None:
        next_at = trio.current_time()
        while True:
            while self._outgoing:
                if trio.current_time() < next_at:
                    await trio.sleep_until(next_at)
                next_at = trio.current_time() + GATHERING
                await channel.send(*self._outgoing.take(), pace=PACE)
            await self._posted.wait()

    async def _receive_all(self, channel: Channel) -> None:
        while True:
            await channel.awaited()
            for received in unbundled(await channel.receive(LONGEST_OF_A_CORE, pace=PACE), CoreToDoor, self._core):
                self._take(received)

    def _take(self, received: Received[Any]) -> None:
        match received.message:
            case RoundOpened() | RoundSettled() | Dismissed() | ForwardOrder() | Leaving():
                self._listener.core_said(received.message, received.bulk)
            case answer:
                self._answered(answer.call, received)

    def _answered(self, number: int, received: Received[Answer]) -> None:
        """Give an answer to who waits for it; who asked may have left."""
        call = self._calls.pop(number, None)
        if call is not None:
            call.answer = received
            call.ended.set()
