"""A client for code that is not async: training scripts, notebooks, other event loops.

    with connect_blocking("task.toml", "alice.key") as client:
        rows = client.retrieve({"items": ids})
        client.submit({"items": (ids, delta)})
        client.outcome()

The client is that of `parties.connect`; it lives in a trio loop of its own, in a thread of its own, so it does not
matter what runs in the caller's. Every call blocks its thread until it is done, and an asyncio loop that runs there.

Rules:

- What a call raises arrives as it is, with its traceback. An interrupt (Ctrl-C) cancels the call that it meets, and the
  client can be used further: a submission that was on its way is then `pending`.
- Calls from several threads are carried out one after the other.
- The thread ends with `close`, with the `with` block, with the last reference to the client, or with the interpreter.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.errors import FslError, MisuseError
from parties.client.arguments import Rows
from parties.client.client import Client
from parties.outcome import ClientOutcome, SubmissionReceipt

ResultT = TypeVar("ResultT")
Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Client]]
FOR_EVER = float("inf")


class BlockingClient:
    """A `Client` whose calls block; see there for what they do and raise.

    Every call takes a `timeout`, the seconds after which it is cancelled with a `TimeoutError`; without one it may wait
    for as long as the servers let it. Once the client is closed, every call raises a `MisuseError`.

    Args:
        opening: makes the client, in the thread where it is going to live.
    """

    def __init__(self, opening: Opening) -> None:
        self._home = _Home(opening)
        self._home.move_in()
        self._leave = weakref.finalize(self, self._home.close)

    def retrieve(self, rows: Rows, *, wait: bool = False, timeout: float = FOR_EVER) -> dict[str, npt.NDArray[Any]]:
        """See `Client.retrieve`."""
        return self._home.do(lambda client: client.retrieve(rows, wait=wait), timeout)

    def submit(self, updates: Mapping[str, Any], *, wait: bool = False, timeout: float = FOR_EVER) -> SubmissionReceipt:
        """See `Client.submit`."""
        return self._home.do(lambda client: client.submit(updates, wait=wait), timeout)

    def unite(
        self, rows: Mapping[str, npt.ArrayLike], *, wait: bool = False, timeout: float = FOR_EVER
    ) -> SubmissionReceipt:
        """See `Client.unite`."""
        return self._home.do(lambda client: client.unite(rows, wait=wait), timeout)

    def resume(self, *, timeout: float = FOR_EVER) -> SubmissionReceipt:
        """See `Client.resume`."""
        return self._home.do(lambda client: client.resume(), timeout)

    def outcome(self, *, timeout: float = FOR_EVER) -> ClientOutcome:
        """See `Client.outcome`."""
        return self._home.do(lambda client: client.outcome(), timeout)

    def forget_rounds(self) -> None:
        """See `Client.forget_rounds`."""
        self._home.do(lambda client: client.forget_rounds(), FOR_EVER)

    def forget_session(self) -> None:
        """See `Client.forget_session`."""
        self._home.ask(lambda client: client.forget_session())

    @property
    def name(self) -> str:
        """The client's."""
        return self._home.ask(lambda client: client.name)

    @property
    def pending(self) -> int:
        """See `Client.pending`."""
        return self._home.ask(lambda client: client.pending)

    @property
    def round_number(self) -> int:
        """See `Client.round_number`."""
        return self._home.ask(lambda client: client.round_number)

    @property
    def deferred(self) -> dict[str, npt.NDArray[np.uint32]]:
        """See `Client`."""
        return self._home.ask(lambda client: dict(client.deferred))

    @property
    def bytes_sent(self) -> int:
        """See `Client.bytes_sent`."""
        return self._home.ask(lambda client: client.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """See `Client.bytes_received`."""
        return self._home.ask(lambda client: client.bytes_received)

    def close(self) -> None:
        """Cancel what is under way, close the connections, and end the thread; a second time does nothing."""
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class _Errand(Generic[ResultT]):
    """One call on its way: what is to be done, how it is cancelled, and where its result goes."""

    work: Callable[[Client], Awaitable[ResultT]]
    timeout: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    result: Future[ResultT] = field(default_factory=Future)

    async def carry_out(self, client: Client) -> None:
        """Do it; whatever comes of it is for the caller, who waits in another thread."""
        unfinished: Exception = MisuseError("the client was closed, or the call interrupted, before it was done")
        try:
            with self.scope, trio.move_on_after(self.timeout) as timer:
                self.result.set_result(await self.work(client))
            if timer.cancelled_caught:
                unfinished = TimeoutError(f"not done within {self.timeout:g} s; what was begun can be gone on with")
        except Exception as error:
            self.result.set_exception(error)
        finally:
            self.refuse(unfinished)

    def refuse(self, why: Exception) -> None:
        """Tell the caller that nothing comes of it, unless something has."""
        if not self.result.done():
            self.result.set_exception(why)

    def abandon(self) -> None:
        """Cancel it, wherever it is."""
        self.scope.cancel()
        if not self.result.running():  # the loop has never heard of it
            self.refuse(_closed())


class _Home:
    """A thread with a trio loop in which a client lives."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._loop: Future[trio.lowlevel.TrioToken] = Future()
        self._scope = trio.CancelScope()
        self._moved_in: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._post, self._errands = trio.open_memory_channel[_Errand[Any]](FOR_EVER)
        self._thread = threading.Thread(target=self._run, name="fsl-async client", daemon=True)

    def move_in(self) -> None:
        """Start the thread, and wait until the client is connected.

        Raises:
            FslError: as `connect`; the thread has ended.
        """
        self._thread.start()
        try:
            self._moved_in.result()
        except BaseException:
            with suppress(FslError):  # the same one
                self.close()
            raise

    def do(self, work: Callable[[Client], Awaitable[ResultT]], timeout: float) -> ResultT:
        """Have something done in the loop, and wait for it.

        Raises:
            MisuseError: the client is closed.
            TimeoutError: it took longer than it may.
        """
        errand = _Errand(work, timeout)
        try:
            self._enter(partial(self._take, errand))
            return errand.result.result()
        except BaseException:
            if not errand.result.done():  # an interrupt: the wait has failed, and not the call
                with suppress(MisuseError):
                    self._enter(errand.abandon)
                    errand.result.exception()
            raise

    def ask(self, look: Callable[[Client], ResultT]) -> ResultT:
        """Look something up in the loop."""

        async def work(client: Client) -> ResultT:
            return look(client)

        return self.do(work, FOR_EVER)

    def close(self) -> None:
        """End the loop and wait for the thread.

        Raises:
            FslError: something could not be closed in good order.
        """
        with suppress(MisuseError):
            self._enter(lambda: self._scope.cancel())
        if threading.current_thread() is not self._thread:  # the last reference may be let go in there
            self._thread.join()
            self._ended.result()

    # ---- from other threads into the loop

    def _enter(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.result().run_sync_soon(callback)
        except trio.RunFinishedError:
            raise _closed() from None

    def _take(self, errand: _Errand[Any]) -> None:
        errand.result.set_running_or_notify_cancel()
        try:
            self._post.send_nowait(errand)
        except trio.BrokenResourceError:
            errand.refuse(_closed())

    # ---- in the thread

    def _run(self) -> None:
        """Run the loop; its error is for whoever waits for the client to come or to go."""
        try:
            trio.run(self._live)
        except BaseException as error:
            self._ended.set_exception(error)
            if not self._moved_in.done():
                self._moved_in.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        """Open the client, serve, and close it in good order; what `close` cancels is the opening, or the serving."""
        self._loop.set_result(trio.lowlevel.current_trio_token())
        with self._scope:
            async with self._opening() as client:
                await self._serve(client)

    async def _serve(self, client: Client) -> None:
        """Carry errands out, each in a task of its own: the client's calls take turns by themselves."""
        with self._errands:
            try:
                async with trio.open_nursery() as nursery:
                    self._scope = nursery.cancel_scope
                    self._moved_in.set_result(None)
                    async for errand in self._errands:
                        nursery.start_soon(errand.carry_out, client)
            finally:
                with suppress(trio.WouldBlock):
                    while True:
                        self._errands.receive_nowait().refuse(_closed())


def _closed() -> MisuseError:
    return MisuseError("the client is closed; connect again")
