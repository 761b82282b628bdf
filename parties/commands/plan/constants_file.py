"""The constants of the scaling model in a file: what `bench --calibrate` has measured, and `plan` reads."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.costs.scaling import Constants
from fsl_async.errors import MisuseError
from parties.files.disk import replaced_by

__all__ = ["load_constants", "save_constants"]

VERSION = 2
AGAIN = "measure them anew with `fsl-async bench --calibrate FILE`"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    constants: Constants


def save_constants(path: Path, constants: Constants) -> None:
    """Write the file; it appears whole.

    Raises:
        MisuseError: it cannot be written.
    """
    content = json.dumps({"version": VERSION, "constants": asdict(constants)}, indent=2) + "\n"
    try:
        with replaced_by(path) as file:
            file.write(content.encode())
    except OSError as error:
        raise MisuseError(f"{path} cannot be written: {error}") from error


def load_constants(path: Path) -> Constants:
    """Read the file.

    Raises:
        MisuseError: it cannot be read, or is not such a file; the message says what to do.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error}; {AGAIN}") from error
    try:
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MisuseError(f"{path} has no constants of the scaling model: {error}; {AGAIN}") from error
    if file.version != VERSION:
        raise MisuseError(f"{path} has constants of version {file.version}, not {VERSION}; {AGAIN}")
    for name, value in _numbers(asdict(file.constants)):
        if not (math.isfinite(value) and value >= 0) or (name == "disk" and value == 0):
            raise MisuseError(f"{path}: {name}: a number from 0 expected, got {value}; {AGAIN}")
    return file.constants


def _numbers(fields: dict[str, Any], above: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{above}{name}.")
        elif isinstance(value, int | float):
            found.append((above + name, value))
    return found
