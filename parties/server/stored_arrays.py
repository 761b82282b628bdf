"""Arrays in a server's store: each a blob of its raw bytes, its dtype and shape in a record beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fsl_async.config import MODEL_DTYPES
from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.outcome import Model
from parties.storage.store import DAMAGED, Put, Store

ArrayForm: TypeAlias = tuple[str, tuple[int, ...]]


def forms(arrays: Model) -> dict[str, ArrayForm]:
    """By key, dtype and shape."""
    return {key: (array.dtype.str, array.shape) for key, array in arrays.items()}


def puts(arrays: Model) -> list[Put]:
    """The changes that store them."""
    return [Put(key, _bytes(array)) for key, array in arrays.items()]


async def stored(store: Store, forms: Mapping[str, ArrayForm]) -> Model:
    """Read arrays back, by key.

    Raises:
        StorageError: one is not there, or not of its form.
    """
    return {key: await _array(store, key, form) for key, form in forms.items()}


def under(prefix: str, arrays: Model) -> Model:
    """Those whose keys begin with a prefix, without it."""
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def keyed(prefix: str, arrays: Model) -> Model:
    """The same with a prefix before each key."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


async def _array(store: Store, key: str, form: ArrayForm) -> np.ndarray:
    dtype, shape = form
    try:
        if dtype[1:] not in MODEL_DTYPES:
            raise ValueError("no model has this type")
        return np.frombuffer(await store.blob(key), dtype=dtype).reshape(shape)
    except (TypeError, ValueError) as error:
        raise StorageError(f"{key} in the store is no array {shape} of {dtype!r}: {error}; {DAMAGED}") from error


def _bytes(array: np.ndarray) -> Buffer:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
