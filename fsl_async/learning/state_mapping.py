"""Tensors of a model on one side, blocks of a task on the other.

Rules: nothing is reshaped, converted or left out silently: what does not match is refused by the tensor's name. What
went into a model comes out bit for bit. Changes are taken in float64, so that the ring's rounding is the only one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Arrays, Layout, TableLayout, Tensor, as_array
from fsl_async.learning.matching import check_block, check_named, check_names, shortened
from fsl_async.learning.parts import Part, layouts_of, local_names
from fsl_async.learning.updates import Fit, Update, changes, fits_of, refuse_misfit, weighted
from fsl_async.task import Block, Dense, Task


@dataclass(frozen=True)
class StateMapping:
    """Which tensors of a model are in which block of a task, and where.

        state = {"embedding.weight": np.zeros((1000, 8), np.float32), "head.bias": np.zeros(3, np.float32)}
        mapping = StateMapping.of(state, [Table("embedding.weight", select=50)])
        mapping.blocks                                 # Sparse("embedding.weight", …) and Dense("rest", size=3)
        servers = mapping.model(state)                 # what both servers start from
        mapping.state(servers)                         # the state again, bit for bit
        mapping.update(state, mapping.state(servers))  # what `submit` takes

    Tensors that share a block lie in the order of their names. So mappings of equal tensors are equal, whatever order a
    dictionary or a file has; `digest` lets two parties compare theirs.

    Attributes:
        layouts: how each block is laid out; made by `of`.
        local: the names of tensors that stay with each client.
        examples: the block in which a client counts its examples, if there is one.
    """

    layouts: tuple[Layout, ...]
    local: tuple[str, ...] = ()
    examples: str | None = None

    @staticmethod
    def of(
        state: Arrays,
        parts: Iterable[Part] = (),
        *,
        rest: str = "rest",
        local: Collection[str] = (),
        examples: str | None = None,
    ) -> StateMapping:
        """Map the tensors of a state.

        Args:
            state: by name, NumPy arrays; of those in `parts` and the rest, only shapes and dtypes matter.
            parts: what becomes a sparse block each.
            rest: the name of the dense block that holds all other tensors.
            local: tensors that stay with each client, such as counters: names, and patterns as of `fnmatch`
                ("*.num_batches_tracked").
            examples: the name of one more dense block, of size 1, for a task with `apply="weighted-mean"` and
                `weights=examples`. It comes last.

        Raises:
            MisuseError: a tensor is named twice, or missing, or of a dtype that cannot be learnt; or a block cannot be
                made of it.
        """
        kept = local_names(state, local)
        return _checked(StateMapping(layouts_of(state, parts, rest, kept), kept, examples))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the task."""
        counted = (Dense(self.examples, size=1),) if self.examples is not None else ()
        return (*(layout.block for layout in self.layouts), *counted)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The names of all tensors in blocks, block by block."""
        return tuple(tensor.name for layout in self.layouts for tensor in layout.tensors)

    def block(self, tensor: str) -> Block:
        """The block that holds a tensor.

        Raises:
            MisuseError: none does.
        """
        for layout in self.layouts:
            if any(each.name == tensor for each in layout.tensors):
                return layout.block
        stays = "stays with each client" if tensor in self.local else "is in no block of the mapping"
        raise MisuseError(f"tensor {tensor!r} {stays}; those in blocks are {shortened(self.tensors)}")

    def digest(self) -> str:
        """Hexadecimal; equal for mappings that lay equal tensors in equal blocks.

        A task's digest says less: not which weights of a dense block are which tensor's.
        """
        lines = [
            repr((layout.block, [(tensor.name, tensor.shape, tensor.dtype.str) for tensor in layout.tensors]))
            for layout in sorted(self.layouts, key=lambda layout: layout.block.name)
        ]
        return digest(Domain.LAYOUT, *(line.encode() for line in lines), repr(self.examples).encode()).hex()

    def check(self, task: Task) -> None:
        """Check that a task has these blocks.

        Raises:
            MisuseError: it has not; the message names the first tensor whose block differs, and both values.
        """
        theirs = {block.name: block for block in task.blocks}
        for block in self.blocks:
            if block.name not in theirs:
                raise MisuseError(f"{self._where(block)}: task {task.name!r} has no such block, only {list(theirs)}")
            check_block(task.name, theirs.pop(block.name), block, self._where(block))
        if task.weights != self.examples:
            raise MisuseError(
                f"task {task.name!r} has weights={task.weights!r}, and the mapping was made with "
                f"examples={self.examples!r}"
            )
        for name in theirs:
            raise MisuseError(f"task {task.name!r} has a block {name!r}, in which the mapping has no tensor")

    def model(self, state: Arrays) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a state's blocks: what servers start from.

        Raises:
            MisuseError: a tensor is missing, unknown, or of another shape or dtype.
        """
        checked = self._checked(state)
        return {layout.block.name: layout.pack(checked) for layout in self.layouts}

    def state(self, model: Arrays, local: Arrays | None = None) -> dict[str, npt.NDArray[Any]]:
        """The tensors of a model, as `model` was given them.

        Args:
            model: by block, an array, as servers save it and `retrieve` with `...` returns it.
            local: a state from which the local tensors are taken; None leaves them out.

        Raises:
            MisuseError: a block or a local tensor is missing, or of another shape or dtype.
        """
        check_named(model, "a model")
        found: dict[str, npt.NDArray[Any]] = {}
        for layout in self.layouts:
            if layout.block.name not in model:
                raise MisuseError(f"{self._where(layout.block)} is missing; there are {shortened(list(model))}")
            if np.shape(model[layout.block.name]) != layout.block.shape:
                raise MisuseError(
                    f"{self._where(layout.block)} has shape {np.shape(model[layout.block.name])}, and in the mapping "
                    f"{layout.block.shape}"
                )
            found |= self.unpack(layout.block.name, model[layout.block.name])
        if local is None:
            return found
        for name in self.local:
            if name not in local:
                raise MisuseError(f"tensor {name!r} is kept with each client, and is missing in the local state")
            found[name] = local[name]
        return found

    def pack(self, block: str, tensors: Arrays) -> npt.NDArray[Any]:
        """The array of one block. A table's tensors may have fewer rows, such as those that a client holds.

        Raises:
            MisuseError: a tensor is missing, unknown, or of another shape or dtype.
        """
        layout = self._layout(block)
        names = [tensor.name for tensor in layout.tensors]
        check_names(names, tensors)
        if isinstance(layout, TableLayout):
            rows = as_array(names[0], tensors[names[0]]).shape[:1] or layout.block.shape[:1]
            held = [Tensor(each.name, rows + each.shape[1:], each.dtype) for each in layout.tensors]
            return layout.pack({tensor.name: tensor.check(tensors[tensor.name]) for tensor in held})
        return layout.pack({tensor.name: tensor.check(tensors[tensor.name]) for tensor in layout.tensors})

    def unpack(self, block: str, array: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """The tensors of one block. A table's array may have fewer rows, such as those that were retrieved.

        Raises:
            MisuseError: there is no such block, or the array is not its.
        """
        layout = self._layout(block)
        array = np.asarray(array)
        if array.dtype != layout.dtype:
            raise MisuseError(f"{self._where(layout.block)} is of {array.dtype}, and in the mapping of {layout.dtype}")
        if array.shape[1:] != layout.block.shape[1:] or array.ndim != len(layout.block.shape):
            raise MisuseError(
                f"{self._where(layout.block)} has shape {array.shape}, and in the mapping {layout.block.shape}"
            )
        return layout.unpack(array)

    def update(self, before: Arrays, after: Arrays, examples: float | None = None) -> Update:
        """What training changed, as `submit` takes it.

        Args:
            before: the state before.
            after: the same tensors after.
            examples: how many this client trained on, where the mapping counts them: all else is multiplied by it.

        Returns:
            By sparse block, the rows that changed, which may be more than `select` (see `ErrorFeedback`), and their
            changes, float64 (int64 of integers) of shape (rows, width); by dense block, all changes.

        Raises:
            MisuseError: a tensor is missing, unknown, or of another shape or dtype, or a change is not a finite number;
                or examples are counted and not given, or the other way round.
        """
        first, second = self._checked(before), self._checked(after)
        made: Update = {}
        for layout in self.layouts:
            made[layout.block.name] = changes(layout, layout.pack(first), layout.pack(second))
        return self.weighted(made, examples)

    def weighted(self, update: Update, examples: float | None) -> Update:
        """An update for the sum of a weighted mean: everything times the number of examples, and that number.

        Args:
            update: by block, as `update` returns it.
            examples: how many; None where the mapping counts none, and then nothing changes.

        Raises:
            MisuseError: examples are counted and not given, or the other way round; or it is no number of at least 0.
        """
        if (examples is None) != (self.examples is None):
            told = "give examples=" if examples is None else "it has no block for them: StateMapping.of(…, examples=)"
            raise MisuseError(f"the mapping counts {'' if examples is None else 'no '}examples: {told}")
        if self.examples is None or examples is None:
            return update
        is_number = isinstance(examples, int | float | np.integer | np.floating) and not isinstance(examples, bool)
        if not is_number or not 0 <= examples < math.inf:
            raise MisuseError(f"examples: a number of at least 0 expected, got {examples!r}")
        return weighted(update, float(examples)) | {self.examples: np.array([examples], dtype=np.float64)}

    def fits(self, update: Update, task: Task) -> dict[str, Fit]:
        """Whether an update fits the task's ring, tensor by tensor, before anything is sent.

        Args:
            update: as `submit` takes it.
            task: whose ring and largest value count.

        Returns:
            By tensor, its largest absolute value, the largest that fits, and the largest error of rounding. Tensors of
            blocks that the update leaves out are not in it.

        Raises:
            MisuseError: a value does not fit, or is not a finite number; the message names its tensor, its index and
                the largest that fits. Or the task has other blocks.
        """
        self.check(task)
        check_named(update, "an update")
        found: dict[str, Fit] = {}
        for name, given in update.items():
            if name == self.examples:
                array = np.asarray(given)
                refuse_misfit(task, array, lambda index: f"block {self.examples!r} at [{index}]")
                continue
            layout = self._layout(name)
            found |= fits_of(layout, given, task)
        return found

    def _layout(self, block: str) -> Layout:
        for layout in self.layouts:
            if layout.block.name == block:
                return layout
        raise MisuseError(f"the mapping has no tensors in block {block!r}; it has {[b.name for b in self.blocks]}")

    def _where(self, block: Block) -> str:
        """A block and whose it is, for messages."""
        if block.name == self.examples:
            return f"block {block.name!r} (numbers of examples)"
        tensors = self._layout(block.name).tensors
        if len(tensors) == 1:
            return f"tensor {tensors[0].name!r} (block {block.name!r})"
        return f"block {block.name!r} (tensors {shortened([tensor.name for tensor in tensors])})"

    def _checked(self, state: Arrays) -> dict[str, npt.NDArray[Any]]:
        check_named(state, "a state")
        check_names(self.tensors, [name for name in state if name not in self.local])
        return {tensor.name: tensor.check(state[tensor.name]) for layout in self.layouts for tensor in layout.tensors}


def _checked(mapping: StateMapping) -> StateMapping:
    """What concerns several blocks."""
    if not mapping.layouts:
        raise MisuseError("the state has no tensor that is not local: there is nothing to learn")
    holds = [(layout.block.name, shortened([tensor.name for tensor in layout.tensors])) for layout in mapping.layouts]
    counted = [(block.name, "the numbers of examples") for block in mapping.blocks[len(mapping.layouts) :]]
    seen: dict[str, str] = {}
    for name, held in [*holds, *counted]:
        if name in seen:
            raise MisuseError(
                f"two blocks are called {name!r}: one holds {seen[name]}, the other {held}; give them two names"
            )
        seen[name] = held
    integers = [layout for layout in mapping.layouts if layout.dtype.kind != "f"]
    if mapping.examples is not None and integers:
        raise MisuseError(
            f"tensor {integers[0].tensors[0].name!r} is of {integers[0].tensors[0].dtype}, and a mean weighted by "
            "examples gives fractions: keep it with each client (local=), or make it one of floats"
        )
    return mapping
