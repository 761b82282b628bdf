"""How tensors lie in the blocks of a task: side by side as the rows of a table, or end to end.

Rules: a block is a function of its tensors' names, shapes and dtypes alone; tensors that share a block lie in the order
of their names, whatever order a dictionary or a file has; what is packed comes back bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.config import MODEL_DTYPES
from fsl_async.errors import MisuseError
from fsl_async.task import Block, Sparse

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Tensor:
    """A tensor's name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many weights it holds."""
        return math.prod(self.shape)

    def check(self, array: object) -> npt.NDArray[Any]:
        """An array that is this tensor.

        Raises:
            MisuseError: it is no array, or its shape or dtype is another.
        """
        array = as_array(self.name, array)
        if array.shape != self.shape:
            raise MisuseError(f"tensor {self.name!r} has shape {array.shape}, and the mapping has {self.shape}")
        if array.dtype != self.dtype:
            raise MisuseError(f"tensor {self.name!r} is of {array.dtype}, and in the mapping of {self.dtype}")
        return array


@dataclass(frozen=True)
class TableLayout:
    """Tensors side by side, in the order of their names; their first axes are the rows of a sparse block.

    Attributes:
        block: of the task.
        tensors: in order, all with as many rows as the block.
        dtype: of the block's array; it holds every tensor's numbers exactly.
    """

    block: Sparse
    tensors: tuple[Tensor, ...]
    dtype: np.dtype[Any]

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where each tensor's weights end in a row of the block."""
        return np.cumsum([math.prod(tensor.shape[1:]) for tensor in self.tensors], dtype=np.int64)

    def pack(self, arrays: Arrays) -> npt.NDArray[Any]:
        """The block's array, in memory of its own, of these or fewer rows."""
        return self.beside(arrays).astype(self.dtype, copy=False)

    def beside(self, arrays: Arrays) -> npt.NDArray[Any]:
        """One array of all tensors' arrays, whose numbers may be of any dtype: (rows, width)."""
        columns = [arrays[tensor.name] for tensor in self.tensors]
        return np.concatenate([array.reshape(len(array), math.prod(array.shape[1:])) for array in columns], axis=1)

    def unpack(self, array: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """The tensors, of as many rows as the array has."""
        columns = np.split(array, self.ends[:-1], axis=1)
        return {
            tensor.name: part.reshape(len(array), *tensor.shape[1:]).astype(tensor.dtype)
            for tensor, part in zip(self.tensors, columns, strict=True)
        }

    def owners(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """By position in the flat block, the number of the tensor there."""
        return np.searchsorted(self.ends, positions % self.block.width, side="right")

    def place(self, position: int) -> tuple[Tensor, list[int]]:
        """The tensor and the index in it, of a position in the flat block."""
        row, column = divmod(position, self.block.width)
        number = int(np.searchsorted(self.ends, column, side="right"))
        shape = self.tensors[number].shape[1:]
        within = column - (int(self.ends[number]) - math.prod(shape))
        return self.tensors[number], [row, *(int(index) for index in np.unravel_index(within, shape))]


@dataclass(frozen=True)
class FlatLayout:
    """Tensors end to end, in the order of their names; in a sparse block, in rows, and zeros fill the last.

    Attributes:
        block: of the task.
        tensors: in order.
        dtype: of the block's array; it holds every tensor's numbers exactly.
    """

    block: Block
    tensors: tuple[Tensor, ...]
    dtype: np.dtype[Any]

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Where each tensor ends in the flat block."""
        return np.cumsum([tensor.size for tensor in self.tensors], dtype=np.int64)

    def pack(self, arrays: Arrays) -> npt.NDArray[Any]:
        """The block's array."""
        flat = np.zeros(self.block.weights, dtype=self.dtype)
        for tensor, end in zip(self.tensors, self.ends.tolist(), strict=True):
            flat[end - tensor.size : end] = arrays[tensor.name].reshape(-1)
        return flat.reshape(self.block.shape)

    def unpack(self, array: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """The tensors; the block must be whole."""
        if array.shape != self.block.shape:
            raise MisuseError(
                f"block {self.block.name!r} holds {len(self.tensors)} tensors in {self.block.shape}, and all of it is "
                f"needed to take them out; got {array.shape}"
            )
        flat = array.reshape(-1)
        return {
            tensor.name: flat[end - tensor.size : end].reshape(tensor.shape).astype(tensor.dtype)
            for tensor, end in zip(self.tensors, self.ends.tolist(), strict=True)
        }

    def owners(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """By position in the flat block, the number of the tensor there; one more than the last where zeros fill."""
        return np.searchsorted(self.ends, positions, side="right")

    def place(self, position: int) -> tuple[Tensor, list[int]]:
        """The tensor and the index in it, of a position in the flat block; zeros that fill it are a tensor, too."""
        number = int(self.owners(np.array([position]))[0])
        if number == len(self.tensors):
            return Tensor(f"{self.block.name} (filling)", (self.block.weights,), self.dtype), [position]
        tensor = self.tensors[number]
        within = position - (int(self.ends[number]) - tensor.size)
        return tensor, [int(index) for index in np.unravel_index(within, tensor.shape)]


Layout: TypeAlias = TableLayout | FlatLayout
"""Of one block."""


def as_array(name: str, value: object) -> npt.NDArray[Any]:
    """A tensor's array.

    Raises:
        MisuseError: it is none.
    """
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise MisuseError(
            f"tensor {name!r}: a plain NumPy array expected, got {type(value).__name__} (PyTorch's tensors: see "
            "fsl_async.learning.pytorch)"
        )
    return value


def common_dtype(block: str, tensors: tuple[Tensor, ...]) -> np.dtype[Any]:
    """The smallest dtype that holds the numbers of all of a block's tensors exactly, as servers store it.

    Raises:
        MisuseError: there is none.
    """
    for tensor in tensors:
        if tensor.dtype.newbyteorder("=").str[1:] not in MODEL_DTYPES:
            raise MisuseError(
                f"tensor {tensor.name!r} is of {tensor.dtype}, and a task learns floats and integers of up to 64 bits: "
                f"convert it, or keep it with each client: local=[{tensor.name!r}]"
            )
    floats = [tensor for tensor in tensors if tensor.dtype.kind == "f"]
    integers = [tensor for tensor in tensors if tensor.dtype.kind != "f"]
    if floats and integers:
        raise MisuseError(
            f"tensor {integers[0].name!r} is of {integers[0].dtype}, among floats in block {block!r}, where an average "
            f"would give it a fraction: keep it with each client: local=[{integers[0].name!r}], or a pattern that is "
            "like it"
        )
    dtype = np.result_type(*(tensor.dtype for tensor in tensors)).newbyteorder("<")
    if integers and dtype.kind == "f":
        raise MisuseError(
            f"block {block!r}: no dtype holds {tensors[0].dtype} and the integers of the others; make "
            f"{tensors[0].name!r} a table of its own, or keep it with each client: local=[{tensors[0].name!r}]"
        )
    return dtype
