"""Trees over lists of clients, against a tree that is made by the book: every client, every length, every lie."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async.digests import DIGEST_BYTES, Domain, derive_key, digest
from fsl_async.merkle import RosterTree, Seat, blind_of, is_seated, root_of_nobody
from tests.support.cases import in_turn

BLIND = bytes(range(16))
NAMES = st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=40).map(sorted)


def naive_root(clients, blind):
    """The root by the rules alone: the last node of an odd level goes up as it is."""
    level = [
        digest(Domain.ROSTER_LEAF, derive_key(Domain.ROSTER_SALT, blind, name.encode()), name.encode(), submission)
        for name, submission in clients.items()
    ]
    while len(level) > 1:
        pairs = [level[start : start + 2] for start in range(0, len(level), 2)]
        level = [pair[0] if len(pair) == 1 else digest(Domain.ROSTER_NODE, *pair) for pair in pairs]
    return digest(Domain.ROSTER_ROOT, len(clients).to_bytes(8, "little"), level[0] if level else b"")


def called(count):
    return submitted(f"c{number:03}" for number in range(count))


def submitted(names):
    return {name: digest(Domain.SUBMISSION, name.encode()) for name in names}


@given(NAMES.filter(lambda names: all(name.isprintable() for name in names)))
def test_everybody_on_the_list_can_prove_it_and_nobody_else(names):
    clients = submitted(names)
    tree = RosterTree(clients, BLIND)
    assert tree.root == naive_root(clients, BLIND)
    for place, client in enumerate(clients):
        seat = tree.seat(client)
        assert seat.place == place
        assert is_seated(tree.root, len(clients), client, seat)
        assert not is_seated(tree.root, len(clients), client + "x", seat)
    assert tree.seat("\x00") is None


@in_turn("count", range(1, 34))
def test_a_path_has_one_digest_for_each_level_with_a_neighbour(count):
    clients = called(count)
    tree = RosterTree(clients, BLIND)
    for place, client in enumerate(clients):
        neighbours, number, size = 0, place, count
        while size > 1:
            neighbours += number ^ 1 < size
            number, size = number >> 1, (size + 1) // 2
        assert len(tree.seat(client).path) == DIGEST_BYTES * neighbours


def test_lists_of_nobody_and_of_one():
    assert RosterTree({}, b"").root == RosterTree({}, BLIND).root == root_of_nobody() == naive_root({}, b"")
    assert RosterTree({}, b"").seat("anna") is None
    one = RosterTree(submitted(["anna"]), BLIND)
    assert one.seat("anna").path == b""
    assert is_seated(one.root, 1, "anna", one.seat("anna"))
    assert not is_seated(root_of_nobody(), 0, "anna", one.seat("anna"))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_a_seat_that_is_changed_anywhere_proves_nothing(count):
    clients = called(count)
    tree = RosterTree(clients, BLIND)
    for client in clients:
        seat = tree.seat(client)
        lies = [
            *(msgspec.structs.replace(seat, place=place) for place in range(-1, count + 2) if place != seat.place),
            msgspec.structs.replace(seat, path=seat.path + bytes(DIGEST_BYTES)),
            msgspec.structs.replace(seat, path=seat.path + b"\0"),
            *(msgspec.structs.replace(seat, path=seat.path[:stop]) for stop in range(len(seat.path))),
            *(msgspec.structs.replace(seat, path=flipped(seat.path, at)) for at in range(0, len(seat.path), 7)),
            msgspec.structs.replace(seat, digest=flipped(seat.digest, 3)),
            msgspec.structs.replace(seat, digest=seat.digest[:-1]),
            msgspec.structs.replace(seat, salt=flipped(seat.salt, 3)),
            msgspec.structs.replace(seat, salt=seat.salt[:-1]),
        ]
        assert not any(is_seated(tree.root, count, client, lie) for lie in lies)
        assert not any(is_seated(tree.root, other, client, seat) for other in range(count + 3) if other != count)
        assert not is_seated(flipped(tree.root, 0), count, client, seat)


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_seat_of_somebody_else_proves_nothing():
    tree = RosterTree(submitted(["anna", "ben"]), BLIND)
    assert not is_seated(tree.root, 2, "anna", tree.seat("ben"))


def test_a_node_is_no_leaf_and_a_list_of_nodes_no_list():
    """Else whoever knows a tree of four could show it as a list of two."""
    four = RosterTree(called(4), BLIND)
    left, right = four._levels[1][:DIGEST_BYTES], four._levels[1][DIGEST_BYTES:]
    top = digest(Domain.ROSTER_NODE, left, right)
    assert four.root == digest(Domain.ROSTER_ROOT, (4).to_bytes(8, "little"), top)
    assert digest(Domain.ROSTER_ROOT, (2).to_bytes(8, "little"), top) != four.root
    assert not is_seated(four.root, 2, left.hex(), Seat(0, bytes(32), bytes(16), right))


def test_the_digests_beside_a_path_tell_nothing_to_who_guesses_names():
    """They depend on a secret of both servers, which is another one in every round."""
    first, second = (
        RosterTree(submitted(["anna", "ben"]), blind_of(bytes(32), bytes([number]) * 32)) for number in (1, 2)
    )
    assert first.root != second.root
    assert first.seat("anna").path != second.seat("anna").path
    assert first.seat("anna").path != digest(Domain.ROSTER_LEAF, b"", b"ben")
    assert first.seat("anna").salt != first.seat("ben").salt
