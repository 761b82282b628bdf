"""A round's records: what is read from the store, what memory holds meanwhile, and how much of it."""

from collections.abc import Callable

import numpy as np
import pytest
import trio
from msgspec.structs import replace

from fsl_async.config import describe_model
from fsl_async.derivation import dense_digest, public_digest, tree_digest
from fsl_async.errors import StorageError
from fsl_async.wire.public_part import Layout, Trees
from parties.server.round.reading import StoredSubmission
from parties.server.round.records import RoundRecords
from parties.server.storage import HELD_BYTES
from parties.server.store_layout import RequestKey, dense_name, part_name
from parties.storage.store import Change, MemoryStore
from tests.support.machine_scenes import config_of, key
from tests.support.shop import TASK, model

CONFIG = config_of(1, task=TASK, model=describe_model(TASK, model()))
LAYOUT = Layout.submission(CONFIG.shape, Trees.OWN)
SIZE = LAYOUT.size
NUMBERS = {"anna": 1, "ben": 2, "carol": 3}
SEED = bytes(16)


class Shelf(MemoryStore):
    """A store that knows which public parts were read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def blob(self, key: str) -> memoryview:
        if "/parts/" in key:
            self.read.append(key.split("/")[2])
        return await super().blob(key)


class FullShelf(Shelf):
    """A store without room."""

    async def commit(self, *changes: Change) -> None:
        raise StorageError("the disk is full")


async def no_session(client: str) -> None:
    raise AssertionError(client)


def records_on(store: MemoryStore, loans: int = HELD_BYTES) -> RoundRecords:
    return RoundRecords(store, CONFIG, no_session, loans=loans)


def content(number: int) -> bytes:
    return np.random.default_rng(number).bytes(SIZE)


def named(part: bytes) -> bytes:
    return public_digest(LAYOUT, part, tree_digest(LAYOUT, part))


NAME = named(content(1))


def submit(client: str) -> RequestKey:
    return RequestKey(client, "submit", 0)


async def after(seconds: float, deed: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    deed()


async def forward_after(seconds: float, records: RoundRecords) -> None:
    await trio.sleep(seconds)
    await records.keep_part(submit("anna"), NAME, content(1))


async def deposit(records: RoundRecords, key: RequestKey, part: bytes) -> None:
    """What its client's connection does on the carrier: the part first, and then its request."""
    await records.blobs.put(part_name(records.prefix, key, named(part)), part)
    await records.keep_request(key, named(part))


async def enter(records: RoundRecords, client: str, dense: bytes = b"") -> None:
    """What a server stores once both halves of a submission have come."""
    stored = StoredSubmission(
        client=client,
        name=key(9),
        msk=SEED,
        commitments=(key(10), key(11)),
        tree=key(12),
        trees=Trees.OWN,
        query=0,
        query_part=b"",
        part=named(content(NUMBERS[client])),
        bind=key(13),
        dense=dense,
    )
    await records.store.commit(*records.submission_changes(stored))


async def test_what_a_client_has_brought_is_read_from_the_blobs():
    records = records_on(store := Shelf())
    await deposit(records, submit("anna"), content(1))
    await enter(records, "anna")
    assert (await records.submission("anna")).part.data == content(1)
    again = records_on(store)
    assert (await again.submission("anna")).part.data == content(1)
    assert store.read == ["anna", "anna"]


async def test_what_is_private_lies_under_its_digests():
    records = records_on(MemoryStore())
    await deposit(records, submit("anna"), content(1))
    name = dense_digest(b"dense", SEED)
    await records.blobs.put(dense_name(records.prefix, "anna", name), b"dense")
    await enter(records, "anna", dense=name)
    assert (await records.submission("anna")).dense == b"dense"


async def test_a_forwarded_submission_is_on_loan_until_the_round_is_over():
    records = records_on(store := Shelf())
    await records.keep_part(submit("anna"), NAME, content(1))
    await records.keep_request(submit("anna"), NAME)
    await enter(records, "anna")
    for _ in range(2):  # added, and taken out again
        assert (await records.submission("anna")).part.data == content(1)
    assert await records.parts() == []
    records.release()
    with pytest.raises(StorageError, match="is missing"):
        await records.submission("anna")
    assert store.read == ["anna"]


