"""What a client's actor takes, one after the other, and how its callers wait for it; see `parties.client.actor`.

Rules: a call that still waits for its turn is withdrawn at once when its caller is cancelled; one that is being carried
out is cancelled, and its caller waits until it has come to a consistent end. Every call is answered, also by an actor
that ends, so nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

import trio

from fsl_async.errors import FslError
from parties.storage.store import StoreLostError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class _Queued:
    """It waits for its turn."""


@dataclass(frozen=True)
class _Working:
    """It is being carried out."""

    scope: trio.CancelScope


@dataclass(frozen=True)
class _Withdrawn:
    """Its caller was cancelled before it was done."""


@dataclass(frozen=True)
class _Answered:
    """It is done."""

    result: Any = field(repr=False)


@dataclass(frozen=True)
class _Failed:
    """Its work has raised an error."""

    error: BaseException


@dataclass(frozen=True)
class _Refused:
    """The actor has ended before it was done."""

    why: FslError


_State: TypeAlias = _Queued | _Working | _Withdrawn | _Answered | _Failed | _Refused


class Call(Generic[ResultT]):
    """A request on its way, and where its result goes.

    Args:
        work: carries it out, in the actor's task.
    """

    def __init__(self, work: Callable[[], Awaitable[ResultT]]) -> None:
        self._work = work
        self._state: _State = _Queued()
        self._over = trio.Event()

    async def result(self) -> ResultT:
        """Wait until it is done; a caller that is cancelled gets what was done nevertheless, if there is something.

        A caller that is interrupted (Ctrl-C) waits as well until it has come to an end, and is told that it was.

        Raises:
            BaseException: what its work raised.
            MisuseError, ClientEndedError: the client was closed, or has ended, before it was done.
        """
        try:
            await self._over.wait()
        except (trio.Cancelled, KeyboardInterrupt) as stop:
            self._withdraw()
            with trio.CancelScope(shield=True):
                await self._over.wait()
            if isinstance(stop, KeyboardInterrupt) or isinstance(self._state, _Withdrawn | _Refused):
                raise
        match self._state:
            case _Answered(result=result):
                answer: ResultT = result
                return answer
            case _Failed(error=error) | _Refused(why=error):
                raise error
            case _Queued() | _Working() | _Withdrawn() as state:
                raise AssertionError(f"a call is over in state {state}")
            case _:
                assert_never(self._state)

    async def carry_out(self) -> None:
        """Do it, unless it was withdrawn; what is wrong with it goes to its caller.

        Raises:
            BaseException: what ends the actor; its caller gets it as well.
        """
        if not isinstance(self._state, _Queued):
            return
        with trio.CancelScope() as scope:
            self._state = _Working(scope)
            try:
                self._settle(_Answered(await self._work()))
            except trio.Cancelled:
                raise
            except BaseException as error:
                self._settle(_Failed(error))
                if isinstance(error, StoreLostError) or not isinstance(error, FslError):
                    raise
        if scope.cancelled_caught:
            self._settle(_Withdrawn())

    def refuse(self, why: FslError) -> None:
        """Nobody is going to do it any more; it is told so, unless it is done."""
        if isinstance(self._state, _Queued | _Working):
            self._settle(_Refused(why))

    def _withdraw(self) -> None:
        match self._state:
            case _Queued():
                self._settle(_Withdrawn())
            case _Working(scope=scope):
                scope.cancel()

    def _settle(self, state: _State) -> None:
        self._state = state
        self._over.set()
