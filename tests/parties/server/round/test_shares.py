"""Shares of a sum in pieces: what a server keeps of them, and what it takes of the other one's."""

import numpy as np
import pytest

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import ssa
from fsl_async.wire import pieces
from fsl_async.wire.pieces import packed_pieces, piece_digest, spans_of
from parties.compute import InlineLane, ThreadLane
from parties.server.round.computation import Forming, keep_formed
from parties.server.round.shares import ArrivingShare, ShareRecords
from parties.storage.blobs.memory import StoreBlobs
from parties.storage.store import MemoryStore, Put
from tests.support.rounds import Round

TASK = Task(
    name="pieces",
    blocks=(Sparse("items", rows=10, select=2, width=3), Dense("head", size=5)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=4,
)
NONCE = bytes(32)


def shares_in(store: MemoryStore) -> ShareRecords:
    return ShareRecords(store, StoreBlobs(store), InlineLane(), "round-00000001")


class Receiver:
    """One server, and what it asks the other one for."""

    def __init__(self, store: MemoryStore) -> None:
        self.asked: list[int] = []
        self.shares = shares_in(store)
        self.arriving = ArrivingShare("S1", TASK, self.shares, InlineLane(), self.asked.append)

    async def begin(self, contents: list[bytes]) -> ssa.PeerShare | None:
        listed = self.arriving.listed(NONCE, packed_pieces(map(piece_digest, contents)), spans_of(TASK))
        return await self.arriving.begin(listed)


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Pieces of three rows, the last of which has one, and of eight weights."""
    monkeypatch.setattr(pieces, "LONGEST_PIECE", 72)
    return [bytes([place]) * span.size(TASK) for place, span in enumerate(spans_of(TASK))]


def test_a_piece_has_whole_rows_of_one_block(contents: list[bytes]) -> None:
    cuts = [(span.block, span.start, span.stop) for span in spans_of(TASK)]
    assert cuts == [(0, 0, 3), (0, 3, 6), (0, 6, 9), (0, 9, 10), (1, 0, 5)]
    assert [len(piece) for piece in contents] == [72, 72, 72, 24, 40]
    assert pieces.list_bytes(TASK) == 5 * 32
    assert pieces.longest_piece(TASK) == 72


@pytest.mark.parametrize("threads", [1, 2, 5])
async def test_a_share_of_few_pieces_is_formed_by_all_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WEIGHTS_PER_PART", 4)
    play = Round(TASK, {"items": np.zeros((10, 3), np.float32), "head": np.zeros(5, np.float32)}, seed=2)
    rows = np.array([2, 7])
    play.submit(
        "anna", play.plant({"items": rows}), {"items": (rows, np.arange(6).reshape(2, 3)), "head": np.arange(5)}
    )
    forming = Forming(play.aggregates[0], spans_of(TASK), {}, lambda place, piece: bytes(piece))
    assert [len(forming.folds(place, threads)) for place in (0, 1)] == [min(threads, 7), 1]
    name = await keep_formed(forming, shares_in(MemoryStore()), ThreadLane(2 * threads))
    whole = play.aggregates[0].share()
    assert name == pieces.share_digest([piece_digest(whole[:240]), piece_digest(whole[240:])])


async def test_pieces_are_taken_in_order_and_the_share_is_told_when_it_is_whole(contents: list[bytes]) -> None:
    receiver = Receiver(MemoryStore())
    assert await receiver.begin(contents) is None
    assert receiver.asked == [0]
    told = [await receiver.arriving.take(place, memoryview(piece)) for place, piece in enumerate(contents)]
    said = told.pop()
    assert told == [None] * 4
    assert isinstance(said, ssa.PeerShare)
    assert await receiver.shares.pieces(said.share) == tuple(map(piece_digest, contents))


async def test_a_restarted_server_asks_for_what_it_has_not_stored(contents: list[bytes]) -> None:
    store = MemoryStore()
    before = Receiver(store)
    await before.begin(contents)
    for place in (0, 1):
        await before.arriving.take(place, memoryview(contents[place]))
    after = Receiver(store)
    assert await after.begin(contents) is None
    assert after.asked == [2]
    for place in (2, 3, 4):
        last = await after.arriving.take(place, memoryview(contents[place]))
    assert last is not None
    again = Receiver(store)  # killed before the machine had heard of it
    assert await again.begin(contents) == last
    assert again.asked == []


@pytest.mark.parametrize(
    ("place", "content", "why"),
    [
        (1, 0, "sent piece 1 of its share, and piece 0 of 5 is due"),
        (5, 0, "sent piece 5 of its share, and piece 0 of 5 is due"),
        (0, 3, "sent 24 bytes as piece 0 of its share, the task implies 72"),
        (0, 1, "sent another piece 0 of its share than it has committed to"),
    ],
)
async def test_another_piece_than_the_next_is_a_violation(
    place: int, content: int, why: str, contents: list[bytes]
) -> None:
    receiver = Receiver(MemoryStore())
    await receiver.begin(contents)
    with pytest.raises(PeerViolationError, match=why):
        await receiver.arriving.take(place, memoryview(contents[content]))
    assert await receiver.shares.held(tuple(map(piece_digest, contents))) == 0


async def test_a_piece_that_was_not_asked_for_is_a_violation(contents: list[bytes]) -> None:
    receiver = Receiver(MemoryStore())
    with pytest.raises(PeerViolationError, match="sent piece 0 of its share, which was not asked for"):
        await receiver.arriving.take(0, memoryview(contents[0]))


async def test_a_list_that_has_changed_in_the_store_is_named(contents: list[bytes]) -> None:
    store = MemoryStore()
    shares = shares_in(store)
    name = await shares.keep_list(tuple(map(piece_digest, contents)))
    await store.commit(Put(f"round-00000001/share/{name.hex()}", bytes(31)))
    with pytest.raises(StorageError, match=f"share/{name.hex()} in the store has other content than was stored"):
        await shares.pieces(name)


async def test_a_piece_that_has_been_altered_is_named(contents: list[bytes]) -> None:
    store = MemoryStore()
    shares, name = shares_in(store), piece_digest(contents[0])
    await shares.keep_piece(name, contents[0])
    assert await shares.piece(name) == contents[0]
    await store.commit(Put(f"round-00000001/share/{name.hex()}", b"something else"))
    with pytest.raises(
        StorageError, match=f"the blob round-00000001/share/{name.hex()} has other content than was put"
    ):
        await shares.piece(name)
