"""What an asyncio task and a thread with a trio loop want of each other.

Rules: a cancelled wait first has what it waited for cancelled, in its thread, and goes on waiting until that has ended;
only then does `CancelledError` come out, however often the task is cancelled meanwhile; or the error, if it had failed
by then. A task that is dropped instead, because its loop was closed, waits for nothing any more. A loop that is closed
is told nothing.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from fsl_async.errors import FslError
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
