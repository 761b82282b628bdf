"""Simulations for programs that are not async: the transcript that they have under trio, beside any loop."""

import asyncio
import gc
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.errors import FslError, MisuseError
from parties import BlockingNetwork, NotDrawnError, simulate, simulate_blocking
from parties.simulation.blocking import _Threads
from tests.support.cases import often
from tests.support.shop import TASK, Basket, assert_exact, model, take_part

DRAWN = msgspec.structs.replace(TASK, sample=2)


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch):
    """None of a simulation; and the idle threads of other tests' pools are not taken for callers."""
    living, before = threading.enumerate, {*threading.enumerate()} - {threading.current_thread()}
    monkeypatch.setattr(threading, "enumerate", lambda: [thread for thread in living() if thread not in before])
    yield
    gc.collect()
    assert [thread for thread in threading.enumerate() if thread.name == "fsl-async simulation"] == []


def visit(net: BlockingNetwork, name: str) -> None:
    with net.client(name) as client:
        basket = Basket(name)
        client.retrieve({"items": basket.rows, "head": ...})
        client.submit(basket.update)


def two_rounds(seed: int, pause: float = 0) -> str:
    with simulate_blocking(TASK, model(), seed) as net:
        for _ in (1, 2):
            for name in ("anna", "ben"):
                visit(net, name)
                time.sleep(pause)
            assert_exact(net.finish_round(), "anna", "ben")
        assert len(net.transcript) > 20
        return net.transcript_digest()


async def two_rounds_under_trio(seed: int) -> str:
    async with simulate(TASK, model(), seed) as net:
        for _ in (1, 2):
            for name in ("anna", "ben"):
                async with net.client(name) as client:
                    await take_part(client)
            await net.finish_round()
        return net.transcript_digest()


@pytest.mark.parametrize("seed", often(1, range(3)))
def test_one_seed_gives_the_transcript_that_it_gives_under_trio(seed):
    assert two_rounds(seed) == two_rounds(seed, pause=0.01) == trio.run(two_rounds_under_trio, seed)


def test_other_simulations_and_other_trio_loops_change_nothing():
    alone = [two_rounds(seed) for seed in (1, 2)]
    ended = threading.Event()

    async def busy() -> None:
        while not ended.is_set():
            await trio.lowlevel.checkpoint()

    other = threading.Thread(target=trio.run, args=(busy,))
    other.start()
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(two_rounds, (1, 2))) == alone
    ended.set()
    other.join()


def test_inside_trio_and_asyncio_and_a_thread():
    alone = two_rounds(4)

    async def inside() -> str:
        return two_rounds(4)

    assert trio.run(inside) == asyncio.run(inside()) == alone

    async def in_threads() -> tuple[str, str]:
        return await asyncio.to_thread(two_rounds, 4), two_rounds(4)

    assert asyncio.run(in_threads()) == (alone, alone)


def test_what_a_client_tells_and_the_model():
    with simulate_blocking(TASK, model(), 1) as net:
        before = net.model
        anna, ben = net.client("anna"), net.client("ben")
        for client in (anna, ben):
            client.submit(Basket(client.name).update)
        assert (anna.round_number, anna.pending, anna.name) == (1, 0, "anna")
        net.finish_round()
        assert anna.outcome().counted
        anna.close()
        anna.close()
        with pytest.raises(MisuseError, match=r"`net\.client\(name\)` makes another one"):
            anna.outcome()
        assert ben.outcome().counted  # in whatever order clients leave
        assert not np.array_equal(net.model["items"], before["items"])


def test_errors_are_those_of_simulate():
    with pytest.raises(MisuseError, match="items"):
        simulate_blocking(TASK, {"items": np.zeros((1, 1))}, 1)
    with simulate_blocking(TASK, model(), 1) as net:
        with net.client("anna") as anna, pytest.raises(MisuseError, match="row 300 is outside 0 to 299"):
            anna.retrieve({"items": [300]})
        visit(net, "anna")
        visit(net, "ben")
        assert_exact(net.finish_round(), "anna", "ben")
    net.close()
    with pytest.raises(MisuseError, match="the simulation is over; begin another one"):
        net.client("carol")
    anna.close()


class Probed(queue.SimpleQueue):
    """A queue of calls; while the loop looks whether one is there, another thread makes the next call."""

    def __init__(self) -> None:
        self.meanwhile: list = []

    def empty(self) -> bool:
        was = super().empty()
        while self.meanwhile:
            thread = threading.Thread(target=self.meanwhile.pop())
            thread.start()
            thread.join(0.2)
        return was


