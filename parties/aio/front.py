"""What is opened on an asyncio loop, with `async with` or with `await` and a later `aclose`, and calls into its thread.

Rules: a cancelled wait first has what it waited for cancelled, in its thread, and goes on waiting until that has ended;
only then does `CancelledError` come out, however often the task is cancelled meanwhile; or the error, if it had failed
by then. A task that is dropped instead, because its loop was closed, waits for nothing any more. A loop that is closed
is told nothing.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

import trio

from fsl_async.errors import FslError, MisuseError
from parties.threads import Call, HostT, LoopThread, Work, news_in

ResultT = TypeVar("ResultT")


async def outcome_of(future: Future[ResultT], give_up: Callable[[], None]) -> ResultT:
    """Wait for what another thread does.

    Args:
        future: its result.
        give_up: has it cancelled.

    Raises:
        asyncio.CancelledError: this task was cancelled, and the other thread has ended what it did.
    """
    done = asyncio.Event()
    future.add_done_callback(partial(_tell, asyncio.get_running_loop(), weakref.ref(done)))
    try:
        await done.wait()
    except asyncio.CancelledError:
        give_up()
        while not done.is_set():
            with suppress(asyncio.CancelledError):
                await done.wait()
        raise
    except BaseException:  # the task is dropped
        give_up()
        raise
    return future.result()


async def call(thread: LoopThread[HostT], work: Work[HostT, ResultT]) -> ResultT:
    """Have something done in a thread's loop, and wait for it.

    Raises:
        MisuseError: closed.
        FslError: as the work, also where this task was cancelled just as it failed: it may not be told a second time.
    """
    asked = Call(work, caller=id(asyncio.current_task()))
    result = thread.post(asked)
    try:
        return await outcome_of(result, lambda: thread.abandon(asked))
    except asyncio.CancelledError:
        if what := news_in(result):
            raise what from None
        raise


async def started(thread: LoopThread[HostT]) -> LoopThread[HostT]:
    """Start a thread, and wait until what lives in it is open.

    Raises:
        FslError: as the opening; the thread has ended.
    """
    thread.begin()
    try:
        await outcome_of(thread.opened, thread.begin_close)
    except GeneratorExit:
        raise
    except BaseException:
        with suppress(FslError):  # the same one
            await ended(thread)
        raise
    return thread


async def ended(thread: LoopThread[HostT]) -> None:
    """End a thread, and wait until it has ended, whatever is cancelled.

    Raises:
        FslError: something could not be closed in good order.
    """
    if thread.is_elsewhere():
        return
    thread.begin_close()
    try:
        await outcome_of(thread.ended, _nothing)
    finally:
        with suppress(FslError):  # the same one
            thread.close()


def _tell(loop: asyncio.AbstractEventLoop, done: weakref.ref[asyncio.Event], _: Future[Any]) -> None:
    """Wake a task, unless it was dropped, which the other thread must not prevent by knowing it."""
    if event := done():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(event.set)


def _nothing() -> None:
    """What ends anyway needs no cancelling."""


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
