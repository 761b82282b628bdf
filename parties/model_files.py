"""Models in files.

A file is written whole or not at all: it takes its name once it is on disk. A file that comes from elsewhere may hold
anything, and is refused with a message.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError, StorageError

__all__ = ["load_model", "save_model"]


def load_model(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a model from an .npz file: one array per block.

    Raises:
        MisuseError: the file cannot be read as one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _read_array(archive, name) for name in archive.namelist()}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise MisuseError(f"{path} cannot be read as a model (.npz): {error}") from error


def save_model(path: Path, model: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a model to an .npz file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        with _replaced_by(path) as file:
            _write_arrays(file, model)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _replaced_by(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the path once it is whole and on disk; nothing stays of one that does not get so far."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        finally:
            Path(file.name).unlink(missing_ok=True)


def _read_array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with archive.open(name) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """What `numpy.savez` does, but for any name: that function keeps some, such as "file", for its own arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
