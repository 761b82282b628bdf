"""What may enter a kernel: arrays of exactly the type and shape it was compiled for.

Kernels index without bounds checks, so everything is checked here first. Inputs become read-only views and are copied
only if they are not contiguous and aligned, as a piece of a message may be. So all callers use one compiled form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError

Blocks = npt.NDArray[np.uint64]
"""16-byte blocks of AES, two words each: (…, 2)."""


def require(name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    """Check an array's type and shape; -1 stands for any length.

    Raises:
        MisuseError: if it has another type or shape.
    """
    fits = array.ndim == len(shape) and all(want in (-1, have) for have, want in zip(array.shape, shape, strict=True))
    if not fits or array.dtype != np.dtype(dtype):
        wanted = ", ".join("any" if length == -1 else str(length) for length in shape)
        raise MisuseError(
            f"{name}: expected {np.dtype(dtype)} of shape ({wanted}), got {array.dtype} of shape {array.shape}"
        )


def read_only(name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A read-only, contiguous, aligned view of an input.

    Raises:
        MisuseError: if it has another type or shape.
    """
    require(name, array, dtype, shape)
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view


def writable(name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An output, which must be contiguous, aligned and writable as it is.

    Raises:
        MisuseError: if it is not, or has another type or shape.
    """
    require(name, array, dtype, shape)
    if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
        raise MisuseError(f"{name}: expected a contiguous, aligned and writable array; allocate it with numpy.zeros")
    return array


def blocks_in(name: str, array: Blocks) -> Blocks:
    """A row of blocks of any length, checked.

    Raises:
        MisuseError: if it is not uint64 of shape (n, 2).
    """
    return read_only(name, array, np.uint64, (-1, 2))
