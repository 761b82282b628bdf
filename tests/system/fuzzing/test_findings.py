"""What the fuzzer has found, given to its parsers again: all of it is refused by now."""

import math
import struct

import msgpack

from fsl_async.protocols.ssa import Evaluated, PeerAbort, PeerProofs, PeerRoster, Submitted
from parties.cluster.frames import Answered, ArrayForm, framed
from parties.cluster.orders import encoded
from tests.support.cases import in_turn
from transport.records import RecordType

from .catalogue import PARSERS
from .cluster_parsers import SAID
from .parser import accepts
from .recorded_round import journal_of

OWNER = msgpack.unpackb(PARSERS["state-owner"].samples[0])


def _answer(total: int) -> bytes:
    """A hostile server's first record: an answer, as a part of a message of that length."""
    before = bytes([RecordType.DATA]) + (1_024).to_bytes(8)
    payload, record = PARSERS["handshake-hostile-server"].samples[0].split(before)
    return payload + bytes([RecordType.DATA]) + total.to_bytes(8) + record


def _answered(body: bytes, length: int) -> bytes:
    """A running server's answer to the question how it stands."""
    return b"\0HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (length, body)


NAN = struct.pack(">d", math.nan)
ROSTER = {"alice": bytes(32), "bob": bytes(32)}
PROOFS = PeerProofs(ROSTER)
STATEMENT = f'statement = "{"cd" * 32}"\n'.encode()

FINDINGS = {
    "an answer that goes on": ("handshake-hostile-server", _answer(5_000)),
    "a port of too many digits": ("address", b"host:" + b"9" * 5_000),
    "nothing but a bracket": ("address", b"[:0"),
    "lists in lists of clients": ("entries", b"\xdd\x00\x01\x86\xa0" * 800),
    "lists in lists in a statement": ("statement", b"\xdd\x00\x01\x86\xa0" * 800),
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
    "half a bracket of an address": ("operator-url", b"[::1"),
    "no address in brackets": ("operator-url", b"[x]:80"),
    "rows that are none": ("rows", b"3,null"),
    "a row that is half of one": ("rows", b"1.5"),
    "rows in rows": ("rows", b"@" + b"[" * 100_000),
    "a setting beyond a float": ("environment", b"FSL_ASYNC_ROUNDS_CLIENTS=1" + b"0" * 400),
    "a token that would be a header": ("operator-token", b"ab\r\nX: y"),
    "an answer as long as a disk": (
        "operator-answer",
        b"\0HTTP/1.1 200 OK\r\nContent-Length: 9%b\r\n\r\n{}" % (b"9" * 17),
    ),
    "another program's answer": ("operator-answer", b"\0HTTP/1.1 200 OK\r\n\r\n{}"),
    "an answer of lists in lists": ("operator-answer", b"\0HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000),
    "lists in a field that nobody knows": ("server-past", b"\x81\xa1x" + b"\x91" * 2_000),
    "a recorded evaluation of nobody": (
        "server-round-events",
        journal_of([*(Submitted(*entry) for entry in ROSTER.items()), PeerRoster(ROSTER), Evaluated({}), PROOFS]),
    ),
    "a report whose text is none": ("worker-words", b"\x01\x81\xa2\xff\xfe\x01"),
    "a report of lists in lists": ("worker-words", b"\x01\x81\xa1x" + b"\x91" * 2_000),
    "a report of no seconds": ("worker-words", b"\x01" + encoded(SAID[1]).replace(struct.pack(">d", 1.5), NAN)),
    "an array of nothing that is too long": (
        "cluster-frames",
        framed(Answered(1, b"", (ArrayForm("<u8", (0, 2**62, 2**62)),))),
    ),
    "constants whose text is none": ("constants", b'{"version": 2, "constants": {"machine": "\xff\xfe"}}'),
    "constants of lists in lists": ("constants", b"[" * 100_000),
    "a recorded end without a reason": ("server-round-events", journal_of([PeerAbort("")])),
}


@in_turn("name", FINDINGS)
def test_what_was_found_is_refused(name: str) -> None:
    parser, data = FINDINGS[name]
    assert not accepts(PARSERS[parser], data)


def test_the_answer_that_goes_on_is_an_answer_where_it_ends() -> None:
    assert accepts(PARSERS["handshake-hostile-server"], _answer(1_024))
