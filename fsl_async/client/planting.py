"""A client's trees: rows are checked and placed in bins, and one tree is made for every bin.

Rules: every bin gets a tree, an empty one a tree at a random position (on the void leaf where contributors are
counted, because it must count on no row), so that nothing shows which bins are occupied;
the sizes of what leaves this module depend on the task alone. Rows that find no bin are deferred and named, never
dropped.

Source: paper §"Basic Protocols" (cuckoo table, dummy bins, master seeds, stash); design §5, §6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.derivation import digest_of_trees, expansion_keys, forest_roots, seed_commitment
from fsl_async.digests import KEY_BYTES
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest, Geometry, RowNumbers, geometry_of
from fsl_async.kernels.arrays import Blocks
from fsl_async.randomness import Randomness
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import ForestKey

Positions = npt.NDArray[np.uint32]
"""Positions within bins, one for each tree."""


@dataclass(frozen=True)
class MasterSeeds:
    """The two secrets from which all of a client's roots and dense masks are derived; each server gets one."""

    msk: tuple[bytes, bytes] = field(repr=False)

    @staticmethod
    def fresh(randomness: Randomness) -> MasterSeeds:
        """Draw both."""
        return MasterSeeds((randomness(KEY_BYTES), randomness(KEY_BYTES)))

    def commitments(self, round_id: bytes, client: str) -> tuple[bytes, bytes]:
        """c₀ and c₁ of design §8."""
        first, second = (seed_commitment(self.msk[b], round_id, client, b) for b in (0, 1))
        return first, second


@dataclass(frozen=True)
class ForestTrees:
    """One forest's trees, and what only the client knows of them.

    Attributes:
        tree: the correction words, as they travel.
        leaves: both servers' leaf blocks at the chosen leaf of every tree, each (trees, 2).
        alphas: the chosen leaf of every tree.
        slots: the chosen position within that leaf.
        item: the index of the tree's row among the selected ones; -1 for a dummy.
    """

    tree: kernels.Tree
    leaves: tuple[Blocks, Blocks] = field(repr=False)
    alphas: npt.NDArray[np.uint32] = field(repr=False)
    slots: npt.NDArray[np.uint8] = field(repr=False)
    item: npt.NDArray[np.int32] = field(repr=False)


@dataclass(frozen=True)
class ClientTrees:
    """All trees of one client in one round (or session).

    Attributes:
        seeds: the master seeds.
        planted: the trees, forest by forest in the order of the wire.
        rows: the selected rows of each sparse block, by the block's index; a block that moves plainly has its rows as
            the task numbers them.
        deferred: those of them that found no bin.
    """

    seeds: MasterSeeds
    planted: dict[ForestKey, ForestTrees] = field(repr=False)
    rows: dict[int, RowNumbers] = field(repr=False)
    deferred: dict[int, RowNumbers] = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        """`derivation.tree_digest` of the part that brings these trees."""
        return digest_of_trees([planted.tree.to_bytes() for planted in self.planted.values()])


