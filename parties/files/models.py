"""Models in files: one named array per block, as `.npz` or `.safetensors`, according to the suffix.

- A file is written completely or not at all: it gets its name once it is on disk.
- A file from elsewhere may hold anything. Nothing in it is executed, and it is refused with a message if it is damaged
  or declares more than it holds.
- An array is read back bit for bit; only its memory order and byte order become the machine's own.
"""

from __future__ import annotations

import errno
import lzma
import math
import os
import re
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import refused, replaced_by

Model: TypeAlias = Mapping[str, npt.NDArray[Any]]


class ModelForm(Enum):
    """The formats of a model's file; the value is its suffix."""

    NPZ = ".npz"
    SAFETENSORS = ".safetensors"

    @staticmethod
    def of(path: Path) -> ModelForm:
        """The form of a file.

        Raises:
            MisuseError: its name ends in neither.
        """
        try:
            return ModelForm(path.suffix.lower())
        except ValueError as error:
            known = " or ".join(form.value for form in ModelForm)
            raise MisuseError(
                f"{path} cannot be read as a model, or saved as one: its name must end in {known}"
            ) from error


@dataclass(frozen=True)
class Checkpoint:
    """A model as it was after a round.

    Attributes:
        number: the round's.
        path: the model's file.
    """

    number: int
    path: Path

    @property
    def state(self) -> Path | None:
        """The file of the optimizer's state that belongs to the model; None if there was none."""
        path = state_path(self.path)
        return path if path.exists() else None


NPZ_DAMAGE: Final = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    MemoryError,  # an array of absurd size, or a header nested too deep
    RuntimeError,  # an encrypted member; also too much recursion, and a compression that this Python does not have
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What `zipfile` and `numpy.lib.format` were seen to raise, or say they raise, for damaged files."""

MOST_FROM_A_BYTE: Final[Mapping[int, int]] = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1_032}
"""Bytes that a byte of a file can stand for, by how it is compressed; the second is deflate's own limit."""

SAFETENSORS_TYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool",
    **{f"{sign}{bits}": f"{name}int{bits}" for sign, name in (("I", ""), ("U", "u")) for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "C64": "complex64",
}
"""The types of the format that NumPy has, and NumPy's names for them; it has none for BF16 and the F8s."""

REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOENT: "there is no such file; check the name, or save a model there first, as with `numpy.savez`",
    errno.ENOTDIR: "what should be its folder is a file; check the name",
    errno.EACCES: "permission denied; the user who runs the command must be allowed to read it and to enter its folder",
    errno.EISDIR: "it is a folder; name a file in it",
}
"""What to do where a file cannot be opened, by the system's number for it."""

CHECKPOINT: Final = re.compile(r"round-(\d{8,})\.(npz|safetensors)")


