"""What every store must do: one suite, run on each of them."""

import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties.storage.sqlite_connections import CHUNK_BYTES
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import Change, Erase, Keep, MemoryStore, Put, Record, Store

NAMES = [
    "a",
    "a/1",
    "a/10",
    "a/1%",
    "a/1_",
    "a%",
    "a_",
    "aa",
    "b",
    "",
    "a/\0",
    "größe/ü",
    "鍵",
    "\U0010ffff",
    "a/\U0010ffffz",
]


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "store.db")
    yield made
    await made.aclose()


async def content(store: Store, prefix: str = "") -> dict[str, bytes]:
    return {key: bytes(await store.blob(key)) for key in await store.keys(prefix)}


async def test_a_new_store_is_empty(store):
    assert await store.keys("") == []
    assert await store.entries("events") == []
    with pytest.raises(StorageError, match="round/1 is not stored"):
        await store.blob("round/1")


async def test_entries_keep_their_order_in_each_journal(store):
    await store.commit(Record("a", b"1"), Record("b", b"x"), Record("a", b"2"))
    await store.record("a", b"")
    await store.record("b", b"y")
    assert await store.entries("a") == [b"1", b"2", b""]
    assert await store.entries("b") == [b"x", b"y"]
    assert await store.entries("ab") == []


async def test_what_is_kept_is_kept_for_good(store):
    await store.commit(Keep("k", b"content"))
    await store.commit(Keep("k", bytearray(b"content")))
    for other in (b"kontent", b"conten", b"content ", b""):
        with pytest.raises(StorageError, match="k is stored already, with other content"):
            await store.commit(Keep("k", other))
    assert bytes(await store.blob("k")) == b"content"


async def test_a_value_is_replaced(store):
    for value in (b"one", b"", b"three" * 1000, b"4"):
        await store.commit(Put("v", value))
        assert bytes(await store.blob("v")) == value
    assert await store.keys("v") == ["v"]


async def test_empty_blobs_are_kept(store):
    await store.commit(Keep("empty", b""), Put("none", b""))
    assert await content(store) == {"empty": b"", "none": b""}
    await store.commit(Keep("empty", b""))
    with pytest.raises(StorageError, match="empty is stored already"):
        await store.commit(Keep("empty", b"\0"))


async def test_a_commit_is_made_whole_or_not_at_all(store):
    await store.commit(Record("log", b"0"), Keep("kept", b"first"), Put("value", b"old"), Put("gone", b"still here"))
    before = await content(store)
    with pytest.raises(StorageError, match="stored already"):
        await store.commit(
            Record("log", b"1"),
            Put("value", b"new"),
            Keep("new", b"new"),
            Erase("gone"),
            Keep("kept", b"second"),
            Record("log", b"2"),
        )
    assert await content(store) == before
    assert await store.entries("log") == [b"0"]
    await store.commit(Record("log", b"1"), Keep("kept", b"first"), Keep("new", b"new"))
    assert await store.entries("log") == [b"0", b"1"]


@pytest.mark.parametrize(
    ("commit", "made"),
    [
        ([Keep("k", b"1"), Keep("k", b"2")], False),
        ([Keep("k", b"1"), Keep("k", b"1")], True),
        ([Put("k", b"1"), Keep("k", b"2")], False),
        ([Keep("k", b"1"), Put("k", b"2"), Keep("k", b"2")], True),
        ([Keep("k", b"1"), Erase("k"), Keep("k", b"2")], True),
        ([Keep("k", b"1"), Erase("kk"), Keep("k", b"2")], False),
    ],
    ids=["kept twice", "kept again", "set and kept", "kept, set and kept", "kept, erased and kept", "another erased"],
)
async def test_the_order_within_a_commit_counts(store, commit, made):
    if made:
        await store.commit(*commit)
    else:
        with pytest.raises(StorageError, match="k is stored already, with other content"):
            await store.commit(*commit)
    assert await store.keys("") == (["k"] if made else [])


