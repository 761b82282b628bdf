"""What a line of the log may contain: the fields of a fixed list, each with a guard that checks its value.

Rules: a field that is not on the list is withheld, and so is a value that is not of its field's kind. Bytes, arrays and
containers are always withheld; in free text a run of hexadecimal digits as long as a key is withheld, because it may be
a formatted key. A blob's whole name passes: its digits are a digest, and without them nobody finds the blob. Text from
strangers cannot act on a terminal: control characters are escaped, and long text is cut. All this happens here, so code
that writes to the log needs no care of its own.
"""

from __future__ import annotations

import enum
import logging
import math
import re
from collections.abc import Callable, Mapping, MutableMapping
from copy import copy
from functools import cache
from pathlib import PurePath
from typing import Any, TypeAlias, get_type_hints

import msgspec

from fsl_async.foreign_text import printable
from parties.events import RoundSettled, ServerEvent

WITHHELD = "(withheld)"
FAILURE = "failure"
"""The attribute of a discreet record that holds its exception."""

LONGEST_TEXT = 2_000
LONGEST_NAME = 128

_BLOB_NAME = re.compile(
    r"\bround-\d{8,10}/(?:parts/[\w.~%-]{1,768}/(?:retrieve|submit)-\d{1,9}|(?:dense|bound)/[\w.~%-]{1,768})"
    r"/[0-9a-f]{64}\b",
    re.ASCII,
)
_KEY_IN_DIGITS = re.compile(r"[0-9A-Fa-f]{17,}")
_BYTES_LITERAL = re.compile(r"\bb(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_LONG_WORD = re.compile(r"[A-Za-z0-9+/]{22,}={0,2}")

Guard: TypeAlias = Callable[[Any], Any]


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """A value that is not of its field's kind."""


def plain_text(text: str) -> str:
    """Free text that is safe to print: without control characters and keys, and cut to a limited length."""
    text = _shortened(text, LONGEST_TEXT)
    pieces, kept = _BLOB_NAME.split(text), _BLOB_NAME.findall(text)
    return "".join(f"{_without_keys(piece)}{name}" for piece, name in zip(pieces, [*kept, ""], strict=True))


def _without_keys(text: str) -> str:
    for pattern in (_BYTES_LITERAL, _KEY_IN_DIGITS):
        text = pattern.sub(WITHHELD, text)
    return printable(_LONG_WORD.sub(_unless_base64, text))


def _unless_base64(match: re.Match[str]) -> str:
    """A long word, unless it mixes upper case, lower case and other characters, as base64 and no class name does."""
    word = match[0]
    is_mixed = word.lower() != word != word.upper() and not word.isalpha()
    return WITHHELD if is_mixed else word


def _text(value: Any) -> str:
    if isinstance(value, BaseException):
        return plain_text(str(value) or type(value).__name__)
    if not isinstance(value, str):
        raise _Refused
    return plain_text(value)


def _name(value: Any) -> str:
    """A name may look like anything, even like a key's digits: it was public before it was logged."""
    if not isinstance(value, str):
        raise _Refused
    return _shortened(printable(value), LONGEST_NAME)


def _number(value: Any) -> int | float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= 2**63:
        raise _Refused
    return value  # type: ignore[no-any-return]  # int or float, by the line above


def _names(value: Any) -> list[str]:
    if not isinstance(value, list | tuple):
        raise _Refused
    return [_name(item) for item in value]


def _reasons(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Refused
    return {_name(client): _name(reason) for client, reason in value.items()}


GUARDS: Mapping[str, Guard] = {
    **dict.fromkeys(("text", "moment", "identifier"), _text),
    **dict.fromkeys(("number", "seconds"), _number),
    "name": _name,
}
"""The guard of each kind of field of `parties.events`."""


@cache
def fields_of(event: type[ServerEvent]) -> list[tuple[str, str, str]]:
    """The fields of an event: the name of each, its name in the log, and its kind."""
    hints = get_type_hints(event, include_extras=True)
    return [(each.name, each.encode_name, hints[each.name].__metadata__[0]) for each in msgspec.structs.fields(event)]


FIELDS: Mapping[str, Guard] = {
    **{
        name: GUARDS[kind]
        for event in ServerEvent.__subclasses__()
        if event is not RoundSettled  # which has lines of its own
        for _, name, kind in fields_of(event)
    },
    **dict.fromkeys(("time", "level", "logger", "server", "task", "member"), _name),
    **dict.fromkeys(("event", "exception"), _text),
    **dict.fromkeys(("counted", "not_counted", "part", "parts", "times", "evaluating"), _number),
    "clients": _names,
    "excluded": _reasons,
}
"""Every field that a line may have, with its guard."""


def admitted(name: str, value: Any) -> Any:
    """A value as its field's guard passes it; `WITHHELD` if the field is not listed or the value not of its kind."""
    guard = FIELDS.get(name)
    if guard is None:
        return WITHHELD
    try:
        return guard(value)
    except _Refused:
        return WITHHELD


def only_listed(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: keeps the fields that are listed, and names the ones that it withholds."""
    passed = {name: admitted(name, value) for name, value in line.items() if name in FIELDS}
    refused = sorted(_name(str(name)) for name in line.keys() - passed.keys())
    return {**passed, "withheld": refused} if refused else passed


NAMING = ("client", "party", "clients", "excluded", "origin", "explanation", "exception")
"""The fields that name clients, or whose text may; they may name servers at any level."""
NAMING_LOGGERS = ("parties.enrolment", "parties.server")
"""The loggers whose lines have clients' names in their text."""


def without_names(line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A line without what names a client, or may."""
    return {name: WITHHELD if name in NAMING and value not in ("S0", "S1") else value for name, value in line.items()}


def discreet_record(record: logging.LogRecord, named: bool = True) -> logging.LogRecord:
    """A copy of a standard library record, whose message is formatted from text and numbers only.

    Args:
        record: the record.
        named: whether it may name clients.
    """
    safe = copy(record)
    safe.__dict__[FAILURE] = record.exc_info[1] if record.exc_info else None
    safe.exc_info, safe.exc_text, safe.stack_info = None, None, None
    if not hasattr(record, "_logger"):  # set by structlog on its own records, whose fields `only_listed` guards
        safe.msg, safe.args = _message(record if named or record.name not in NAMING_LOGGERS else _numbers(record)), ()
    return safe


def _numbers(record: logging.LogRecord) -> logging.LogRecord:
    """A copy of a record whose arguments are numbers, or withheld."""
    safe = copy(record)
    given = record.args if isinstance(record.args, tuple) else ()
    safe.args = tuple(value if type(value) in (int, float) else WITHHELD for value in given)
    return safe


def _message(record: logging.LogRecord) -> str:
    arguments = record.args
    if not arguments:
        return str(record.msg) if isinstance(record.msg, str | BaseException) else WITHHELD
    try:
        if isinstance(arguments, Mapping):
            return str(record.msg) % {name: _argument(value) for name, value in arguments.items()}
        return str(record.msg) % tuple(_argument(value) for value in arguments)
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {WITHHELD}"


def _argument(value: object) -> object:
    if value is None or type(value) in (str, int, float, bool) or isinstance(value, BaseException | PurePath):
        return value
    return value.name if isinstance(value, enum.Enum) else WITHHELD


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"
