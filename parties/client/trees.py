"""A client's trees, and how little must be kept to have them again.

All that is random about a client's trees (master seeds, placement, the dummies' positions) is drawn from one secret of
32 bytes. Round, rows and secret are kept; the trees are grown again from them, to the last bit, and compared with the
digest of the first ones: hints must never be made for trees that are not those which the servers hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fsl_async.client.planting import Grove, MasterSeeds, check_rows, plant
from fsl_async.config import RoundConfig
from fsl_async.digests import same
from fsl_async.errors import MisuseError, StorageError
from fsl_async.randomness import Randomness
from fsl_async.secrecy import Discreet

__all__ = ["Planting", "StoredPlanting"]

SECRET_BYTES = 32
ROW_BYTES = 4
_DOMAIN = b"fsl-async planting\0"

Rows = Mapping[int, npt.NDArray[np.uint32]]


class StoredPlanting(Discreet, frozen=True, forbid_unknown_fields=True):
    """What is kept of trees: the round they were planted in, their rows by sparse block, the secret, their digest."""

    hidden: ClassVar[frozenset[str]] = frozenset({"rows", "secret"})
    config: bytes
    rows: dict[int, bytes]
    secret: bytes
    digest: bytes


@dataclass(frozen=True)
class Planting:
    """Trees with what they grow from.

    Attributes:
        config: the round that they were planted in.
        secret: what is random about them.
        grove: the trees.
    """

    config: RoundConfig
    secret: bytes = field(repr=False)
    grove: Grove = field(repr=False)

    @staticmethod
    def fresh(config: RoundConfig, rows: Rows, randomness: Randomness) -> Planting:
        """Plant trees at checked rows."""
        return _grow(config, rows, randomness(SECRET_BYTES))

    @staticmethod
    def again(kept: StoredPlanting, config: RoundConfig, source: str) -> Planting:
        """Grow trees again in the round that they were planted in; `source` names where they were kept.

        Raises:
            StorageError: the rows are not such as the round has, or other trees than the first ones would come of it.
        """
        try:
            planting = _grow(config, _rows(config, kept.rows), kept.secret)
        except MisuseError as error:
            raise StorageError(f"{source} cannot be read: {error}; begin anew with another file") from error
        if not same(planting.grove.digest, kept.digest):
            raise StorageError(
                f"{source}: its trees do not grow again as they were; was it written by another release, or damaged? "
                "Nothing was sent: go on with that release, or begin anew with another file"
            )
        return planting

    def stored(self) -> StoredPlanting:
        """What must be kept to grow these trees again."""
        rows = {index: array.astype("<u4").tobytes() for index, array in self.grove.rows.items()}
        return StoredPlanting(self.config.canonical(), rows, self.secret, self.grove.digest)


def _rows(config: RoundConfig, kept: Mapping[int, bytes]) -> Rows:
    """The kept rows of every sparse block, checked like a caller's."""
    rows: dict[int, npt.NDArray[np.uint32]] = {}
    planted = dict(config.shape.sparse_blocks())
    for index, named in config.task.sparse_blocks():
        block = planted.get(index, named)  # what moves plainly has its rows named as in the task
        data = kept.get(index, b"")
        if len(data) % ROW_BYTES:
            raise MisuseError(f"block {block.name!r}: {len(data)} bytes are no list of rows")
        rows[index] = check_rows(block, np.frombuffer(data, dtype="<u4"))
    return rows


def _grow(config: RoundConfig, rows: Rows, secret: bytes) -> Planting:
    stream = _Stream(secret)
    return Planting(config, secret, plant(config, rows, MasterSeeds.fresh(stream), stream))


class _Stream:
    """A secret, expanded: SHAKE-256 of domain, secret and a counter of the calls."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._calls = 0

    def __call__(self, size: int) -> bytes:
        counter = self._calls.to_bytes(8, "little")
        self._calls += 1
        return hashlib.shake_256(_DOMAIN + self._secret + counter).digest(size)
