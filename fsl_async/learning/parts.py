"""What a user says about the tensors of a model, and the layouts of blocks that follow from it.

Rules: a tensor is in one block, or stays with each client; one that is named twice, or is not there, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias, assert_never

from fsl_async.blocks import LARGEST_WIDTH
from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Arrays, FlatLayout, Layout, TableLayout, Tensor, as_array, common_dtype
from fsl_async.learning.matching import check_named, shortened
from fsl_async.task import Dense, Sparse


@dataclass(frozen=True)
class Table:
    """A tensor whose rows a client touches a few of: an embedding, say. It becomes a sparse block.

    Several tensors with the same ids are one table, so that a row is selected once for all of them:

        Table(["items.weight", "biases.weight"], select=50, block="items")

    Args:
        tensor: its name, or the names of several, whose rows lie side by side in the order of their names.
        select: how many rows a client selects.
        block: the block's name; by default the tensor's. Several tensors need one.
        stash: as of `Sparse`.
    """

    tensor: str | list[str] | tuple[str, ...]
    select: int
    block: str | None = None
    stash: int = 0

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(self.tensor) if isinstance(self.tensor, list | tuple) else (self.tensor,)


@dataclass(frozen=True)
class MegaElements:
    """Any tensors, laid end to end in rows of a few weights that are selected together. They become one sparse block.

    Args:
        block: the block's name.
        width: the weights of a row; 1 selects single weights.
        select: how many rows a client selects.
        tensors: which; None: all that nothing else takes.
        stash: as of `Sparse`.
    """

    block: str
    width: int
    select: int
    tensors: Sequence[str] | None = None
    stash: int = 0


Part: TypeAlias = Table | MegaElements
"""What becomes a sparse block."""


def local_names(state: Arrays, local: Collection[str]) -> tuple[str, ...]:
    """The tensors that stay with each client, from names and patterns; see `StateMapping.of`."""
    check_named(state, "a state")
    if isinstance(local, str):
        raise MisuseError(f"local is a list of tensors' names, got the text {local!r}")
    found: set[str] = set()
    for pattern in local:
        names = {pattern} if pattern in state else {name for name in state if fnmatchcase(name, pattern)}
        if not names:
            raise MisuseError(f"local: the state has no tensor {pattern!r}; it has {shortened(list(state))}")
        found |= names
    return tuple(sorted(found))


def layouts_of(state: Arrays, parts: Iterable[Part], rest: str, local: Collection[str]) -> tuple[Layout, ...]:
    """How the tensors of a state that are not local lie in blocks; see `StateMapping.of`."""
    chosen = list(parts) if isinstance(parts, Iterable) else [parts]
    for part in chosen:
        if not isinstance(part, Table | MegaElements):
            raise MisuseError(f"a list of Table and MegaElements expected, got {part!r}")
    left = {name: _tensor(name, value) for name, value in state.items() if name not in local}
    layouts = [_layout(part, left, state) for part in sorted(chosen, key=_takes_what_is_left)]
    if left:
        layouts.append(_flat(Dense(rest, size=sum(tensor.size for tensor in left.values())), list(left.values())))
    return tuple(layouts)


def _takes_what_is_left(part: Part) -> bool:
    return isinstance(part, MegaElements) and part.tensors is None


def _tensor(name: str, value: object) -> Tensor:
    array = as_array(name, value)
    return Tensor(name, array.shape, array.dtype)


def _take(left: dict[str, Tensor], state: Arrays, name: str, what: str) -> Tensor:
    if name in left:
        return left.pop(name)
    if name in state:
        raise MisuseError(f"{what}: tensor {name!r} is named twice; a tensor is in one block, or local")
    raise MisuseError(f"{what}: the state has no tensor {name!r}; it has {shortened(list(state))}")


def _layout(part: Part, left: dict[str, Tensor], state: Arrays) -> Layout:
    match part:
        case Table():
            return _table(part, [_take(left, state, name, f"Table({part.tensor!r})") for name in part.tensors])
        case MegaElements():
            if isinstance(part.tensors, str):
                raise MisuseError(f"MegaElements({part.block!r}): tensors is a list of names, got {part.tensors!r}")
            names = sorted(left) if part.tensors is None else part.tensors
            return _mega(part, [_take(left, state, name, f"MegaElements({part.block!r})") for name in names])
        case _:
            assert_never(part)


def _table(part: Table, tensors: list[Tensor]) -> TableLayout:
    what = f"Table({part.tensor!r})"
    if not tensors:
        raise MisuseError(f"{what}: the name of a tensor expected, or of several")
    for tensor in tensors:
        width = math.prod(tensor.shape[1:])
        if not tensor.shape or not 1 <= width <= LARGEST_WIDTH:
            raise MisuseError(
                f"{what}: a tensor with rows of 1 to {LARGEST_WIDTH:,} weights expected, not one of shape "
                f"{tensor.shape}"
            )
        if tensor.shape[0] != tensors[0].shape[0]:
            raise MisuseError(
                f"{what}: {tensors[0].name!r} has {tensors[0].shape[0]:,} rows and {tensor.name!r} has "
                f"{tensor.shape[0]:,}; tensors of one table have the same ids"
            )
    ordered = tuple(sorted(tensors, key=lambda tensor: tensor.name))
    width = sum(math.prod(tensor.shape[1:]) for tensor in ordered)
    if width > LARGEST_WIDTH:
        raise MisuseError(f"{what}: rows of {width:,} weights in all; a block's have at most {LARGEST_WIDTH:,}")
    name = _block_name(part)
    block = Sparse(name, rows=ordered[0].shape[0], width=width, select=part.select, stash=part.stash)
    return TableLayout(block, ordered, common_dtype(name, ordered))


def _mega(part: MegaElements, tensors: list[Tensor]) -> FlatLayout:
    what, size = f"MegaElements({part.block!r})", sum(tensor.size for tensor in tensors)
    if not size:
        raise MisuseError(f"{what}: no tensor is left for it that has weights")
    if type(part.width) is not int or part.width < 1:
        raise MisuseError(f"{what}: width must be a whole number of at least 1, not {part.width!r}")
    rows = -(-size // part.width)
    block = Sparse(part.block, rows=rows, width=part.width, select=part.select, stash=part.stash)
    return _flat(block, tensors)


def _flat(block: Sparse | Dense, tensors: list[Tensor]) -> FlatLayout:
    ordered = tuple(sorted(tensors, key=lambda tensor: tensor.name))
    return FlatLayout(block, ordered, common_dtype(block.name, ordered))


def _block_name(part: Table) -> str:
    if part.block is not None:
        return part.block
    if len(part.tensors) > 1:
        raise MisuseError(f"Table({part.tensor!r}): several tensors are one block: give it a name with block=")
    (tensor,) = part.tensors
    if not (1 <= len(tensor) <= 64 and tensor.isprintable()):
        raise MisuseError(
            f"Table({tensor!r}): a block's name has 1 to 64 printable characters: give it one with block="
        )
    return tensor
