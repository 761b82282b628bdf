"""A model in training, between what a client retrieves and what it submits.

Rules: what is loaded and what is submitted are the very numbers of the model's tensors; where a conversion rounds, the
largest error is reported by the tensor's name; what cannot be submitted is refused by that name, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import FlatLayout, TableLayout
from fsl_async.learning.pytorch.held import HeldTable
from fsl_async.learning.pytorch.models import (
    arrays_of,
    checked_tensors,
    held_in_place_of,
    replace,
    table_names,
    tables_named,
)
from fsl_async.learning.pytorch.optimizers import note_replaced, was_stepped
from fsl_async.learning.pytorch.tensors import copy_into, to_numpy
from fsl_async.learning.rows import frequent_rows
from fsl_async.learning.state_mapping import StateMapping
from fsl_async.learning.updates import Fit, Update, changes
from fsl_async.task import Task

Ids: TypeAlias = "torch.Tensor | npt.ArrayLike | Iterable[torch.Tensor]"
Wanted: TypeAlias = "dict[str, npt.NDArray[np.int64] | EllipsisType]"


class Submodel:
    """A model that holds the retrieved rows of its tables, beside the tensors that all clients share; see `hold`.

        submodel = hold(model, mapping, task)

        wanted = submodel.wanted({"items": [ids for ids, labels in batches]})
        submodel.load(wanted, await client.retrieve(wanted))
        train(model, batches)
        await client.submit(submodel.update())

    The model's tensors are looked up anew whenever they are needed, so a layer may be replaced in between.

    Attributes:
        mapping: of the model's tensors to the task's blocks.
        task: what is learnt.
    """

    def __init__(self, model: nn.Module, mapping: StateMapping, task: Task) -> None:
        self.mapping = mapping
        self.task = task
        self._model = model
        self._tables = {each.block.name: each for each in mapping.layouts if isinstance(each, TableLayout)}
        self._flat = [layout for layout in mapping.layouts if isinstance(layout, FlatLayout)]
        self._before: dict[str, npt.NDArray[Any]] = {}
        self._local: dict[str, torch.Tensor] = {}

    def __repr__(self) -> str:
        held = {
            name: f"{len(tables[0].rows):,} of {self._tables[name].block.rows:,} rows"
            for name, tables in self.tables.items()
        }
        ready = "loaded" if self._before else "nothing is loaded: call `load` before training"
        return f"Submodel(task={self.task.name!r}, {', '.join(f'{n}: {h}' for n, h in held.items())}; {ready})"

    @property
    def tables(self) -> dict[str, tuple[HeldTable, ...]]:
        """By sparse block, its held tables, in the order of their tensors' names."""
        modules = tables_named(self._model, table_names(self.mapping))
        found: dict[str, tuple[HeldTable, ...]] = {}
        for block, layout in self._tables.items():
            for tensor in layout.tensors:
                module = modules[tensor.name]
                if not isinstance(module, HeldTable):
                    raise MisuseError(f"tensor {tensor.name!r} is no longer of a held table: call `hold` again")
                found[block] = (*found.get(block, ()), module)
        return found

    def wanted(self, ids: Mapping[str, Ids], *, most_frequent: bool = False) -> Wanted:
        """What to retrieve before a round's batches can be trained on.

        Args:
            ids: by sparse block, all ids that the table will be given: a tensor or array of any shape, or several.
            most_frequent: where there are more than the task's `select`, take those that occur most often (of two that
                occur equally often, the smaller). The table refuses the others; `HeldEmbedding.holds` tells them.

        Returns:
            For `Client.retrieve`: by table the distinct rows, ascending, without the padding; every other block whole.

        Raises:
            MisuseError: there is no such table, an id is outside of it, or there are more rows than `select`.
        """
        wanted: Wanted = {name: self._rows(name, each, most_frequent) for name, each in ids.items()}
        return wanted | {layout.block.name: ... for layout in self._flat}

    def load(
        self,
        wanted: Mapping[str, npt.NDArray[np.int64] | EllipsisType],
        retrieved: Mapping[str, npt.NDArray[Any]],
        deferred: Mapping[str, npt.ArrayLike] | None = None,
    ) -> dict[str, float]:
        """Begin a round: hold the rows that were retrieved, and take over what all clients share.

        Optimizers with a state (momentum, Adam) are to be made after it. Tensors that stay with this client and are no
        longer finite, because the last round has diverged, get the numbers that they had at the last `load`.

        Args:
            wanted: what was asked for; see `wanted`.
            retrieved: what `Client.retrieve` has returned for it.
            deferred: by block, rows that were not retrieved, though they were asked for. They are not held. By default
                those that `Client.retrieve` has named in what it returned.

        Returns:
            By tensor, the largest error of rounding what was retrieved to the tensor's dtype.

        Raises:
            MisuseError: something is missing or has another shape, or a number is not finite. The model is then to be
                loaded again before it is used.
        """
        self._before = {}
        missing = getattr(retrieved, "deferred", {}) if deferred is None else deferred
        for name in [*wanted, *(layout.block.name for layout in self._flat)]:
            if name not in retrieved:
                raise MisuseError(f"block {name!r} is missing: retrieve what `wanted` returns, and load that")
        self._restore_local()
        rounding: dict[str, float] = {}
        tensors = checked_tensors(self._model, self.mapping)
        for name in self.tables:
            rounding |= self._load_table(name, wanted.get(name), retrieved, missing.get(name, ()))
        for layout in self._flat:
            for name, array in self.mapping.unpack(layout.block.name, retrieved[layout.block.name]).items():
                rounding[name] = copy_into(name, tensors[name], array)
        self._before = self._numbers()
        self._local = {name: tensor.clone() for name, tensor in self._local_tensors().items()}
        return rounding

    def update(self, examples: float | None = None) -> Update:
        """End a round: what has changed since `load`, as `Client.submit` takes it.

        Args:
            examples: how many this client trained on, where the mapping counts them: all changes are multiplied by it.

        Returns:
            By table, the rows that have changed, ascending, and their changes, float64 (rows, width); by dense block,
            all changes.

        Raises:
            MisuseError: nothing was loaded, no optimizer has stepped a table that has a gradient, a number is not
                finite or does not fit the task (the message names the tensor, the value and the largest), or
                `examples` is missing or too much. Nothing is lost: change it, or abstain (`client.abstain()`).
        """
        if not self._before:
            raise MisuseError("nothing is loaded: call `load` before training")
        after = self._numbers()
        made: Update = {name: self._table_change(name, after) for name in self.tables}
        for layout in self._flat:
            before = layout.pack({tensor.name: self._before[tensor.name] for tensor in layout.tensors})
            made[layout.block.name] = changes(layout, before, layout.pack(after))
        update = self.mapping.weighted(made, examples)
        self.fits(update)
        return update

    def fits(self, update: Update) -> dict[str, Fit]:
        """By tensor, how an update fits the task's ring: its largest value, the largest that fits, what is rounded.

        Raises:
            MisuseError: a value does not fit; the message names its tensor, its index and the largest.
        """
        return self.mapping.fits(update, self.task)

    def _rows(self, name: str, ids: Ids, most_frequent: bool) -> npt.NDArray[np.int64]:
        tables = self._held(name)
        flat = _flat(name, ids)
        if len({table.padding_idx for table in tables}) == 1:  # else it is a row like any other, for one of them
            flat = flat[flat != tables[0].padding_idx]
        picked = frequent_rows(flat, self.task.block(name))
        if len(picked.deferred) and not most_frequent:
            raise MisuseError(
                f"table {name!r}: the batches have {len(picked.rows) + len(picked.deferred):,} distinct rows, and a "
                f"client selects {picked.block.select:,} in a round: train on fewer batches in this round, take the "
                "rows that occur most often (most_frequent=True), or agree on a task with a larger select"
            )
        return picked.rows

    def _held(self, name: str) -> tuple[HeldTable, ...]:
        if name not in self.tables:
            raise MisuseError(f"the model has no table {name!r}; it has {list(self.tables)}")
        return self.tables[name]

    def _load_table(
        self, name: str, wanted: Any, retrieved: Mapping[str, Any], deferred: npt.ArrayLike
    ) -> dict[str, float]:
        """The rows that were wanted and came; none where none were wanted."""
        tensors = [tensor.name for tensor in self._tables[name].tensors]
        tables = dict(zip(tensors, self._held(name), strict=True))
        if wanted is None:
            return {tensor: table.load([], np.empty((0, table.embedding_dim))) for tensor, table in tables.items()}
        rows = np.arange(self._tables[name].block.rows) if wanted is ... else np.asarray(wanted)
        values = self.mapping.unpack(name, retrieved[name])
        if len(values[tensors[0]]) != len(rows):
            raise MisuseError(
                f"table {name!r}: {len(rows)} rows were wanted, and {len(values[tensors[0]])} were retrieved"
            )
        came = ~np.isin(rows, np.asarray(deferred, dtype=np.int64))
        return {tensor: table.load(rows[came], values[tensor][came]) for tensor, table in tables.items()}

    def _table_change(self, name: str, after: Mapping[str, npt.NDArray[Any]]) -> Any:
        layout = self._tables[name]
        change = {each.name: after[each.name].astype(np.float64) - self._before[each.name] for each in layout.tensors}
        for tensor, table in zip(layout.tensors, self.tables[name], strict=True):
            if not change[tensor.name].any():
                self._refuse_untrained(table, tensor.name)
        beside = layout.beside(change)
        touched = beside.any(axis=1)
        return self.tables[name][0].rows[touched], beside[touched]

    def _refuse_untrained(self, table: HeldTable, tensor: str) -> None:
        """Refuse a table that nobody trains though a gradient has reached it."""
        gradient = table.weight.grad
        if gradient is not None and to_numpy(tensor, gradient).any() and not was_stepped(table.weight):
            raise MisuseError(
                f"tensor {tensor!r} has a gradient, and no optimizer has changed a row of it: make the optimizer from "
                "the model's parameters after `hold` and `load`. If the table is not to be trained, say so with "
                "`requires_grad_(False)`; if nothing is to change in this round, abstain (`client.abstain()`)"
            )

    def _restore_local(self) -> None:
        """Give tensors that stay with this client their numbers of the last `load`, where a round has spoilt them."""
        for name, tensor in self._local_tensors().items():
            if not tensor.isfinite().all():
                if name not in self._local:
                    raise MisuseError(f"tensor {name!r}, which stays with this client, has numbers that are not finite")
                with torch.no_grad():
                    tensor.copy_(self._local[name])

    def _local_tensors(self) -> dict[str, torch.Tensor]:
        state = self._model.state_dict()
        return {name: state[name] for name in self.mapping.local if state[name].is_floating_point()}

    def _numbers(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of all tensors' numbers; of a table's, those of the rows that were loaded.

        Raises:
            MisuseError: one is not finite; the message names its tensor, and says so if it is from its gradient.
        """
        tensors = checked_tensors(self._model, self.mapping)
        tables = {
            tensor.name: table
            for block, held in self.tables.items()
            for tensor, table in zip(self._tables[block].tensors, held, strict=True)
        }
        loaded = {name: tables[name].values() if name in tables else tensor for name, tensor in tensors.items()}
        arrays = arrays_of(loaded, self.mapping)
        for name, array in arrays.items():
            _refuse_infinite(name, array, tensors[name], tables[name].rows if name in tables else None)
        return {name: np.array(array) for name, array in arrays.items()}


def hold(model: nn.Module, mapping: StateMapping, task: Task) -> Submodel:
    """Put tables that hold retrieved rows in the place of a model's own.

        mapping = map_model(Classifier(), [Table("words.weight", select=418, block="items")])
        ...
        model = Classifier()
        submodel = hold(model, mapping, client.task)

    Args:
        model: changed in place: each `nn.Embedding` and `nn.EmbeddingBag` whose weight is a table of the mapping
            becomes a `HeldEmbedding` or a `HeldEmbeddingBag` without rows. One that it was built with stays.
        mapping: of its tensors; see `map_model`.
        task: what is learnt.

    Raises:
        MisuseError: a module or a tensor cannot be held or shared, or is not what the mapping or the task says; the
            message names it. The model is then as it was.
    """
    mapping.check(task)
    names = table_names(mapping)
    modules = tables_named(model, names)
    checked_tensors(model, mapping)
    held = {module: held_in_place_of(name, module, names[name]) for name, module in modules.items()}
    for name, module in modules.items():
        held[module].table = names[name]
    replace(model, held)
    for module, table in held.items():
        if module is not table:
            note_replaced(module.weight, table.table)
    return Submodel(model, mapping, task)


def _flat(name: str, ids: Any) -> npt.NDArray[np.int64]:
    """All ids in one dimension."""
    several = [ids] if isinstance(ids, torch.Tensor | np.ndarray) else list(ids)
    if any(isinstance(each, tuple | list) and any(isinstance(one, torch.Tensor) for one in each) for each in several):
        raise MisuseError(f"table {name!r}: tensors of ids expected, got batches; leave the labels out of them")
    arrays = [np.asarray(each.detach().cpu() if isinstance(each, torch.Tensor) else each) for each in several]
    wrong = [array.dtype for array in arrays if array.size and array.dtype.kind not in "iu"]
    if wrong:
        raise MisuseError(f"table {name!r}: integer ids expected, got {wrong[0]}")
    return np.concatenate([np.empty(0, np.int64), *(array.reshape(-1).astype(np.int64) for array in arrays)])


def _refuse_infinite(
    name: str, array: npt.NDArray[Any], tensor: torch.Tensor, rows: npt.NDArray[np.int64] | None
) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if not len(bad):
        return
    place = bad[0].tolist()
    value = array[tuple(place)]
    if rows is not None:
        place[0] = int(rows[place[0]])
    gradient = tensor.grad
    nor = ", nor is its gradient" if gradient is not None and not np.isfinite(to_numpy(name, gradient)).all() else ""
    raise MisuseError(
        f"tensor {name!r} at {place}: {value} is not a finite number{nor}. "
        "Nothing was submitted: look at the batches and the learning rate, and abstain (`client.abstain()`)"
    )
