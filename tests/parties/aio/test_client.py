"""The client for asyncio programs, over TCP: cancelled and timed as they are used to, and nothing is left behind."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest
import trio

import parties
from fsl_async.errors import MisuseError
from tests.support.shop import Basket, assert_exact, model
from tests.support.town import Town
from transport import UnreachableError


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name == "fsl-async client"] == []


def connect(town: Town, name: str):
    return parties.aio.connect(town.folder / "task.toml", town.folder / f"{name}.key")


async def take_part(client: parties.aio.Client) -> None:
    basket = Basket(client.name)
    found = await client.retrieve({"items": basket.rows, "head": ...})
    assert found["items"].shape == (len(basket.rows), 3)
    receipt = await client.submit(basket.update)
    assert (receipt.number, client.pending, client.undecided) == (client.round_number, 0, client.round_number)


def test_rounds_from_an_asyncio_program(town):
    async def main() -> None:
        async with connect(town, "anna") as anna, connect(town, "ben") as ben:
            for _ in (1, 2):
                async with asyncio.TaskGroup() as group:
                    group.create_task(take_part(anna))
                    group.create_task(take_part(ben))
                assert_exact(await asyncio.to_thread(town.finish_round), "anna", "ben")
                first, second = await asyncio.gather(anna.outcome(), ben.outcome())
                assert first.counted
                assert second.counted
            assert anna.bytes_sent > anna.bytes_received / 100 > 0
            assert anna.task == ben.task
            assert anna.task.block("items").shape == model()["items"].shape

    asyncio.run(main())


def test_the_loop_goes_on_while_a_call_is_under_way(town):
    async def main() -> None:
        async with connect(town, "anna") as anna:
            await take_part(anna)
            waiting = asyncio.create_task(anna.outcome())
            for _ in range(10):
                await asyncio.sleep(0.01)
            assert not waiting.done()
            async with connect(town, "ben") as ben:
                await take_part(ben)
            await asyncio.to_thread(town.finish_round)
            assert (await waiting).counted

    asyncio.run(main())


def test_errors_are_those_of_the_other_doors(town, tmp_path):
    async def main() -> None:
        async with connect(town, "anna") as anna:
            with pytest.raises(MisuseError, match="row 300 is outside 0 to 299"):
                await anna.retrieve({"items": [300]})
            with pytest.raises(MisuseError, match="nothing has been submitted yet"):
                await anna.outcome()
            await take_part(anna)
        with pytest.raises(MisuseError, match="the client is closed; connect again"):
            await anna.outcome()
        await anna.aclose()
        with pytest.raises(MisuseError, match=r"nowhere\.key"):
            await connect(town, "nowhere")
        text = (town.folder / "task.toml").read_text()
        (town.folder / "task.toml").write_text(text.replace(town.addresses[1], "127.0.0.1:1"))
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
            await parties.aio.connect(town.folder / "task.toml", town.folder / "ben.key", patience=0)

    asyncio.run(main())


# ---- cancelling


async def times_out(call) -> None:
    async with asyncio.timeout(0.05):
        await call


async def waits_for(call) -> None:
    await asyncio.wait_for(call, 0.05)


async def is_cancelled(call) -> None:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.05)
    task.cancel()
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("how", "error"), [(times_out, TimeoutError), (waits_for, TimeoutError), (is_cancelled, asyncio.CancelledError)]
)
def test_a_cancelled_call_has_ended_and_the_client_goes_on(town, how, error):
    async def main() -> None:
        async with connect(town, "anna") as anna, connect(town, "ben") as ben:
            await take_part(anna)
            for _ in range(3):
                with pytest.raises(error):
                    await how(anna.outcome())
            await take_part(ben)
            await asyncio.to_thread(town.finish_round)
            assert (await anna.outcome()).counted  # calls take turns: had one not ended, this would wait for ever

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_submission_that_is_cancelled_anywhere_is_counted_once(town):
    async def main() -> None:
        async with connect(town, "anna") as anna, connect(town, "ben") as ben:
            await take_part(ben)
            for step in range(40):
                task = asyncio.create_task(anna.submit(Basket("anna").update) if not anna.pending else anna.resume())
                await asyncio.sleep(step / 2_000)
                if not task.cancel():
                    break
                await asyncio.wait([task])
                if not anna.pending and anna.undecided:
                    break
            assert_exact(await asyncio.to_thread(town.finish_round), "anna", "ben")

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_loop_that_ends_with_a_call_under_way(town):
    ended: list[str] = []

    async def background(anna: parties.aio.Client) -> None:
        async with aclosing(anna):
            try:
                await anna.outcome()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

    async def main() -> None:
        anna = await connect(town, "anna")
        await take_part(anna)
        main.task = asyncio.create_task(background(anna))  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert ended == ["cancelled"]


def test_a_loop_that_is_closed_over_a_task(town):
    """No task is cancelled, and none can wait any more: the client ends with the task that is dropped."""

    async def main() -> None:
        async with connect(town, "anna") as anna:
            await take_part(anna)
            waiting.set()
            await anna.outcome()

    loop = asyncio.new_event_loop()
    waiting = asyncio.Event()
    task = loop.create_task(main())
    loop.run_until_complete(waiting.wait())
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio would say so, rightly
    del task
    gc.collect()


def test_a_connection_that_is_cancelled_leaves_no_thread(town):
    import socket

    deaf = socket.create_server(("127.0.0.1", 0))
    text = (town.folder / "task.toml").read_text()
    address = f"127.0.0.1:{deaf.getsockname()[1]}"
    (town.folder / "task.toml").write_text(text.replace(town.addresses[1], address))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), connect(town, "anna"):
                raise AssertionError

    with deaf:
        asyncio.run(main())


def test_a_client_that_is_cancelled_as_soon_as_it_is_connected_leaves_no_thread(town, monkeypatch):
    started = parties.aio.connecting.front.started

    async def started_and_cancelled(thread):
        asyncio.current_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        opened = await started(thread)
        asyncio.current_task().cancel()
        return opened

    async def main() -> None:
        monkeypatch.setattr("parties.aio.connecting.front.started", started_and_cancelled)
        with pytest.raises(asyncio.CancelledError):
            async with connect(town, "anna"):
                raise AssertionError
        monkeypatch.undo()
        async with connect(town, "anna") as anna:  # her state is free
            assert anna.pending == 0

    asyncio.run(main())


def test_an_interrupt(town):
    async def main() -> None:
        async with connect(town, "anna") as anna:
            await take_part(anna)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            await anna.outcome()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert time.monotonic() - began < 10


def test_one_client_in_several_loops_one_after_the_other(town):
    anna = asyncio.run(opened(connect(town, "anna")))
    asyncio.run(take_part(anna))
    asyncio.run(anna.aclose())


async def opened(opening) -> parties.aio.Client:
    return await opening


FORGETFUL = """
    import asyncio, sys, parties
    from fsl_async import kernels
    kernels.select_isa("plain")  # what is compiled takes long to load
    async def main():
        client = await parties.aio.connect(*sys.argv[1:])
        await client.retrieve({"items": [1]})
        print(client.name)
    asyncio.run(main())