def check_rows(block: Sparse, rows: npt.ArrayLike) -> RowNumbers:
    """Check a caller's rows of one block.

    Raises:
        MisuseError: not integers, not one-dimensional, out of range, repeated, or more than the block's `select`.
    """
    array = np.asarray(rows)
    if array.size == 0:
        return np.zeros(0, dtype=np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise MisuseError(f"block {block.name!r}: a list of integer rows expected, got {array.dtype} {array.shape}")
    outside = (array < 0) | (array >= block.rows)
    if outside.any():
        raise MisuseError(f"block {block.name!r}: row {array[outside][0]} is outside 0 to {block.rows - 1}")
    if len(array) > block.select:
        raise MisuseError(f"block {block.name!r}: {len(array)} rows selected, the task allows {block.select}")
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        raise MisuseError(f"block {block.name!r}: row {values[counts > 1][0]} is selected twice")
    return array.astype(np.uint32)


def plant(
    config: RoundConfig, rows: Mapping[int, RowNumbers], seeds: MasterSeeds, randomness: Randomness
) -> ClientTrees:
    """Place each block's rows and make all trees.

    Args:
        config: the round.
        rows: rows that `check_rows` returned, by the index of their sparse block; a block left out gets dummies only.
        seeds: fresh master seeds.
        randomness: for the placement and for the dummies' positions.
    """
    task = config.shape
    selected = {index: rows.get(index, np.zeros(0, dtype=np.uint32)) for index, _ in config.task.sparse_blocks()}
    planted: dict[ForestKey, ForestTrees] = {}
    deferred: dict[int, RowNumbers] = {}
    for index, block in task.sparse_blocks():
        geometry = geometry_of(task, block)
        items, positions, left = _place(config, index, geometry, selected[index], randomness)
        deferred[index] = selected[index][left]
        for number, forest in enumerate(geometry.forests):
            key = ForestKey(index, number)
            chosen = _with_dummies(items[number], positions[number], forest, randomness)
            planted[key] = _grow(config, key, forest, seeds, items[number], chosen)
    return ClientTrees(seeds, planted, selected, deferred)


def _place(
    config: RoundConfig, index: int, geometry: Geometry, rows: RowNumbers, randomness: Randomness
) -> tuple[list[npt.NDArray[np.int32]], list[Positions], npt.NDArray[np.int32]]:
    """Place rows: per forest the item of every tree and its position in the tree's bin; and the items left over."""
    forest = geometry.bins
    spots = np.stack(
        [
            kernels.Permutation(config.placement_key(index), segment, geometry.rows).forward(rows)
            for segment in range(forest.segments)
        ]
    )
    column = spots // np.uint32(forest.positions)
    leaf = column // np.uint32(forest.bins)
    bins = column - leaf * np.uint32(forest.bins)
    placement = kernels.place(np.ascontiguousarray(bins.T), forest.bins, randomness(KEY_BYTES))
    item = placement.rows_of_bin
    known = np.zeros((forest.segments, len(rows) + 1), dtype=np.uint32)
    known[:, :-1] = spots - (column - leaf) * np.uint32(forest.positions)
    # Item -1, a free bin, takes the zero at the end of the segment before.
    place = item.reshape(forest.segments, -1) + np.arange(0, known.size, len(rows) + 1)[:, None]
    position = known.reshape(-1)[place.reshape(-1)]
    items, positions = [item], [position]
    for number in range(len(geometry.stash)):
        in_slot = placement.unplaced[number : number + 1]
        items.append(in_slot.astype(np.int32) if len(in_slot) else np.full(1, -1, dtype=np.int32))
        positions.append(rows[in_slot] if len(in_slot) else np.zeros(1, dtype=np.uint32))
    return items, positions, placement.unplaced[len(geometry.stash) :]


def _with_dummies(
    item: npt.NDArray[np.int32], position: Positions, forest: Forest, randomness: Randomness
) -> Positions:
    if forest.count_elements:
        return np.where(item >= 0, position, forest.leaves - 1).astype(np.uint32)
    stream = kernels.keystream(randomness(KEY_BYTES), nonce=0, count=-(-forest.trees // 2))
    anywhere = stream.reshape(-1)[: forest.trees] % np.uint64(forest.bin_size)
    return np.where(item >= 0, position, anywhere.astype(np.uint32))


def _grow(
    config: RoundConfig,
    key: ForestKey,
    forest: Forest,
    seeds: MasterSeeds,
    item: npt.NDArray[np.int32],
    position: Positions,
) -> ForestTrees:
    roots = [forest_roots(seeds.msk[server], key, forest, server) for server in (0, 1)]
    alphas = position // np.uint32(forest.positions)
    tree, leaves0, leaves1 = kernels.generate(expansion_keys(config), roots[0], roots[1], alphas, forest.depth)
    return ForestTrees(tree, (leaves0, leaves1), alphas, (position % forest.positions).astype(np.uint8), item)


def check_by_block(given: object) -> None:
    """Check that a caller gave a mapping from blocks' names.

    Raises:
        MisuseError: it is no mapping.
    """
    if not isinstance(given, Mapping):
        raise MisuseError(f'a dict with the names of blocks expected, as {{"items": …}}, got {type(given).__name__}')


def rows_by_block(task: Task, rows: Mapping[str, Any]) -> dict[int, RowNumbers]:
    """Check the rows a caller names, and index them by block.

    Raises:
        MisuseError: a block is unknown or dense, or its rows are refused by `check_rows`.
    """
    check_by_block(rows)
    index_of = {block.name: index for index, block in task.sparse_blocks()}
    checked = {}
    for name, wanted in rows.items():
        block = task.block(name)
        if not isinstance(block, Sparse):
            raise MisuseError(f"block {name!r} is dense: it has no rows to select")
        checked[index_of[name]] = check_rows(block, wanted)
    return checked