async def test_without_room_for_a_loan_the_part_is_stored():
    records = records_on(store := Shelf(), loans=SIZE * 3 // 2)
    for number, client in enumerate(("anna", "ben"), start=1):
        await records.keep_part(submit(client), named(content(number)), content(number))
        await records.keep_part(submit(client), named(content(number)), content(number))  # a repeat takes no room
        await enter(records, client)
    assert [key.client for key, _ in await records.parts()] == ["ben"]
    for number, client in enumerate(("anna", "ben"), start=1):
        for _ in range(2):
            assert (await records.submission(client)).part.data == content(number)
    assert store.read == ["ben", "ben"]


async def test_what_a_restart_has_lost_is_waited_for(autojump_clock):
    store = Shelf()
    before = records_on(store)
    await before.keep_part(submit("anna"), NAME, content(1))
    await before.keep_request(submit("anna"), NAME)
    again = records_on(store)
    await enter(again, "anna")
    assert await again.requests() == [(submit("anna"), NAME)]
    again.await_part(submit("anna"), NAME)
    assert again.awaits(submit("anna"), NAME)
    assert again.awaits_any
    async with trio.open_nursery() as nursery:
        nursery.start_soon(forward_after, 5.0, again)
        assert (await again.submission("anna")).part.data == content(1)
    assert trio.current_time() == 5.0
    assert not again.awaits_any


async def test_nobody_waits_for_a_part_when_the_round_is_over(autojump_clock):
    records = records_on(Shelf())
    records.await_part(submit("anna"), NAME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(after, 5.0, records.release)
        with pytest.raises(StorageError, match="is missing"):
            await records.part(submit("anna"), NAME)


async def test_trees_that_outlive_their_round_are_never_on_loan():
    fixed = replace(CONFIG, task=replace(TASK, selection="fixed"))
    records = RoundRecords(MemoryStore(), fixed, no_session)
    await records.keep_part(submit("anna"), NAME, content(1))
    assert [tuple(part) for part in await records.parts()] == [(submit("anna"), NAME)]


async def test_what_could_not_be_stored_is_not_there():
    records = records_on(FullShelf(), loans=0)
    with pytest.raises(StorageError, match="full"):
        await records.keep_part(submit("anna"), NAME, content(1))
    with pytest.raises(StorageError, match="is missing"):
        await records.part(submit("anna"), NAME)


async def test_a_forwarded_part_has_the_size_that_it_came_with():
    records = records_on(store := MemoryStore())
    await records.keep_part(submit("anna"), NAME, content(1))
    assert await records.part_size(submit("anna"), NAME) == SIZE
    assert await records.part_size(submit("ben"), NAME) is None
    await deposit(records, submit("carol"), content(3))
    assert await records_on(store).part_size(submit("carol"), named(content(3))) == SIZE


async def test_what_is_wrong_with_a_forwarded_part_is_remembered():
    records = records_on(MemoryStore())
    assert records.malformed(submit("anna"), NAME) == ""
    records.note_malformed(submit("anna"), NAME, "padding")
    assert records.malformed(submit("anna"), NAME) == "padding"


async def test_a_part_counts_with_the_message_that_it_keeps_alive():
    records = records_on(store := Shelf(), loans=2 * SIZE)
    message = memoryview(bytearray(content(1) + bytes(2 * SIZE)))
    await records.keep_part(submit("anna"), NAME, message[:SIZE])
    assert await records.part(submit("anna"), NAME) == content(1)
    assert store.read == ["anna"]


async def test_what_is_held_cannot_be_written():
    records = records_on(MemoryStore())
    await records.keep_part(submit("anna"), NAME, bytearray(content(1)))
    await deposit(records, submit("ben"), bytearray(content(2)))
    for client in ("anna", "ben"):
        assert (await records.part(submit(client), named(content(NUMBERS[client])))).readonly


async def test_names_of_stored_parts_are_unaffected():
    records = records_on(MemoryStore())
    for client in ("an/na", "..", "\U0001f600" * 64):
        await deposit(records, submit(client), content(1))
    names = {part.key.client for part in await records.parts()}
    assert names == {"an/na", "..", "\U0001f600" * 64}
