"""The record layer without any I/O: transcripts of bytes and events."""

import random
from array import array

import pytest

from fsl_async.errors import MisuseError
from tests.support.cases import in_turn
from transport.errors import (
    AuthenticationError,
    ChannelBrokenError,
    ChannelClosedError,
    ConnectionLostError,
    RecordError,
)
from transport.noise import CipherState
from transport.records import (
    LONGEST_MESSAGE,
    RECORD_SIZE,
    REKEY_INTERVAL,
    Announced,
    Body,
    Closed,
    Finished,
    NeedData,
    RecordReader,
    RecordType,
    RecordWriter,
    wire_size,
)

KEY = random.Random(1).randbytes(32)
BODY_SIZE = RECORD_SIZE - 17
FULL = bytes(BODY_SIZE - 8)
"""What a first record holds of its message, if more of it follows."""

SIZES = [0, 1, 100, BODY_SIZE - 9, BODY_SIZE - 8, BODY_SIZE - 7, 65_534, 65_535, 65_536, 3 * BODY_SIZE, 200_000]


def writer_and_reader():
    return RecordWriter(CipherState(KEY)), RecordReader(CipherState(KEY))


class Forger:
    """A peer that holds the right key and follows no rule."""

    def __init__(self):
        self.cipher = CipherState(KEY)

    def record(self, kind, body=b""):
        ciphertext = self.cipher.encrypt(b"", bytes([kind]) + body)
        return len(ciphertext).to_bytes(2, "big") + ciphertext

    def first(self, kind, total, body=b""):
        return self.record(kind, total.to_bytes(8, "big") + body)


def drain(reader):
    """All events until the reader needs more, bodies as bytes."""
    events = []
    while not isinstance(event := reader.next_event(), NeedData | Closed):
        events.append(bytes(event.data) if isinstance(event, Body) else event)
    return events


def message_of(events):
    """The one message that events make up; checks its announcement."""
    announcement, *bodies, end = events
    message = b"".join(bodies)
    assert announcement == Announced(len(message))
    assert end == Finished()
    return message


@pytest.mark.parametrize("size", SIZES)
def test_a_message_arrives_whole(size):
    writer, reader = writer_and_reader()
    message = random.Random(size).randbytes(size)
    wire = b"".join(writer.message([message]))
    assert len(wire) == wire_size(size)
    reader.feed(wire)
    assert message_of(drain(reader)) == message


@pytest.mark.parametrize("portion", [1, 2, 3, 17, 1_000, 65_537, 65_538])
def test_portions_do_not_matter(portion):
    writer, reader = writer_and_reader()
    message = random.Random(portion).randbytes(70_000)
    wire = b"".join(writer.message([message])) + writer.ping() + writer.close()
    events = []
    for start in range(0, len(wire), portion):
        reader.feed(wire[start : start + portion])
        events += drain(reader)
    assert message_of(events) == message
    assert reader.next_event() == Closed()
    reader.feed_end()


def test_a_reader_knows_what_it_needs():
    writer, reader = writer_and_reader()
    [record] = writer.message([b"hello"])
    assert reader.needed == 1
    reader.feed(record[:1])
    assert reader.needed == 1  # the other half of the length
    for place in range(2, len(record)):
        reader.feed(record[place - 1 : place])
        assert reader.needed == len(record) - place
    reader.feed(record[-1:] + record[:1])
    assert reader.needed == 1  # there is a whole record to be read first
    assert len(drain(reader)) == 3
    assert reader.needed == 1


def test_nothing_of_a_record_is_given_out_before_its_last_byte():
    writer, reader = writer_and_reader()
    wire = b"".join(writer.message([b"secret"]))
    reader.feed(wire[:-1])
    assert drain(reader) == []
    reader.feed(wire[-1:])
    assert message_of(drain(reader)) == b"secret"


def test_parts_are_concatenated_whatever_their_item_type():
    writer, reader = writer_and_reader()
    numbers = array("d", [1.0, 2.0])
    parts = [b"", b"ab", bytearray(b"cd"), memoryview(b"efgh")[1:3], numbers, bytes(70_000), memoryview(numbers)[:0]]
    for record in writer.message(parts):
        reader.feed(record)
    assert message_of(drain(reader)) == b"abcdfg" + numbers.tobytes() + bytes(70_000)


