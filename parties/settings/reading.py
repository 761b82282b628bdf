"""Reading a configuration file: TOML into a struct; every mistake is reported before anything is done.

A setting is a field of a struct, with its type, default, range, unit and meaning. The checks, the messages and
docs/configuration.md are made from these.

Rules: an unknown key is refused with the nearest known one; a value outside its range is refused with file, key, value
and range; a path is relative to the file that names it; a configuration never holds a secret, only the name of the
file that does. An environment variable, FSL_ASYNC_SECTION_KEY, takes precedence over the file; the same rules hold for
it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from fsl_async.errors import MisuseError
from parties.files.toml import About, read_toml

StructT = TypeVar("StructT", bound=msgspec.Struct)

PREFIX = "FSL_ASYNC_"
MEMORY = "memory"

_ADDRESS = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+):\d{1,5}")
_SECRET_NAMES = {
    "channel_secret",
    "statement_secret",
    "noise_secret",
    "secret",
    "secret_key",
    "private_key",
    "password",
}
_SECRET_VALUE = re.compile(r"(?:[0-9a-fA-F][\s-]*){32,}")


class StoreSetting:
    """Where a store is kept: in memory or on disk."""


@dataclass(frozen=True)
class InMemory(StoreSetting):
    """In memory; it ends with the process."""


@dataclass(frozen=True)
class OnDisk(StoreSetting):
    """In this file."""

    path: Path


@dataclass(frozen=True)
class Setting:
    """One key of a configuration file.

    Attributes:
        section: the table that holds it; empty for the top level of the file.
        name: the key.
        kind: its type, without `None` and annotations.
        about: its meaning and range.
        default: its value if it is left out; `msgspec.NODEFAULT` if it must be given.
    """

    section: str
    name: str
    kind: Any
    about: About
    default: Any

    @property
    def key(self) -> str:
        """The key with its section."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """The environment variable that takes precedence over it."""
        return PREFIX + self.key.replace(".", "_").upper()

    @property
    def is_path(self) -> bool:
        """Whether its value is a path."""
        return self.kind is Path or self.kind is StoreSetting

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it may have, if they are listed."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def expected(self) -> str:
        """What the value must be, for messages."""
        if self.choices:
            return _listed(self.choices)
        if self.kind in (int, float):
            noun = "a whole number" if self.kind is int else "a number"
            return f"{noun} from {self.about.low:,} to {self.about.high:,}"
        if self.about.is_address:
            return "an address of the form host:port or [host]:port"
        return f'"{MEMORY}" or the name of a file' if self.kind is StoreSetting else "a text"

    def check(self, value: Any, where: str) -> None:
        """Refuse a value that this setting cannot have.

        Raises:
            MisuseError: it is of another type or out of range, or it is a secret.
        """
        if self.is_path and isinstance(value, str) and _SECRET_VALUE.fullmatch(value):
            raise MisuseError(_no_secrets(where))
        if not self._allows(value):
            raise MisuseError(f"{where} must be {self.expected}, not {value!r}")

    def _allows(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind in (int, float):
            numbers = (int,) if self.kind is int else (int, float)
            return type(value) in numbers and self.about.low <= value <= self.about.high  # so it is finite, too
        if self.is_path and isinstance(value, str) and "\0" in value:
            return False  # no file can have such a name
        return isinstance(value, str) and bool(_ADDRESS.fullmatch(value) if self.about.is_address else value)

    def parse(self, text: str) -> Any:
        """The value of an environment variable, not yet checked."""
        try:
            return self.kind(text) if self.kind in (int, float) else text
        except ValueError:
            return text


def settings(kind: type[msgspec.Struct], section: str = "") -> Iterator[Setting]:
    """All settings of a file: those at its top level, then those of each table."""
    tables: list[tuple[str, type[msgspec.Struct]]] = []
    for field in msgspec.structs.fields(kind):
        bare, about = _bare_type(field.type)
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            tables.append((field.encode_name, bare))
        elif about is not None:
            yield Setting(section, field.encode_name, bare, about, field.default)
    for name, table in tables:
        yield from settings(table, name)


def load(path: Path, kind: type[StructT], environment: Mapping[str, str] = os.environ) -> StructT:
    """Read a file; variables of the environment take precedence over what it says.

    Raises:
        MisuseError: it cannot be read, is not TOML, or a key is unknown, missing, out of range or a secret.
    """
    return from_table(read_toml(path), path, kind, environment)


def from_table(
    table: dict[str, Any],
    path: Path,
    kind: type[StructT],
    environment: Mapping[str, str] = os.environ,
    *,
    where: str = "",
) -> StructT:
    """Check and convert what was read of a file, as `load` does; relative paths in it are relative to `path`.

    Args:
        table: what was read.
        path: the file.
        kind: the struct.
        environment: its variables take precedence.
        where: what messages call the place, if it is not the whole file.

    Raises:
        MisuseError: a key is unknown, missing, out of range or a secret.
    """
    for found, text in overrides(kind, environment):
        value = found.parse(text)
        found.check(value, f"{found.variable} in the environment")
        inner = table.setdefault(found.section, {}) if found.section else table
        if isinstance(inner, dict):
            inner[found.name] = value
    where = where or str(path)
    for refuse in (_refuse_secrets, _refuse_unknown, _refuse_strange_words):
        for inner in _tables(table, kind, where):
            refuse(inner)
    _check_values(table, kind, where)
    try:
        return msgspec.convert(table, kind, dec_hook=_paths_relative_to(path.parent))
    except msgspec.ValidationError as error:
        raise MisuseError(f"{where}: {str(error).replace('`$.', '`')}") from error


def overrides(kind: type[msgspec.Struct], environment: Mapping[str, str]) -> list[tuple[Setting, str]]:
    """The settings that environment variables override, with the variables' texts."""
    return [(found, environment[found.variable]) for found in settings(kind) if found.variable in environment]