def load_model(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a model.

        model = load_model(Path("model.npz"))       # {"items": (rows, width) array, "head": (size,) array}

    Args:
        path: a file of numpy's (.npz) or of safetensors (.safetensors), with an array for each block.

    Returns:
        By block, its array, in the machine's byte order.

    Raises:
        MisuseError: the file cannot be read as one.
    """
    form = ModelForm.of(path)
    _refuse_unopened(path)
    match form:
        case ModelForm.NPZ:
            return _load_npz(path)
        case ModelForm.SAFETENSORS:
            return _load_safetensors(path)


def save_model(path: Path, model: Model) -> None:
    """Write a model, whole or not at all.

    Args:
        path: the file, .npz or .safetensors; one that exists is replaced.
        model: by block, its array.

    Raises:
        MisuseError: its form cannot hold an array.
        StorageError: it cannot be written.
    """
    form = ModelForm.of(path)
    arrays = {name: _native(np.asarray(array)) for name, array in model.items()}
    try:
        with replaced_by(path) as new:
            match form:
                case ModelForm.NPZ:
                    _save_npz(new, arrays)
                case ModelForm.SAFETENSORS:
                    _save_safetensors(Path(new.name), arrays)
    except OSError as error:
        raise refused(path, error) from error


def state_path(path: Path) -> Path:
    """Where the state stands that belongs to a model's file: `model.state.npz` beside `model.npz`."""
    return path.with_suffix(f".state{path.suffix}")


def save_state(path: Path, state: Model) -> None:
    """Write the state that belongs to a model's file; where there is none, remove that of another model.

    Args:
        path: the model's file.
        state: what the task's optimizer or own rule keeps with the model.

    Raises:
        MisuseError: the form cannot hold an array.
        StorageError: it cannot be written, or removed.
    """
    if state:
        save_model(state_path(path), state)
        return
    try:
        state_path(path).unlink(missing_ok=True)
    except OSError as error:
        raise refused(state_path(path), error) from error


def checkpoint(
    folder: Path,
    number: int,
    model: Model,
    form: ModelForm = ModelForm.NPZ,
    *,
    keep: int = 0,
    state: Model | None = None,
) -> Checkpoint:
    """Save a model as it is after a round, as `round-00000012.npz`; its state as `round-00000012.state.npz`.

    Args:
        folder: where; it must exist.
        number: the round's.
        model: one array per block.
        form: what kind of file.
        keep: how many to keep, this one and those of the rounds right before it; 0 keeps all. Those of later rounds are
            not touched.
        state: what the task's optimizer or own rule keeps with the model; where it is empty, there is no such file.

    Raises:
        MisuseError: the form cannot hold an array.
        StorageError: it cannot be written, or an older one cannot be removed.
    """
    made = Checkpoint(number, folder / f"round-{number:08}{form.value}")
    save_state(made.path, state or {})  # first, so that no model is without its state
    save_model(made.path, model)
    if keep:
        _remove([older for older in checkpoints(folder) if older.number < number][: 1 - keep or None])
    return made


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a folder, by round.

    Raises:
        MisuseError: it cannot be read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise MisuseError(f"{folder} cannot be read as a folder of checkpoints: {error.strerror}") from error
    found = [(CHECKPOINT.fullmatch(name), folder / name) for name in names]
    return sorted((Checkpoint(int(match[1]), path) for match, path in found if match), key=lambda made: made.number)


def _remove(old: list[Checkpoint]) -> None:
    for path in (path for made in old for path in (made.path, state_path(made.path))):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise refused(path, error) from error


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same array in the order of rows and the machine's byte order; no copy where it is so already."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _refuse_unopened(path: Path) -> None:
    """Refuse what does not exist, is not a file or cannot be read, with a clearer message than the formats' readers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    except OSError as error:
        raise _unopened(path, REMEDIES.get(error.errno or 0, error.strerror or "it cannot be opened")) from error
    except ValueError as error:
        raise _unopened(path, f"{error}; check the name") from error
    try:
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(mode):
        raise _unopened(path, REMEDIES[errno.EISDIR] if stat.S_ISDIR(mode) else "it is no regular file; name one")


def _unopened(path: Path, remedy: str) -> MisuseError:
    return MisuseError(f"{path} cannot be read as a model: {remedy}")


def _load_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _refuse_inflated(members, path.stat().st_size)
            arrays = {member.filename.removesuffix(".npy"): _read_array(archive, member) for member in members}
    except NPZ_DAMAGE as error:
        raise MisuseError(f"{path} cannot be read as a model (.npz): {error}") from error
    if len(arrays) != len(members):
        raise MisuseError(f"{path} cannot be read as a model (.npz): two of its arrays have one name")
    return arrays


def _refuse_inflated(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse members that declare more than can come out of a file of so many bytes."""
    for member in members:
        if member.compress_type not in MOST_FROM_A_BYTE:
            raise ValueError(f"{member.filename} is compressed in a way that NumPy does not write")
        if member.file_size > MOST_FROM_A_BYTE[member.compress_type] * size:
            raise ValueError(f"{member.filename} declares {member.file_size:,} bytes, in a file of {size:,}")


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(member) as file:
        _refuse_larger(file, member)
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _refuse_larger(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Refuse a header that declares more than the file holds, before memory is reserved for it."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} declares {shape} of {dtype}, and has {member.file_size} bytes")


def _save_npz(file: IO[bytes], arrays: Model) -> None:
    """What `numpy.savez` does, but for any name: that function keeps some, such as "file", for its own arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise MisuseError(f"Object arrays cannot be saved: {name} is of {array.dtype}; make it one of numbers")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _load_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    from safetensors import SafetensorError, safe_open  # most models are .npz

    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                _refuse_type(path, name, file.get_slice(name).get_dtype())
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MisuseError(f"{path} cannot be read as a model (.safetensors): {error}") from error


def _refuse_type(path: Path, name: str, kind: str) -> None:
    if kind not in SAFETENSORS_TYPES:
        raise MisuseError(f"{path}: {name} is of {kind}, which has no NumPy type; convert it to F32 or F16 first")


def _save_safetensors(path: Path, arrays: Model) -> None:
    for name, array in arrays.items():
        if array.dtype.name not in SAFETENSORS_TYPES.values() or name == "__metadata__":
            raise MisuseError(f"a .safetensors file cannot hold {name!r} of {array.dtype}; save the model as .npz")
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error