def test_parts_that_are_not_contiguous_are_refused_before_anything_is_made():
    writer, reader = writer_and_reader()
    with pytest.raises(MisuseError, match="contiguous"):
        writer.message([b"ab", memoryview(b"abcdef")[::2]])
    reader.feed(b"".join(writer.message([b"fine"])))
    assert message_of(drain(reader)) == b"fine"


def test_records_are_full_but_for_the_last():
    writer, _ = writer_and_reader()
    parts = [bytes(1_000)] * 200
    lengths = [len(record) for record in writer.message(parts)]
    assert lengths[:-1] == [RECORD_SIZE + 2] * 3
    assert sum(lengths) == wire_size(200_000)


def test_the_key_changes_every_1024_records_in_step():
    writer, reader = writer_and_reader()
    unchanged = CipherState(KEY)
    for number in range(3 * REKEY_INTERVAL):
        wire = b"".join(writer.message([b"%d" % number]))
        reader.feed(wire)
        assert message_of(drain(reader)) == b"%d" % number
        if number == REKEY_INTERVAL - 2:
            for _ in range(REKEY_INTERVAL - 1):
                unchanged.encrypt(b"", b"")
        if number == REKEY_INTERVAL - 1:
            assert len(wire) == 19 + wire_size(4)
            assert unchanged.decrypt(b"", wire[2:19]) == bytes([RecordType.REKEY])
            with pytest.raises(AuthenticationError):
                unchanged.decrypt(b"", wire[21:])


def test_a_long_message_is_rekeyed_in_its_middle():
    writer, reader = writer_and_reader()
    for _ in range(REKEY_INTERVAL - 3):
        reader.feed(writer.ping())
    assert drain(reader) == []
    message = bytes(5 * BODY_SIZE)
    reader.feed(b"".join(writer.message([message])))
    assert message_of(drain(reader)) == message


RULES_BROKEN = {
    "unknown type": lambda f: f.record(5),
    "another unknown type": lambda f: f.record(255),
    "a message without its length": lambda f: f.record(RecordType.END),
    "a length cut short": lambda f: f.record(RecordType.END, bytes(7)),
    "a total beyond all measure": lambda f: f.first(RecordType.MORE, LONGEST_MESSAGE + 1, FULL),
    "the largest total": lambda f: f.first(RecordType.MORE, 2**64 - 1, FULL),
    "an empty first record": lambda f: f.first(RecordType.MORE, 5),
    "END too early, in the first record": lambda f: f.first(RecordType.END, 5, b"abcd"),
    "END too early": lambda f: f.first(RecordType.MORE, len(FULL) + 3, FULL) + f.record(RecordType.END, b"cd"),
    "MORE with the last byte": lambda f: f.first(RecordType.MORE, len(FULL), FULL),
    "MORE for an empty message": lambda f: f.first(RecordType.MORE, 0),
    "more than announced": lambda f: f.first(RecordType.END, 2, b"abc"),
    "more than announced, later": lambda f: (
        f.first(RecordType.MORE, len(FULL) + 1, FULL) + f.record(RecordType.END, b"cd")
    ),
    "more than announced, and no END": lambda f: f.first(RecordType.MORE, len(FULL) - 1, FULL),
    "a first record that is not full": lambda f: f.first(RecordType.MORE, 10**6, FULL[:-1]),
    "a later record that is not full": lambda f: (
        f.first(RecordType.MORE, 10**6, FULL) + f.record(RecordType.MORE, FULL)
    ),
    "an empty record inside": lambda f: f.first(RecordType.MORE, 10**6, FULL) + f.record(RecordType.MORE),
    "an empty END inside": lambda f: f.first(RecordType.MORE, len(FULL) + 1, FULL) + f.record(RecordType.END),
    "CLOSE inside a message": lambda f: f.first(RecordType.MORE, len(FULL) + 1, FULL) + f.record(RecordType.CLOSE),
    "PING inside a message": lambda f: f.first(RecordType.MORE, len(FULL) + 1, FULL) + f.record(RecordType.PING),
    "PING with a body": lambda f: f.record(RecordType.PING, b"a"),
    "CLOSE with a body": lambda f: f.record(RecordType.CLOSE, b"a"),
    "REKEY before its time": lambda f: f.record(RecordType.REKEY),
    "REKEY missing": lambda f: b"".join(f.record(RecordType.PING) for _ in range(REKEY_INTERVAL)),
    "REKEY with a body": lambda f: (
        b"".join(f.record(RecordType.PING) for _ in range(REKEY_INTERVAL - 1)) + f.record(RecordType.REKEY, b"a")
    ),
    "a record after CLOSE": lambda f: f.record(RecordType.CLOSE) + f.record(RecordType.PING),
    "a byte after CLOSE": lambda f: f.record(RecordType.CLOSE) + b"x",
    "a record without a type": lambda f: b"\x00\x10" + f.cipher.encrypt(b"", b""),
    "an empty record": lambda f: b"\x00\x00",
}


