"""Shapes and sizes against the formulae of the design, worked out here once more from the task's numbers alone."""

import math
import random

import pytest

from fsl_async import Ring, Sparse, Task
from fsl_async.bin_count import bins_per_segment, planned
from fsl_async.geometry import SEGMENTS, Forest, Geometry, geometry_of
from tests.support.cases import in_turn


def task_of(block: Sparse, bits: int, **changes: object) -> Task:
    fields: dict[str, object] = {"name": "t", "blocks": (block,), "ring": Ring(bits), "security": "semi-honest"}
    return Task(**(fields | changes))  # type: ignore[arg-type]


def geometry_of_block(block: Sparse, bits: int, **changes: object) -> Geometry:
    task = planned(task_of(block, bits, **changes))
    return geometry_of(task, task.sparse(0))


def random_blocks(count: int) -> list[Sparse]:
    chance = random.Random(1)
    blocks = []
    for _ in range(count):
        rows = int(2 ** chance.uniform(0, 24))
        select = max(1, int(rows ** chance.uniform(0, 1)))
        width = chance.choice((1, 1, 1, 2, 3, 4, 18, 64))
        blocks.append(Sparse("a", rows=rows, select=min(select, rows), width=width, stash=chance.randrange(3)))
    return blocks


BLOCKS = random_blocks(60)


@in_turn("block", BLOCKS)
def test_every_row_has_a_leaf_and_every_bin_the_same_size(block: Sparse, bits: int) -> None:
    for security in ("verified", "semi-honest"):
        geometry = geometry_of_block(block, bits, security=security)
        forest = geometry.bins
        assert (forest.segments, forest.bins) == (SEGMENTS, bins_per_segment(block.select, block.rows))
        assert forest.bins * forest.bin_size >= block.rows
        assert forest.bins * (forest.bin_size - forest.positions) < block.rows  # no leaf is there for nothing
        assert 2**forest.depth >= forest.leaves > (2**forest.depth) // 2
        assert (geometry.rows, geometry.width, geometry.select) == (block.rows, block.width, block.select)


@in_turn("block", BLOCKS)
def test_bytes_follow_the_formulae(block: Sparse, bits: int) -> None:
    for forest in geometry_of_block(block, bits).forests:
        trees, depth = forest.segments * forest.bins, math.ceil(math.log2(forest.leaves))
        assert forest.trees == trees
        assert forest.depth == depth
        assert forest.tree_bytes * 8 == 128 * trees * depth
        assert forest.hint_bytes * 8 == trees * forest.positions * block.width * bits
        assert forest.proof_bytes * 8 == 128 * trees
        assert forest.select_bytes == (math.ceil(trees * forest.positions / 8) if forest.positions > 1 else 0)
        assert forest.payload_elements == forest.positions * block.width
        assert forest.planes == math.ceil(forest.positions * block.width * bits / 128)


@in_turn("block", BLOCKS)
def test_a_leaf_covers_as_many_rows_as_makes_the_least_to_send(block: Sparse, bits: int) -> None:
    row_bits = block.width * bits
    bins = bins_per_segment(block.select, block.rows)

    def bits_to_send(positions: int) -> int:
        depth = math.ceil(math.log2(math.ceil(block.rows / (bins * positions))))
        return 128 * depth + positions * row_bits

    allowed = [p for p in (1, 2, 4) if p == 1 or (2 * row_bits <= 128 and p * bins <= block.rows)]
    best = min(map(bits_to_send, allowed))
    assert geometry_of_block(block, bits).bins.positions == max(
        positions for positions in allowed if bits_to_send(positions) == best
    )


@pytest.mark.parametrize(
    ("bits", "width", "positions"),
    [(32, 1, 4), (64, 1, 4), (128, 1, 1), (32, 2, 4), (64, 2, 1), (32, 3, 1), (32, 18, 1)],
)
def test_leaves_of_small_rows_end_early(bits: int, width: int, positions: int) -> None:
    block = Sparse("a", rows=2**16, select=100, width=width)
    assert geometry_of_block(block, bits).bins.positions == positions


def test_every_bin_has_a_row_however_few_rows_there_are(bits: int) -> None:
    for select in (1, 4, 10, 100, 5000):
        for rows in {select, *(math.ceil(select * part / 8) for part in range(9, 64))}:
            shape = geometry_of_block(Sparse("a", rows=rows, select=select), bits).bins
            assert math.ceil(rows / shape.positions) >= shape.bins, (select, rows)


@pytest.mark.parametrize("changes", [{"security": "verified"}, {"selection": "fixed"}])
def test_a_leaf_covers_one_row_where_leaves_are_proved_or_outlive_their_round(
    bits: int, changes: dict[str, str]
) -> None:
    for block in BLOCKS:
        assert geometry_of_block(block, bits, **changes).bins.positions == 1


def test_a_stash_slot_is_one_tree_over_all_rows(bits: int) -> None:
    block = Sparse("a", rows=1000, select=10, width=3, stash=2)
    geometry = geometry_of_block(block, bits)
    slot = Forest(segments=1, bins=1, leaves=1000, positions=1, element_bits=bits, width=3)
    assert geometry.stash == (slot, slot)
    assert geometry.forests == (geometry.bins, slot, slot)
    assert geometry.trees == geometry.bins.trees + 2


def test_the_smallest_block_is_three_trees_without_levels(bits: int) -> None:
    block = Sparse("a", rows=1, select=1)
    forest = geometry_of_block(block, bits, security="verified").bins
    assert (forest.trees, forest.leaves, forest.depth, forest.tree_bytes) == (3, 1, 0, 0)
    assert forest.hint_bytes == 3 * bits // 8
