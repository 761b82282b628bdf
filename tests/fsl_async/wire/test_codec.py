"""Messages on the wire: round trips, and everything a hostile peer could send instead."""

import re
import typing
from typing import Any

import msgpack
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import PeerViolationError
from fsl_async.protocols.ending import Step
from fsl_async.wire import messages
from fsl_async.wire.codec import CONTROL_LIMIT, DEPTH_LIMIT, decode, encode
from tests.support.cases import in_turn, peak_of
from tests.support.messages import example_of

UNIONS = {"client": messages.FromClient, "server": messages.FromServer, "peer": messages.FromPeer}
EVERYBODY = messages.FromClient | messages.FromServer | messages.FromPeer
CASES = [(union, example_of(kind)) for union in UNIONS.values() for kind in typing.get_args(union)]
RETRIEVE = typing.cast(messages.Retrieve, example_of(messages.Retrieve))


def wire(message: messages.Message, *bulk: bytes) -> bytes:
    return b"".join(encode(message, *bulk))


def retrieve_with(**fields: Any) -> bytes:
    """A retrieval with some fields replaced."""
    return bytes(msgpack.packb(msgpack.unpackb(wire(RETRIEVE)) | fields))


# ---- round trips


@in_turn("union, message", CASES)
def test_every_message_comes_back(union: Any, message: messages.Message) -> None:
    assert decode(wire(message), union, "peer").message == message
    assert len(decode(wire(message), union, "peer").bulk) == 0
    if message.carries_bulk:
        received = decode(wire(message, b"bulk", b" data"), union, "peer")
        assert received.message == message
        assert bytes(received.bulk) == b"bulk data"
    else:
        with pytest.raises(PeerViolationError, match="which has no bulk"):
            decode(wire(message, b"bulk"), union, "peer")


def test_every_message_has_a_tag_of_its_own() -> None:
    kinds = {kind for union in UNIONS.values() for kind in typing.get_args(union)}
    assert len(kinds) == sum(len(typing.get_args(union)) for union in UNIONS.values()) - 1, "a server refuses both"
    assert len({msgspec.inspect.type_info(kind).tag for kind in kinds}) == len(kinds)  # type: ignore[attr-defined]


def test_the_wire_is_one_map_and_then_the_bulk() -> None:
    unpacker = msgpack.Unpacker()
    whole = wire(messages.Enter(3), b"abc", b"", b"def")
    unpacker.feed(whole)
    assert unpacker.unpack() == {"type": "enter", "after": 3, "known": b""}
    assert whole[unpacker.tell() :] == b"abcdef"


def test_bulk_is_neither_copied_nor_encoded_again() -> None:
    bulk = np.arange(1000, dtype=np.uint64)
    parts = encode(RETRIEVE, memoryview(bulk).cast("B"))
    assert np.shares_memory(np.frombuffer(parts[1], dtype=np.uint64), bulk)
    data = bytearray(b"".join(parts))
    received = decode(data, messages.FromClient, "alice").bulk
    assert np.shares_memory(np.frombuffer(received, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8))


def test_a_message_without_bulk_and_one_with_empty_bulk_are_the_same() -> None:
    assert wire(messages.Enter(1)) == wire(messages.Enter(1), b"", b"")


# ---- who may say what


@in_turn("union, message", CASES)
def test_nobody_can_send_what_belongs_to_another(union: Any, message: messages.Message) -> None:
    for other in UNIONS.values():
        if type(message) not in typing.get_args(other):
            with pytest.raises(PeerViolationError, match=r"^mallory: sent a message that cannot be read"):
                decode(wire(message), other, "mallory")


def test_the_sender_is_named() -> None:
    with pytest.raises(PeerViolationError) as violation:
        decode(b"", messages.FromClient, "mallory")
    assert violation.value.peer == "mallory"


# ---- malformed messages


@in_turn("union, message", CASES)
def test_every_cut_is_refused(union: Any, message: messages.Message) -> None:
    head = wire(message)
    for length in range(len(head)):
        with pytest.raises(PeerViolationError):
            decode(head[:length], union, "peer")


