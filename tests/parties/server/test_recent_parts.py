"""Parts that are held until they are forwarded or added: within their room, the oldest let go first."""

import pytest

from parties.server.storage import ADDED, PartCache


@pytest.fixture
def parts() -> PartCache:
    return PartCache(room=100)


def test_what_is_held_is_found_until_it_is_let_go(parts):
    parts.hold("one", memoryview(b"1" * 40))
    assert bytes(parts.find("one")) == b"1" * 40
    assert parts.find("two") is None
    parts.let_go("one")
    parts.let_go("one")
    assert parts.find("one") is None


def test_what_has_no_room_is_let_go_the_oldest_first(parts):
    for name in ("one", "two", "three"):
        parts.hold(name, memoryview(bytes(40)))
    assert [name for name in ("one", "two", "three") if parts.find(name)] == ["two", "three"]
    parts.hold("more than there is room for", memoryview(bytes(101)))
    assert not any(map(parts.find, ("two", "three", "more than there is room for")))
    parts.hold("again", memoryview(bytes(100)))
    assert parts.find("again")


def test_the_last_use_lets_go(parts):
    parts.hold("brought", memoryview(bytes(40)))
    parts.hold("forwarded here", memoryview(bytes(40)), ADDED)
    for name in ("brought", "forwarded here", "of none"):
        parts.use(name)
    assert parts.find("brought")
    assert not parts.find("forwarded here")
    parts.use("brought")
    assert not parts.find("brought")
    parts.hold("all", memoryview(bytes(100)))
    assert parts.find("all")


def test_a_part_counts_with_the_message_that_it_keeps_alive(parts):
    message = memoryview(bytearray(90))
    parts.hold("one", message[:10])
    parts.hold("two", memoryview(bytes(20)))
    assert parts.find("one") is None


def test_the_same_part_again_counts_once(parts):
    for _ in range(5):
        parts.hold("one", memoryview(bytes(60)))
    parts.hold("two", memoryview(bytes(40)))
    assert parts.find("one")
    parts.clear()
    assert not parts.find("one")
    parts.hold("three", memoryview(bytes(100)))
    assert parts.find("three")
