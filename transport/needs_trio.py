"""What needs a trio task says so where it is called without one, and names what to use there instead.

    async with parties.connect("alice.toml") as client:      # on an asyncio loop, in a notebook's cell
    MisuseError: parties.connect needs trio, and an asyncio loop runs here: use `async with parties.aio.connect(...)`, …

Without this, such a call ends in an error of trio's own parts, which names neither the mistake nor the remedy.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

import trio

from fsl_async.errors import MisuseError

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class NeedsTrio:
    """Something that works under trio alone.

    Attributes:
        name: what it is called.
        asyncio: what to use on an asyncio loop.
        blocking: what to use without any loop.
    """

    name: str
    asyncio: str = "run it in a thread of its own, with `await asyncio.to_thread(trio.run, main)`"
    blocking: str = "run it with `trio.run(main)`"

    def require_trio(self) -> None:
        """Refuse to go on outside a trio task.

        Raises:
            MisuseError: another loop runs here, or none; the message names what to use.
        """
        if not trio.lowlevel.in_trio_task():
            raise self.refusal()

    def refusal(self) -> MisuseError:
        """What to say outside a trio task."""
        if asyncio_runs():
            return MisuseError(f"{self.name} needs trio, and an asyncio loop runs here: {self.asyncio}")
        return MisuseError(f"{self.name} needs trio, and no trio task runs here: {self.blocking}")


def asyncio_runs() -> bool:
    """Whether the caller is on an asyncio loop; asyncio is not imported to find out."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class TrioContext(AbstractAsyncContextManager[ResultT]):
    """A context manager for `async with` under trio, which names what to use where it is entered otherwise."""

    def __init__(self, needs: NeedsTrio, inner: AbstractAsyncContextManager[ResultT]) -> None:
        self._needs = needs
        self._inner = inner

    async def __aenter__(self) -> ResultT:
        self._needs.require_trio()
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)

    def __enter__(self) -> NoReturn:
        if trio.lowlevel.in_trio_task():
            raise MisuseError(f"{self._needs.name} is entered with `async with`, not with `with`")
        raise self._needs.refusal()

    def __exit__(self, *error: object) -> None:
        """Never reached, and there because Python looks for it before it enters."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            called = self._needs.name
            raise AttributeError(f"{called}(...) is not open, and so has no {name!r}: `async with {called}(...) as …:`")

    def __await__(self) -> NoReturn:
        raise MisuseError(f"{self._needs.name} is entered, not awaited: `async with {self._needs.name}(...) as …:`")


def trio_context(
    needs: NeedsTrio,
) -> Callable[[Callable[P, AsyncIterator[ResultT]]], Callable[P, TrioContext[ResultT]]]:
    """`asynccontextmanager` for what works under trio alone."""

    def decorate(function: Callable[P, AsyncIterator[ResultT]]) -> Callable[P, TrioContext[ResultT]]:
        manager = asynccontextmanager(function)

        @functools.wraps(function)
        def made(*args: P.args, **words: P.kwargs) -> TrioContext[ResultT]:
            return TrioContext(needs, manager(*args, **words))

        return made

    return decorate
