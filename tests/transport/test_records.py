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
    BODY_SIZE,
    LONGEST_MESSAGE,
    RECORD_SIZE,
    REKEY_INTERVAL,
    Announced,
    Closed,
    NeedData,
    RecordReader,
    RecordType,
    RecordWriter,
    wire_size,
)

KEY = random.Random(1).randbytes(32)
FULL = bytes(BODY_SIZE - 8)
"""What a first record holds of its message, if more of it follows."""

SIZES = [0, 1, 100, BODY_SIZE - 9, BODY_SIZE - 8, BODY_SIZE - 7, 65_534, 65_535, 65_536, 3 * BODY_SIZE, 200_000]


def writer_and_reader():
    return RecordWriter(CipherState(KEY)), RecordReader(CipherState(KEY))


class Forger:
    """A peer that holds the right key and follows no rule but that about keys."""

    def __init__(self):
        self.cipher = CipherState(KEY)

    def record(self, kind, body=b""):
        ciphertext = self.cipher.encrypt(b"", bytes([kind]) + body)
        return len(ciphertext).to_bytes(2, "big") + ciphertext

    def first(self, total, body=b""):
        return self.record(RecordType.DATA, total.to_bytes(8, "big") + body)


class Taker:
    """Takes messages from a reader, as far as they have come.

    Attributes:
        messages: those that are whole.
    """

    def __init__(self, reader):
        self.reader = reader
        self.messages = []
        self.content, self.taken = bytearray(), 0

    def drain(self):
        """Takes all that has come and returns the reader's last event, or None in the middle of a message."""
        while True:
            if self.taken < len(self.content):
                size = self.reader.take(self.content, self.taken)
                if not size:
                    return None
                self.taken += size
            elif isinstance(event := self.reader.next_event(), Announced):
                assert len(event.body) <= event.total <= 10**6
                self.content, self.taken = event.body.ljust(event.total, b"?"), len(event.body)
            else:
                return event
            if self.taken == len(self.content):
                self.messages.append(bytes(self.content))


def messages_of(reader):
    """The messages that have come."""
    taker = Taker(reader)
    taker.drain()
    return taker.messages


@pytest.mark.parametrize("size", SIZES)
def test_a_message_arrives_whole(size):
    writer, reader = writer_and_reader()
    message = random.Random(size).randbytes(size)
    wire = b"".join(writer.message([message]))
    assert len(wire) == wire_size(size)
    reader.feed(wire)
    assert messages_of(reader) == [message]


@pytest.mark.parametrize("together", [2, 3, 4, 100])
def test_records_made_together_are_the_same(together):
    message = random.Random(together).randbytes(5 * BODY_SIZE)
    one_by_one = list(writer_and_reader()[0].message([message]))
    outgoing = writer_and_reader()[0].message([message[:1], b"", message[1 : 2 * BODY_SIZE], message[2 * BODY_SIZE :]])
    for start in range(0, len(one_by_one), together):
        assert outgoing.take(together) == b"".join(one_by_one[start : start + together])
    assert outgoing.take(together) == b""


@pytest.mark.parametrize("portion", [1, 2, 3, 17, 1_000, 65_537, 65_538])
def test_portions_do_not_matter(portion):
    writer, reader = writer_and_reader()
    message = random.Random(portion).randbytes(70_000)
    wire = b"".join(writer.message([message])) + writer.ping() + writer.close()
    taker = Taker(reader)
    for start in range(0, len(wire), portion):
        reader.feed(wire[start : start + portion])
        taker.drain()
    assert taker.messages == [message]
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
    assert reader.next_event() == Announced(5, bytearray(b"hello"))
    assert (reader.needed, reader.buffered) == (1, 1)


def test_nothing_of_a_record_is_given_out_before_its_last_byte():
    writer, reader = writer_and_reader()
    wire = b"".join(writer.message([b"secret"]))
    reader.feed(wire[:-1])
    assert reader.next_event() == NeedData()
    reader.feed(wire[-1:])
    assert messages_of(reader) == [b"secret"]


