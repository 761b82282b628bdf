"""The union's places converted alone give what converting everything gives there; removal by negation is exact.

Sums of disjoint clients, merged, are the sum of all of them; and one that is taken off again was never there.
"""

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, Ring, Sparse, Task, kernels
from fsl_async.server.aggregation import Aggregate, CellMemory
from fsl_async.server.sums import merging
from tests.support.cases import in_turn
from tests.support.kernel_cases import total_of
from tests.support.rounds import Round, add, run


def make_evaluation(rng: np.random.Generator, trees: int, depth: int, planes: int, bits: int) -> kernels.Evaluation:
    keys = [kernels.key_schedule(rng.bytes(16)) for _ in range(2)]
    roots = rng.integers(0, 2**64, (trees, 2), dtype=np.uint64)
    words = rng.integers(0, 2**64, (depth, trees, 2), dtype=np.uint64)
    hints = rng.integers(0, 2**64, (planes, trees, 2), dtype=np.uint64)
    tree = kernels.Tree(words)
    return kernels.Evaluation(keys[0], roots, tree, keys[1], hints, bits)


@in_turn("lane", [None, "plain"])
@in_turn("bits", [32, 64, 128])
@in_turn(
    "bins, leaves, planes, chosen",
    [(1, 1, 1, 1), (1, 9, 2, 3), (3, 2, 1, 0), (255, 3, 1, 40), (256, 7, 2, 1792), (1100, 13, 3, 9), (257, 129, 1, 7)],
)
def test_chosen_places_equal_the_same_places_of_everything(
    lane: str | None, bits: int, bins: int, leaves: int, planes: int, chosen: int
) -> None:
    before = kernels.active_isa()
    kernels.select_isa(lane)
    rng = np.random.default_rng([bits, bins, leaves])
    segments = 2
    evaluation = make_evaluation(rng, segments * bins, (leaves - 1).bit_length(), planes, bits)
    everything = np.zeros((segments, leaves, planes, bins, 2), dtype=np.uint64)
    for segment in range(segments):
        positions = rng.permutation(leaves * bins)[:chosen].astype(np.uint32)
        places = kernels.choose_places(positions, leaves, bins)
        cells = np.zeros((planes, chosen, 2), dtype=np.uint64)
        totals = kernels.Totals(np.full((planes, segments * bins, 2), 7, dtype=np.uint64))
        for start in range(0, bins, kernels.GROUP):
            stop = min(start + kernels.GROUP, bins)
            kernels.places_adder(evaluation, places, cells, segment)(start, stop)
            kernels.places_adder(evaluation, places, np.zeros_like(cells), segment, totals)(start, stop)
        kernels.adder(evaluation, everything)(segment, 0, bins)
        picked = positions[places.order]
        expected = everything[segment, picked // bins, :, picked % bins].transpose(1, 0, 2)
        np.testing.assert_array_equal(cells, expected)
        chosen_alone = np.zeros((1, leaves, planes, bins, 2), dtype=np.uint64)
        chosen_alone[0, picked // bins, :, picked % bins] = expected.transpose(1, 0, 2)
        own = totals.sums[:, segment * bins : (segment + 1) * bins]
        np.testing.assert_array_equal(own, total_of(chosen_alone, bits))
    kernels.select_isa(before)


def test_ranges_that_cut_a_group_are_refused() -> None:
    rng = np.random.default_rng(6)
    evaluation = make_evaluation(rng, 300, 1, 1, 64)
    places = kernels.choose_places(np.arange(4, dtype=np.uint32), 2, 300)
    cells = np.zeros((1, 4, 2), dtype=np.uint64)
    with pytest.raises(ValueError, match="do not begin and end with a group"):
        kernels.places_adder(evaluation, places, cells, 0)(10, 300)
    with pytest.raises(ValueError, match="positions must lie below"):
        kernels.choose_places(np.array([600], dtype=np.uint32), 2, 300)


class WatchedMemory(CellMemory):
    """Remembers what it gave."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.given: list[np.ndarray] = []

    def zeros(self, *shape: int) -> np.ndarray:
        self.given.append(super().zeros(*shape))
        return self.given[-1]


def test_memory_of_one_sum_serves_the_next_and_nothing_of_it_shows() -> None:
    memory = WatchedMemory(most=10**9)
    task = Task(
        name="sums", blocks=(Sparse("items", rows=64, width=2, select=4),), ring=Ring(64), min_clients=2, max_clients=2
    )
    for seed in (1, 2):
        play = Round(task, {"items": np.zeros((64, 2), np.float32)}, seed)
        rows = np.array([1, 5 * seed])
        submission, _ = play.submissions("anna", play.plant({"items": rows}), {"items": (rows, np.full((2, 2), seed))})
        fresh, again = (Aggregate(play.config, 0, b"key", memory=where) for where in (None, memory))
        assert add(fresh, submission) == add(again, submission)
        assert fresh.share() == again.share()
        again.release()
    first, second = memory.given
    assert np.shares_memory(first, second)


def test_memory_is_kept_only_as_far_as_there_is_room() -> None:
    memory = CellMemory(most=800)
    first, second, third = (memory.zeros(60) for _ in range(3))
    first[:] = 7
    for words in (first, second, third):
        memory.give_back(words)
    assert np.shares_memory(memory.zeros(60), first)
    assert not memory.zeros(60).any()
    assert not memory.zeros(61).any()


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
