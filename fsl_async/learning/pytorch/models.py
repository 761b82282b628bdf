"""A model's tensors in the blocks of a task, and back: `StateMapping` for the tensors of PyTorch.

Rules: numbers are taken over as they are; where a dtype rounds, the largest error is reported by the tensor's name.

Which tensors go into blocks: every tensor of the model's state_dict goes into a block, unless the user says by name
that it stays here; one that cannot is refused by its name. A tensor with several names goes there once.

A model's own tables are taken out, and held ones put in their place: what can be carried over is (sizes, padding,
norms, dtype, device, whether it is frozen); what cannot is refused by the module's name, before anything has been
changed. The weights of the whole table go: they come back row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Arrays, TableLayout
from fsl_async.learning.matching import check_names
from fsl_async.learning.parts import Part, Table, local_names
from fsl_async.learning.pytorch.held import HeldEmbedding, HeldEmbeddingBag, HeldTable
from fsl_async.learning.pytorch.tensors import ARRAYS, check_device, copy_into, to_numpy
from fsl_async.learning.state_mapping import StateMapping


def shared_tensors(model: nn.Module, tables: Collection[str], local: Collection[str]) -> dict[str, torch.Tensor]:
    """The tensors that go into blocks, by name, in the order of the state_dict.

    Args:
        model: the user's.
        tables: the names of the tables' weights; of several names of one tensor, such a one is taken.
        local: the names of those that stay here.

    Raises:
        MisuseError: a tensor cannot be learnt, is tied to a table's weight, or overlaps another one.
    """
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    modules = _modules_by_weight(model)
    names: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name not in tables):
        if name in local:
            continue
        _check(name, state[name])
        first = names.setdefault(id(state[name]), name)
        if first in tables and modules.get(name) is not modules.get(first):
            raise _tied(first, name)
    shared = {name: state[name] for name in state if names.get(id(state[name])) == name}
    _check_overlaps(shared, tables)
    return shared


def _modules_by_weight(model: nn.Module) -> dict[str, nn.Module]:
    """By the name of its weight, every module; one that is used in two places has two names."""
    return {f"{path}.weight": module for path, module in model.named_modules(remove_duplicate=False)}


def _check(name: str, tensor: Any) -> None:
    stays = f"keep it with each client: local=[{name!r}]"
    if not isinstance(tensor, torch.Tensor):
        raise MisuseError(f"{name!r} in the model's state is a {type(tensor).__name__} and no tensor; {stays}")
    if isinstance(tensor, UninitializedTensorMixin):
        raise MisuseError(f"tensor {name!r} has no shape yet; run the model on one batch first")
    if tensor.dtype not in ARRAYS:
        raise MisuseError(f"tensor {name!r} is of {tensor.dtype}, and sums are of floats; {stays}")
    if tensor.layout != torch.strided:
        raise MisuseError(f"tensor {name!r} is sparse ({tensor.layout}); make it dense, or {stays}")
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise MisuseError(f"tensor {name!r} is expanded: several of its elements are one number; make it contiguous")


def _tied(weight: str, other: str) -> MisuseError:
    return MisuseError(
        f"tensors {weight!r} and {other!r} are tied: {other!r} needs all rows, of which a held table has some. Untie "
        "them, or make no table of it: it is then shared whole"
    )


def _check_overlaps(shared: Mapping[str, torch.Tensor], tables: Collection[str]) -> None:
    """Refuse two tensors that have a part of their memory in common: one update would count twice."""
    ends: dict[int, tuple[int, str]] = {}
    with_memory = [name for name, tensor in shared.items() if tensor.numel() and not tensor.is_meta]
    for name in sorted(with_memory, key=lambda name: shared[name].data_ptr()):
        tensor = shared[name]
        storage = tensor.untyped_storage().data_ptr()
        end, other = ends.get(storage, (0, ""))
        if tensor.data_ptr() < end:
            first, second = sorted((name, other), key=lambda each: (each not in tables, each))
            if first in tables:
                raise _tied(first, second)
            raise MisuseError(f"tensors {first!r} and {second!r} share a part of their memory; give each its own")
        ends[storage] = max((end, other), (tensor.data_ptr() + _extent(tensor), name))


def _extent(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first number to the end of its last."""
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return int(tensor.element_size() * (reach + 1))


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def tables_named(model: nn.Module, tensors: Collection[str]) -> dict[str, nn.Module]:
    """The modules whose weights are named, by those names.

    Raises:
        MisuseError: one is no table of the model that can be held; the message lists those that can.
    """
    modules = _modules_by_weight(model)
    tables = [name for name, module in modules.items() if _is_table(module)]
    for name in tensors:
        if name not in tables:
            there = f"is the weight of a {type(modules[name]).__name__}" if name in modules else "is not in the model"
            raise MisuseError(
                f"tensor {name!r} {there}; tables are the weights of nn.Embedding and nn.EmbeddingBag themselves, here "
                f"{tables}"
            )
    return {name: modules[name] for name in tensors}


def held_in_place_of(name: str, module: nn.Module, block: str) -> HeldTable:
    """A held table without rows that does what a module does; one that is held already, itself.

    Raises:
        MisuseError: the module has hooks.
    """
    if isinstance(module, HeldTable):
        return module
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise MisuseError(f"the module of tensor {name!r} has hooks, which would be lost; register them afterwards")
    options = {
        "padding_idx": module.padding_idx,
        "max_norm": module.max_norm,
        "norm_type": module.norm_type,
        "scale_grad_by_freq": module.scale_grad_by_freq,
        "sparse": module.sparse,
        "table": block,
        "dtype": module.weight.dtype,
        "device": module.weight.device,
    }
    if isinstance(module, nn.EmbeddingBag):
        options |= {"mode": module.mode, "include_last_offset": module.include_last_offset}
    kind = HeldEmbeddingBag if isinstance(module, nn.EmbeddingBag) else HeldEmbedding
    held: HeldTable = kind(module.num_embeddings, module.embedding_dim, **options)
    held.weight.requires_grad_(module.weight.requires_grad)
    return held.train(module.training)


def replace(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> None:
    """Put modules in the place of others, wherever the model uses them."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in replacements:
                setattr(parent, name, replacements[child])


def _is_table(module: nn.Module) -> bool:
    return isinstance(module, HeldTable) or type(module) in (nn.Embedding, nn.EmbeddingBag)


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
    stays = local_names(model.state_dict(), local)
    shared = shared_tensors(model, [name for part in parts if isinstance(part, Table) for name in part.tensors], stays)
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
    tables = [layout for layout in mapping.layouts if isinstance(layout, TableLayout)]
    return {tensor.name: layout.block.name for layout in tables for tensor in layout.tensors}


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
    held = {name: table for name, table in _modules_by_weight(model).items() if isinstance(table, HeldTable)}
    return {name: (table.num_embeddings, table.embedding_dim) for name, table in held.items()}
