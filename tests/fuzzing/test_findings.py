"""What the fuzzer has found, given to its parsers again: all of it is refused by now."""

from __future__ import annotations

import msgpack
import pytest

from transport.records import RecordType

from .catalogue import PARSERS
from .parser import accepts

OWNER = msgpack.unpackb(PARSERS["state-owner"].samples[0])


def _answer(kind: RecordType, total: int) -> bytes:
    """A hostile server's first record: an answer, as a part of a message of that length."""
    payload, record = PARSERS["handshake-hostile-server"].samples[0].split(bytes([RecordType.END]) + (1024).to_bytes(8))
    return payload + bytes([kind]) + total.to_bytes(8) + record


STATEMENT = f'statement = "{"cd" * 32}"\n'.encode()

FINDINGS = {
    "an answer that goes on": ("handshake-hostile-server", _answer(RecordType.MORE, 5_000)),
    "a port of too many digits": ("address", b"host:" + b"9" * 5_000),
    "nothing but a bracket": ("address", b"[:0"),
    "lists in lists of clients": ("entries", b"\xdd\x00\x01\x86\xa0" * 800),
    "lists in lists in a report": ("report", b"\xdd\x00\x01\x86\xa0" * 800),
    "a client on a list twice": (
        "client-list",
        PARSERS["client-list"].samples[0].replace(b'"bob"', b'"alice"').replace(b"[[revoked]]", b"[[clients]]")
        + STATEMENT,
    ),
    "a number of too many digits": ("task-file", b"a = " + b"9" * 5_000),
    "lists in lists of TOML": ("server-file", b"a = " + b"[" * 3_000),
    "an integer beyond a float": ("server-file", b"server = 1" + b"0" * 400),
    "a text that is none": ("state-owner", b"\x84\xa7\xe2veRsion\x01"),
    "an owner whose task cannot be read": ("state-owner", msgpack.packb(OWNER | {"task": b"\x81"})),
    "a type of array that is none": (
        "server-standing",
        PARSERS["server-standing"].samples[0].replace(b"\xa3<f4", b"\xa3<(4", 1),
    ),
    "a half of a negative round": (
        "server-toss-half",
        PARSERS["server-toss-half"].samples[0].replace(b"number\x03", b"number\xff"),
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_was_found_is_refused(name: str) -> None:
    parser, data = FINDINGS[name]
    assert not accepts(PARSERS[parser], data)


def test_the_answer_that_goes_on_is_an_answer_where_it_ends() -> None:
    assert accepts(PARSERS["handshake-hostile-server"], _answer(RecordType.END, 1024))
