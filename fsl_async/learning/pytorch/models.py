"""A model's tensors in the blocks of a task, and back: `StateMapping` for the tensors of PyTorch.

Rules: numbers are taken over as they are; where a dtype rounds, the largest error is reported by the tensor's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Arrays, TableLayout
from fsl_async.learning.matching import check_names
from fsl_async.learning.parts import Part, Table
from fsl_async.learning.pytorch.held import HeldTable
from fsl_async.learning.pytorch.sharing import local_names, shared_tensors
from fsl_async.learning.pytorch.tensors import ARRAYS, check_device, copy_into, to_numpy
from fsl_async.learning.state_mapping import StateMapping


def map_model(
    model: nn.Module,
    parts: Iterable[Part] = (),
    *,
    rest: str = "rest",
    local: Collection[str] = (),
    examples: str | None = None,
) -> StateMapping:
    """Map the tensors of a model to the blocks of a task; see `StateMapping.of`.

        mapping = map_model(Classifier(), [Table("words.weight", select=418, block="items")])
        task = Task(name="words", blocks=mapping.blocks, ring=Ring(64, fraction_bits=24))

    Args:
        model: of which only names, shapes and dtypes count.
        parts: what becomes a sparse block each, by the names in the model's state_dict.
        rest: the name of the dense block that holds all other tensors.
        local: names and patterns of tensors that stay with each client: integers must, such as
            "*.num_batches_tracked" of batch normalisation.
        examples: the name of one more dense block, of size 1, in which clients count their examples.

    Raises:
        MisuseError: a tensor cannot be learnt, or is tied to a table's; the message names it.
    """
    parts = list(parts)
    stays = local_names(model, local)
    shared = shared_tensors(model, [part.tensor for part in parts if isinstance(part, Table)], stays)
    shapes = _whole_shapes(model)
    state = {
        name: np.broadcast_to(np.zeros((), ARRAYS[tensor.dtype]), shapes.get(name, tuple(tensor.shape)))
        for name, tensor in shared.items()
    }
    state |= {name: np.zeros(()) for name in stays}
    return StateMapping.of(state, parts, rest=rest, local=stays, examples=examples)


def model_blocks(model: nn.Module, mapping: StateMapping) -> dict[str, npt.NDArray[Any]]:
    """A whole model's numbers, for servers to begin with (`simulate`, `save_model`).

        servers = model_blocks(Classifier(), mapping)      # {"items": (50_000, 64), "rest": (6_146,)}

    Args:
        model: with `nn.Embedding` and `nn.EmbeddingBag` as they are, nothing held.
        mapping: of it; see `map_model`.

    Returns:
        By block, floats of memory of their own.

    Raises:
        MisuseError: the model has other tensors than the mapping; the message names the first.
    """
    return {
        name: np.array(array) for name, array in mapping.model(arrays_of(tensors_of(model, mapping), mapping)).items()
    }


def load_blocks(model: nn.Module, mapping: StateMapping, blocks: Arrays) -> dict[str, float]:
    """Take a whole model over from its blocks, to evaluate it: the reverse of `model_blocks`.

        load_blocks(model, mapping, net.model)

    Args:
        model: with `nn.Embedding` and `nn.EmbeddingBag` as they are, changed in place.
        mapping: of it; see `map_model`.
        blocks: all blocks of the task, whole.

    Returns:
        By tensor, the largest error of rounding its numbers to its dtype.

    Raises:
        MisuseError: a block is missing or of another shape, or a number is not finite.
    """
    tensors = tensors_of(model, mapping)
    state = mapping.state(blocks)
    return {name: copy_into(name, tensor, state[name]) for name, tensor in tensors.items()}


def table_names(mapping: StateMapping) -> dict[str, str]:
    """By the name of each tensor that is a table, its block."""
    return {layout.tensors[0].name: layout.block.name for layout in mapping.layouts if isinstance(layout, TableLayout)}


def tensors_of(model: nn.Module, mapping: StateMapping) -> dict[str, torch.Tensor]:
    """The tensors of a model that a mapping has in blocks.

    Raises:
        MisuseError: the model has other tensors than the mapping; the message names the first.
    """
    shared = shared_tensors(model, table_names(mapping), mapping.local)
    check_names(mapping.tensors, shared)
    return shared


def checked_tensors(model: nn.Module, mapping: StateMapping) -> dict[str, torch.Tensor]:
    """The same, of a model that is about to be trained: its tensors have numbers, and the mapping's shapes.

    Raises:
        MisuseError: one has not; the message names it.
    """
    tensors = tensors_of(model, mapping)
    shapes = _whole_shapes(model)
    for layout in mapping.layouts:
        for tensor in layout.tensors:
            check_device(tensor.name, tensors[tensor.name])
            shape = shapes.get(tensor.name, tuple(tensors[tensor.name].shape))
            if shape != tensor.shape:
                raise MisuseError(f"tensor {tensor.name!r} has shape {shape}, and the mapping has {tensor.shape}")
    return tensors


def arrays_of(tensors: Mapping[str, torch.Tensor], mapping: StateMapping) -> dict[str, npt.NDArray[Any]]:
    """The numbers of tensors, of the dtypes that the mapping has for them.

    Raises:
        MisuseError: a dtype of the mapping does not hold a tensor's numbers.
    """
    dtypes = {tensor.name: tensor.dtype for layout in mapping.layouts for tensor in layout.tensors}
    arrays = {name: to_numpy(name, tensor) for name, tensor in tensors.items()}
    for name, array in arrays.items():
        if not np.can_cast(array.dtype, dtypes[name], "safe"):
            raise MisuseError(
                f"tensor {name!r} is of {tensors[name].dtype}, and in the mapping of {dtypes[name]}, which does not "
                "hold all of its numbers; make the mapping of this model, or convert the model"
            )
    return {name: array.astype(dtypes[name], copy=False) for name, array in arrays.items()}


def _whole_shapes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """By the name of a held table's weight, the shape of the whole table."""
    modules = model.named_modules(remove_duplicate=False)
    held = {f"{path}.weight": module for path, module in modules if isinstance(module, HeldTable)}
    return {name: (table.num_embeddings, table.embedding_dim) for name, table in held.items()}
