"""Sums of disjoint clients, merged, are the sum of all of them; and one that is taken off again was never there."""

from __future__ import annotations

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from fsl_async.server.aggregation import Aggregate
from fsl_async.server.sums import merging
from tests.support.rounds import Round, add, run


def played(bits: int, verified: bool) -> tuple[Round, list]:
    task = Task(
        name="merging",
        blocks=(Sparse("items", rows=300, width=3, select=5, stash=1), Dense("bias", size=7)),
        ring=Ring(bits),
        min_clients=2,
        max_clients=4,
        security="verified" if verified else "semi-honest",
    )
    play = Round(task, {"items": np.zeros((300, 3), np.float32), "bias": np.zeros(7, np.float32)}, seed=bits)
    rng = np.random.default_rng(bits)
    made = []
    for client in ("anna", "bert", "cleo"):
        rows = np.sort(rng.permutation(300)[:5])
        update = {"items": (rows, rng.integers(-9, 9, (5, 3))), "bias": rng.integers(-9, 9, 7)}
        made.append(play.submissions(client, play.plant({"items": rows}), update))
    return play, made


@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize(("bits", "verified"), [(32, False), (64, False), (64, True), (128, True)])
def test_merged_sums_are_the_sum_of_all(bits: int, verified: bool, server: int) -> None:
    play, submissions = played(bits, verified)
    whole, two, one, nobody = (play.start()[server] for _ in range(4))
    for pair in submissions:
        add(whole, pair[server])
    for pair in submissions[:2]:
        add(two, pair[server])
    add(one, submissions[2][server])
    run(two.merging(one.content(), 1))
    assert two.share() == whole.share()
    run(two.merging(one.content(), -1))
    run(two.merging(nobody.content(), 1))
    run(whole.merging(one.content(), -1))
    assert two.share() == whole.share() != nobody.share()


def test_a_sum_of_another_form_is_refused() -> None:
    play, _ = played(64, True)
    other, _ = played(128, True)
    aggregate: Aggregate = play.start()[0]
    for content in (other.start()[0].content(), aggregate.content()[:-1], [*aggregate.content(), np.zeros(1)]):
        with pytest.raises(MisuseError, match="another form than the round"):
            aggregate.merging(content, 1)


def test_many_tiles_and_jobs_touch_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsl_async.server.sums.JOB_BYTES", 64)
    monkeypatch.setattr("fsl_async.server.sums.TILE_BYTES", 128)
    ring, rng = Ring(128), np.random.default_rng(1)
    into, other = (rng.integers(0, 2**64, (37, 2), dtype=np.uint64) for _ in range(2))
    expected = ring.add(into, other)
    other.flags.writeable = False
    jobs = merging(ring, [into], [other], 1)
    assert len(jobs) > 5
    run(jobs)
    np.testing.assert_array_equal(into, expected)
