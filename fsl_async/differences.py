"""Where two public values differ, as text for a person who has to find out why two parties cannot work together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

MISSING = "missing"
LONGEST = 64


def first_difference(left: msgspec.Struct, right: msgspec.Struct) -> tuple[str, str, str] | None:
    """The first field in which two structs of one type differ, with what both have; None where they are equal.

    Returns:
        The path of the field, as `blocks[0].rows`, and both values as text: numbers as they are, strings in quotation
        marks, the beginnings of keys and digests, `missing` where one side has none.
    """
    return next(_differences("", left, right), None)


def _differences(place: str, left: Any, right: Any) -> Iterator[tuple[str, str, str]]:
    if left == right:
        return
    match left, right:
        case msgspec.Struct(), msgspec.Struct() if type(left) is type(right):
            names = [field.name for field in msgspec.structs.fields(left)]
            inner = [(f"{place}.{name}".lstrip("."), getattr(left, name), getattr(right, name)) for name in names]
        case Mapping(), Mapping():
            keys = sorted({*left, *right})
            inner = [(f"{place}[{key!r}]", left.get(key, _ABSENT), right.get(key, _ABSENT)) for key in keys]
        case ((tuple() | list()), (tuple() | list())):
            inner = [
                (f"{place}[{number}]", _at(left, number), _at(right, number))
                for number in range(max(len(left), len(right)))
            ]
        case _:
            yield place, _text(left), _text(right)
            return
    for where, one, other in inner:
        yield from _differences(where, one, other)


_ABSENT = object()


def _at(values: Sequence[Any], number: int) -> Any:
    return values[number] if number < len(values) else _ABSENT


def _text(value: Any) -> str:
    """A value as a message shows it."""
    match value:
        case bytes():
            return f"{value.hex()[:16]}…" if len(value) > LONGEST // 8 else value.hex() or "empty"
        case str():
            return repr(value if len(value) <= LONGEST else f"{value[:LONGEST]}…")
        case None:
            return "not set"
        case bool() | int() | float():
            return str(value)
        case msgspec.Struct():
            name = getattr(value, "name", "")
            return f"{type(value).__name__} {name!r}" if name else type(value).__name__
        case _:
            return MISSING if value is _ABSENT else type(value).__name__
