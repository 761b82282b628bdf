"""Bulk that is read back: what was altered or is missing is named, and never used."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from fsl_async.bounds import private_digest
from fsl_async.derivation import dense_digest
from fsl_async.errors import StorageError
from parties.compute import InlineLane
from parties.server.round.reading import AlteredError, ReadBack
from parties.server.round.records import RoundRecords
from parties.server.store_layout import part_name
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.store import MemoryStore
from tests.parties.server.round.test_records import CONFIG, SEED, content, deposit, named, no_session, submit

PLACE = "round-00000001/x"


class Kind(NamedTuple):
    """A kind of bulk: what is right, its name, and how it is read."""

    right: bytes
    name: bytes
    read: Callable[[ReadBack, bytes], Awaitable[memoryview]]


KINDS = [
    Kind(content(1), named(content(1)), lambda back, name: back.part(PLACE, "submit", name)),
    Kind(b"dense", dense_digest(b"dense", SEED), lambda back, name: back.dense(PLACE, name, SEED)),
    Kind(b"private", private_digest(b"private", SEED), lambda back, name: back.private(PLACE, name, SEED)),
]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_put_is_read(kind: Kind) -> None:
    blobs = MemoryBlobs()
    await blobs.put(PLACE, kind.right)
    assert await kind.read(ReadBack(blobs, InlineLane(), CONFIG.shape), kind.name) == kind.right


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("harm", [lambda right: right[:-1] + bytes([right[-1] ^ 1]), lambda right: right[:-1]])
async def test_what_was_altered_is_named(kind: Kind, harm: Callable[[bytes], bytes]) -> None:
    blobs = MemoryBlobs()
    await blobs.put(PLACE, harm(kind.right))
    with pytest.raises(AlteredError, match=f"the blob {PLACE} has other content than was put"):
        await kind.read(ReadBack(blobs, InlineLane(), CONFIG.shape), kind.name)


async def test_what_is_missing_is_named() -> None:
    with pytest.raises(StorageError, match=f"the blob {PLACE} is missing"):
        await ReadBack(MemoryBlobs(), InlineLane(), CONFIG.shape).part(PLACE, "submit", named(content(1)))


@pytest.mark.parametrize("carries", [True, False])
async def test_an_altered_part_that_its_carrier_has_is_erased_to_be_forwarded_again(carries: bool) -> None:
    blobs, key, name = MemoryBlobs(), submit("anna"), named(content(1))
    records = RoundRecords(MemoryStore(), CONFIG, no_session, blobs=blobs, carries=lambda client: carries)
    place = part_name(records.prefix, key, name)
    await blobs.put(place, content(2))
    with pytest.raises(AlteredError, match="other content"):
        await records.part(key, name)
    assert await blobs.names("") == ([place] if carries else [])
    await deposit(records, submit("ben"), content(3))
    assert await records.part(submit("ben"), named(content(3))) == content(3)