# ---- one encoding


def test_every_field_is_sent_also_one_that_says_nothing() -> None:
    for _, message in CASES:
        assert list(plain(message)) == ["type", *message.__struct_fields__]
    assert wire(messages.Known(said=Step.ROSTER, heard=Step.NOTHING)) == wire(messages.Known(said=5))


def packed(fields: dict[str, Any], *more: tuple[str, Any]) -> bytes:
    """A map of these fields in this order, and of more that may repeat their keys."""
    head = bytes([0x80 + len(fields) + len(more)])
    return head + b"".join(msgpack.packb(part) for item in (*fields.items(), *more) for part in item)


def plain(message: messages.Message) -> dict[str, Any]:
    return dict(msgpack.unpackb(wire(message)))


ENTER = messages.Enter(5, b"\x09" * 32)
SUBMIT = typing.cast(messages.Submit, example_of(messages.Submit))
FORWARD = example_of(messages.Forward)
OTHER_ENCODINGS = {
    "`type` at the end": (packed(dict(reversed(plain(ENTER).items()))), "byte 1 is not"),
    "fields in another order": (packed(dict(sorted(plain(SUBMIT).items()))), "byte 1 is not"),
    "a key twice": (packed(plain(ENTER), ("after", 5)), "byte 0 is not"),
    "`type` twice": (packed(plain(ENTER), ("type", "enter")), "byte 0 is not"),
    "a map in its 16-bit form": (b"\xde\x00" + bytes([wire(ENTER)[0] - 0x80]) + wire(ENTER)[1:], "byte 0 is not"),
    "a map in its 32-bit form": (
        b"\xdf\x00\x00\x00" + bytes([wire(ENTER)[0] - 0x80]) + wire(ENTER)[1:],
        "byte 0 is not",
    ),
    "a number in 8 bits": (wire(ENTER).replace(b"\x05", b"\xcc\x05"), "is not as in its one encoding"),
    "a number in 64 bits": (
        wire(ENTER).replace(b"\x05", b"\xcf" + bytes(7) + b"\x05"),
        "is not as in its one encoding",
    ),
    "a number as a signed one": (wire(ENTER).replace(b"\x05", b"\xd0\x05"), "is not as in its one encoding"),
    "bytes in their 16-bit form": (wire(ENTER).replace(b"\xc4\x20", b"\xc5\x00\x20"), "is not as in its one encoding"),
    "text in its 8-bit form": (wire(ENTER).replace(b"\xa5after", b"\xd9\x05after"), "is not as in its one encoding"),
    "an array in its 16-bit form": (
        wire(RETRIEVE).replace(b"\x92\xc4", b"\xdc\x00\x02\xc4"),
        "is not as in its one encoding",
    ),
    "an absent value left out": (
        packed({"type": "enter", "after": 5}),
        "missing required field `known`: all are sent, also where nothing is said",
    ),
    "an absent value that is nil": (packed(plain(messages.Enter(5)) | {"known": None}), "- at `$.known`"),
    "a number below 0": (packed(plain(ENTER) | {"after": -1}), "`int` >= 0 - at `$.after`"),
    "an id of 31 bytes": (packed(plain(ENTER) | {"known": bytes(31)}), "32 bytes or none - at `$.known`"),
    "an id of 33 bytes": (packed(plain(ENTER) | {"known": bytes(33)}), "32 bytes or none - at `$.known`"),
    "a round of 31 bytes": (packed(plain(RETRIEVE) | {"round_id": bytes(31)}), "`bytes` of length >= 32 - at"),
    "no public digest": (packed(plain(RETRIEVE) | {"public_digest": b""}), "- at `$.public_digest`"),
    "no commitment": (packed(plain(RETRIEVE) | {"commitments": [b"", bytes(32)]}), "- at `$.commitments"),
    "a seed of 15 bytes": (packed(plain(RETRIEVE) | {"seed": bytes(15)}), "- at `$.seed`"),
    "a proof's digest of 16 bytes": (
        packed(plain(SUBMIT) | {"bound_digest": bytes(16)}),
        "32 bytes or none - at `$.bound_digest`",
    ),
    "a server's name": (packed(plain(FORWARD) | {"client": "S0"}), "a client's name - at `$.client`"),
    "a name with a bell": (packed(plain(FORWARD) | {"client": "a\a"}), "a client's name - at `$.client`"),
    "a wait that is negative": (
        packed(plain(messages.Refused(reason="busy", explanation="")) | {"retry_after": -1}),
        "- at `$.retry_after`",
    ),
}