def test_a_call_that_comes_while_the_loop_looks_for_one_is_carried_out(monkeypatch):
    probed = Probed()
    monkeypatch.setattr("parties.simulation.stage.queue", SimpleNamespace(SimpleQueue=lambda: probed))
    models: list[object] = []
    with simulate_blocking(TASK, model(), 1) as net:
        for number in range(3):
            probed.meanwhile.append(lambda: models.append(net.model))
            assert net.transcript is not None
            deadline = time.monotonic() + 5
            while len(models) == number and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(models) == number + 1


def test_a_wait_that_nobody_can_end_is_an_error():
    with simulate_blocking(TASK, model(), 1) as net, net.client("anna") as anna:
        anna.submit(Basket("anna").update)
        with pytest.raises(MisuseError, match=r"closed by `net\.finish_round\(\)`"):
            anna.outcome()


def test_another_thread_may_end_a_wait():
    with simulate_blocking(TASK, model(), 1) as net, ThreadPoolExecutor(2) as pool:
        clients = [net.client(name) for name in ("anna", "ben")]
        for client in clients:
            client.submit(Basket(client.name).update)
        waiting = [pool.submit(client.outcome) for client in clients]
        time.sleep(0.05)
        assert not any(call.done() for call in waiting)
        net.finish_round()
        assert all(call.result(30).counted for call in waiting)


def test_a_thread_that_has_not_called_yet_may_end_a_wait(monkeypatch):
    looked = threading.Event()

    def others(callers: _Threads, waiting: frozenset[object]) -> bool:
        try:
            return may_call(callers, waiting)
        finally:
            looked.set()

    may_call = _Threads.others
    with simulate_blocking(TASK, model(), 1) as net, ThreadPoolExecutor(1) as pool:
        anna, ben = net.client("anna"), net.client("ben")
        for client in (anna, ben):
            client.submit(Basket(client.name).update)
        monkeypatch.setattr(_Threads, "others", others)
        pool.submit(lambda: looked.wait(30) and net.finish_round())
        assert anna.outcome().counted


def test_who_was_drawn_and_trains_is_waited_for():
    """Each client trains until the main thread has gone on to close the round."""
    names, closing = ("anna", "ben", "carol", "dora"), threading.Event()

    def visit(name: str) -> str:
        with net.client(name) as client:
            basket = Basket(name)
            try:
                client.retrieve({"items": basket.rows, "head": ...})
            except NotDrawnError:
                return "not drawn"
            assert closing.wait(30)  # it trains
            client.submit(basket.update)
            return "counted" if client.outcome().counted else "not counted"

    with simulate_blocking(DRAWN, model(), 1) as net, ThreadPoolExecutor(len(names)) as pool:
        for drawing in (net.draw, lambda: None):
            closing.clear()
            visits = {name: pool.submit(visit, name) for name in names}
            drawing()
            threading.Timer(0.1, closing.set).start()
            outcome = net.finish_round()
            told = {name: visit.result(30) for name, visit in visits.items()}
            assert_exact(outcome, *sorted(name for name in names if told[name] == "counted"))
            assert sorted(told.values()) == ["counted", "counted", "not drawn", "not drawn"]


def test_who_was_drawn_and_has_left_is_not_waited_for():
    def visit(name: str) -> None:
        with net.client(name) as client:
            all_there.wait()
            client.retrieve({"items": [1]})

    all_there = threading.Barrier(3)
    with simulate_blocking(DRAWN, model(), 1) as net, ThreadPoolExecutor(2) as pool:
        visits = [pool.submit(visit, name) for name in ("anna", "ben")]
        all_there.wait()
        with pytest.raises(FslError, match="no clients are in with both servers"):
            net.finish_round()
        for ended in visits:
            ended.result(30)


def test_too_few_to_draw_of_is_an_error_once_nobody_else_may_ask():
    with simulate_blocking(DRAWN, model(), 1) as net, ThreadPoolExecutor(1) as pool:
        anna = net.client("anna")
        asking = pool.submit(anna.retrieve, {"items": [1]})
        with pytest.raises(MisuseError, match="too few clients have asked"):
            net.draw()
        anna.close()
        with pytest.raises(MisuseError, match="closed"):
            asking.result(30)


def test_closing_ends_the_calls_under_way_and_forgetting_closes():
    net = simulate_blocking(TASK, model(), 1)
    anna = net.client("anna")
    anna.submit(Basket("anna").update)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(anna.outcome)
        time.sleep(0.05)
        net.close()
        with pytest.raises(MisuseError, match="closed"):
            waiting.result(10)
    forgotten = simulate_blocking(TASK, model(), 1)
    del forgotten


def test_the_wrong_keyword_is_named():
    async def wrong() -> None:
        async with simulate_blocking(TASK, model(), 1):  # type: ignore[attr-defined]
            raise AssertionError

    with pytest.raises(MisuseError, match=r"simulate_blocking is entered with `with`"):
        asyncio.run(wrong())
