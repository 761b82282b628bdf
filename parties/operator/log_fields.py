"""What a line of the log may say: fields that are on a list, each with a guard that knows what belongs in it.

Rules: a field that is not on the list does not pass, whatever is in it; nor does a value of another kind than its
field's. Bytes, arrays and containers never pass; in running text a run of digits as long as a key is withheld, for
somebody may have formatted one. What strangers send is printed, never obeyed: control characters are escaped, and
nothing is longer than a line should be. Nobody has to remember any of this when writing to the log.
"""

from __future__ import annotations

import enum
import logging
import math
import re
from collections.abc import Callable, Mapping, MutableMapping
from copy import copy
from pathlib import PurePath
from typing import Any, TypeAlias

from fsl_async.foreign_text import printable

__all__ = ["FAILURE", "FIELDS", "WITHHELD", "admitted", "discreet_record", "only_listed", "plain_text"]

WITHHELD = "(withheld)"
FAILURE = "failure"
"""The attribute under which a discreet record keeps its error."""

LONGEST_TEXT = 2_000
LONGEST_NAME = 128

_KEY_IN_DIGITS = re.compile(r"[0-9A-Fa-f]{17,}")
_BYTES_LITERAL = re.compile(r"\bb(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_LONG_WORD = re.compile(r"[A-Za-z0-9+/]{22,}={0,2}")

Guard: TypeAlias = Callable[[Any], Any]


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """A value that does not belong in its field."""


def plain_text(words: str) -> str:
    """Running text as it may be printed: no control characters, no keys, not too long."""
    words = _shortened(words, LONGEST_TEXT)
    for pattern in (_BYTES_LITERAL, _KEY_IN_DIGITS):
        words = pattern.sub(WITHHELD, words)
    return printable(_LONG_WORD.sub(_unless_base64, words))


def _unless_base64(match: re.Match[str]) -> str:
    """A long word, unless it has capitals, small letters and something else: as base64 has and class names have not."""
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
    """A name may look like anything, a key's digits included; it was public before it came here."""
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


FIELDS: Mapping[str, Guard] = {
    **dict.fromkeys(("time", "level", "logger", "server", "client", "party", "origin"), _name),
    **dict.fromkeys(("event", "explanation", "exception", "phase", "state", "kind", "reason", "about"), _text),
    **dict.fromkeys(("key", "round_id", "closes_at"), _text),
    **dict.fromkeys(("round", "total", "bytes", "limit", "counted", "not_counted", "part", "parts", "times"), _number),
    **dict.fromkeys(("seconds", "evaluating"), _number),
    "clients": _names,
    "excluded": _reasons,
}
"""Every field that a line can have."""


def admitted(name: str, value: Any) -> Any:
    """A value as its field admits it; `WITHHELD` where the field is not on the list or the value not of its kind."""
    guard = FIELDS.get(name)
    if guard is None:
        return WITHHELD
    try:
        return guard(value)
    except _Refused:
        return WITHHELD


def only_listed(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog's: the line with what passes, and the names of what does not."""
    passed = {name: admitted(name, value) for name, value in line.items() if name in FIELDS}
    refused = sorted(_name(str(name)) for name in line.keys() - passed.keys())
    return {**passed, "withheld": refused} if refused else passed


def discreet_record(record: logging.LogRecord) -> logging.LogRecord:
    """A copy of a record of the standard library's, whose arguments are words and numbers only."""
    safe = copy(record)
    safe.__dict__[FAILURE] = record.exc_info[1] if record.exc_info else None
    safe.exc_info, safe.exc_text, safe.stack_info = None, None, None
    if not hasattr(record, "_logger"):  # structlog leaves this mark on its own, whose fields are guarded one by one
        safe.msg, safe.args = _message(record), ()
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


def _shortened(words: str, longest: int) -> str:
    return words if len(words) <= longest else words[:longest] + "…"
