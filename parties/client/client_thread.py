"""A thread with a trio loop in which one client lives; other threads have it do things and wait for the results."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import trio

from fsl_async.errors import FslError, MisuseError
from parties.client.client import Client

ResultT = TypeVar("ResultT")
Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Client]]
FOR_EVER = float("inf")


@dataclass(frozen=True)
class _Call(Generic[ResultT]):
    """One call on its way: what is to be done, how it is cancelled, and where its result goes."""

    work: Callable[[Client], Awaitable[ResultT]]
    timeout: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    result: Future[ResultT] = field(default_factory=Future)

    async def carry_out(self, client: Client) -> None:
        """Do it; every error goes to the caller, who waits in another thread."""
        unfinished: Exception = MisuseError("the client was closed, or the call interrupted, before it was done")
        try:
            with self.scope, trio.move_on_after(self.timeout) as timer:
                self.result.set_result(await self.work(client))
            if timer.cancelled_caught:
                unfinished = TimeoutError(f"not done within {self.timeout:g} s; what was begun can be resumed")
        except Exception as error:
            self.result.set_exception(error)
        finally:
            self.refuse(unfinished)

    def refuse(self, why: Exception) -> None:
        """Tell the caller that there will be no result, unless there is one."""
        if not self.result.done():
            self.result.set_exception(why)

    def abandon(self) -> None:
        """Cancel it, wherever it is."""
        self.scope.cancel()
        if not self.result.running():  # the loop has never heard of it
            self.refuse(_closed())


class ClientThread:
    """The thread of one client, from its opening to its close.

    Args:
        opening: makes the client, in the thread.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._loop: Future[trio.lowlevel.TrioToken] = Future()
        self._scope = trio.CancelScope()
        self._opened: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._queue, self._calls = trio.open_memory_channel[_Call[Any]](FOR_EVER)
        self._thread = threading.Thread(target=self._run, name="fsl-async client", daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until the client is connected.

        Raises:
            FslError: as the opening; the thread has ended.
        """
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            with suppress(FslError):  # the same one
                self.close()
            raise

    def call(self, work: Callable[[Client], Awaitable[ResultT]], timeout: float = FOR_EVER) -> ResultT:
        """Have something done in the loop, and wait for it.

        Raises:
            MisuseError: the client is closed.
            TimeoutError: it took longer than it may.
        """
        call = _Call(work, timeout)
        try:
            self._enter(partial(self._take, call))
            return call.result.result()
        except BaseException:
            if not call.result.done():  # an interrupt: the wait has failed, and not the call
                with suppress(MisuseError):
                    self._enter(call.abandon)
                    call.result.exception()
            raise

    def read(self, look: Callable[[Client], ResultT]) -> ResultT:
        """Look something up in the loop.

        Raises:
            MisuseError: the client is closed.
        """

        async def work(client: Client) -> ResultT:
            return look(client)

        return self.call(work)

    def close(self) -> None:
        """End the loop and wait for the thread.

        Raises:
            FslError: something could not be closed in good order.
        """
        with suppress(MisuseError):
            self._enter(lambda: self._scope.cancel())
        if threading.current_thread() is not self._thread:  # the last reference may be dropped in there
            self._thread.join()
            self._ended.result()

    # ---- from other threads into the loop

    def _enter(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.result().run_sync_soon(callback)
        except trio.RunFinishedError:
            raise _closed() from None

    def _take(self, call: _Call[Any]) -> None:
        call.result.set_running_or_notify_cancel()
        try:
            self._queue.send_nowait(call)
        except trio.BrokenResourceError:
            call.refuse(_closed())

    # ---- in the thread

    def _run(self) -> None:
        """Run the loop; its error goes to the caller that waits for the opening or for the close."""
        try:
            trio.run(self._live)
        except BaseException as error:
            self._ended.set_exception(error)
            if not self._opened.done():
                self._opened.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        """Open the client, serve, and close it in good order; `close` cancels the opening, or the serving."""
        self._loop.set_result(trio.lowlevel.current_trio_token())
        with self._scope:
            async with self._opening() as client:
                await self._serve(client)

    async def _serve(self, client: Client) -> None:
        """Carry calls out, each in a task of its own: the client lets them take turns."""
        with self._calls:
            try:
                async with trio.open_nursery() as nursery:
                    self._scope = nursery.cancel_scope
                    self._opened.set_result(None)
                    async for call in self._calls:
                        nursery.start_soon(call.carry_out, client)
            finally:
                with suppress(trio.WouldBlock):
                    while True:
                        self._calls.receive_nowait().refuse(_closed())


def _closed() -> MisuseError:
    return MisuseError("the client is closed; connect again")