def test_a_record_is_put_into_its_place_and_touches_nothing_else():
    writer, reader = writer_and_reader()
    message = random.Random(3).randbytes(BODY_SIZE + 100)
    reader.feed(b"".join(writer.message([message])))
    assert reader.next_event() == Announced(len(message), bytearray(message[: BODY_SIZE - 8]))
    content = bytearray(b"x" * 200)
    assert reader.take(content, 50) == 108
    assert content == b"x" * 50 + message[BODY_SIZE - 8 :] + b"x" * 42
    assert reader.next_event() == NeedData()


def test_a_forged_record_leaves_alone_what_came_before_it():
    writer, reader = writer_and_reader()
    first, second = writer.message([bytes(BODY_SIZE)])
    second[-1] ^= 1
    reader.feed(first + second)
    content = reader.next_event().body + bytes(8)
    with pytest.raises(AuthenticationError):
        reader.take(content, len(FULL))
    assert content[:-8] == FULL


def test_a_message_is_taken_before_the_next_event_and_only_where_there_is_one():
    writer, reader = writer_and_reader()
    with pytest.raises(MisuseError, match="no message"):
        reader.take(bytearray(100), 1)
    reader.feed(b"".join(writer.message([FULL + b"abc"])))
    content = reader.next_event().body + bytes(3)
    with pytest.raises(MisuseError, match="`take`"):
        reader.next_event()
    assert reader.take(content, len(FULL)) == 3
    assert reader.next_event() == NeedData()


def test_parts_are_concatenated_whatever_their_item_type():
    writer, reader = writer_and_reader()
    numbers = array("d", [1.0, 2.0])
    parts = [b"", b"ab", bytearray(b"cd"), memoryview(b"efgh")[1:3], numbers, bytes(70_000), memoryview(numbers)[:0]]
    for record in writer.message(parts):
        reader.feed(record)
    assert messages_of(reader) == [b"abcdfg" + numbers.tobytes() + bytes(70_000)]


def test_parts_that_are_not_contiguous_are_refused_before_anything_is_made():
    writer, reader = writer_and_reader()
    with pytest.raises(MisuseError, match="contiguous"):
        writer.message([b"ab", memoryview(b"abcdef")[::2]])
    reader.feed(b"".join(writer.message([b"fine"])))
    assert messages_of(reader) == [b"fine"]


def test_records_are_full_but_for_the_last():
    writer, _ = writer_and_reader()
    parts = [bytes(1_000)] * 200
    lengths = [len(record) for record in writer.message(parts)]
    assert lengths[:-1] == [RECORD_SIZE + 2] * 3
    assert sum(lengths) == wire_size(200_000)


def test_the_key_changes_after_every_1024_records_in_step():
    writer, reader = writer_and_reader()
    plain = CipherState(KEY)
    for number in range(3 * REKEY_INTERVAL + 1):
        wire = b"".join(writer.message([b"%d" % number]))
        assert len(wire) == wire_size(len(b"%d" % number))
        if number % REKEY_INTERVAL == 0 and number:
            with pytest.raises(AuthenticationError):
                plain.decrypt(b"", wire[2:])
            plain.rekey()
        assert plain.decrypt(b"", wire[2:])[9:] == b"%d" % number
        reader.feed(wire)
        assert messages_of(reader) == [b"%d" % number]


def test_a_long_message_is_rekeyed_in_its_middle():
    writer, reader = writer_and_reader()
    for _ in range(REKEY_INTERVAL - 3):
        reader.feed(writer.ping())
    assert reader.next_event() == NeedData()
    message = bytes(5 * BODY_SIZE)
    reader.feed(b"".join(writer.message([message])))
    assert messages_of(reader) == [message]


def pings(forger, count):
    return b"".join(forger.record(RecordType.PING) for _ in range(count))


