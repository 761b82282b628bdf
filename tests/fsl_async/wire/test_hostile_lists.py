"""Lists that a peer declares and does not send: they take no memory."""

import msgpack
import msgspec
import numpy as np
import pytest

from fsl_async import Dense, Ring, Task
from fsl_async.config import describe_model
from fsl_async.errors import PeerViolationError
from fsl_async.merkle import RosterTree
from fsl_async.options.running import LARGEST_BLOCKS
from fsl_async.options.taking_part import LARGEST_NAMED
from fsl_async.union import UnionBlock
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from parties.outcome import Done, SumRefused
from parties.statement import Statement, longest_statement
from tests.support.cases import peak_of

MANY = 100_000
NESTED = (b"\xdd" + MANY.to_bytes(4, "big")) * 1_000
"""Five thousand bytes: lists of a hundred thousand, each the first item of the one before."""

TASK = Task(name="told", blocks=[Dense("head", size=1)], ring=Ring(64), min_clients=2, max_clients=3)
NAMING = msgspec.structs.replace(TASK, participants="names")
TREE = RosterTree({"a": bytes(32), "b": bytes(32)}, bytes(16))
STATEMENT = Statement(
    client="a",
    round_id=bytes(32),
    number=1,
    ending=Done(),
    participants=2,
    root=TREE.root,
    seat=TREE.seat("a"),
    excluded="",
    model=(),
)
NAMED = msgspec.structs.replace(STATEMENT, names=("a", "b"))


def read_statement(data: bytes, most: int, sender: str) -> Statement:
    return Statement.parse(data, msgspec.structs.replace(NAMING, max_clients=min(most, LARGEST_NAMED)), "a", sender)


@pytest.mark.parametrize("read", [unpack_digests, read_statement], ids=["entries", "statement"])
def test_lists_in_lists_take_no_memory(read):
    def refused() -> None:
        with pytest.raises(PeerViolationError, match=r"^S1: sent a .* that cannot be read"):
            read(NESTED, MANY, "S1")

    assert peak_of(refused) < 100_000


def test_a_name_longer_than_any_client_has_is_refused():
    unpack_digests(pack_digests({"é" * 64: bytes(32)}), 1, "S1")
    with pytest.raises(PeerViolationError, match="length <= 64"):
        unpack_digests(pack_digests({"é" * 65: bytes(32)}), 1, "S1")


def test_a_statement_comes_back_as_it_was_written():
    assert Statement.parse(STATEMENT.canonical(), TASK, "a", "S1") == STATEMENT
    assert Statement.parse(NAMED.canonical(), NAMING, "a", "S1") == NAMED


UNSIGNED = [
    (TASK, {"client": "b"}, "signed for another client than 'a'"),
    (TASK, {"participants": 4}, "with 4 clients in its sum; the task has at most 3"),
    (TASK, {"participants": 0}, "with 0 clients in its sum"),
    (TASK, {"participants": -1}, "cannot be read"),
    (TASK, {"excluded": "proof"}, "both counts this client and does not"),
    (TASK, {"names": ["a", "b"]}, "for which the task does not ask"),
    *(
        (NAMING, {"names": names}, r"names, which are not|a client called")
        for names in ([], ["a"], ["b", "c"], ["a", "b", "c"], ["a", "b\n"])
    ),
    (NAMING, {"ending": {"type": "aborted", "explanation": "x" * 257}}, "length"),
    (NAMING, {"client": "x" * 65}, "length"),
    (NAMING, {"excluded": "x" * 257}, "length"),
    (NAMING, {"names": ["x" * 65]}, "length"),
    *((TASK, {"ending": ending}, "outcome that cannot be read") for ending in ("", "done", {"type": "lost"})),
    (TASK, {"ending": {"type": "aborted"}}, "outcome that cannot be read"),
    (TASK, {"ending": {"type": "aborted", "explanation": ""}}, "outcome that cannot be read"),
    (TASK, {"ending": {"type": "done", "explanation": "x"}}, "outcome that cannot be read"),
]


@pytest.mark.parametrize(("task", "changes", "match"), UNSIGNED, ids=lambda value: str(value)[:40])
def test_a_statement_that_no_honest_server_signs_is_refused(task, changes, match):
    plain = msgpack.unpackb((NAMED if task is NAMING else STATEMENT).canonical()) | changes
    with pytest.raises(PeerViolationError, match=match):
        Statement.parse(msgpack.packb(plain), task, "a", "S1")


def test_no_statement_is_longer_than_the_limit():
    blocks = [Dense("é" * 62 + f"{index:02}", size=1) for index in range(LARGEST_BLOCKS)]
    task = Task(name="long", blocks=blocks, ring=Ring(64), max_clients=1000, participants="names")
    names = tuple("\U0001f600" * 60 + f"{index:04}" for index in range(1000))
    tree = RosterTree(dict.fromkeys(names, bytes(32)), bytes(16))
    longest = Statement(
        client=names[0],
        round_id=bytes(32),
        number=2**32,
        ending=SumRefused("é" * 256),
        participants=1000,
        root=tree.root,
        seat=tree.seat(names[0]),
        excluded="",
        model=describe_model(task, {block.name: np.zeros(1) for block in blocks}),
        union=tuple(UnionBlock(block.name, 2**32, bytes(32)) for block in blocks),
        names=names,
    )
    assert len(longest.canonical()) <= longest_statement(task)
    short = msgspec.structs.replace(longest, names=())
    assert len(short.canonical()) <= longest_statement(msgspec.structs.replace(task, participants="count"))
