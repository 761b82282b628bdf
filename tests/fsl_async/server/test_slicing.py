"""A round cut into slices of its bins: whatever the cut, the same sum, the same entries, the same answers."""

from itertools import pairwise

import numpy as np
import pytest

from fsl_async import Dense, MisuseError, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.client.planting import ClientTrees
from fsl_async.derivation import forest_roots
from fsl_async.server import slicing
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.retrieval import PermutedModel, Query, joined
from fsl_async.server.slicing import cell_bytes, groups_of, proof_digest, slices_of, whole
from fsl_async.wire.public_part import forests_of
from tests.support.cases import in_turn, one_in
from tests.support.machine_scenes import key
from tests.support.rounds import THREADS, Draw, Round, add, run

COUNTS = (1, 2, 3, 7)
RINGS = (32, 64, 128)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a test's size have many groups."""
    monkeypatch.setattr(slicing, "LEAVES_OF_GROUP", 50)


def played(draw: Draw, **changes: object) -> tuple[Round, list[ClientTrees], list[tuple[Submission, Submission]]]:
    """A random round and the submissions of three clients."""
    task = draw.task(**changes)
    play = Round(task, draw.model(task), draw.seed)
    all_trees, submissions = [], []
    for client in ("anna", "bert", "cleo"):
        rows = draw.rows(task)
        all_trees.append(play.plant_some(rows))
        placed = {name: np.setdiff1d(chosen, all_trees[-1].deferred.get(name, ())) for name, chosen in rows.items()}
        submissions.append(play.submissions(client, all_trees[-1], draw.update(task, placed)))
    return play, all_trees, submissions


# ---- cutting


@in_turn("count", [*COUNTS, 40])
@in_turn("seed", range(6))
def test_every_bin_is_in_one_slice_and_every_slice_is_of_whole_groups(seed: int, count: int) -> None:
    shape = Round(*_task_and_model(Draw(seed, 64, "verified")), seed).config.shape
    slices = slices_of(shape, count)
    assert 1 <= len(slices) <= count
    for forest_key, forest in forests_of(shape):
        bins = [some[forest_key] for some in slices if forest_key in some]
        assert [number for some in bins for number in some] == list(range(forest.bins))
        groups = [group for group in groups_of(shape) if group.key == forest_key]
        assert (groups[0].start, groups[-1].stop) == (0, forest.bins)
        assert all(before.stop == after.start for before, after in pairwise(groups))
        assert {some.start for some in bins} <= {group.start for group in groups}
    assert sum(cell_bytes(shape, some) for some in slices) == cell_bytes(shape, whole(shape))


def test_slices_are_of_about_equal_work() -> None:
    shape = planned(task(Sparse("items", rows=2**17, select=900)))
    memory = [cell_bytes(shape, some) for some in slices_of(shape, 7)]
    assert len(memory) == 7
    assert max(memory) < 1.2 * min(memory)


