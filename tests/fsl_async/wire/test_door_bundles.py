"""Bundles of a core's and a door's messages: round trips, where they are cut, and everything else that could come."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import MisuseError, PeerViolationError
from fsl_async.wire import door_bundles
from fsl_async.wire.codec import CONTROL_LIMIT, encode
from fsl_async.wire.door_bundles import FULL, LONGEST_OF_A_DOOR, MOST_BUNDLED, Outgoing, unbundled
from fsl_async.wire.door_messages import (
    AdmitKey,
    Answered,
    Ask,
    CoreToDoor,
    DoorToCore,
    Kept,
    Leave,
    NotYet,
    Taken,
)

KEPT = Kept(call=2**40, part=b"p" * 32, tree=b"t" * 32)
ADMIT = AdmitKey(call=7, key=b"k" * 32, payload=b"payload")


def taken(outgoing: Outgoing) -> bytes:
    return b"".join(map(bytes, outgoing.take()))


def bundle(*messages: Any) -> bytes:
    outgoing = Outgoing()
    for message in messages:
        outgoing.add(message)
    return taken(outgoing)


def entry(head: bytes, bulk: bytes = b"") -> bytes:
    return len(head).to_bytes(4, "big") + len(bulk).to_bytes(4, "big") + head + bulk


def why_refused(data: bytes, union: Any = DoorToCore) -> str:
    with pytest.raises(PeerViolationError, match=r"^mallory: sent ") as violation:
        unbundled(data, union, "mallory")
    return str(violation.value)


# ---- round trips


def test_messages_come_back_in_order_with_their_bulk() -> None:
    outgoing = Outgoing()
    numbers = [
        outgoing.add(Answered(1), b"bulk", b" data"),
        outgoing.add(NotYet(2)),
        outgoing.add(Answered(3), bytes(10_000)),
        outgoing.add(Taken(4)),
    ]
    assert numbers == [1, 2, 3, 4]
    received = unbundled(taken(outgoing), CoreToDoor, "S0")
    assert [message for message, _ in received] == [Answered(1), NotYet(2), Answered(3), Taken(4)]
    assert [bytes(bulk) for _, bulk in received] == [b"bulk data", b"", bytes(10_000), b""]
    assert (outgoing.added, outgoing.taken, len(outgoing)) == (4, 4, 0)


def test_a_bundle_is_sizes_heads_and_bulk() -> None:
    outgoing = Outgoing()
    outgoing.add(Leave(3))
    outgoing.add(KEPT, b"abc")
    assert taken(outgoing) == entry(bytes(encode(Leave(3))[0])) + entry(bytes(encode(KEPT)[0]), b"abc")


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=40), st.data())
def test_any_messages_come_back(numbers: list[int], data: st.DataObject) -> None:
    outgoing = Outgoing()
    said = [(Answered(number), data.draw(st.binary(max_size=64))) for number in numbers]
    for message, bulk in said:
        outgoing.add(message, bulk)
    received = unbundled(taken(outgoing), CoreToDoor, "S0")
    assert [(message, bytes(bulk)) for message, bulk in received] == said


def test_much_bulk_is_neither_copied_nor_bundled() -> None:
    bulk = np.arange(10_000, dtype=np.uint64)
    outgoing = Outgoing()
    outgoing.add(NotYet(1))
    outgoing.add(Answered(2), memoryview(bulk).cast("B"))
    outgoing.add(NotYet(3))
    assert unbundled(taken(outgoing), CoreToDoor, "S0")[-1].message == NotYet(1)
    parts = outgoing.take()
    assert any(np.shares_memory(np.frombuffer(part, dtype=np.uint8), bulk) for part in parts)
    data = bytearray(b"".join(parts))
    ((message, view),) = unbundled(data, CoreToDoor, "S0")
    assert message == Answered(2)
    assert np.shares_memory(np.frombuffer(view, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8))
    assert unbundled(taken(outgoing), CoreToDoor, "S0")[0].message == NotYet(3)


def test_a_bundle_ends_when_it_is_full() -> None:
    outgoing = Outgoing()
    for number in range(2_000):
        outgoing.add(Leave(number))
    long = Ask(call=1, visit=1, request=bytes(4_096))
    for _ in range(20):
        outgoing.add(long)
    numbers: list[int] = []
    while outgoing:
        data = taken(outgoing)
        assert len(data) <= FULL
        received = unbundled(data, DoorToCore, "S0's door")
        assert 1 <= len(received) <= MOST_BUNDLED
        numbers += [message.visit for message, _ in received if isinstance(message, Leave)]
    assert numbers == list(range(2_000))
    assert outgoing.taken == outgoing.added == 2_020


def test_a_doors_longest_message_is_one_that_a_core_reads() -> None:
    assert FULL + CONTROL_LIMIT < LONGEST_OF_A_DOOR


def test_what_is_cleared_is_not_sent() -> None:
    outgoing = Outgoing()
    outgoing.add(Leave(1))
    outgoing.clear()
    assert not outgoing
    assert outgoing.taken == outgoing.added == 1


def test_more_bulk_than_a_message_carries_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_bundles, "BULK_LIMIT", 10)
    with pytest.raises(MisuseError, match="11 bytes in one message; 10 are the most"):
        Outgoing().add(Answered(1), bytes(5), bytes(6))


# ---- hostile bundles


def test_every_cut_and_every_trailing_byte_is_refused() -> None:
    whole = bundle(ADMIT, KEPT, Leave(1))
    ends = {len(bundle(ADMIT)), len(bundle(ADMIT, KEPT)), len(whole)}
    for size in range(len(whole)):
        if size in ends:
            unbundled(whole[:size], DoorToCore, "door")
        else:
            why_refused(whole[:size])
    for more in (b"\0", bytes(7), bytes(8)):
        why_refused(whole + more)


def test_an_empty_bundle_is_refused() -> None:
    assert "0 bytes where a message's two sizes are expected" in why_refused(b"")


def test_bytes_behind_a_head_are_refused() -> None:
    assert "cannot be read" in why_refused(entry(bytes(encode(KEPT)[0]) + b"\0"))


def test_sizes_that_reach_beyond_the_bundle_are_refused() -> None:
    head = bytes(encode(KEPT)[0])
    for sizes in ((len(head) + 1, 0), (len(head), 1), (0, 2**32 - 1), (1, 2**32 - 1)):
        data = b"".join(size.to_bytes(4, "big") for size in sizes) + head
        assert "ends too early" in why_refused(data)
    assert "are the most" in why_refused(b"\xff" * 8 + head)
    assert "65,537 bytes; 65,536 are the most" in why_refused(entry(bytes(CONTROL_LIMIT + 1)))


def test_too_many_messages_are_refused() -> None:
    most = entry(bytes(encode(Leave(1))[0])) * MOST_BUNDLED
    assert len(unbundled(most, DoorToCore, "door")) == MOST_BUNDLED
    assert f"more than {MOST_BUNDLED} messages" in why_refused(most + entry(bytes(encode(Leave(1))[0])))


@pytest.mark.parametrize(
    "plain",
    [
        {"type": "kept", "call": 1, "part": "p" * 32, "tree": b""},
        {"type": "kept", "call": -1, "part": b"", "tree": b""},
        {"type": "kept", "call": 1.0, "part": b"", "tree": b""},
        {"type": "kept", "call": True, "part": b"", "tree": b""},
        {"type": "kept", "call": 1, "part": bytes(65), "tree": b""},
        {"type": "kept", "call": 1, "part": b""},
        {"type": "kept", "call": 1, "part": b"", "tree": b"", "more": [[[[[[]]]]]]},
        {"type": "kept", "call": [[[[[[]]]]]], "part": b"", "tree": b""},
        {"type": "answered", "call": 1},
        {"type": "enter", "after": 1},
        {"call": 1},
        {},
        [],
        7,
        None,
    ],
)
def test_what_no_door_says_is_refused_as_a_whole(plain: Any) -> None:
    assert "a message that cannot be read" in why_refused(bundle(ADMIT) + entry(msgpack.packb(plain)))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xc1",
        b"\x91" * CONTROL_LIMIT,
        b"\x81\xa4type" * 10_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa4type\xdb\xff\xff\xff\xff",
        b"\x82\xa4type\xa5leave\xa5visit\xc6\xff\xff\xff\xff",
        b"\x82\xa4type\xa2\xff\xfe\xa5visit\x01",
    ],
)
def test_heads_cannot_make_the_receiver_allocate(head: bytes) -> None:
    tracemalloc.start()
    try:
        why_refused(entry(head))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * CONTROL_LIMIT


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bundle_or_refused(data: bytes) -> None:
    for union in (DoorToCore, CoreToDoor):
        with suppress(PeerViolationError):
            assert unbundled(data, union, "mallory")
