"""Lists that a peer declares and does not send: they take no memory."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest

from fsl_async.errors import PeerViolationError
from fsl_async.wire.client_digests import pack_digests, unpack_digests
from parties.outcome import Done, RoundReport

MANY = 100_000
NESTED = (b"\xdd" + MANY.to_bytes(4, "big")) * 1_000
"""Five thousand bytes: lists of a hundred thousand, each the first item of the one before."""

REPORT = RoundReport(round_id=bytes(32), number=1, ending=Done(), clients=("a", "b"), excluded={"c": "proof"}, model=())


@pytest.mark.parametrize("read", [unpack_digests, RoundReport.parse], ids=["entries", "report"])
def test_lists_in_lists_take_no_memory(read):
    tracemalloc.start()
    try:
        with pytest.raises(PeerViolationError, match=r"^S1: sent a .* that cannot be read"):
            read(NESTED, MANY, "S1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_name_longer_than_any_client_has_is_refused():
    unpack_digests(pack_digests({"é" * 64: bytes(32)}), 1, "S1")
    with pytest.raises(PeerViolationError, match="length <= 64"):
        unpack_digests(pack_digests({"é" * 65: bytes(32)}), 1, "S1")


def test_a_report_of_more_clients_than_the_task_has_is_refused():
    assert RoundReport.parse(REPORT.canonical(), 2, "S1") == REPORT
    with pytest.raises(PeerViolationError, match=r"with 2 clients and 1 more .*; the task has at most 1"):
        RoundReport.parse(REPORT.canonical(), 1, "S1")


@pytest.mark.parametrize("field", ["ending", "clients", "excluded"])
def test_a_report_of_endless_words_is_refused(field):
    plain = msgpack.unpackb(REPORT.canonical())
    plain[field] = {
        "ending": {"type": "aborted", "explanation": "x" * 257},
        "clients": ["x" * 65],
        "excluded": {"c": "x" * 257},
    }[field]
    with pytest.raises(PeerViolationError, match="length"):
        RoundReport.parse(msgpack.packb(plain), 2, "S1")


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "done",
        {"type": "lost"},
        {"type": "aborted"},
        {"type": "aborted", "explanation": ""},
        {"type": "done", "explanation": "x"},
    ],
)
def test_a_report_of_an_ending_that_there_is_not_is_refused(ending):
    plain = msgpack.unpackb(REPORT.canonical()) | {"ending": ending}
    with pytest.raises(PeerViolationError, match="outcome that cannot be read"):
        RoundReport.parse(msgpack.packb(plain), 2, "S1")