def test_a_task_of_usual_size_has_one_group_a_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sizes = {2**20: 1, 2**24: 8, 2**27: 64, 2**31: 64}
    for rows, count in sizes.items():
        shape = planned(task(Sparse("items", rows=rows, select=rows // 1000)))
        assert len(groups_of(shape)) == count


# ---- sums


@in_turn("bits", RINGS)
@in_turn("security", ["verified", "semi-honest"])
@in_turn("seed", range(4))
def test_slices_add_up_to_the_sum_bit_by_bit(seed: int, security: str, bits: int) -> None:
    draw = Draw(seed, bits, security, most_weights=2**12)
    counted = (
        {"min_contributors": 2, "lying_clients": 0, "blocks": (draw.sparse("items"),)}
        if seed % 2 and security == "verified"
        else {}
    )
    play, _, submissions = played(draw, **counted)
    for server in (0, 1):
        inline = Aggregate(play.config, server, key(9))
        entries = [add(inline, pair[server]) for pair in submissions]
        for count in COUNTS:
            merged = Aggregate(play.config, server, key(9))
            said: list[list[bytes]] = [[] for _ in submissions]
            for some in slices_of(play.config.shape, count) or (whole(play.config.shape),):
                aggregate = Aggregate(play.config, server, key(9), some=some)
                for found, pair in zip(said, submissions, strict=True):
                    found.append(add(aggregate, pair[server]))
                run(merged.merging(aggregate.content(), 1, some))
                if some == whole(play.config.shape):
                    assert [found for (found,) in said] == entries
                    said = [[] for _ in submissions]
            assert merged.share() == inline.share()
            if counted:
                assert merged.counts() == inline.counts()
            if any(said):
                made = [
                    proof_digest(pair[server].tree, b"".join(found))
                    for found, pair in zip(said, submissions, strict=True)
                ]
                assert made == entries


def test_a_slice_of_another_round_or_cut_is_refused() -> None:
    play, _, _ = played(Draw(3, 64, "verified"), blocks=(Sparse("items", rows=3000, select=40), Dense("head", size=3)))
    first, second = slices_of(play.config.shape, 2)
    merged = Aggregate(play.config, 0, key(9))
    content = Aggregate(play.config, 0, key(9), some=second).content()
    for some in (first, None):
        with pytest.raises(MisuseError, match="another form than the round"):
            merged.merging(content, 1, some)


def test_roots_of_some_bins_are_those_of_all() -> None:
    shape = planned(task(Sparse("items", rows=4000, select=60)))
    (forest_key, forest), *_ = forests_of(shape)
    everything = forest_roots(bytes(16), forest_key, forest, 1).reshape(forest.segments, forest.bins, 2)
    some = forest_roots(bytes(16), forest_key, forest, 1, range(5, 31)).reshape(forest.segments, 26, 2)
    np.testing.assert_array_equal(some, everything[:, 5:31])


# ---- retrievals


@pytest.mark.parametrize(("seed", "security"), one_in(2, range(8), ["verified", "semi-honest"]))
def test_slices_answer_what_the_whole_model_answers(seed: int, security: str) -> None:
    play, all_trees, _ = played(Draw(seed, 64, security, most_weights=2**12))
    queries = [Query(client_trees.seeds.msk[1], play.query_part(client_trees)) for client_trees in all_trees]
    expected = answers(PermutedModel(play.config, 1, play.model), queries)
    sizes = {index: play.model[block.name].dtype.itemsize * block.width for index, block in play.task.sparse_blocks()}
    for count in COUNTS:
        slices = slices_of(play.config.shape, count) or (whole(play.config.shape),)
        parts = [(some, answers(PermutedModel(play.config, 1, play.model, some), queries)) for some in slices]
        np.testing.assert_array_equal(joined(play.config.shape, sizes, parts), expected)


def test_an_answer_of_another_slice_is_refused() -> None:
    play, all_trees, _ = played(Draw(3, 64, "verified"), blocks=(Sparse("items", rows=3000, select=40),))
    first, second = slices_of(play.config.shape, 2)
    queries = [Query(all_trees[0].seeds.msk[0], play.query_part(all_trees[0]))]
    part = answers(PermutedModel(play.config, 0, play.model, second), queries)
    size = play.model["items"].dtype.itemsize
    with pytest.raises(MisuseError, match="expected answers of"):
        joined(play.config.shape, {0: size}, [(first, part[:, 1:]), (second, part)])


def task(block: Sparse) -> Task:
    return Task(name="cut", blocks=(block,), ring=Ring(64), min_clients=2, max_clients=9)


def answers(model: PermutedModel, queries: list[Query]) -> np.ndarray:
    work = model.begin(queries, THREADS)
    run(work.selecting)
    run(work.answering)
    return work.finish()


def _task_and_model(draw: Draw) -> tuple[Task, dict[str, np.ndarray]]:
    task = draw.task()
    return task, draw.model(task)
