"""A client's trees, and how little must be stored to plant the same ones again.

All that is random about a client's trees (master seeds, placement, the dummies' positions) is drawn from one secret of
32 bytes. Round, rows and secret are stored; the same trees are planted again from them and compared with the digest of
the first ones, because hints must never be made for other trees than the servers hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fsl_async.client.planting import ClientTrees, MasterSeeds, check_rows, plant
from fsl_async.config import RoundConfig
from fsl_async.digests import same
from fsl_async.errors import MisuseError, StorageError
from fsl_async.randomness import Randomness
from fsl_async.secrecy import Discreet
from parties.compute import ComputeLane

SECRET_BYTES = 32
ROW_BYTES = 4
_DOMAIN = b"fsl-async planting\0"

Rows = Mapping[int, npt.NDArray[np.uint32]]


class StoredTrees(Discreet, frozen=True, forbid_unknown_fields=True):
    """What is stored of trees: the round they were planted in, their rows by sparse block, the secret, their digest."""

    hidden: ClassVar[frozenset[str]] = frozenset({"rows", "secret"})
    config: bytes
    rows: dict[int, bytes]
    secret: bytes
    digest: bytes


@dataclass(frozen=True)
class MadeTrees:
    """Trees, and what they are planted from.

    Attributes:
        config: the round that they were planted in.
        secret: what is random about them.
        client_trees: the trees.
    """

    config: RoundConfig
    secret: bytes = field(repr=False)
    client_trees: ClientTrees = field(repr=False)

    @staticmethod
    def fresh(config: RoundConfig, rows: Rows, randomness: Randomness) -> MadeTrees:
        """Plant trees at checked rows."""
        return _plant(config, rows, randomness(SECRET_BYTES))

    @staticmethod
    def again(stored: StoredTrees, config: RoundConfig, source: str) -> MadeTrees:
        """Plant the same trees again, for the round that they were planted in; `source` names the store.

        Raises:
            StorageError: the rows are not such as the round has, or the trees come out different.
        """
        try:
            planting = _plant(config, _rows(config, stored.rows), stored.secret)
        except MisuseError as error:
            raise StorageError(f"{source} cannot be read: {error}; begin anew with another file") from error
        if not same(planting.client_trees.digest, stored.digest):
            raise StorageError(
                f"{source}: its trees cannot be planted again as they were; was it written by another release, or "
                "damaged? Nothing was sent: go on with that release, or begin anew with another file"
            )
        return planting

    def stored(self) -> StoredTrees:
        """What must be stored to plant these trees again."""
        rows = {index: array.astype("<u4").tobytes() for index, array in self.client_trees.rows.items()}
        return StoredTrees(self.config.canonical(), rows, self.secret, self.client_trees.digest)


class TreeMaker:
    """Plants one client's trees, where that client computes and with its randomness."""

    def __init__(self, lane: ComputeLane, randomness: Randomness) -> None:
        self._lane = lane
        self._randomness = randomness

    async def plant(self, config: RoundConfig, rows: Rows) -> MadeTrees:
        """Plant trees at checked rows."""
        return await self._lane.run(partial(MadeTrees.fresh, config, rows, self._randomness))


def _rows(config: RoundConfig, stored: Mapping[int, bytes]) -> Rows:
    """The stored rows of every sparse block, checked like a caller's."""
    rows: dict[int, npt.NDArray[np.uint32]] = {}
    planted = dict(config.shape.sparse_blocks())
    for index, named in config.task.sparse_blocks():
        block = planted.get(index, named)  # what moves plainly has its rows named as in the task
        data = stored.get(index, b"")
        if len(data) % ROW_BYTES:
            raise MisuseError(f"block {block.name!r}: {len(data)} bytes are not a list of rows")
        rows[index] = check_rows(block, np.frombuffer(data, dtype="<u4"))
    return rows


def _plant(config: RoundConfig, rows: Rows, secret: bytes) -> MadeTrees:
    stream = _Stream(secret)
    return MadeTrees(config, secret, plant(config, rows, MasterSeeds.fresh(stream), stream))


class _Stream:
    """A secret, expanded: SHAKE-256 of domain, secret and a counter of the calls."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._calls = 0

    def __call__(self, size: int) -> bytes:
        counter = self._calls.to_bytes(8, "little")
        self._calls += 1
        return hashlib.shake_256(_DOMAIN + self._secret + counter).digest(size)
