"""One seed, one transcript: in one process and in others, with whatever order the parties' tasks run in."""

import os
import random
import sys
from contextlib import suppress

import attrs
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.randomness import SeededSource
from parties import simulate
from parties.compute import InlineLane
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling

PATIENCE = 60.0

TASK = Task(
    name="determinism",
    blocks=[Sparse("items", rows=400, width=2, select=10), Dense("head", size=5)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=10,
)


async def transcript(seed: int) -> tuple[str, list[str], bytes]:
    """A round whose clients all act at once: its digest, its lines and its sum."""
    model = {"items": np.arange(800, dtype=np.float32).reshape(400, 2), "head": np.zeros(5)}
    with trio.fail_after(PATIENCE):
        async with simulate(TASK, model, seed) as net:

            async def act(number: int) -> None:
                rows = np.arange(number, number + 10)
                async with net.client(f"client {number}") as client:
                    await client.retrieve({"items": rows, "head": ...})
                    await client.submit({"items": (rows, np.full((10, 2), number)), "head": np.full(5, number)})

            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(act, number)
            outcome = await net.finish_round()
            lines = [str(note) for note in net.transcript]
            return net.transcript_digest(), lines, outcome.elements["items"].tobytes()


async def test_different_seeds_give_different_transcripts_and_the_same_sum() -> None:
    runs = [await transcript(seed) for seed in range(4)]
    assert len({digest for digest, _, _ in runs}) == 4
    assert len({tuple(lines) for _, lines, _ in runs}) > 1, "the order of messages follows the seed, too"
    assert len({total for _, _, total in runs}) == 1


IN_ANOTHER_PROCESS = f"import trio; from {__name__} import transcript; print(trio.run(transcript, 7)[0])"


async def test_another_process_with_another_hash_seed_gives_the_same_transcript() -> None:
    expected, _, _ = await transcript(7)
    environment = dict(os.environ, PYTHONHASHSEED="12345", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    other = await trio.run_process([sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, capture_stdout=True)
    assert other.stdout.decode().strip() == expected


# ---- the scheduler


def test_trio_still_has_the_names_we_reach_for() -> None:
    """When this fails, `parties/simulation/scheduling.py` needs trio's new way to schedule by a seed."""
    import trio._core._run as scheduler

    assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert isinstance(scheduler._r, random.Random)


async def test_afterwards_trio_schedules_as_before() -> None:
    import trio._core._run as scheduler

    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    with suppress(KeyError), seeded_scheduling(3):
        assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING is True
        scheduler._r.random()
        raise KeyError
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()) == before


# ---- the source of simulated randomness


def test_a_seeded_source_is_a_stream_of_its_own() -> None:
    def drawn(seed: int, *path: str) -> list[bytes]:
        source = SeededSource(seed, *path)
        return [source(16), source(16), source(40)]

    assert drawn(1, "alice") == drawn(1, "alice")
    streams = [drawn(1, "alice"), drawn(2, "alice"), drawn(1, "bob"), drawn(1, "alice", "keys"), drawn(1)]
    blocks = [block[:16] for stream in streams for block in stream]
    assert len(set(blocks)) == len(blocks)
    assert [len(block) for block in streams[0]] == [16, 16, 40]


async def test_a_deadline_that_has_just_passed_ends_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at real time the next deadline may pass: nothing sleeps for less than no time."""
    known = trio.lowlevel.current_statistics
    looks = iter([attrs.evolve(known(), seconds_to_next_deadline=-1e-6)])
    monkeypatch.setattr(trio.lowlevel, "current_statistics", lambda: next(looks, None) or known())
    network = Network(TASK, {"items": np.zeros((400, 2)), "head": np.zeros(5)}, 7, InlineLane())
    with trio.move_on_after(0.05) as waiting:
        await network._stuck()
    assert waiting.cancelled_caught
    assert next(looks, None) is None
