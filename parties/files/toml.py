"""Reading TOML from outside; whatever is wrong with a text, there is one kind of error, which names the source.

Rules: a text that is nested too deep, or has a number that is too long to be read, is refused like any other that is
not TOML; so is an integer of more than TOML's 64 bits, which later code could neither compare nor print.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError

__all__ = ["parse_toml", "read_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        MisuseError: it cannot be read, or is not TOML.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror}") from error


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        MisuseError: it is not TOML. The message says where, and does not repeat the text.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise MisuseError(f"{source} is not TOML that can be read: it is nested too deep") from error
    except ValueError as error:  # not all of them are a TOMLDecodeError: a number may have too many digits
        raise MisuseError(f"{source} is not TOML: {error}") from error
    _refuse_wide(tables, source)
    return tables


def _refuse_wide(value: Any, where: str) -> None:
    """Refuse integers of more than 64 bits, at every level."""
    match value:
        case dict():
            for key, inner in value.items():
                _refuse_wide(inner, f"{where}, {key}")
        case list():
            for inner in value:
                _refuse_wide(inner, where)
        case int() if not -(2**63) <= value < 2**63:
            raise MisuseError(f"{where}: an integer of {value.bit_length()} bits; TOML's have 64")
