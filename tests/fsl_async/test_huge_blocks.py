"""Row numbers, places and leaves from 2^31 up to 2^32, where a signed word of 32 bits would be negative."""

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task, kernels
from fsl_async.client.planting import MasterSeeds, check_rows, plant
from fsl_async.config import BlockModel, RoundConfig
from fsl_async.derivation import expansion_keys, forest_roots
from fsl_async.errors import MisuseError
from fsl_async.geometry import geometry_of
from fsl_async.kernels.rows import segment_kernels
from fsl_async.kernels.trees.union_evaluation import GROUP
from fsl_async.randomness import SeededSource
from fsl_async.union import pack_union, unpack_union
from fsl_async.wire.pieces import list_bytes, longest_piece, spans_of
from fsl_async.wire.public_part import ForestKey
from tests.support.machine_scenes import config_of

MOST = 2**32
ROWS = np.array([0, 2**31 - 1, 2**31, 3 * 2**30, MOST - 2, MOST - 1])
NO_HINTS = np.zeros((1, 1, 2), dtype=np.uint64)


def round_of(task: Task) -> RoundConfig:
    return config_of(1, task=task, model=tuple(BlockModel(block.name, "f4", bytes(32)) for block in task.blocks))


@pytest.mark.parametrize("security", ["verified", "semi-honest"])
@pytest.mark.parametrize("stash", [0, 1])
def test_every_row_has_the_leaf_of_its_place(security, stash):
    """Both servers hold the same block beside it, and other control bits at it: in bins, in a slot over all rows."""
    task = Task(
        name="huge", blocks=(Sparse("rows", rows=MOST, select=6, stash=stash),), ring=Ring(64), security=security
    )
    config, source = round_of(task), SeededSource(3, "huge")
    rows = check_rows(task.sparse(0), ROWS)
    client_trees = plant(config, {0: rows}, MasterSeeds.fresh(source), source)
    assert not len(client_trees.deferred[0])
    for number, forest in enumerate(geometry_of(config.shape, config.shape.sparse(0)).forests):
        planted = client_trees.planted[ForestKey(0, number)]
        for tree in np.flatnonzero(planted.item >= 0):
            row, segment, bin_ = rows[planted.item[tree]], tree // forest.bins, tree % forest.bins
            place = int(kernels.Permutation(config.placement_key(0), segment, MOST).forward(rows)[planted.item[tree]])
            if number:
                place = int(row)
            assert place // forest.positions % forest.bins == bin_
            leaf = place // (forest.positions * forest.bins)
            assert planted.alphas[tree] == leaf
            chosen = np.unique(np.array([max(0, leaf - 1), leaf], dtype=np.uint32))
            blocks = [leaves_of(config, client_trees, ForestKey(0, number), server, chosen) for server in (0, 1)]
            same = (blocks[0][segment, :, bin_] == blocks[1][segment, :, bin_]).all(axis=1)
            assert same.tolist() == [False] * (len(same) == 1) + [True, False] * (len(same) == 2)
            control = (blocks[0][segment, -1, bin_, 0] ^ blocks[1][segment, -1, bin_, 0]) & np.uint64(1)
            assert control == 1


def leaves_of(config, client_trees, key, server, chosen):
    forest = geometry_of(config.shape, config.shape.sparse(0)).forests[key.forest]
    found = np.zeros((forest.segments, len(chosen), forest.bins, 2), dtype=np.uint64)
    trees = kernels.Evaluation(
        keys=expansion_keys(config),
        roots=forest_roots(client_trees.seeds.msk[server], key, forest, server),
        tree=client_trees.planted[key].tree,
        convert=kernels.key_schedule(bytes(16)),
        hints=np.zeros((forest.planes, forest.trees, 2), dtype=np.uint64),
        element_bits=64,
    )
    for segment in range(forest.segments):
        kernels.evaluate_leaves(trees, chosen, found, segment, 0, forest.bins)
    return found


@pytest.mark.parametrize(("positions", "bins"), [(1, 1), (1, 3), (2, 7), (4, 1_000_003), (1, 2**31 + 11)])
def test_the_fold_finds_every_place(positions, bins):
    places = np.concatenate([ROWS, np.random.default_rng(1).integers(0, MOST, 200)]).astype(np.uint32)
    planes = -(-positions * 3 // 2)
    leaves = -(-MOST // (positions * bins))
    found, instead = np.empty((2, len(places) + 3), np.int64), np.arange(2 * len(places) + 6).reshape(2, -1)
    segment_kernels._find((leaves, planes, bins, 2), places, positions, 3, found, instead)
    for column, place in enumerate(places.tolist()):
        leaf, bin_ = divmod(place // positions, bins)
        plane, element = divmod(place % positions * 3, 2)
        assert found[:, column].tolist() == [((leaf * planes + plane) * bins + bin_) * 2, element]
    assert (found[:, len(places) :] == instead[:, len(places) :]).all()


def test_the_places_of_a_union_are_found():
    bins, leaves = 2**20, 2**12
    positions = np.unique(np.concatenate([ROWS, np.random.default_rng(2).integers(0, MOST, 500)])).astype(np.uint32)
    places = kernels.choose_places(positions, leaves, bins)
    cells = [(position % bins // GROUP, position // bins) for position in positions[places.order].tolist()]
    assert cells == sorted(cells)
    assert places.bins.tolist() == [position % bins for position in positions[places.order].tolist()]


def test_a_union_is_packed_and_read():
    rows = ROWS.astype(np.uint32)
    assert unpack_union(pack_union(rows, MOST), MOST, "S1").tolist() == ROWS.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32])
def test_rows_are_checked_by_their_numbers(dtype):
    block = Sparse("rows", rows=MOST, select=6)
    assert check_rows(block, ROWS.astype(dtype)).tolist() == ROWS.tolist()
    if dtype != np.uint32:
        with pytest.raises(MisuseError, match=f"row {MOST} is outside 0 to {MOST - 1}"):
            check_rows(block, np.array([MOST], dtype=dtype))


def test_a_share_of_the_largest_block_is_cut():
    task = Task(name="huge", blocks=(Sparse("rows", rows=MOST, select=6), Dense("head", size=7)), ring=Ring(128))
    spans = spans_of(task)
    assert (spans[-2].stop, spans[-1].stop, len(spans)) == (MOST, 7, 4097)
    assert (list_bytes(task), longest_piece(task)) == (4097 * 32, 2**24)


def test_more_rows_are_refused_by_name():
    with pytest.raises(MisuseError, match=f"rows: rows must be an integer from 1 to {MOST}, not {MOST + 1}"):
        Sparse("rows", rows=MOST + 1, select=1)
    with pytest.raises(MisuseError, match="the clients of at most 1,073,741,823 rows, as many as fit in one message"):
        Task(
            name="huge",
            blocks=(Sparse("rows", rows=2**30, select=6),),
            ring=Ring(64),
            min_contributors=2,
            lying_clients=0,
        )
