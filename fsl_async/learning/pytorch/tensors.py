"""Tensors as arrays and back, exactly; what cannot be converted is refused by its name.

Rules: an array holds the very numbers of its tensor (bfloat16, which numpy does not know, becomes float32, which holds
all of it); a tensor that requires a gradient is read, not followed; nothing is read from a device without memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fsl_async.errors import MisuseError

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """Refuse what is no float of 16, 32 or 64 bits.

    Raises:
        MisuseError: it is none; the message names the tensor.
    """
    if dtype not in FLOATS:
        raise MisuseError(f"tensor {name!r} is of {dtype}; {', '.join(map(str, FLOATS))} can be learnt")


def check_device(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor that has a shape and no numbers.

    Raises:
        MisuseError: it is on the device "meta"; the message names it.
    """
    if tensor.is_meta:
        raise MisuseError(
            f"tensor {name!r} is on the device 'meta' and has no numbers; move the model to another one first "
            "(`model.to_empty(device='cpu')`)"
        )


def to_numpy(name: str, tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's numbers, exactly.

    Args:
        name: the tensor's, for the error message.
        tensor: floats of any shape, strided or sparse, on any device, with or without a gradient to come.

    Returns:
        An array of the same shape and dtype; bfloat16 becomes float32. It may share the tensor's memory.

    Raises:
        MisuseError: the dtype is none that can be learnt, or the tensor has no numbers.
    """
    check_dtype(name, tensor.dtype)
    check_device(name, tensor)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    array: npt.NDArray[Any] = tensor.resolve_neg().numpy()
    return array


def to_tensor(name: str, values: npt.ArrayLike) -> torch.Tensor:
    """An array's numbers as a tensor of its own memory.

    Args:
        name: for the error message.
        values: floats of 16, 32 or 64 bits.

    Raises:
        MisuseError: they are none.
    """
    array = np.asarray(values)
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise MisuseError(f"tensor {name!r}: floats of 16, 32 or 64 bits expected, got {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