async def test_names_that_are_not_text_are_the_callers_mistake(store):
    changes: list[Change] = [Record("\ud800", b""), Keep("\ud800", b""), Put("\ud800", b""), Erase("\ud800")]
    for change in changes:
        with pytest.raises(MisuseError, match="not text"):
            await store.commit(Record("log", b""), change)
    for query in (store.keys, store.entries, store.blob):
        with pytest.raises(MisuseError, match="not text"):
            await query("\ud800")
    assert await store.entries("log") == []


async def test_a_blob_cannot_be_written_to(store):
    await store.commit(Keep("k", b"abc"), Keep("own", bytearray(b"abc")), Put("empty", b""))
    for key in ("k", "own", "empty"):
        assert (await store.blob(key)).readonly


async def test_what_is_kept_does_not_change_with_the_callers_buffer(store):
    buffer = bytearray(b"abc")
    await store.commit(Keep("k", buffer), Put("v", memoryview(buffer)[1:]))
    buffer[:] = b"xyz"
    assert await content(store) == {"k": b"abc", "v": b"bc"}
    with pytest.raises(StorageError, match="k is stored already"):
        await store.commit(Keep("k", buffer))


async def test_equal_content_is_found_equal_at_the_speed_of_memory(store):
    """16 MiB that are kept already: a comparison item by item would take a second."""
    data = random.Random(5).randbytes(16 << 20)
    await store.commit(Keep("k", data))
    began = time.perf_counter()
    await store.commit(Keep("k", bytearray(data)))
    with pytest.raises(StorageError, match="k is stored already"):
        await store.commit(Keep("k", data[:-1] + bytes([data[-1] ^ 1])))
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize("prefix", [*NAMES, "a/1/", "%", "_", "gr", "zz"])
async def test_a_prefix_is_taken_as_it_is(store, prefix):
    await store.commit(*(Put(name, name.encode()) for name in NAMES), *(Record(name, name.encode()) for name in NAMES))
    chosen = sorted(name for name in NAMES if name.startswith(prefix))
    assert await store.keys(prefix) == chosen
    await store.commit(Erase(prefix))
    assert await store.keys("") == sorted(set(NAMES) - set(chosen))
    for name in NAMES:
        assert await store.entries(name) == ([] if name in chosen else [name.encode()])


async def test_what_was_erased_can_be_kept_anew(store):
    await store.commit(Keep("round/1/share", b"one"), Record("round/1", b"e"))
    await store.commit(Erase("round/1"))
    await store.commit(Keep("round/1/share", b"two"), Record("round/1", b"f"))
    assert await content(store) == {"round/1/share": b"two"}
    assert await store.entries("round/1") == [b"f"]


@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 12345])
async def test_a_large_blob_comes_back(store, size):
    large = random.Random(size).randbytes(size)
    await store.commit(Keep("large", large), Keep("next", b"n"))
    assert await store.blob("large") == large
    await store.commit(Keep("large", memoryview(bytearray(large))))
    changed = bytearray(large)
    changed[-1] ^= 1
    with pytest.raises(StorageError, match="large is stored already"):
        await store.commit(Record("log", b""), Keep("large", changed))
    assert await store.entries("log") == []
    await store.commit(Put("large", b"small"))
    assert await content(store) == {"large": b"small", "next": b"n"}


async def test_views_of_parts_and_of_numbers_are_kept_as_their_bytes(store):
    large = bytes(range(256))
    await store.commit(Keep("part", memoryview(large)[10:20]))
    assert bytes(await store.blob("part")) == large[10:20]