@in_turn("name", RULES_BROKEN)
@in_turn("bytewise", [False, True])
def test_a_broken_rule_breaks_the_reader(name, bytewise):
    reader = RecordReader(CipherState(KEY))
    wire = RULES_BROKEN[name](Forger())

    def read():
        for portion in [wire[i : i + 1] for i in range(len(wire))] if bytewise else [wire]:
            reader.feed(portion)
            drain(reader)
        reader.next_event()

    with pytest.raises(RecordError, match="broke the record protocol"):
        read()
    reader.feed(RecordWriter(CipherState(KEY)).ping())
    with pytest.raises(ChannelBrokenError, match="broke the record protocol"):
        reader.next_event()


def test_bytes_that_come_after_close_has_been_seen_are_refused():
    writer, reader = writer_and_reader()
    reader.feed(writer.close())
    assert reader.next_event() == Closed()
    assert reader.next_event() == Closed()
    reader.feed(b"x")
    with pytest.raises(RecordError, match="after CLOSE"):
        reader.next_event()


def test_every_flipped_bit_is_refused_and_nothing_is_given_out():
    writer, _ = writer_and_reader()
    wire = b"".join(writer.message([b"hello"]))
    for place in range(len(wire)):
        for bit in range(8):
            reader = RecordReader(CipherState(KEY))
            forged = bytearray(wire)
            forged[place] ^= 1 << bit
            reader.feed(forged)
            try:
                events = drain(reader)
            except (AuthenticationError, RecordError):
                with pytest.raises(ChannelBrokenError):
                    reader.next_event()
            else:  # a larger length only makes the reader wait
                assert place < 2
                assert events == []
                with pytest.raises(ConnectionLostError):
                    reader.feed_end()


def test_records_that_are_left_out_swapped_or_repeated_are_refused():
    writer, _ = writer_and_reader()
    first, second = (b"".join(writer.message([text])) for text in (b"first", b"second"))
    for wire, accepted in ((second, 0), (second + first, 0), (first + first, 3)):
        reader = RecordReader(CipherState(KEY))
        reader.feed(wire)
        assert [reader.next_event() for _ in range(accepted)][2:] in ([], [Finished()])
        with pytest.raises(AuthenticationError):
            reader.next_event()


def test_an_end_of_the_stream_is_a_loss_at_every_place_but_behind_close():
    writer, _ = writer_and_reader()
    wire = b"".join(writer.message([b"hello"])) + writer.ping() + writer.close()
    for size in range(len(wire)):
        reader = RecordReader(CipherState(KEY))
        reader.feed(wire[:size])
        drain(reader)
        with pytest.raises(ConnectionLostError, match="without a CLOSE"):
            reader.feed_end()
    reader = RecordReader(CipherState(KEY))
    reader.feed(wire)
    drain(reader)
    reader.feed_end()


def test_nothing_is_written_after_close_or_after_a_failure():
    writer, _ = writer_and_reader()
    writer.close()
    for attempt in (writer.ping, writer.close, lambda: list(writer.message([b"a"]))):
        with pytest.raises(ChannelClosedError):
            attempt()
    writer, _ = writer_and_reader()
    writer.abandon("the reason")
    for attempt in (writer.ping, writer.close, lambda: list(writer.message([b"a"]))):
        with pytest.raises(ChannelBrokenError, match="the reason"):
            attempt()


@pytest.mark.parametrize("seed", range(5))
def test_random_conversations_in_random_portions(seed):
    print("seed", seed)
    draw = random.Random(seed)
    writer, reader = writer_and_reader()
    messages = [draw.randbytes(draw.choice([0, 1, 50, 65_510, 65_511, 140_000])) for _ in range(20)]
    wire = b"".join(record for message in messages for record in writer.message([message]))
    events, start = [], 0
    while start < len(wire):
        size = draw.choice([1, 7, 4_000, 70_000])
        reader.feed(wire[start : start + size])
        start += size
        events += drain(reader)
    received = []
    while events:
        end = events.index(Finished()) + 1
        received.append(message_of(events[:end]))
        del events[:end]
    assert received == messages
