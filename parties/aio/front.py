"""What is opened on an asyncio loop: with `async with`, or with `await` and a later `aclose`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

import trio

from fsl_async.errors import MisuseError


class Closing(Protocol):
    """What is closed when it has been used."""

    async def aclose(self) -> None:
        """Close it, and wait until it is closed."""

    def forsake(self) -> None:
        """Have it closed by a task that cannot wait on its loop any more."""


OpenT = TypeVar("OpenT", bound=Closing)


@dataclass(frozen=True)
class Front:
    """Something that works on an asyncio loop alone.

    Attributes:
        name: what it is called.
        trio: what to use under trio.
        blocking: what to use without any loop.
    """

    name: str
    trio: str
    blocking: str

    def require_asyncio(self) -> None:
        """Refuse to go on outside an asyncio loop.

        Raises:
            MisuseError: trio runs here, or no loop; the message names what to use.
        """
        if trio.lowlevel.in_trio_task():
            raise MisuseError(f"{self.name} needs asyncio, and this is a trio task: use `async with {self.trio}(...)`")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise MisuseError(
                f"{self.name} needs asyncio, and no asyncio loop runs here: use `with {self.blocking}(...)`, or start "
                "asyncio with `asyncio.run(main())`"
            ) from None


class Opening(AbstractAsyncContextManager[OpenT], Generic[OpenT]):
    """What `async with` opens and closes, and what `await` opens for a caller that closes it itself.

    Args:
        front: what it is called, and what to use elsewhere.
        make: opens it.
    """

    def __init__(self, front: Front, make: Callable[[], Coroutine[Any, Any, OpenT]]) -> None:
        self._front = front
        self._make = make

    async def __aenter__(self) -> OpenT:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is GeneratorExit:  # the task is dropped: there is no loop to wait on
            self._opened.forsake()
        else:
            await self._opened.aclose()

    def __await__(self) -> Generator[Any, Any, OpenT]:
        return self._open().__await__()

    def __enter__(self) -> NoReturn:
        self._front.require_asyncio()
        raise MisuseError(f"{self._front.name} is entered with `async with`, not with `with`")

    def __exit__(self, *error: object) -> None:
        """Never reached, and there because Python looks for it before it enters."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            called = self._front.name
            raise AttributeError(
                f"{called}(...) is not open, and so has no {name!r}: `async with {called}(...) as …:`, or `… = await "
                f"{called}(...)`"
            )

    async def _open(self) -> OpenT:
        self._front.require_asyncio()
        return await self._make()