@pytest.mark.parametrize(("data", "why"), OTHER_ENCODINGS.values(), ids=OTHER_ENCODINGS)
def test_a_message_has_one_encoding(data: bytes, why: str) -> None:
    with pytest.raises(PeerViolationError, match=re.escape(why)):
        decode(data, EVERYBODY, "peer")


WRONG = {
    "an unknown field": {"more": 1},
    "a boolean for an integer": {"query": True},
    "a float for an integer": {"query": 1.0},
    "text for an integer": {"query": "1"},
    "nothing for an integer": {"query": None},
    "an integer no machine word holds": {"query": msgpack.ExtType(5, b"")},
    "text for bytes": {"seed": "AAAA"},
    "text for bytes, not even base64": {"seed": "!"},
    "numbers for bytes": {"seed": [1, 2, 3]},
    "one commitment": {"commitments": [b"a"]},
    "three commitments": {"commitments": [b"a", b"b", b"c"]},
    "commitments as text": {"commitments": ["AAAA", "AAAA"]},
    "an unknown tag": {"type": "other"},
    "a tag that is a number": {"type": 1},
    "an extension": {"seed": msgpack.ExtType(5, b"x")},
    "an empty extension": {"seed": msgpack.ExtType(5, b"")},
    "a timestamp": {"query": msgpack.Timestamp(1, 0)},
}


@in_turn("fields", WRONG.values())
def test_wrong_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PeerViolationError, match=r"^alice: sent a message that cannot be read"):
        decode(retrieve_with(**fields), messages.FromClient, "alice")


@pytest.mark.parametrize("missing", [field.name for field in msgspec.structs.fields(messages.Retrieve)] + ["type"])
def test_every_field_must_be_there(missing: str) -> None:
    plain = msgpack.unpackb(wire(RETRIEVE))
    del plain[missing]
    with pytest.raises(PeerViolationError, match=f"missing required field `{missing}`"):
        decode(msgpack.packb(plain), messages.FromClient, "alice")


@pytest.mark.parametrize("reason", ["", "tired", None, 1])
def test_a_refusal_has_one_of_the_known_reasons(reason: object) -> None:
    plain = {"type": "refused", "reason": reason, "explanation": ""}
    with pytest.raises(PeerViolationError):
        decode(msgpack.packb(plain), messages.FromServer, "S0")
    assert (
        decode(wire(messages.Refused(reason="limit", explanation="")), messages.FromServer, "S0").message.reason
        == "limit"
    )


@pytest.mark.parametrize(
    "data",
    [
        *(b"\xc1", b"\x01", b"\x90", b"\xa5enter", b"\xc0", b"\x80", b"\xc7\x00\x05", b"\xd4\xff\x00"),
        *(msgpack.packb({"type": "enter", "after": 1, key: 0}) for key in (1, None, b"more", (1, 2))),
        b"\x82\xa4type\xa6refuse\xa6reason\xa1\xff",  # no UTF-8
    ],
)
def test_what_is_not_a_message_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(PeerViolationError):
        decode(data, EVERYBODY, "alice")


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    for union in UNIONS.values():
        with pytest.raises(PeerViolationError):
            decode(data, union, "peer")


@given(st.data())
def test_a_damaged_message_is_refused_or_is_another_message(data: st.DataObject) -> None:
    """Nothing but a violation is ever raised."""
    union, message = data.draw(st.sampled_from(CASES))
    whole = bytearray(wire(message, b"some bulk"))  # type: ignore[arg-type]
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        received = decode(whole, union, "peer")
    except PeerViolationError:
        return
    assert wire(received.message, bytes(received.bulk)) == bytes(whole)


