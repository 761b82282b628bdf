"""From the ids of a batch to the rows of a table: which are distinct, and which are the most frequent.

Rules: rows are int64 and ascending; equal counts are decided by the smaller id, so that the same batch gives the same
rows everywhere; an id outside of the table is refused, never wrapped or dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning.updates import distinct
from fsl_async.task import Block, Sparse

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Picked:
    """Rows of a table that a client works on, and those it leaves for another time.

    Attributes:
        block: the table's block.
        rows: to retrieve, int64, distinct, ascending.
        deferred: ids of the batch that are not among them, int64, distinct, ascending.
    """

    block: Sparse
    rows: Rows = field(repr=False)
    deferred: Rows = field(repr=False)

    def positions(self, ids: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Where the row of each id is among `rows`: `retrieved[picked.positions(ids)]` are the rows of a batch.

        Args:
            ids: of any shape.

        Returns:
            Indices of the same shape.

        Raises:
            MisuseError: an id is not among `rows`.
        """
        array = _ids(ids, self.block)
        found = np.searchsorted(self.rows, array)
        held = np.isin(array, self.rows)
        if not held.all():
            raise MisuseError(
                f"block {self.block.name!r}: id {array[~held].flat[0]} is not among the {len(self.rows)} rows "
                "that were picked; leave out ids that are in `deferred`"
            )
        return found


def distinct_rows(ids: npt.ArrayLike, block: Block) -> Rows:
    """The rows of a batch, each once.

        distinct_rows([[3, 1], [3, 3]], Sparse("items", rows=10, select=2))      # [1, 3]

    Args:
        ids: of any shape, repeated as they may be.
        block: the table's block; see `StateMapping.block`.

    Returns:
        int64, ascending.

    Raises:
        MisuseError: an id is outside of the table, or there are more distinct ones than a client may select.
    """
    table = _table(block)
    rows = distinct(_ids(ids, table))
    if len(rows) > table.select:
        raise MisuseError(
            f"block {table.name!r}: the batch has {len(rows):,} distinct rows, and a client selects "
            f"{table.select:,}: take the most frequent with `frequent_rows`, make the batch smaller, or agree on a "
            f"task with select={len(rows)}"
        )
    return rows


def frequent_rows(ids: npt.ArrayLike, block: Block, k: int | None = None) -> Picked:
    """The k most frequent rows of a batch; of equally frequent ones, those with the smaller ids.

        picked = frequent_rows([5, 1, 5, 3], Sparse("items", rows=10, select=2))
        picked.rows, picked.deferred      # [1, 5], [3]

    Args:
        ids: of any shape.
        block: the table's block; see `StateMapping.block`.
        k: how many at most; None: as many as the block's `select` allows.

    Raises:
        MisuseError: an id is outside of the table, or k is not from 1 to `select`.
    """
    table = _table(block)
    most = table.select if k is None else k
    if type(most) is not int or not 1 <= most <= table.select:
        raise MisuseError(f"block {table.name!r}: k must be from 1 to {table.select}, its select, not {k!r}")
    rows, counts = np.unique(_ids(ids, table), return_counts=True)
    order = np.argsort(-counts, kind="stable")  # rows ascend, so the smaller of equals comes first
    return Picked(table, np.sort(rows[order[:most]]), np.sort(rows[order[most:]]))


def _table(block: Block) -> Sparse:
    if not isinstance(block, Sparse):
        raise MisuseError(f"block {getattr(block, 'name', block)!r} is not sparse: it has no rows to select")
    return block


def _ids(ids: npt.ArrayLike, table: Sparse) -> npt.NDArray[np.int64]:
    try:
        array = np.asarray(ids)
    except ValueError as error:  # a ragged list
        raise MisuseError(f"block {table.name!r}: integer ids expected: {error}") from error
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise MisuseError(f"block {table.name!r}: integer ids expected, got {array.dtype}")
    outside = (array < 0) | (array >= table.rows)
    if outside.any():
        where = np.argwhere(outside)[0].tolist()
        raise MisuseError(
            f"block {table.name!r}: id {array[tuple(where)]} at {where} is outside of the table, which has "
            f"{table.rows:,} rows: 0 to {table.rows - 1}"
        )
    return array.astype(np.int64)
