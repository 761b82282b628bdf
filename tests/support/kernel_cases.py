"""Trees of one client on two servers, for the tests of the kernels."""

from dataclasses import dataclass

import numpy as np

from fsl_async import kernels
from tests.support import reference

EXPAND, CONVERT, SELECT, TAG, MASK, HASH = (bytes([i]) * 16 for i in range(1, 7))
MSK = (b"\x10" * 16, b"\x11" * 16)
SEGMENTS = 3


def roots(server: int, trees: int) -> np.ndarray:
    blocks = kernels.keystream(MSK[server], nonce=9, count=trees)
    blocks[:, 0] = blocks[:, 0] & ~np.uint64(1) | np.uint64(server)
    return blocks


@dataclass
class Case:
    """Three segments of some bins with random payloads at random leaves, planted by the kernels."""

    bins: int
    leaves: int
    planes: int = 1
    bits: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.trees = SEGMENTS * self.bins
        self.alphas = rng.integers(0, self.leaves, self.trees, dtype=np.uint32)
        self.payload = rng.integers(0, 2**64, (self.planes, self.trees, 2), dtype=np.uint64)
        self.keys = kernels.key_schedule(EXPAND)
        self.convert = kernels.key_schedule(CONVERT)
        self.roots = [roots(server, self.trees) for server in (0, 1)]
        depth = (self.leaves - 1).bit_length()
        self.tree, *self.at_alpha = kernels.generate(self.keys, *self.roots, self.alphas, depth)
        self.hints = kernels.make_hints(self.convert, *self.at_alpha, self.payload, self.bits)

    def __repr__(self) -> str:
        return f"Case(bins={self.bins}, leaves={self.leaves}, planes={self.planes}, bits={self.bits}, seed={self.seed})"

    def evaluation(self, server: int) -> kernels.Evaluation:
        return kernels.Evaluation(self.keys, self.roots[server], self.tree, self.convert, self.hints, self.bits)

    def selection(self, server: int) -> kernels.Selection:
        hints = np.zeros(self.trees, dtype=np.uint8)
        return kernels.Selection(self.keys, self.roots[server], self.tree, self.keys, hints, 1)

    def accumulator(self) -> np.ndarray:
        return np.zeros((SEGMENTS, self.leaves, self.planes, self.bins, 2), dtype=np.uint64)

    def totals(self) -> kernels.Totals:
        return kernels.Totals(np.zeros((self.planes, self.trees, 2), dtype=np.uint64))

    def expected(self) -> np.ndarray:
        """The payloads at their leaves, zeros elsewhere."""
        table = self.accumulator()
        for tree in range(self.trees):
            segment, bin_ = divmod(tree, self.bins)
            table[segment, self.alphas[tree], :, bin_] = self.payload[:, tree]
        return table

    def all_leaves(self, server: int) -> np.ndarray:
        """Every leaf block: (segments, leaves, bins, 2)."""
        blocks = np.zeros((SEGMENTS, self.leaves, self.bins, 2), dtype=np.uint64)
        chosen = np.arange(self.leaves, dtype=np.uint32)
        for segment in range(SEGMENTS):
            kernels.evaluate_leaves(self.selection(server), chosen, blocks, segment, 0, self.bins)
        return blocks


def added(first: np.ndarray, second: np.ndarray, bits: int) -> np.ndarray:
    """First plus second in the ring."""
    return difference(first, difference(np.zeros_like(second), second, bits), bits)


def total_of(cells: np.ndarray, bits: int) -> np.ndarray:
    """The sum over all leaves of every tree, (planes, trees, 2), of cells (segments, leaves, planes, bins, 2)."""
    by_leaf = np.ascontiguousarray(cells.transpose(1, 2, 0, 3, 4)).reshape(cells.shape[1], cells.shape[2], -1, 2)
    total = np.zeros_like(by_leaf[0])
    for leaf in by_leaf:
        total = added(total, leaf, bits)
    return total


def difference(first: np.ndarray, second: np.ndarray, bits: int) -> np.ndarray:
    """First minus second in the ring: what server 1's negation and the final sum amount to."""
    if bits == 32:
        return (first.view(np.uint32) - second.view(np.uint32)).view(np.uint64)
    result = first - second
    if bits == 128:
        result[..., 1] -= first[..., 0] < second[..., 0]
    return result


def reference_tree(case: Case, tree: int) -> tuple[list[int], int, int]:
    root0, root1 = (reference.to_ints(case.roots[server][tree])[0] for server in (0, 1))
    return reference.generate(EXPAND, (root0, root1), int(case.alphas[tree]), case.tree.depth)
