"""Taking a model's own tables out and putting held ones in their place.

Rules: what can be carried over is (sizes, padding, norms, dtype, device, whether it is frozen); what cannot is refused
by the module's name, before anything has been changed. The weights of the whole table go: they come back row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from fsl_async.errors import MisuseError
from fsl_async.learning.pytorch.held import HeldEmbedding, HeldEmbeddingBag, HeldTable

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def tables_named(model: nn.Module, tensors: Collection[str]) -> dict[str, nn.Module]:
    """The modules whose weights are named, by those names.

    Raises:
        MisuseError: one is no table of the model that can be held; the message lists those that can.
    """
    modules = {f"{path}.weight": module for path, module in model.named_modules(remove_duplicate=False)}
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