RULES_BROKEN = {
    "unknown type": (lambda f: f.record(3), "3 is not a record type"),
    "another unknown type": (lambda f: f.record(255), "255 is not a record type"),
    "a message without its length": (lambda f: f.record(RecordType.DATA), "has 0 bytes, too few"),
    "a length cut short": (lambda f: f.record(RecordType.DATA, bytes(7)), "has 7 bytes, too few"),
    "a total beyond all measure": (lambda f: f.first(LONGEST_MESSAGE + 1, FULL), "is the most"),
    "the largest total": (lambda f: f.first(2**64 - 1, FULL), "is the most"),
    "an empty first record": (lambda f: f.first(5), "has 13 in its first record, and not 8"),
    "too little in the only record": (lambda f: f.first(5, b"abcd"), "has 13 in its first record, and not 12"),
    "too much in the only record": (lambda f: f.first(2, b"abc"), "has 10 in its first record, and not 11"),
    "something in an empty message": (lambda f: f.first(0, b"a"), "has 8 in its first record, and not 9"),
    "a first record that is not full": (
        lambda f: f.first(10**6, FULL[:-1]),
        "65,518 in its first record, and not 65,517",
    ),
    "a full record and a total of less": (lambda f: f.first(len(FULL) - 1, FULL), "and not 65,518"),
    "too little in the last record": (
        lambda f: f.first(len(FULL) + 3, FULL) + f.record(RecordType.DATA, b"cd"),
        "type 0 and 2 bytes in the middle of a message, whose next record has 3",
    ),
    "too much in the last record": (
        lambda f: f.first(len(FULL) + 1, FULL) + f.record(RecordType.DATA, b"cd"),
        "type 0 and 2 bytes in the middle of a message, whose next record has 1",
    ),
    "a later record that is not full": (
        lambda f: f.first(10**6, FULL) + f.record(RecordType.DATA, FULL),
        "type 0 and 65,510 bytes in the middle of a message, whose next record has 65,518",
    ),
    "an empty record inside": (lambda f: f.first(10**6, FULL) + f.record(RecordType.DATA), "type 0 and 0 bytes"),
    "CLOSE inside a message": (lambda f: f.first(10**6, FULL) + f.record(RecordType.CLOSE), "type 1 and 0 bytes"),
    "PING inside a message": (lambda f: f.first(10**6, FULL) + f.record(RecordType.PING), "type 2 and 0 bytes"),
    "PING of the right size inside a message": (
        lambda f: f.first(len(FULL) + 1, FULL) + f.record(RecordType.PING, b"a"),
        "type 2 and 1 bytes in the middle of a message",
    ),
    "an unknown type of the right size inside a message": (
        lambda f: f.first(len(FULL) + 1, FULL) + f.record(77, b"a"),
        "type 77 and 1 bytes in the middle of a message",
    ),
    "PING with a body": (lambda f: f.record(RecordType.PING, b"a"), "PING record carries 1 bytes"),
    "CLOSE with a body": (lambda f: f.record(RecordType.CLOSE, b"a"), "CLOSE record carries 1 bytes"),
    "a record after CLOSE": (lambda f: f.record(RecordType.CLOSE) + f.record(RecordType.PING), "after CLOSE"),
    "a byte after CLOSE": (lambda f: f.record(RecordType.CLOSE) + b"x", "after CLOSE"),
    "a record without a type": (lambda f: b"\x00\x10" + f.cipher.encrypt(b"", b""), "no room for its type"),
    "an empty record": (lambda f: b"\x00\x00", "no room for its type"),
}


@in_turn("name", RULES_BROKEN)
@in_turn("bytewise", [False, True])
def test_a_broken_rule_breaks_the_reader(name, bytewise):
    reader = RecordReader(CipherState(KEY))
    break_it, why = RULES_BROKEN[name]
    wire, taker = break_it(Forger()), Taker(reader)

    def read():
        for portion in [wire[i : i + 1] for i in range(len(wire))] if bytewise else [wire]:
            reader.feed(portion)
            taker.drain()
        taker.drain()

    with pytest.raises(RecordError, match=f"broke the record protocol: .*{why}"):
        read()
    assert taker.messages == []
    reader.feed(RecordWriter(CipherState(KEY)).ping())
    for attempt in (reader.next_event, lambda: reader.take(bytearray(9), 1)):
        with pytest.raises(ChannelBrokenError, match="broke the record protocol"):
            attempt()


def test_a_record_under_the_old_key_is_refused_once_the_key_is_due():
    forger, reader = Forger(), RecordReader(CipherState(KEY))
    reader.feed(pings(forger, REKEY_INTERVAL))
    assert reader.next_event() == NeedData()
    reader.feed(pings(forger, 1))
    with pytest.raises(AuthenticationError):
        reader.next_event()