def refuse_strange_variables(kinds: tuple[type[msgspec.Struct], ...], environment: Mapping[str, str]) -> None:
    """Refuse variables that look like settings but are none in any of these files: a typing error would go unnoticed.

    Raises:
        MisuseError: there is one.
    """
    known = sorted({found.variable for kind in kinds for found in settings(kind)})
    for variable in environment:
        if variable.startswith(PREFIX) and variable not in known:
            bare = [name.removeprefix(PREFIX) for name in known]
            near = difflib.get_close_matches(variable.removeprefix(PREFIX), bare, n=1)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else "docs/configuration.md lists the settings; unset it"
            raise MisuseError(f"{variable} in the environment is no setting; {hint}")


def _bare_type(kind: Any) -> tuple[Any, About | None]:
    """A field's type, without `None` and annotations, and its `About`."""
    if get_origin(kind) is Annotated:
        bare, about = get_args(kind)
        return _bare_type(bare)[0], about
    kinds = [inner for inner in get_args(kind) if inner is not NoneType]
    return (kinds[0] if NoneType in get_args(kind) else kind), None


def _paths_relative_to(folder: Path) -> Any:
    def convert(kind: type, value: Any) -> Any:
        if kind is StoreSetting:
            return InMemory() if value == MEMORY else OnDisk(folder / value)
        return folder / value

    return convert


def _check_values(table: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    for found in settings(kind):
        inner = table.get(found.section, {}) if found.section else table
        if not isinstance(inner, dict):
            raise MisuseError(f"{where}: [{found.section}] must be a table, not {inner!r}")
        if found.name in inner:
            found.check(inner[found.name], f"{where}: {found.key}")
        elif found.default is msgspec.NODEFAULT:
            raise MisuseError(f"{where}: {found.key} is missing: {found.about.description}")


_GONE: Final = {
    "doors": "servers have no doors any more, each takes its clients itself: remove the table (docs/adr/0028)",
    "link": "servers have no doors any more, so S1 reaches S0 where clients do: remove the key (docs/adr/0028)",
}
"""What to do about keys that files of an earlier release have."""


class _Table(NamedTuple):
    """A table of a file, and what it may have.

    Attributes:
        content: its keys and values.
        where: what to call it in a message.
        structs: what it may become.
        fields: by key, the type of its value; empty where any key may stand.
    """

    content: dict[str, Any]
    where: str
    structs: list[type[msgspec.Struct]]
    fields: dict[str, Any]


def _tables(value: Any, kind: Any, where: str) -> Iterator[_Table]:
    """The tables in a value, at every level, each before those in it."""
    if isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _tables(item, kind, f"{where} {number}")
    if isinstance(value, dict):
        structs = _structs(kind, value)
        fields = {field.encode_name: field.type for struct in structs for field in msgspec.structs.fields(struct)}
        yield _Table(value, where, structs, fields)
        for key, inner in value.items():
            yield from _tables(inner, fields.get(key), f"{where}, {key}")


def _refuse_secrets(table: _Table) -> None:
    """Refuse keys that only a secret file has."""
    for key in table.content:
        if key in _SECRET_NAMES:
            raise MisuseError(_no_secrets(f"{table.where}: {key}"))


def _no_secrets(where: str) -> str:
    return (
        f"{where} holds a secret, which belongs in a file of its own: write it into a file that only you can read, "
        "name that file here, and replace the secret if others may have seen it"
    )


def _refuse_unknown(table: _Table) -> None:
    """Refuse keys that no struct of the table has."""
    for key in table.content:
        if table.fields and key not in table.fields and key != "type":
            hint = _GONE.get(key) or _hint(key, table.fields, table.structs)
            raise MisuseError(f"{table.where}: unknown key {key!r}; {hint}")


def _refuse_strange_words(table: _Table) -> None:
    """Refuse words that a field does not list; the message lists them."""
    tags = tuple(tag for struct in table.structs if isinstance(tag := struct.__struct_config__.tag, str))
    if len(tags) > 1 and "type" not in table.content:
        raise MisuseError(f"{table.where}: type is missing; it must be {_listed(tags)}")
    for key, value in table.content.items():
        allowed = tags if key == "type" and tags else _words(table.fields.get(key))
        if allowed and value not in allowed:
            raise MisuseError(f"{table.where}: {key} must be {_listed(allowed)}, not {value!r}")


def _words(kind: Any) -> tuple[str, ...]:
    """The words that a field may have; empty where it may have others, too."""
    bare, about = _bare_type(kind)
    words = get_args(bare) if about is None and get_origin(bare) is Literal else ()
    return words if all(isinstance(word, str) for word in words) else ()


def _listed(words: tuple[str, ...]) -> str:
    return "one of " + ", ".join(f'"{word}"' for word in words)


def _hint(key: str, fields: Mapping[str, Any], structs: list[type[msgspec.Struct]]) -> str:
    """A hint at the right key: the same key in another table, or the nearest key of this one."""
    below = [found for struct in structs for found in settings(struct) if found.section and found.name == key]
    if below:
        return f"it belongs in the table [{below[0].section}]"
    near = difflib.get_close_matches(key, fields, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"


def _structs(kind: Any, value: Mapping[str, Any]) -> list[type[msgspec.Struct]]:
    """The structs that a value of this type may be; of a tagged union, the one that the value names."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    found = [struct for inner in get_args(kind) for struct in _structs(inner, value)]
    return [struct for struct in found if struct.__struct_config__.tag == value.get("type")] or found
