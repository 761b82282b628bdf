"""MNIST and CIFAR-10, from the files in which they are published.

Rules: a file is refused by its name if it is missing, cut, or of another kind; what was read is float32, between 0 and
1, (images, channels, height, width). CIFAR-10 is read from its binary batches or from those for Python, whose pickles
are opened without running anything that they name.
"""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import MisuseError

BYTES = 0x08
"""IDX's code for unsigned bytes."""

CIFAR_SHAPE = (3, 32, 32)
CIFAR_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR_TEST = "test_batch"


@dataclass(frozen=True, eq=False)
class Images:
    """Images, float32 (n, channels, height, width) between 0 and 1, and their labels, int64 (n,), from 0 to 9."""

    pixels: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.labels)


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """Read a compressed IDX file of unsigned bytes.

    Raises:
        MisuseError: it is missing, damaged, of another type, or has another number of dimensions.
    """
    try:
        data = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise MisuseError(f"{path}: cannot be read as a compressed IDX file ({error.strerror or error})") from error
    except (EOFError, zlib.error) as error:
        raise MisuseError(f"{path}: the compressed file is damaged or cut ({error})") from error
    if len(data) < 4 + 4 * dimensions or data[:3] != bytes((0, 0, BYTES)) or data[3] != dimensions:
        raise MisuseError(
            f"{path}: an IDX file of unsigned bytes in {dimensions} dimensions expected, it begins {data[:4].hex()}"
        )
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    expected = int(np.prod(shape, dtype=np.uint64))
    if len(data) - 4 - 4 * dimensions != expected:
        raise MisuseError(f"{path}: {expected:,} bytes expected for {shape}, got {len(data) - 4 - 4 * dimensions:,}")
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load_mnist(folder: Path) -> tuple[Images, Images]:
    """MNIST's images for training and for the test, from its four IDX files.

    Raises:
        MisuseError: a file is missing or damaged, or they do not belong together.
    """
    return _mnist_part(folder, "train"), _mnist_part(folder, "t10k")


def _mnist_part(folder: Path, part: str) -> Images:
    pixels = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 3)
    path = folder / f"{part}-labels-idx1-ubyte.gz"
    labels = read_idx(path, 1)
    if pixels.shape[1:] != (28, 28):
        raise MisuseError(
            f"{folder / f'{part}-images-idx3-ubyte.gz'}: images of 28 × 28 expected, got {pixels.shape[1:]}"
        )
    return _images(path, pixels[:, None], labels)


def load_cifar10(folder: Path) -> tuple[Images, Images]:
    """CIFAR-10's images for training and for the test, from its six batches, binary (`.bin`) or for Python.

    Raises:
        MisuseError: a file is missing or damaged.
    """
    read = _binary_batch if (folder / f"{CIFAR_TEST}.bin").exists() else _python_batch
    train = [read(folder, name) for name in CIFAR_BATCHES]
    pixels, labels = (
        np.concatenate(arrays) for arrays in zip(*((one.pixels, one.labels) for one in train), strict=True)
    )
    return Images(pixels, labels), read(folder, CIFAR_TEST)


def _binary_batch(folder: Path, name: str) -> Images:
    """Records of one byte, the label, and 3,072 bytes of pixels, channel after channel."""
    path = folder / f"{name}.bin"
    try:
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError as error:
        raise MisuseError(f"{path}: cannot be read ({error.strerror}); it is one of CIFAR-10's six batches") from error
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if not len(data) or len(data) % record:
        raise MisuseError(
            f"{path}: records of {record:,} bytes expected, got {len(data):,} bytes; the file is not whole, or another"
        )
    records = data.reshape(-1, record)
    return _images(path, records[:, 1:].reshape(-1, *CIFAR_SHAPE), records[:, 0])


class _ArraysOnly(pickle.Unpickler):
    """Opens pickles of dictionaries and of numpy's arrays; whatever else one names is refused before it runs."""

    _KNOWN = frozenset(
        (module, name)
        for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("ndarray", "dtype", "_reconstruct")
    ) | {("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def _python_batch(folder: Path, name: str) -> Images:
    """A pickled dictionary: `data`, uint8 (n, 3072), and `labels`."""
    path = folder / name
    try:
        batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except OSError as error:
        raise MisuseError(f"{path}: cannot be read ({error.strerror}); it is one of CIFAR-10's six batches") from error
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise MisuseError(f"{path}: no batch of CIFAR-10 for Python ({type(error).__name__}: {error})") from error
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != int(np.prod(CIFAR_SHAPE)):
        raise MisuseError(f"{path}: data must be uint8 (n, 3072), got {pixels.dtype} {pixels.shape}")
    return _images(path, pixels.reshape(-1, *CIFAR_SHAPE), labels)


def _images(path: Path, pixels: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> Images:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(pixels):
        raise MisuseError(
            f"{path}: a label for each of {len(pixels):,} images expected, got {labels.dtype} {labels.shape}"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() <= 9):
        raise MisuseError(f"{path}: labels from 0 to 9 expected, got {labels.min()} to {labels.max()}")
    return Images(pixels.astype(np.float32) / np.float32(255), labels.astype(np.int64))
