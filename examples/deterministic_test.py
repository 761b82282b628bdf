"""A deterministic protocol test: one seed gives one transcript, and a transcript reads like a conversation."""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

TASK = Task(
    name="words",
    blocks=[Sparse("words", rows=1_000, select=10)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=10,
)


async def run_round(seed: int) -> tuple[str, list[str]]:
    """One round of two clients; returns the transcript's digest and its lines."""
    async with simulate(TASK, {"words": np.zeros(1_000)}, seed=seed) as net:
        for name in ("ada", "bob"):
            async with net.client(name) as client:
                await client.submit({"words": ([1, 2, 3], np.ones(3))})
        await net.finish_round()
        kinds = [type(note.message).__name__ for note in net.transcript]
        last_commitment = max(place for place, kind in enumerate(kinds) if kind == "Commitment")
        assert kinds.index("Share") > last_commitment, "a share was revealed before both servers had committed"
        return net.transcript_digest(), [str(note) for note in net.transcript]


def test_one_seed_gives_one_transcript() -> None:
    """The same seed twice, and another one."""
    first, lines = trio.run(run_round, 7)
    assert trio.run(run_round, 7)[0] == first
    assert trio.run(run_round, 8)[0] != first
    print("\n".join(lines[:12]))


if __name__ == "__main__":
    test_one_seed_gives_one_transcript()
