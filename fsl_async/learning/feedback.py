"""Error feedback: what a round does not carry is kept, and added in a later one.

Rules: a submission and what stays behind add up exactly to the update plus what stayed behind before (in float64).
Values of this module are never changed: a caller adopts the new one when the submission counts, and has the old one if
it does not.

Source: Seide et al., 1-Bit Stochastic Gradient Descent; Karimireddy et al., Error Feedback Fixes SignSGD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning.matching import check_named
from fsl_async.learning.sparsification import top_rows
from fsl_async.learning.updates import RowValues, Update, distinct, flat_values, refuse_misfit, rounded, row_values
from fsl_async.task import Block, Sparse, Task

NOTHING: Mapping[str, npt.ArrayLike] = MappingProxyType({})
NO_ROWS = np.zeros(0, dtype=np.int64)
ROWS, VALUES, DENSE = "rows/", "values/", "dense/"
"""Before a block's name in `ErrorFeedback.arrays`."""


class LeftOut(Protocol):
    """What says which rows a submission did not carry: the receipt of one."""

    @property
    def left_out(self) -> Mapping[str, Sequence[int]]:
        """By sparse block, rows."""


@dataclass(frozen=True, eq=False)
class ErrorFeedback:
    """What a client's submissions have not carried so far.

        feedback = ErrorFeedback()
        sent = feedback.compress(update, task)          # the update's and the residuals' top rows
        receipt = await client.submit(sent.update)
        feedback = sent.feedback_after(receipt)         # for the next round

    Attributes:
        residuals: by sparse block, rows (ascending) and values (rows, width); by dense block, values. All float64.
    """

    residuals: Update = field(default_factory=dict, repr=False)

    def compress(self, update: Update, task: Task) -> Compressed:
        """Add the residuals to an update, and take what one submission carries.

        Of a sparse block these are the `select` rows with the largest Σ|w|, as `top_rows` takes them; of a dense block,
        all. Values are rounded as the ring rounds them, and what rounding takes stays behind, too. Where the task
        updates retrieved rows alone, rows with a residual are taken only if the update names them.

        Args:
            update: as `submit` takes it, but with any number of rows. A block of weights is passed on as it is.
            task: whose blocks and ring count.

        Raises:
            MisuseError: a value is not finite or does not fit the ring, or the update or a residual is not for this
                task.
        """
        check_named(update, "an update")
        for name in (*self.residuals, *update):
            task.block(name)
        sent: Update = {}
        left: Update = {}
        deferred: dict[str, npt.NDArray[np.int64]] = {}
        for block in task.blocks:
            given, residual = update.get(block.name), self.residuals.get(block.name)
            if block.name == task.weights:
                sent |= {block.name: given} if given is not None else {}
            elif isinstance(block, Sparse):
                sent[block.name], left[block.name], deferred[block.name] = _rows_split(task, block, given, residual)
            else:
                parts = [flat_values(block.name, block.size, part) for part in (given, residual) if part is not None]
                total = sum(parts, start=np.zeros(block.size))
                refuse_misfit(task, total, partial(_place, block, NO_ROWS))
                sent[block.name] = rounded(task, total, f"block {block.name!r}")
                left[block.name] = total - sent[block.name]
        return Compressed(sent, deferred, ErrorFeedback(_without_zeros(left)))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The residuals as a dict of arrays, for a file: `.npz` and `.safetensors` take it."""
        found: dict[str, npt.NDArray[Any]] = {}
        for name, residual in self.residuals.items():
            if isinstance(residual, tuple):
                found |= {ROWS + name: residual[0], VALUES + name: residual[1]}
            else:
                found[DENSE + name] = residual
        return found

    @staticmethod
    def of(arrays: Mapping[str, npt.NDArray[Any]]) -> ErrorFeedback:
        """What `arrays` returned.

        Raises:
            MisuseError: it did not return that.
        """
        check_named(arrays, "error feedback")
        residuals: Update = {}
        for key, array in arrays.items():
            if key.startswith(DENSE):
                residuals[key.removeprefix(DENSE)] = array
            elif key.startswith(ROWS) and VALUES + key.removeprefix(ROWS) in arrays:
                residuals[key.removeprefix(ROWS)] = (array, arrays[VALUES + key.removeprefix(ROWS)])
            elif not (key.startswith(VALUES) and ROWS + key.removeprefix(VALUES) in arrays):
                raise MisuseError(f"error feedback: {key!r} is no part of it, or its other half is missing")
        return ErrorFeedback(residuals)


@dataclass(frozen=True, eq=False)
class Compressed:
    """What one submission carries of an update, and what stays behind.

    Attributes:
        update: for `submit`.
        deferred: by sparse block, the rows that stay behind, ascending.
        feedback: for the next round, if everything in `update` is counted.
    """

    update: Update = field(repr=False)
    deferred: dict[str, npt.NDArray[np.int64]] = field(repr=False)
    feedback: ErrorFeedback

    @property
    def rows(self) -> dict[str, npt.NDArray[np.int64]]:
        """By sparse block, the rows that the submission carries."""
        return {name: sent[0] for name, sent in self.update.items() if isinstance(sent, tuple)}

    def feedback_after(self, receipt: LeftOut, withheld: Mapping[str, npt.ArrayLike] = NOTHING) -> ErrorFeedback:
        """The feedback for the next round: rows that the submission left out stay behind as well.

            sent.feedback_after(receipt)
            sent.feedback_after(receipt, outcome.withheld(sent.rows))       # with `min_contributors`, after the round

        Args:
            receipt: of `submit`; its `left_out` counts.
            withheld: by sparse block, rows that the round's outcome withheld, because too few clients contributed.

        Raises:
            MisuseError: it names a row that is not in the update.
        """
        residuals = dict(self.feedback.residuals)
        for name in dict.fromkeys([*receipt.left_out, *withheld]):
            left_out = np.union1d(receipt.left_out.get(name, NO_ROWS), withheld.get(name, NO_ROWS))
            if not len(left_out):
                continue
            rows, values = self._sent(name)
            found = np.isin(rows, left_out)
            if found.sum() != len(left_out):
                raise MisuseError(
                    f"block {name!r}: {left_out.tolist()} were left out, and not all of them are in the update"
                )
            residual = residuals.get(name)
            pair = residual if isinstance(residual, tuple) else (rows[:0], values[:0])
            residuals[name] = _added((rows[found], values[found]), pair)
        return ErrorFeedback(residuals)

    def _sent(self, name: str) -> RowValues:
        sent = self.update.get(name)
        if not isinstance(sent, tuple):
            raise MisuseError(f"the receipt left rows of block {name!r} out, and the update has none of them")
        return sent


def _rows_split(
    task: Task, block: Sparse, given: object, residual: object
) -> tuple[RowValues, RowValues, npt.NDArray[np.int64]]:
    """What is sent of a sparse block, what stays behind, and its rows that are not sent at all."""
    nothing = NO_ROWS, np.zeros((0, block.width))
    update = row_values(block, given) if given is not None else nothing
    rows, total = _added(update, row_values(block, residual) if residual is not None else nothing)
    name = f"block {block.name!r}"
    candidates = total.any(axis=1)
    if task.updates == "retrieved":
        candidates &= np.isin(rows, update[0])
    places = np.flatnonzero(candidates)
    _refuse_infinite(block, rows, total)
    taken = places[top_rows(total[places], min(block.select, len(places)), name)]
    refuse_misfit(task, total[taken], partial(_place, block, rows[taken]))
    sent = rounded(task, total[taken], name)
    total[taken] -= sent
    waiting = total.any(axis=1)
    sent_at = np.zeros(len(rows), dtype=bool)
    sent_at[taken] = True
    return (rows[taken], sent), (rows[waiting], total[waiting]), rows[waiting & ~sent_at]


def _refuse_infinite(block: Sparse, rows: npt.NDArray[np.int64], total: npt.NDArray[np.float64]) -> None:
    if not np.isfinite(total).all():
        first = int(np.argmin(np.isfinite(total)))
        raise MisuseError(f"{_place(block, rows, first)}: {total.flat[first]} is not a finite number")


def _place(block: Block, rows: npt.NDArray[np.int64], index: int) -> str:
    """What stands at an index of a block's flat values; of a sparse one these are the values of rows."""
    if not isinstance(block, Sparse):
        return f"block {block.name!r} at [{index}]"
    return f"block {block.name!r} at [{rows[index // block.width]}, {index % block.width}]"


def _added(left: RowValues, right: RowValues) -> RowValues:
    """The sum of two sets of rows; its rows ascend."""
    rows = distinct(np.concatenate([left[0], right[0]]))
    total = np.zeros((len(rows), left[1].shape[1]))
    for some, values in (left, right):
        total[np.searchsorted(rows, some)] += values
    return rows, total


def _without_zeros(residuals: Update) -> Update:
    return {
        name: residual
        for name, residual in residuals.items()
        if (len(residual[0]) if isinstance(residual, tuple) else residual.any())
    }