def test_a_record_under_the_new_key_is_refused_before_it_is_due():
    forger, reader = Forger(), RecordReader(CipherState(KEY))
    wire = pings(forger, REKEY_INTERVAL - 1)
    forger.cipher.rekey()
    reader.feed(wire + pings(forger, 1))
    with pytest.raises(AuthenticationError):
        reader.next_event()


@pytest.mark.parametrize("before", [REKEY_INTERVAL - 2, REKEY_INTERVAL - 1, REKEY_INTERVAL])
def test_a_close_beside_a_change_of_the_key_is_one(before):
    """It is the last record under the old key, or the first one under the new one; a message may end there, too."""
    for ending in ([], [FULL + b"end"]):
        writer, reader = writer_and_reader()
        taker = Taker(reader)
        for _ in range(before - 2 * len(ending)):
            reader.feed(writer.ping())
            assert taker.drain() == NeedData()
        for content in ending:
            reader.feed(b"".join(writer.message([content])))
        reader.feed(writer.close())
        assert taker.drain() == Closed()
        assert taker.messages == ending
        reader.feed_end()


def test_bytes_that_come_after_close_has_been_seen_are_refused():
    writer, reader = writer_and_reader()
    reader.feed(writer.close())
    assert reader.next_event() == Closed()
    assert reader.next_event() == Closed()
    reader.feed(b"x")
    with pytest.raises(RecordError, match="after CLOSE"):
        reader.next_event()


def refused_or_waited_for(wire, place):
    """Reads what somebody has altered at one byte; returns the messages that were whole before."""
    reader = RecordReader(CipherState(KEY))
    taker = Taker(reader)
    reader.feed(wire)
    try:
        taker.drain()
    except (AuthenticationError, RecordError):
        with pytest.raises(ChannelBrokenError):
            reader.next_event()
    else:  # a larger length only makes the reader wait
        assert place < 2
        with pytest.raises(ConnectionLostError):
            reader.feed_end()
    return taker.messages


def test_every_flipped_bit_is_refused_and_nothing_is_given_out():
    writer, _ = writer_and_reader()
    wire = b"".join(writer.message([b"hello"]))
    for place in range(len(wire)):
        for bit in range(8):
            forged = bytearray(wire)
            forged[place] ^= 1 << bit
            assert refused_or_waited_for(forged, place) == []


def test_every_flipped_bit_of_a_later_record_is_refused_and_its_length_is_not_blamed_on_the_peer():
    writer, _ = writer_and_reader()
    first, second = writer.message([FULL + b"hello"])
    for place in range(len(second)):
        for bit in range(8):
            forged = bytearray(second)
            forged[place] ^= 1 << bit
            assert refused_or_waited_for(first + forged, place) == []
    reader = RecordReader(CipherState(KEY))
    reader.feed(first + (len(second) - 3).to_bytes(2, "big") + second[2:])
    with pytest.raises(AuthenticationError):
        Taker(reader).drain()


def test_records_that_are_left_out_swapped_or_repeated_are_refused():
    writer, _ = writer_and_reader()
    first, second = (b"".join(writer.message([text])) for text in (b"first", b"second"))
    for wire, accepted in ((second, []), (second + first, []), (first + first, [b"first"])):
        reader = RecordReader(CipherState(KEY))
        taker = Taker(reader)
        reader.feed(wire)
        with pytest.raises(AuthenticationError):
            taker.drain()
        assert taker.messages == accepted


def test_an_end_of_the_stream_is_a_loss_at_every_place_but_behind_close():
    writer, _ = writer_and_reader()
    wire = b"".join(writer.message([b"hello"])) + writer.ping() + writer.close()
    for size in range(len(wire)):
        reader = RecordReader(CipherState(KEY))
        reader.feed(wire[:size])
        Taker(reader).drain()
        with pytest.raises(ConnectionLostError, match="without a CLOSE"):
            reader.feed_end()
    reader = RecordReader(CipherState(KEY))
    reader.feed(wire)
    assert Taker(reader).drain() == Closed()
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
    taker, start = Taker(reader), 0
    while start < len(wire):
        size = draw.choice([1, 7, 4_000, 70_000])
        reader.feed(wire[start : start + size])
        start += size
        taker.drain()
    assert taker.messages == messages