async def test_fifty_tasks_at_a_time(store):
    async def work(task: int) -> None:
        for step in range(20):
            entry = b"%d" % step
            await store.commit(Record(f"task/{task}", entry), Keep(f"{task}/{step}", entry), Put(f"last/{task}", entry))
            assert (await store.entries(f"task/{task}"))[-1] == entry

    async with trio.open_nursery() as nursery:
        for task in range(50):
            nursery.start_soon(work, task)
    for task in range(50):
        assert await store.entries(f"task/{task}") == [b"%d" % step for step in range(20)]
        assert bytes(await store.blob(f"last/{task}")) == b"19"
        assert len(await store.keys(f"{task}/")) == 20


async def test_of_fifty_tasks_that_want_one_key_one_gets_it(store):
    refused = []

    async def work(task: int) -> None:
        try:
            await store.commit(Record("tried", b"%d" % task), Keep("key", b"%d" % task), Record("won", b"%d" % task))
        except StorageError:
            refused.append(task)

    async with trio.open_nursery() as nursery:
        for task in range(50):
            nursery.start_soon(work, task)
    assert len(refused) == 49
    [winner] = {b"%d" % task for task in range(50)} - {b"%d" % task for task in refused}
    assert await store.entries("tried") == await store.entries("won") == [winner] == [await store.blob("key")]


async def test_a_cancelled_commit_is_made_whole_or_not_at_all(store):
    for number in range(20):
        with trio.CancelScope() as scope:
            if number % 2:
                scope.cancel()
            else:
                trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
            await store.commit(Record("log", b"%d" % number), Keep(f"k/{number}", b""), Put("last", b"%d" % number))
    entries = await store.entries("log")
    assert [f"k/{entry.decode()}" for entry in sorted(entries)] == sorted(await store.keys("k/"))
    assert bytes(await store.blob("last")) == entries[-1]


async def test_a_commit_of_nothing_is_one(store):
    await store.commit()
    assert await store.keys("") == []


async def test_closing_twice_does_nothing(store):
    await store.commit(Put("v", b"1"))
    await store.aclose()
    await store.aclose()


class Oracle:
    """The same contract in the plainest way."""

    def __init__(self) -> None:
        self.journals: dict[str, list[bytes]] = {}
        self.blobs: dict[str, bytes] = {}

    def commit(self, changes: list[Change]) -> bool:
        journals, blobs = {name: list(entries) for name, entries in self.journals.items()}, dict(self.blobs)
        for change in changes:
            match change:
                case Record(journal=journal, entry=entry):
                    journals.setdefault(journal, []).append(entry)
                case Keep(key=key, data=data):
                    if blobs.setdefault(key, bytes(data)) != data:
                        return False
                case Put(key=key, data=data):
                    blobs[key] = bytes(data)
                case Erase(prefix=prefix):
                    journals = {name: entries for name, entries in journals.items() if not name.startswith(prefix)}
                    blobs = {key: data for key, data in blobs.items() if not key.startswith(prefix)}
        self.journals, self.blobs = journals, blobs
        return True


def changes(source: random.Random) -> list[Change]:
    """Some changes, often several of one key: their order counts."""
    made: list[Change] = []
    names = source.sample(NAMES, source.randint(1, 3))
    for _ in range(source.randint(1, 6)):
        kind = source.choice((Record, Keep, Keep, Keep, Put, Erase))
        content = () if kind is Erase else (source.choice([b"", b"x", b"yy"]),)
        made.append(kind(source.choice(NAMES[1:] if kind is Erase else names), *content))
    return made


@pytest.mark.parametrize("seed", range(5))
async def test_random_commits_do_what_the_oracle_does(store, seed):
    source, oracle = random.Random(seed), Oracle()
    for step in range(60):
        commit = changes(source)
        try:
            await store.commit(*commit)
            made = True
        except StorageError:
            made = False
        assert made == oracle.commit(commit), f"seed {seed}, step {step}: {commit}"
        assert await content(store) == oracle.blobs, f"seed {seed}, step {step}: {commit}"
        for name in NAMES:
            assert await store.entries(name) == oracle.journals.get(name, []), f"seed {seed}, step {step}: {commit}"
