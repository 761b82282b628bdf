"""The client for code that is not async: in a thread of its own, over TCP, whatever runs in the caller's."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import parties
from fsl_async.errors import MisuseError
from parties import connect_blocking
from parties.client.blocking import BlockingClient
from tests.support.shop import Basket, assert_exact
from transport import RefusedError, UnreachableError


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert homes() == []


def homes() -> list[threading.Thread]:
    """The threads in which clients live."""
    return [thread for thread in threading.enumerate() if thread.name == "fsl-async client"]


def take_part(client: BlockingClient) -> None:
    basket = Basket(client.name)
    found = client.retrieve({"items": basket.rows, "head": ...})
    assert found["items"].shape == (len(basket.rows), 3)
    assert client.deferred == {}
    assert client.task.block("items").shape[1] == 3
    receipt = client.submit(basket.update)
    assert receipt.number == client.round_number
    assert client.pending == 0


def test_rounds_from_code_that_is_not_async(town):
    with town.connect("anna", state=town.folder / "anna.state") as anna, town.connect("ben") as ben:
        for number in (1, 2):
            for client in (anna, ben):
                take_part(client)
            outcome = town.finish_round()
            assert_exact(outcome, "anna", "ben")
            assert outcome.number == number
            assert anna.outcome().counted
            assert ben.outcome().participants == 2
        assert anna.bytes_sent > anna.bytes_received / 100 > 0
        assert len(homes()) == 2
    assert homes() == []


def test_under_a_running_asyncio_loop(town):
    async def notebook() -> None:
        with town.connect("anna") as anna, town.connect("ben") as ben:
            take_part(anna)
            await asyncio.sleep(0)
            take_part(ben)
            assert_exact(await asyncio.to_thread(town.finish_round), "anna", "ben")
            assert anna.outcome().counted

    asyncio.run(notebook())


def test_errors_arrive_as_they_are_with_their_traceback(town):
    with town.connect("anna") as anna:
        with pytest.raises(MisuseError, match="row 300 is outside 0 to 299") as caught:
            anna.retrieve({"items": [300]})
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert {"test_errors_arrive_as_they_are_with_their_traceback", "check_rows"} <= set(frames)
        with pytest.raises(MisuseError, match="nothing has been submitted yet"):
            anna.outcome()
        take_part(anna)  # and it goes on


def test_a_client_that_cannot_connect_leaves_no_thread(town):
    with pytest.raises(MisuseError, match=r"nowhere\.key"):
        connect_blocking(town.folder / "task.toml", town.folder / "nowhere.key")
    parties.Identity.generate("zoe").save(town.folder / "zoe.key")
    with pytest.raises(RefusedError, match="unknown client"):
        town.connect("zoe")
    text = (town.folder / "task.toml").read_text()
    (town.folder / "task.toml").write_text(text.replace(town.addresses[1], "127.0.0.1:1"))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        town.connect("anna")
    assert homes() == []


def test_after_closing_a_call_is_misuse_and_closing_again_is_nothing(town):
    anna = town.connect("anna")
    anna.close()
    anna.close()
    for call in (lambda: anna.retrieve({"items": [1]}), lambda: anna.pending, anna.outcome, anna.forget_session):
        with pytest.raises(MisuseError, match="the client is closed; connect again"):
            call()
    with anna, suppress(MisuseError):
        anna.submit({})


def test_what_a_client_s_attributes_said_can_be_read_after_closing(town):
    with town.connect("anna") as anna:
        take_part(anna)
        before = (anna.name, anna.round_number, anna.bytes_received, anna.unreported)
    assert (anna.name, anna.round_number, anna.bytes_received, anna.unreported) == before
    assert anna.bytes_sent > 0
    with pytest.raises(MisuseError, match="the client is closed"):
        anna.outcome()


def test_closing_ends_the_calls_under_way(town):
    anna = town.connect("anna")
    take_part(anna)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(anna.outcome), pool.submit(anna.retrieve, {"items": [1]})]
        time.sleep(0.2)
        assert not any(call.done() for call in waiting)
        anna.close()
        for call in waiting:
            with pytest.raises(MisuseError, match="closed"):
                call.result(10)


def test_calls_of_several_threads_take_turns(town):
    with town.connect("anna") as anna, ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(anna.retrieve, {"items": [row]}) for row in range(6)]
        for row, call in enumerate(calls):
            expected = np.arange(3, dtype=np.float32) / 4 + row * 3 / 4
            assert np.array_equal(call.result(30)["items"][0], expected)


def test_a_call_may_be_given_a_time(town):
    with town.connect("anna") as anna:
        take_part(anna)
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"not done within 0\.2 s"):
            anna.outcome(timeout=0.2)
        assert time.monotonic() - began < 5
        with town.connect("ben") as ben:
            take_part(ben)
        town.finish_round()
        assert anna.outcome(timeout=60).counted


def test_a_client_that_is_let_go_of_is_closed(town):
    anna = town.connect("anna")
    assert len(homes()) == 1
    del anna
    gc.collect()
    assert homes() == []


# ---- interrupts


@contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Raise SIGINT in this process after so many seconds; its KeyboardInterrupt must come out of the block."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        yield
    assert time.monotonic() - began < 10
    timer.join()


def test_an_interrupt_ends_the_call_and_the_client_goes_on(town):
    with town.connect("anna") as anna:
        take_part(anna)
        with interrupted(0.3):
            anna.outcome()
        with town.connect("ben") as ben:
            take_part(ben)
        town.finish_round()
        assert anna.outcome().counted


def test_an_interrupt_while_connecting_leaves_no_thread(town):
    """Somebody listens and never says a word."""
    deaf = socket.create_server(("127.0.0.1", 0))
    text = (town.folder / "task.toml").read_text()
    address = f"127.0.0.1:{deaf.getsockname()[1]}"
    (town.folder / "task.toml").write_text(text.replace(town.addresses[1], address))
    with deaf, interrupted(0.3):
        town.connect("anna")
    assert homes() == []


FORGETFUL = """
    import sys
    from fsl_async import kernels
    from parties import connect_blocking
    kernels.select_isa("plain")  # what is compiled takes long to load
    client = connect_blocking(*sys.argv[1:])
    client.retrieve({"items": [1]})
    print(client.name)
"""


def test_a_script_that_forgets_to_close_ends(town):
    arguments = [str(town.folder / "task.toml"), str(town.folder / "anna.key")]
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(FORGETFUL), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("anna\n", "")
