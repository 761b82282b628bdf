"""Tensors as arrays and back, exactly; what cannot be converted is refused by its name.

Rules: an array holds the very numbers of its tensor (bfloat16, which numpy does not know, becomes float32, which holds
all of it); a tensor that requires a gradient is read, not followed; nothing is read from a device without memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fsl_async.errors import MisuseError

ARRAYS: dict[torch.dtype, npt.DTypeLike] = {
    torch.float16: np.float16,
    torch.bfloat16: np.float32,
    torch.float32: np.float32,
    torch.float64: np.float64,
}
"""By what can be learnt, the dtype of an array of it."""


def check_dtype(name: str, dtype: torch.dtype) -> None:
    """Refuse what is no float of 16, 32 or 64 bits.

    Raises:
        MisuseError: it is none; the message names the tensor.
    """
    if dtype not in ARRAYS:
        raise MisuseError(f"tensor {name!r} is of {dtype}; {', '.join(map(str, ARRAYS))} can be learnt")


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


def copy_into(name: str, tensor: torch.Tensor, values: npt.ArrayLike) -> float:
    """Take a tensor's numbers over from an array, in place.

    Args:
        name: the tensor's.
        tensor: with or without a gradient to come, contiguous or not.
        values: floats of the same shape.

    Returns:
        The largest error of rounding them to the tensor's dtype; 0.0 where it holds all of them exactly.

    Raises:
        MisuseError: the shape is another, or a number is not finite in the tensor's dtype. Nothing was changed.
    """
    given = to_tensor(name, values)
    if given.shape != tensor.shape:
        raise MisuseError(f"tensor {name!r}: shape {tuple(tensor.shape)} expected, got {tuple(given.shape)}")
    check_device(name, tensor)
    converted = given.to(tensor.dtype)
    error = rounding_error(given, converted, lambda place: f"tensor {name!r} at {place}")
    with torch.no_grad():
        tensor.copy_(converted)
    return error


def rounding_error(given: torch.Tensor, converted: torch.Tensor, place: Callable[[list[int]], str]) -> float:
    """The largest error of a conversion.

    Args:
        given: numbers.
        converted: the same, of another dtype.
        place: from the index of a number, what stands there.

    Raises:
        MisuseError: a number is not finite after the conversion.
    """
    before, after = to_numpy("", given).astype(np.float64), to_numpy("", converted)
    bad = np.argwhere(~np.isfinite(after))
    if len(bad):
        value = before[tuple(bad[0])]
        fits = f"; {converted.dtype} does not hold it" if np.isfinite(value) else ""
        raise MisuseError(f"{place(bad[0].tolist())}: {value}, a finite number expected{fits}")
    return float(np.abs(before - after).max(initial=0.0))
