"""The tensors of a model that go into blocks, and which of them are tied to each other.

Rules: every tensor of the model's state_dict goes into a block, unless the user says by name that it stays here; one
that cannot is refused by its name. A tensor with several names goes there once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin

from fsl_async.errors import MisuseError
from fsl_async.learning.pytorch.tensors import ARRAYS


def local_names(model: nn.Module, local: Collection[str]) -> list[str]:
    """The names of the tensors that stay here, from names and patterns ("*.num_batches_tracked").

    Raises:
        MisuseError: the model has no such tensor, or it is no list.
    """
    names = list(model.state_dict())
    if isinstance(local, str):
        raise MisuseError(f"local is a list of tensors' names, got the text {local!r}")
    for pattern in local:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise MisuseError(f"local: the model has no tensor {pattern!r}; it has {names}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in local)]


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
    by_module = _names_by_module(model)
    names: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name not in tables):
        if name in local:
            continue
        _check(name, state[name])
        first = names.setdefault(id(state[name]), name)
        if first in tables and by_module.get(name) != by_module.get(first):
            raise _tied(first, name)
    shared = {name: state[name] for name in state if names.get(id(state[name])) == name}
    _check_overlaps(shared, tables)
    return shared


def _names_by_module(model: nn.Module) -> dict[str, int]:
    """By the name of a weight, which module's it is: one that is used in two places has two names."""
    return {f"{path}.weight": id(module) for path, module in model.named_modules(remove_duplicate=False)}


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
            raise _overlap(*sorted((name, other), key=lambda each: (each not in tables, each)), tables=tables)
        ends[storage] = max((end, other), (tensor.data_ptr() + _extent(tensor), name))


def _overlap(first: str, second: str, *, tables: Collection[str]) -> MisuseError:
    if first in tables:
        return _tied(first, second)
    return MisuseError(f"tensors {first!r} and {second!r} share a part of their memory; give each its own")


def _extent(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first number to the end of its last."""
    reach = sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return int(tensor.element_size() * (reach + 1))
