"""TOML: read from outside, and edited where people edit it, too.

Whatever is wrong with a text, there is one kind of error, which names the source.
A text that is nested too deep, or has a number that is too long to be read, is refused like any other that is
not TOML; so is an integer of more than TOML's 64 bits, which later code could neither compare nor print.

Rules of editing: one table changes, every other line stays as it was. Comments and order stay; the edited text is
parsed and compared with the intended tables before it is written, so that a layout which is not understood is refused
and not damaged; the file is replaced completely or not at all, and keeps its mode; of two edits at once the second
waits for the first.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import replaced_by


@dataclass(frozen=True)
class About:
    """What a setting means and its range, besides type and default.

    Attributes:
        description: what it means, as docs/configuration.md has it.
        unit: the unit of a number.
        low: the least value of a number.
        high: the greatest value of a number.
        is_address: whether the text is an address to listen at, host:port.
    """

    description: str
    unit: str = ""
    low: float = 0
    high: float = 0
    is_address: bool = False


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


_HEADER = re.compile(r"^\s*\[\[?\s*([\w.-]+)\s*\]\]?\s*(?:#.*)?$")
_NEW_FILE_MODE = 0o644


class TableFile:
    """The text of a file with lists of tables, and the tables.

    Attributes:
        path: the file.
        plain: its tables as they are to be.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.plain: dict[str, Any] = parse_toml(text, str(path))
        self.path = path
        self._lines = text.splitlines()

    def tables(self, name: str) -> list[dict[str, Any]]:
        """The tables of a list; none where there is no such list.

        Raises:
            MisuseError: it is something else.
        """
        found = self.plain.get(name, [])
        if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
            raise MisuseError(f"{self.path}: only [[{name}]] tables expected under that name")
        return found

    def append(self, name: str, table: Mapping[str, Any]) -> None:
        """Add a table at the end of a list."""
        self.plain[name] = [*self.tables(name), dict(table)]
        self._lines += ["", f"[[{name}]]", *(f"{key} = {_value(value)}" for key, value in table.items())]

    def set(self, name: str, number: int, values: Mapping[str, Any]) -> None:
        """Change values of one table."""
        self.tables(name)[number].update(values)
        start, end = self._span(name, number)
        for key, value in values.items():
            line = f"{key} = {_value(value)}"
            found = [index for index in range(start + 1, end) if re.match(rf"\s*{key}\s*=", self._lines[index])]
            if found:
                self._lines[found[0]] = line
            else:
                self._lines.insert(end, line)
                end += 1

    def move(self, name: str, number: int, to: str, *, add: Mapping[str, Any], drop: str = "") -> None:
        """Move a table to another list, with keys added, and one left out if it has it."""
        table = self.tables(name).pop(number) | dict(add)
        start, end = self._span(name, number)
        body = [line for line in self._lines[start + 1 : end] if not (drop and re.match(rf"\s*{drop}\s*=", line))]
        table.pop(drop, None)
        del self._lines[start:end]
        self.plain[to] = [*self.tables(to), table]
        self._lines += ["", f"[[{to}]]", *body, *(f"{key} = {_value(value)}" for key, value in add.items())]

    def remove(self, name: str, number: int) -> None:
        """Remove a table."""
        start, end = self._span(name, number)
        del self._lines[start:end]
        self.plain[name] = [table for place, table in enumerate(self.tables(name)) if place != number]

    def text(self) -> str:
        """The edited text.

        Raises:
            MisuseError: it does not have the intended tables, because the layout was not understood.
        """
        text = "\n".join(self._lines).strip("\n") + "\n"
        if _without_empty(self.plain) != _without_empty(_parsed(text)):
            raise MisuseError(
                f"{self.path} is not laid out as one [[…]] table after the other with a key on each line; edit it by "
                "hand. Nothing was changed"
            )
        return text

    def _span(self, name: str, number: int) -> tuple[int, int]:
        """The lines of one table of a list: from its header to after its last key."""
        headers = [(index, found[1]) for index, line in enumerate(self._lines) if (found := _HEADER.match(line))]
        starts = [index for index, header in headers if header == name]
        if number >= len(starts):
            raise MisuseError(f"{self.path}: its [[{name}]] tables are not each below a line of their own")
        start = starts[number]
        end = next((index for index, _ in headers if index > start), len(self._lines))
        while end > start + 1 and self._lines[end - 1].lstrip()[:1] in ("", "#"):  # they belong to what follows
            end -= 1
        return start, end


@contextmanager
def edited(path: Path) -> Iterator[TableFile]:
    """A file to edit; it is replaced when the block ends without an error, and created if there was none.

    Raises:
        MisuseError: it cannot be read or is not TOML, or the edit cannot be made in its layout.
        StorageError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        with _alone_in(target.parent):
            file = TableFile(path, target.read_text(encoding="utf-8") if target.exists() else "")
            before = deepcopy(file.plain)
            yield file
            if file.plain != before:
                _replace(target, file.text())
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be edited: {error.strerror}") from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Within the block no other process edits a file of this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    with replaced_by(path) as file:
        file.write(text.encode())
        _take_over(path, file.fileno())


def _take_over(path: Path, descriptor: int) -> None:
    """Give a new file the mode and the owner of the one that it replaces."""
    if not path.exists():
        os.fchmod(descriptor, _NEW_FILE_MODE)
        return
    old = path.stat()
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    if os.geteuid() == 0:  # an operator who edits as root must not lock the server out
        os.fchown(descriptor, old.st_uid, old.st_gid)


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return json.dumps(value, ensure_ascii=False)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text, "the edited text")
    except MisuseError:
        return {"": "cannot be read"}


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without empty lists, which a file does not show."""
    return {key: value for key, value in table.items() if value != []}
