"""All parsers, by name; and three that fail on purpose, by which the fuzzer itself is tried."""

from collections.abc import Mapping

from fsl_async.errors import MisuseError

from . import (
    answer_parsers,
    bound_parsers,
    channel_parsers,
    cluster_parsers,
    command_parsers,
    file_parsers,
    machines,
    message_parsers,
    recorded_round,
    store_parsers,
)
from .parser import Parser

MODULES = (
    answer_parsers,
    bound_parsers,
    channel_parsers,
    message_parsers,
    file_parsers,
    command_parsers,
    cluster_parsers,
    store_parsers,
    recorded_round,
    machines,
)

PARSERS: Mapping[str, Parser] = {parser.name: parser for module in MODULES for parser in module.PARSERS}


def _crash(data: bytes) -> None:
    if data[:1] == b"F" and data[1:2] == b"S" and data[2:3] == b"L":
        raise KeyError("what no parser may raise")


def _hang(data: bytes) -> None:
    while data[:1] == b"H":
        pass


_HOARD: list[bytes] = []


def _hoard(data: bytes) -> None:
    """Keeps a little of every input for ever."""
    _HOARD.append(bytes(20_000))


def _greedy(data: bytes) -> None:
    """Makes room for whatever is declared."""
    if len(data) >= 4:
        bytearray(int.from_bytes(data[:4], "big"))


PLANTED: Mapping[str, Parser] = {
    name: Parser(name, read, lambda: [b"valid"], (MisuseError,), longest=16)
    for name, read in (
        ("planted-crash", _crash),
        ("planted-hang", _hang),
        ("planted-hoard", _hoard),
        ("planted-greed", _greedy),
    )
}


def parser_named(name: str) -> Parser:
    """The parser of that name.

    Raises:
        MisuseError: there is none.
    """
    known = {**PARSERS, **PLANTED}
    if name not in known:
        raise MisuseError(f"no parser is called {name!r}; there are {', '.join(PARSERS)}")
    return known[name]
