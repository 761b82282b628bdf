"""A thread with a trio loop in which something lives; other threads have it do things and wait for the results.

    another thread                       the thread's loop
    call = thread.post(work)  ─────────> queue takes it, carries it out
    call.result               <───────── result or error

Rules: what a call raises goes to its caller, as it is. A call that is abandoned is cancelled in the loop before its
caller goes on. Once the thread has ended, every call is refused, and the caller of a call under way is told. A process
that was forked has no such thread: calls there are refused, and nothing there ends the thread of the other process.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, Self, TypeAlias, TypeVar

import trio

from fsl_async.errors import FslError, MisuseError

HostT = TypeVar("HostT")
HostT_co = TypeVar("HostT_co", covariant=True)
ResultT = TypeVar("ResultT")
Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[HostT]]
Work: TypeAlias = Callable[[HostT], Awaitable[ResultT]]
FOR_EVER = float("inf")
RESUMABLE = "what was begun can be resumed"


@dataclass(frozen=True, eq=False)
class Call(Generic[HostT, ResultT]):
    """One call on its way: what is to be done, how it is cancelled, and where its result goes.

    Attributes:
        caller: who waits for it, so that others can be told from it.
    """

    work: Work[HostT, ResultT]
    timeout: float = FOR_EVER
    caller: object = field(default_factory=threading.current_thread)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    result: Future[ResultT] = field(default_factory=Future)

    async def carry_out(self, host: HostT, ended: Callable[[], None]) -> None:
        """Do it; every error goes to the caller.

        Args:
            host: what does it.
            ended: called when it has been done, before the caller can know.
        """
        tell = partial(self.refuse, MisuseError("this call was not done: it was interrupted, or its object closed"))
        try:
            with self.scope, trio.move_on_after(self.timeout) as timer:
                tell = partial(self.result.set_result, await self.work(host))
            if timer.cancelled_caught:
                tell = partial(self.refuse, TimeoutError(f"not done within {self.timeout:g} s; {RESUMABLE}"))
        except Exception as error:
            tell = partial(self.refuse, error)
        finally:
            ended()
            tell()

    def refuse(self, why: Exception) -> None:
        """Tell the caller that there will be no result."""
        self.result.set_exception(why)


class CallQueue(ABC, Generic[HostT]):
    """Takes the calls of other threads, and has them carried out in the loop."""

    @abstractmethod
    def post(self, call: Call[HostT, Any], loop: trio.lowlevel.TrioToken) -> None:
        """Take a call, in any thread.

        Raises:
            trio.RunFinishedError: the loop has ended.
        """

    @abstractmethod
    async def serve(self, host: HostT) -> None:
        """Have calls carried out until cancelled; what is left then is refused."""

    @abstractmethod
    def close(self, loop: trio.lowlevel.TrioToken, end: Callable[[], None]) -> None:
        """Have the loop call `end`, whatever it is doing, in any thread.

        Raises:
            trio.RunFinishedError: the loop has ended.
        """


class Prompt(CallQueue[HostT]):
    """Carries calls out as they come, each in a task of its own, in a loop that goes on between them."""

    def __init__(self, closed: str) -> None:
        self._closed = closed
        self._queue, self._calls = trio.open_memory_channel[Call[HostT, Any]](FOR_EVER)

    def post(self, call: Call[HostT, Any], loop: trio.lowlevel.TrioToken) -> None:
        """See `CallQueue.post`."""
        loop.run_sync_soon(self._take, call)

    def close(self, loop: trio.lowlevel.TrioToken, end: Callable[[], None]) -> None:
        """See `CallQueue.close`."""
        loop.run_sync_soon(end)

    async def serve(self, host: HostT) -> None:
        """See `CallQueue.serve`."""
        with self._calls:
            try:
                async with trio.open_nursery() as nursery:
                    async for call in self._calls:
                        nursery.start_soon(call.carry_out, host, _nothing)
            finally:
                with suppress(trio.WouldBlock):
                    while True:
                        self._calls.receive_nowait().refuse(MisuseError(self._closed))

    def _take(self, call: Call[HostT, Any]) -> None:
        try:
            self._queue.send_nowait(call)
        except trio.BrokenResourceError:
            call.refuse(MisuseError(self._closed))


class LoopThread(Generic[HostT]):
    """A thread, from the opening of what lives in it to its close.

    Args:
        name: the thread's.
        opening: makes what lives there, in the thread.
        queue: takes calls.
        closed: what to say to whoever calls after the close.

    Attributes:
        opened: done when calls can be made; has the error of an opening that failed.
        ended: done when the loop is over; has the error of a close that failed.
    """

    def __init__(self, name: str, opening: Opening[HostT], queue: CallQueue[HostT], closed: str) -> None:
        self.opened: Future[None] = Future()
        self.ended: Future[None] = Future()
        self._opening = opening
        self._queue = queue
        self._closed = closed
        self._loop: Future[trio.lowlevel.TrioToken] = Future()
        self._scope = trio.CancelScope()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._process = os.getpid()

    def begin(self) -> None:
        """Start the thread; `opened` tells how that went."""
        self._thread.start()

    def start(self) -> None:
        """Start the thread, and wait until what lives in it is open.

        Raises:
            FslError: as the opening; the thread has ended.
        """
        self.begin()
        try:
            self.opened.result()
        except BaseException:
            with suppress(FslError):  # the same one
                self.close()
            raise

    def post(self, call: Call[HostT, ResultT]) -> Future[ResultT]:
        """Have something done in the loop.

        Raises:
            MisuseError: closed, or opened by the process that this one was forked from.
        """
        if self.is_elsewhere():
            raise MisuseError(
                f"the {self._thread.name} was opened before this process was forked, and lives in the other one: open "
                "it in the process that uses it"
            )
        try:
            self._queue.post(call, self._loop.result())
        except trio.RunFinishedError:
            raise MisuseError(self._closed) from None
        return call.result

    def abandon(self, call: Call[HostT, Any]) -> None:
        """Cancel a call, wherever it is; its result comes when it has ended."""
        with suppress(trio.RunFinishedError):
            self._loop.result().run_sync_soon(call.scope.cancel)

    def call(self, work: Work[HostT, ResultT], timeout: float = FOR_EVER) -> ResultT:
        """Have something done in the loop, and wait for it.

        Raises:
            MisuseError: closed, called in the thread itself, or the time is no time.
            TimeoutError: it took longer than it may.
        """
        if threading.current_thread() is self._thread:
            raise MisuseError(
                f"called in the thread of the {self._thread.name} (by its `watch`, for instance), which cannot wait "
                "for itself: call it from another thread"
            )
        if not isinstance(timeout, int | float) or not timeout >= 0:
            raise MisuseError(f"timeout is {timeout!r}: give seconds, 0 or more; left out, a call waits for ever")
        call = Call(work, timeout)
        result = self.post(call)
        try:
            return result.result()
        except BaseException as interrupt:
            if not result.done():  # an interrupt: the wait has failed, and not the call
                self.abandon(call)
            if (what := news_in(result)) and what is not interrupt:
                interrupt.add_note(f"before it was cancelled the call had ended: {type(what).__name__}: {what}")
            raise

    def close(self) -> None:
        """End the loop and wait for the thread; a second time does nothing.

        Raises:
            FslError: something could not be closed in good order.
        """
        told = self.ended.done()
        self.begin_close()
        if not self.is_elsewhere() and threading.current_thread() is not self._thread:
            self._thread.join()
            if not told:
                self.ended.result()

    def begin_close(self) -> None:
        """Have the loop end; `ended` tells how that went."""
        if not self.is_elsewhere():
            with suppress(trio.RunFinishedError):
                self._queue.close(self._loop.result(), lambda: self._scope.cancel())

    def is_elsewhere(self) -> bool:
        """Whether this process was forked from the one that has the thread."""
        return os.getpid() != self._process

    # ---- in the thread

    def _run(self) -> None:
        """Run the loop; its error goes to whoever waits for the opening or for the close."""
        try:
            trio.run(self._live)
        except BaseException as error:
            if not self._loop.done():  # it could not be made: too many open files, for instance
                self._loop.set_exception(trio.RunFinishedError())
            if not self.opened.done():
                self.opened.set_exception(error)
            self.ended.set_exception(error)
        else:
            if not self.opened.done():
                self.opened.set_exception(MisuseError(self._closed))
            self.ended.set_result(None)

    async def _live(self) -> None:
        """Open what lives here, serve, and close it in good order; `close` cancels the opening, or the serving."""
        self._loop.set_result(trio.lowlevel.current_trio_token())
        with self._scope:
            async with self._opening() as host:
                with trio.CancelScope() as self._scope:
                    self.opened.set_result(None)
                    await self._queue.serve(host)


class Calls(Protocol[HostT_co]):
    """Has what lives in a thread do things, and waits for the results."""

    def call(self, work: Work[HostT_co, ResultT], timeout: float = FOR_EVER) -> ResultT:
        """Have something done."""

    def close(self) -> None:
        """End it; a second time does nothing."""


class Blocking(Generic[HostT]):
    """What a program that is not async holds of something that lives in a thread; its calls block.

    Args:
        calls: reaches it where it lives.
        entered: what to say to whoever enters it with `async with`.
    """

    def __init__(self, calls: Calls[HostT], entered: str) -> None:
        self._calls, self._entered, self._closed = calls, entered, False
        self._host: HostT | None = None

    def close(self) -> None:
        """Cancel what is under way, close it, and end the thread if it is its own; a second time does nothing."""
        self._calls.close()
        self._closed = True

    def _call(self, work: Work[HostT, ResultT], timeout: float = FOR_EVER) -> ResultT:
        """Have something done there; what did it is remembered, so that it can be looked at once this is closed."""

        async def noted(host: HostT) -> ResultT:
            self._host = host
            return await work(host)

        return self._calls.call(noted, timeout)

    def _read(self, look: Callable[[HostT], ResultT]) -> ResultT:
        """What can be seen there at once."""

        async def work(host: HostT) -> ResultT:
            return look(host)

        try:
            return self._call(work)
        except MisuseError:
            if not self._closed or self._host is None:
                raise
            return look(self._host)  # nothing changes it any more

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        self.close()
        raise MisuseError(self._entered)

    async def __aexit__(self, *error: object) -> None:
        """Never reached, and there because Python looks for it before it enters."""


def news_in(result: Future[Any]) -> FslError | None:
    """What a call that was abandoned has found out nevertheless, once it has ended: it is not told a second time."""
    error = result.exception()
    return error if isinstance(error, FslError) and not isinstance(error, MisuseError) else None


def _nothing() -> None:
    """Prompt calls end one by one."""
