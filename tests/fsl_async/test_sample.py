"""Who is drawn of those that asked: how many, and each with the same chance."""

from collections import Counter

import pytest

from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import PeerViolationError
from fsl_async.options.taking_part import drawn_of, sample_digest, secret_of, size_of
from fsl_async.wire.peer_lists import pack_names, unpack_names
from tests.support.cases import in_turn

NAMES = tuple(f"client {number}" for number in range(20))


@in_turn(
    "sample, asked, size",
    [
        (5, 20, 5),
        (5, 5, 5),
        (5, 3, 3),
        (0.25, 20, 5),
        (0.25, 21, 6),
        (0.1, 30, 3),  # 0.1 * 30 is a little more than 3
        (0.1, 10_000, 1000),
        (0.07, 100, 7),
        (0.001, 5, 1),
        (1.0, 17, 17),
        (0.5, 10_000, 1000),  # no more than the task admits
        (0.5, 0, 0),
    ],
)
def test_how_many_are_drawn(sample: float, asked: int, size: int) -> None:
    assert size_of(sample, asked, most=1000) == size


def test_every_client_is_drawn_as_often_as_any_other() -> None:
    """2,000 rounds, 5 of 20: each is drawn 500 times, give or take five standard deviations of 19.4."""
    counts: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for number in range(2000):
        drawn = drawn_of(NAMES, 5, secret_of(number.to_bytes(DIGEST_BYTES, "little")))
        assert len(set(drawn)) == 5
        counts.update(drawn)
        pairs.update((a, b) for a in drawn for b in drawn if a < b)
    assert set(counts) == set(NAMES)
    assert all(abs(count - 500) < 97 for count in counts.values()), counts
    assert all(abs(pairs[a, b] - 2000 * 5 * 4 / (20 * 19)) < 51 for a in NAMES for b in NAMES if a < b)


def test_the_draw_depends_on_the_secret_and_on_nothing_else() -> None:
    secret = secret_of(bytes(DIGEST_BYTES))
    assert drawn_of(NAMES, 5, secret) == drawn_of(tuple(reversed(NAMES)), 5, secret)
    assert drawn_of(NAMES, 5, secret) != drawn_of(NAMES, 5, secret_of(bytes([1] * DIGEST_BYTES)))
    assert drawn_of(NAMES, 20, secret) == tuple(sorted(NAMES))


def test_who_asks_takes_places_and_does_not_change_the_order_of_the_others() -> None:
    secret = secret_of(bytes(DIGEST_BYTES))
    before = drawn_of(NAMES[:-1], 5, secret)
    after = drawn_of(NAMES, 5, secret)
    assert len(set(before) - set(after)) <= 1


def test_a_sample_s_digest_needs_the_secret() -> None:
    one, other = (secret_of(bytes([byte] * DIGEST_BYTES)) for byte in (1, 2))
    assert sample_digest(NAMES, one) == sample_digest(NAMES, one) != sample_digest(NAMES, other)


@in_turn(
    "data",
    [
        b"",
        b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        pack_names(["a"])[:-1],
        pack_names(["a"]) + b"\x00",
        b"\x92\xa1b\xa1a",
        b"\x92\xa1a\xa1a",
        b"\x91\xd9\x01a",
        pack_names(["S0"]),
        pack_names(["a\n"]),
        pack_names(["x" * 65]),
        pack_names(["a", "b", "c"]),
    ],
)
def test_names_that_no_honest_server_sends_are_refused(data: bytes) -> None:
    with pytest.raises(PeerViolationError, match=r"^S1: sent a list of "):
        unpack_names(data, 2, "S1")


def test_names_come_back() -> None:
    assert unpack_names(pack_names({"b", "a"}), 2, "S1") == ("a", "b")
    assert unpack_names(pack_names(()), 2, "S1") == ()