"""


def test_a_script_that_forgets_to_close_ends(town):
    arguments = [str(town.folder / "task.toml"), str(town.folder / "anna.key")]
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(FORGETFUL), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("anna\n", "")


# ---- the fronts


def test_the_wrong_door_names_the_right_one(town):
    async def entered() -> None:
        async with connect(town, "anna"):
            raise AssertionError

    with pytest.raises(MisuseError, match=r"this is a trio task: use `async with parties\.connect\(\.\.\.\)`"):
        trio.run(entered)
    with pytest.raises(MisuseError, match=r"no asyncio loop runs here: use `with parties\.connect_blocking\(\.\.\.\)`"):
        entered().send(None)
    with pytest.raises(MisuseError, match="no asyncio loop runs here"), connect(town, "anna"):
        raise AssertionError

    async def wrong() -> None:
        with connect(town, "anna"):
            raise AssertionError

    with pytest.raises(MisuseError, match=r"parties\.aio\.connect is entered with `async with`, not with `with`"):
        asyncio.run(wrong())


LIFE = {"name", "run", "aclose", "close", "forsake", "setup", "task"}


def calls(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - LIFE


def test_all_doors_have_the_same_calls():
    assert calls(parties.Client) == calls(parties.BlockingClient) == calls(parties.aio.Client)
