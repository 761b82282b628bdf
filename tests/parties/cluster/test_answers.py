"""Retrievals that workers answer from slices of the model: right, whoever is killed, stopped or damaged."""

from contextlib import AbstractAsyncContextManager
from typing import Literal

import numpy as np
import pytest
import trio

from fsl_async import Ring, Sparse, Task
from parties import Client
from parties.cluster.cluster import Reply
from parties.cluster.worker_service import WorkerService
from parties.events import Warned
from parties.testing import AtTime, Crash, Fault, SpoiltBlobs, StoppedWorker
from parties.testing.world import World
from tests.parties.testing.small_world import listening
from tests.support.cases import often, one_in

ROWS = 500
MODEL = {"items": np.arange(ROWS * 3, dtype=np.int64).reshape(ROWS, 3), "words": np.arange(ROWS, dtype=np.float32)}
NAMES = [f"client {number}" for number in range(4)]
Protocol = Literal["ssa", "psr"]


def a_task(protocol: Protocol = "psr", selection: Literal["adaptive", "fixed"] = "adaptive") -> Task:
    return Task(
        name="answers",
        protocol=protocol,
        blocks=(Sparse("items", rows=ROWS, width=3, select=9), Sparse("words", rows=ROWS, select=4)),
        ring=Ring(64, fraction_bits=8 if protocol == "ssa" else 0),
        selection=selection,
        min_clients=None if protocol == "psr" else 2,
        max_clients=9,
        retrievals=2,
    )


def a_world(
    *faults: Fault, workers: tuple[int, int] = (2, 1), task: Task | None = None, computing: float = 0.0
) -> AbstractAsyncContextManager[World]:
    more = {"workers": workers, "computing": computing, "workers_answer": True}
    return listening(task or a_task(), MODEL, NAMES, *faults, seed=3, **more)


async def ask(made: World, times: int = 2) -> None:
    """Everybody retrieves rows, and finds what the model has."""
    done: set[str] = set()

    async def retrieve(client: Client) -> None:
        for time in range(times):
            rows = [time, 17, 123, ROWS - 1]
            found = await client.retrieve({"items": rows, "words": rows})
            np.testing.assert_array_equal(found["items"], MODEL["items"][rows])
            np.testing.assert_array_equal(np.asarray(found["words"]).reshape(-1), MODEL["words"][rows])
        done.add(client.name)

    for name in NAMES:
        made.start(name, retrieve)
    with trio.fail_after(2000):
        await made.wait_until(lambda: done == set(NAMES))


@pytest.mark.parametrize(("protocol", "workers"), one_in(2, ["psr", "ssa"], [(1, 0), (2, 1), (5, 3)]))
async def test_workers_answer_what_a_server_would(autojump_clock, protocol, workers):
    async with a_world(workers=workers, task=a_task(protocol)) as made:
        await ask(made)
        assert made.clusters[0].calls["answer"] >= workers[0]


async def test_a_session_s_trees_are_answered_too(autojump_clock):
    async with a_world(task=a_task("ssa", "fixed")) as made:
        await ask(made, times=1)
        assert made.clusters[0].calls["answer"] >= 2


@pytest.mark.parametrize("moment", often(3, [0.2, 1.0, 2.0, 0.6, 1.5, 3.0]))
async def test_the_slice_of_a_worker_that_dies_is_laid_out_by_another(autojump_clock, moment):
    deaths = [Crash("S0.worker-1", AtTime(moment), down=float("inf")), Crash("S1.worker-1", AtTime(moment), down=5.0)]
    async with a_world(*deaths, computing=0.3) as made:
        await ask(made)


async def test_a_worker_that_is_stopped_is_asked_no_more(autojump_clock):
    async with a_world(StoppedWorker("S0.worker-1", begin=0.5, seconds=1000.0), computing=0.3) as made:
        await ask(made)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert any("no answer to retrievals for 20 s" in line for line in told)
        assert made.now < 1000


async def test_without_any_worker_a_retrieval_waits(autojump_clock):
    async with a_world(Crash("S0.worker-1", AtTime(0.01), down=50.0), workers=(1, 0)) as made:
        await ask(made)
        assert made.now > 50


@pytest.mark.parametrize("harm", ["altered", "missing"])
async def test_blobs_that_workers_find_damaged_harm_no_answer(autojump_clock, harm):
    async with a_world(SpoiltBlobs("S0.worker-1", 0.0, 60.0, harm), workers=(2, 0)) as made:
        await ask(made)


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (lambda reply: Reply(reply.report, []), "something else than answers"),
        (lambda reply: Reply(reply.report, [reply.arrays[0][:0]]), "in the shape (0, "),
        (lambda reply: Reply(reply.report, [reply.arrays[0][:, 1:]]), "which have answers of"),
        (lambda reply: Reply(reply.report, [np.zeros((), np.uint8)]), "uint8 in the shape () to"),
        (lambda reply: Reply(reply.report, [reply.arrays[0].astype(np.uint16)]), "it sends uint16"),
        (lambda reply: Reply(b"\x00", reply.arrays), "no AnsweredReport"),
    ],
)
async def test_what_is_no_answer_is_asked_for_again(autojump_clock, monkeypatch, lie, named):
    plain, lies = WorkerService.perform, ["once"]

    async def perform(self: WorkerService, action: str, order: bytes) -> Reply:
        reply = await plain(self, action, order)
        return lie(reply) if action == "answer" and lies and lies.pop() else reply

    monkeypatch.setattr(WorkerService, "perform", perform)
    async with a_world(workers=(1, 0)) as made:
        await ask(made)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert len(told) == 1
        assert told[0].startswith("worker S0.worker-1.1 has failed: ")
        assert named in told[0]