# ---- limits


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def why_refused(data: bytes, union: Any = messages.FromClient) -> str:
    with pytest.raises(PeerViolationError) as violation:
        decode(data, union, "peer")
    return str(violation.value)


def test_arrays_of_at_most_64() -> None:
    assert "exceeds max_array_len" in why_refused(retrieve_with(commitments=[b""] * 65))
    assert "exceeds max_array_len" not in why_refused(retrieve_with(commitments=[b""] * 64))


def test_maps_of_at_most_32() -> None:
    assert "exceeds max_map_len" in why_refused(msgpack.packb({str(i): 0 for i in range(33)}))
    assert "exceeds max_map_len" not in why_refused(msgpack.packb({str(i): 0 for i in range(32)}))


def test_text_of_at_most_256_bytes() -> None:
    longest = messages.Refused(reason="limit", explanation="ü" * 128)
    assert decode(wire(longest), messages.FromServer, "S0").message == longest
    assert "exceeds max_str_len" in why_refused(
        wire(messages.Refused(reason="limit", explanation="x" * 257)), messages.FromServer
    )


def test_extensions_are_refused() -> None:
    assert "exceeds max_ext_len" in why_refused(retrieve_with(query=msgpack.ExtType(5, b"x")))


def test_nesting_of_at_most_4() -> None:
    assert DEPTH_LIMIT == 4
    assert "nested deeper than 4" in why_refused(msgpack.packb(nested(5)))
    assert "nested deeper than 4" in why_refused(retrieve_with(query=nested(4)))
    assert "nested deeper" not in why_refused(msgpack.packb(nested(4)))


def test_a_head_of_at_most_64_kib() -> None:
    """The configuration is the largest field there is; beside it there is room for its map, and no more."""
    most = CONTROL_LIMIT - len(wire(messages.Opened(b""))) - 1  # a longer length takes a byte more
    assert decode(wire(messages.Opened(bytes(most))), messages.FromServer, "S0").message.config == bytes(most)
    why_refused(wire(messages.Opened(bytes(most + 1))), messages.FromServer)
    why_refused(wire(messages.AskOutcome(bytes(CONTROL_LIMIT))))


def test_bulk_may_be_larger_than_any_head() -> None:
    bulk = bytes(3 * CONTROL_LIMIT)
    whole = wire(RETRIEVE, bulk)
    assert len(decode(whole, messages.FromClient, "alice").bulk) == len(bulk)
    assert len(whole) <= len(bulk) + CONTROL_LIMIT


HEADERS = {
    "arrays in arrays": b"\xdc\x00\x40" * (CONTROL_LIMIT // 3),
    "short arrays in arrays": b"\x9f" * CONTROL_LIMIT,
    "maps in maps": b"\xde\x00\x20\xa1a" * (CONTROL_LIMIT // 5),
    "empty arrays side by side": (b"\xdc\x00\x40" + b"\x90" * 64) * (CONTROL_LIMIT // 67),
    "arrays of arrays of empty maps": b"\xdc\x00\x40" + (b"\xdc\x00\x40" + b"\x80" * 64) * (CONTROL_LIMIT // 68),
    "a bin that claims 4 GB": b"\xc6\xff\xff\xff\xff",
    "text that claims 4 GB": b"\xdb\xff\xff\xff\xff",
    "an array that claims 4 G items": b"\xdd\xff\xff\xff\xff",
    "a map that claims 4 G items": b"\xdf\xff\xff\xff\xff",
    "an extension that claims 4 GB": b"\xc9\xff\xff\xff\xff\x05",
}


@pytest.mark.parametrize("data", HEADERS.values(), ids=HEADERS)
def test_headers_cannot_make_the_receiver_allocate(data: bytes) -> None:
    assert peak_of(lambda: why_refused(data)) < 100 * CONTROL_LIMIT
