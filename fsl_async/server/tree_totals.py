"""One client's update as one server holds it: its share of every weight, in the order of the wire.

The leaves of a tree sum up to an additive share of its payload, so every tree's total is this server's share of one
row's update. Where a task bounds updates, a client proves the size of exactly this vector: what is added to the sum is
what is bounded, also where a round is aligned on a union and leaves outside it are neither.

Server 1's totals have the kernels' positive sign, so the update is server 0's vector minus server 1's; its dense shares
are negated to fit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fsl_async import kernels
from fsl_async.geometry import Forest
from fsl_async.ring import Elements, Ring
from fsl_async.wire.public_part import ForestKey


class TreeTotals:
    """Where the jobs of one submission write the totals of its trees.

    Args:
        ring: the task's.
        forests: those whose trees are added, in the order of the wire.
    """

    def __init__(self, ring: Ring, forests: Mapping[ForestKey, Forest]) -> None:
        self._ring = ring
        self._forests = forests
        self._sums = {
            key: kernels.Totals(np.zeros((forest.planes, forest.trees, 2), dtype=np.uint64))
            for key, forest in forests.items()
        }

    def of(self, key: ForestKey) -> kernels.Totals:
        """Where one forest's totals go."""
        return self._sums[key]

    def payloads(self, key: ForestKey) -> Elements:
        """This server's share of every tree's payload, once all jobs are done: (trees, payload elements)."""
        forest = self._forests[key]
        payloads = kernels.payload_of_planes(self._sums[key].sums, forest.payload_elements * self._ring.element_bytes)
        return self._ring.from_bytes(payloads.reshape(-1).data, forest.trees, forest.payload_elements)

    def counts(self, server: int) -> dict[ForestKey, Elements]:
        """By forest, every tree's count as this server proves it: equal on both servers if, and only if, it is 1.

        A tree's count is server 0's total minus server 1's, so server 1 adds 1. Each server knows what the other one
        has of an honest client, and so learns nothing from it.
        """
        shares = {key: np.ascontiguousarray(self.payloads(key)[:, -1]) for key in self._forests}
        return shares if server == 0 else {key: self._ring.add(share, self._ring.one) for key, share in shares.items()}

    def vector(self, server: int, dense: Elements) -> Elements:
        """The whole update: all trees' rows, tree by tree in the order of the wire, then all dense blocks.

        Args:
            server: 0 or 1.
            dense: this server's share of the dense blocks.

        Returns:
            x of server 0, z of server 1: the update is x - z.
        """
        rows = [
            self.payloads(key)[:, : forest.width].reshape(-1, *dense.shape[1:]) for key, forest in self._forests.items()
        ]
        return np.concatenate([*rows, dense if server == 0 else self._ring.negate(dense)])
