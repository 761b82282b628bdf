"""What all blobs must do: one suite, run on each place for them."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from secrets import token_hex

import numpy as np
import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties.storage.blobs.blobs import Blobs
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.blobs.memory import MemoryBlobs, StoreBlobs
from parties.storage.blobs.objects import ObjectBlobs
from parties.storage.store import MemoryStore
from parties.testing.blobs import BlobDisk, SimulatedBlobs
from parties.testing.injector import Injector
from parties.testing.processes import Process
from tests.support.object_store import options

NAMES = ["a", "b/1", "b/10", "b/1/2", "c/%2C,+", "c/x.y", "c/%", "c/" + "n" * 500, "d/al%20ice/submit-0/5f"]


@pytest.fixture(params=["memory", "folder", "objects", "simulated", "store"])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Blobs]:
    made: Blobs
    match request.param:
        case "memory":
            made = MemoryBlobs()
        case "folder":
            made = await FolderBlobs.open(tmp_path / "blobs", b"S0")
        case "simulated":
            made = SimulatedBlobs(BlobDisk(), Process("S0", Random(0)).begin(), Injector(0, ()))
        case "store":
            made = StoreBlobs(MemoryStore())
        case _:
            endpoint = request.getfixturevalue("s3")
            made = await ObjectBlobs.open(f"s3://bucket/{token_hex(8)}", b"S0", options(endpoint))
    yield made
    await made.aclose()


async def test_what_is_put_is_read_whole_or_in_part(blobs):
    await blobs.put("round/part", b"0123", memoryview(b"456789"))
    assert await blobs.read("round/part") == b"0123456789"
    assert await blobs.read("round/part", 3, 7) == b"3456"
    assert await blobs.read("round/part", 10) == b""
    assert await blobs.size("round/part") == 10
    assert (await blobs.read("round/part")).readonly


async def test_an_array_is_put_as_its_bytes(blobs):
    await blobs.put("x", np.arange(3, dtype="<u4"), durable=False)
    assert await blobs.read("x") == np.arange(3, dtype="<u4").tobytes()


async def test_an_empty_blob_is_one(blobs):
    await blobs.put("empty")
    assert await blobs.size("empty") == 0
    assert await blobs.read("empty") == b""


async def test_what_is_missing_or_too_short_is_named(blobs):
    assert await blobs.size("nothing/here") is None
    with pytest.raises(StorageError, match="the blob nothing/here is missing"):
        await blobs.read("nothing/here")
    await blobs.put("short", b"123")
    with pytest.raises(StorageError, match="the blob short has 3 bytes, 4 are expected"):
        await blobs.read("short", 0, 4)


async def test_the_same_again_is_harmless_and_other_content_is_refused(blobs):
    await blobs.put("once", b"12", b"3")
    await blobs.put("once", b"1", b"23")
    for other in (b"124", b"12", b"1234"):
        with pytest.raises(StorageError, match="once is stored already, with other content"):
            await blobs.put("once", other)
    assert await blobs.read("once") == b"123"


async def test_of_two_at_once_one_content_stays(blobs):
    refused = []

    async def put(content: bytes) -> None:
        try:
            await blobs.put("both", content)
        except StorageError:
            refused.append(content)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(put, bytes([number]) * 1000)
    assert len(refused) == 7
    assert bytes(await blobs.read("both")) not in refused


async def test_names_are_kept_as_they_are(blobs):
    for name in NAMES:
        await blobs.put(name, name.encode())
    assert await blobs.names("") == sorted(NAMES)
    assert await blobs.names("b/1") == ["b/1", "b/1/2", "b/10"]
    assert await blobs.names("b/") == ["b/1", "b/1/2", "b/10"]
    assert await blobs.names("none/") == []
    for name in NAMES:
        assert await blobs.read(name) == name.encode()


async def test_a_prefix_is_erased_and_nothing_else(blobs):
    for name in NAMES:
        await blobs.put(name, b"x")
    await blobs.erase("b/")
    await blobs.erase("c/x.y")
    await blobs.erase("none/")
    await blobs.erase("d/al%20ice/")
    assert await blobs.names("") == sorted({"a", "c/%2C,+", "c/%", "c/" + "n" * 500})
    await blobs.erase("a")
    await blobs.erase("")
    assert await blobs.names("") == []


async def test_groups_are_the_first_parts_of_names(blobs):
    for name in NAMES:
        await blobs.put(name, b"x")
    assert await blobs.groups() == ["a", "b", "c", "d"]
    assert blobs.usage().stored == (0 if type(blobs) is StoreBlobs else len(NAMES))


async def test_what_was_erased_can_be_put_anew(blobs):
    await blobs.put("r/1", b"old")
    await blobs.erase("r/")
    await blobs.put("r/1", b"new")
    assert await blobs.read("r/1") == b"new"


@pytest.mark.parametrize(
    "name", ["", "/", "a/", "/a", "a//b", ".", "a/..", "../a", "a\\b", "ä", "a\0", "a\nb", "n" * 1_025]
)
async def test_a_name_that_is_none_is_refused(blobs, name):
    with pytest.raises(MisuseError, match="cannot name a blob"):
        await blobs.put(name, b"x")
