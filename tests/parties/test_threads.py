"""A thread with a loop of its own: where it cannot be, and where it is not, its callers are told."""

import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest
import trio

from fsl_async.errors import FslError, MisuseError, StorageError
from parties.aio import front
from parties.threads import LoopThread, Prompt


@asynccontextmanager
async def room() -> AsyncIterator[str]:
    yield "somebody"


@asynccontextmanager
async def room_that_does_not_close() -> AsyncIterator[str]:
    yield "somebody"
    raise StorageError("the disk is full")


async def name_of(host: str) -> str:
    return host


def thread(opening=room) -> LoopThread[str]:
    return LoopThread("room", opening, Prompt("closed"), "closed")


def within(seconds: float, work) -> BaseException | None:
    """What something raises in a thread, which must not take longer."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    runner.join(seconds)
    assert not runner.is_alive(), "it waits for ever"
    return raised[0]


def test_a_loop_that_cannot_be_made_is_an_error_and_no_wait(monkeypatch):
    def no_loop(main) -> NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("parties.threads.trio.run", no_loop)
    home = thread()
    assert str(within(10, home.start)) == "[Errno 24] Too many open files"
    assert isinstance(within(10, lambda: home.call(name_of)), MisuseError)


def test_a_close_waits_until_the_thread_is_gone(monkeypatch):
    home = thread()
    home.start()
    home.begin_close()
    assert home.ended.result(10) is None
    home.close()
    assert not home._thread.is_alive()


def test_a_close_that_fails_says_so_however_fast_the_thread_ends(monkeypatch):
    home = thread(room_that_does_not_close)
    home.start()
    begin = home.begin_close

    def begin_and_end() -> None:
        begin()
        home._thread.join()

    monkeypatch.setattr(home, "begin_close", begin_and_end)
    with pytest.raises(StorageError, match="the disk is full"):
        home.close()
    home.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_and_ends_nothing():
    home = thread()
    home.start()
    child = os.fork()
    if not child:
        code = 1
        try:
            refused = within(10, lambda: home.call(name_of))
            assert "was opened before this process was forked" in str(refused)
            home.close()
            trio.run(trio.sleep, 0)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert home.call(name_of) == "somebody"
    home.close()


def test_an_asyncio_task_that_is_cancelled_as_its_call_fails_is_told_of_what():
    """It would not be told a second time, and might do again what was done."""
    import asyncio

    going, failing = threading.Event(), threading.Event()

    async def fails(host: str) -> NoReturn:
        with trio.CancelScope(shield=True):
            going.set()
            await trio.to_thread.run_sync(failing.wait)
            raise FslError("counted already")

    async def main(home: LoopThread[str]) -> None:
        task = asyncio.create_task(front.call(home, fails))
        await asyncio.to_thread(going.wait)
        task.cancel()
        await asyncio.sleep(0.05)
        failing.set()
        with pytest.raises(FslError, match="counted already"):
            await task

    home = thread()
    home.start()
    asyncio.run(main(home))
    home.close()


def test_what_is_called_in_the_thread_itself_is_told_and_does_not_wait_for_itself():
    home = thread()
    home.start()

    async def asks_itself(host: str) -> str:
        return home.call(name_of)

    refused = within(10, lambda: home.call(asks_itself))
    assert str(refused).startswith("called in the thread of the room (by its `watch`, for instance)")
    home.close()


@pytest.mark.parametrize("timeout", [-1, None, float("nan"), "5"])
def test_a_time_that_is_none_is_refused_by_name(timeout):
    home = thread()
    home.start()
    with pytest.raises(MisuseError, match=f"^timeout is {timeout!r}: give seconds, 0 or more"):
        home.call(name_of, timeout)
    home.close()


def test_an_interrupt_says_what_the_call_has_found_out_by_then():
    async def fails(host: str) -> NoReturn:
        with trio.CancelScope(shield=True):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            await trio.sleep(0.5)
        raise FslError("counted already")

    home = thread()
    home.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        home.call(fails)
    assert caught.value.__notes__ == ["before it was cancelled the call had ended: FslError: counted already"]
    home.close()
