"""Sets of messages of one's own: what they are made of, and what they refuse."""

import pytest

from fsl_async import Message, MessageSet, MisuseError, PeerViolationError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import AskTask


class Ping(Message, frozen=True, tag="ping"):
    number: int


class Pong(Message, frozen=True, tag="pong"):
    number: int


class Other(Message, frozen=True, tag="ping"):
    pass


GAME = MessageSet("game 1", Ping | Pong, most_bulk=10)


def wire(message: Message, *bulk: bytes) -> bytes:
    return b"".join(encode(message, *bulk))


def test_messages_of_the_union_come_back_whole() -> None:
    for message in (Ping(1), Pong(2)):
        received = decode(wire(message, b"bulk"), GAME.union, "ann")
        assert (received.message, bytes(received.bulk)) == (message, b"bulk")
        GAME.require(message, 10)


def test_a_union_may_have_one_member() -> None:
    assert decode(wire(Ping(1)), MessageSet("one", Ping).union, "ann").message == Ping(1)


def test_no_other_message_is_read() -> None:
    with pytest.raises(PeerViolationError, match=r"ann: sent a message that cannot be read: .*ask-task"):
        decode(wire(AskTask()), GAME.union, "ann")


def test_what_the_other_side_would_refuse_is_not_sent() -> None:
    with pytest.raises(MisuseError, match="AskTask is no message of 'game 1'"):
        GAME.require(AskTask(), 0)
    with pytest.raises(MisuseError, match="11 bytes of bulk; a message of 'game 1' carries 10 at most"):
        GAME.require(Ping(1), 11)


class Hand(Message, frozen=True, tag="hand"):
    cards: list[int]
    name: str = ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Hand([0] * 65), "64"),
        (Hand([], "x" * 257), "256"),
        (Hand(["ace"]), r"Expected `int`, got `str`"),  # type: ignore[list-item]
        (Hand([2**65]), "ints"),
        (Hand([object()]), "object"),  # type: ignore[list-item]
    ],
    ids=["too many", "too long", "another type", "too large", "no value at all"],
)
def test_a_message_that_the_other_side_could_not_read_is_refused_where_it_is_made(message: Hand, words: str) -> None:
    with pytest.raises(MisuseError, match=f"Hand would be refused: .*{words}"):
        MessageSet("cards", Hand).require(message, 0)


@pytest.mark.parametrize("name", ["", "a" * 65, "ännchen", "a\nb"])
def test_a_name_is_short_and_printable(name: str) -> None:
    with pytest.raises(MisuseError, match="a protocol's name is 1 to 64 printable ASCII characters"):
        MessageSet(name, Ping)


@pytest.mark.parametrize("most", [-1, 2**32])
def test_bulk_has_a_limit(most: int) -> None:
    with pytest.raises(MisuseError, match="a message carries 0 to 4,294,967,295 bytes of bulk"):
        MessageSet("game", Ping, most)


def test_a_union_of_what_are_no_messages_is_refused() -> None:
    with pytest.raises(MisuseError, match="is no message; derive it from `Message`"):
        MessageSet("game", Ping | int)


def test_a_message_that_leaves_fields_out_is_refused() -> None:
    class Sparing(Message, frozen=True, tag="sparing", omit_defaults=True):
        number: int = 0

    with pytest.raises(MisuseError, match="Sparing leaves fields out, and all are sent always; omit no defaults"):
        MessageSet("game", Ping | Sparing)


def test_two_messages_with_one_tag_are_refused() -> None:
    with pytest.raises(MisuseError, match="two messages of 'game' have the tag 'ping'; give one of them another tag="):
        MessageSet("game", Ping | Other)


def test_messages_that_are_not_written_as_one_union_are_refused_with_the_way_to_write_them() -> None:
    with pytest.raises(MisuseError, match=r"several messages are one union: A \| B"):
        MessageSet("game 1", Ping, Pong)  # type: ignore[arg-type]
