"""Blobs in an object store: whose they are, and which stores are refused."""

import traceback
from secrets import token_hex
from typing import Any

import obstore
import pytest

from fsl_async.errors import MisuseError, StorageError
from parties.storage.blobs.blobs import BlobsAwayError
from parties.storage.blobs.objects import ObjectBlobs
from tests.support.object_store import options


@pytest.fixture
def url() -> str:
    return f"s3://bucket/{token_hex(8)}"


async def test_a_server_and_its_workers_have_them_together_and_nobody_else(s3, url):
    server = await ObjectBlobs.open(url, b"S0", options(s3))
    worker = await ObjectBlobs.open(url, b"S0", options(s3), create=False)
    await worker.put("round-1/x", b"from a worker")
    assert await server.read("round-1/x") == b"from a worker"
    with pytest.raises(StorageError, match=r"another server, or of another task; give every server a path of its own"):
        await ObjectBlobs.open(url, b"S1", options(s3))


async def test_a_worker_opens_only_what_its_server_has_taken(s3, url):
    with pytest.raises(StorageError, match="is not taken yet: the server takes it when it starts"):
        await ObjectBlobs.open(url, b"S0", options(s3), create=False)


async def test_trying_it_out_leaves_nothing(s3, url):
    blobs = await ObjectBlobs.open(url, b"S0", options(s3))
    assert await blobs.names("") == []
    assert [entry["path"] for page in obstore.list(blobs._store) for entry in page] == ["owner"]


@pytest.mark.parametrize(
    ("call", "lie", "complaint"),
    [
        ("put", lambda put: lambda *a, **words: put(*a, **words | {"mode": "overwrite"}), "writes over what is there"),
        ("put", lambda put: lambda store, path, content, **words: put(store, path, content[:-1], **words), "give back"),
        ("list", lambda list_: lambda *a, **words: iter(()), "does not list"),
        ("delete", lambda delete: lambda *a: None, "still has what it has just erased"),
    ],
)
async def test_a_store_that_lies_is_refused_at_the_start(s3, url, monkeypatch, call: str, lie: Any, complaint: str):
    await ObjectBlobs.open(url, b"S0", options(s3))
    monkeypatch.setattr(obstore, call, lie(getattr(obstore, call)))
    with pytest.raises(StorageError, match=f"{complaint}.*: it is no place for blobs"):
        await ObjectBlobs.open(url, b"S0", options(s3))


async def test_a_store_that_is_not_there_is_away(monkeypatch, url):
    monkeypatch.setattr("parties.storage.blobs.objects.RETRIES", 0)
    with pytest.raises(BlobsAwayError, match="cannot be reached, or fails") as caught:
        await ObjectBlobs.open(url, b"S0", options("http://127.0.0.1:9"))
    assert "a secret key" not in "".join(traceback.format_exception(caught.value))


async def test_a_bucket_that_is_not_there_is_named(s3):
    with pytest.raises(StorageError, match="s3://none/x: there is no such bucket; make it"):
        await ObjectBlobs.open("s3://none/x", b"S0", options(s3))


@pytest.mark.parametrize("endpoint", ["http://objects.example:9000", "ftp://127.0.0.1"])
async def test_what_is_sent_to_another_host_is_encrypted(url, endpoint):
    with pytest.raises(MisuseError, match="https is needed where the object store is on another host"):
        await ObjectBlobs.open(url, b"S0", options(endpoint))


@pytest.mark.parametrize("wrong", ["nowhere", "gopher://bucket/x", ""])
async def test_a_url_that_is_none_is_refused(wrong):
    with pytest.raises(MisuseError, match="cannot be used as a place for blobs"):
        await ObjectBlobs.open(wrong, b"S0")


async def test_an_option_that_is_none_is_refused(url):
    with pytest.raises(MisuseError, match="cannot be used as a place for blobs"):
        await ObjectBlobs.open(url, b"S0", {"colour": "green"})
