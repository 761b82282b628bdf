"""Copies of a folder of blobs: what is in them, and what they do not write over."""

import errno
import os
from pathlib import Path

import pytest

from fsl_async.errors import StorageError
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.blobs.folder_copy import copy_folder

NAMES = ["alone", "round-1/" + "n" * 500, "round-1/parts/anna/5f", "round-2/parts/ben/5f"]


@pytest.fixture
async def blobs(tmp_path) -> FolderBlobs:
    made = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    for name in NAMES:
        await made.put(name, name.encode())
    return made


def linking_to_another_disk(*args: object, **words: object) -> None:
    raise OSError(errno.EXDEV, "another disk")


async def opened(folder: Path) -> dict[str, bytes]:
    blobs = await FolderBlobs.open(folder, b"S0")
    found = {name: bytes(await blobs.read(name)) for name in await blobs.names("")}
    await blobs.aclose()
    return found


@pytest.mark.parametrize("link", [os.link, linking_to_another_disk])
async def test_a_copy_has_all_that_is_durable(blobs, link, tmp_path, monkeypatch):
    await blobs.put("round-2/on/loan", b"1", durable=False)
    monkeypatch.setattr(os, "link", link)
    size = copy_folder(tmp_path / "blobs", tmp_path / "copy.blobs")
    monkeypatch.undo()
    assert size == sum(map(len, NAMES))
    assert await opened(tmp_path / "copy.blobs") == {name: name.encode() for name in NAMES}
    for path in (tmp_path / "copy.blobs").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    await blobs.erase("")
    assert await opened(tmp_path / "copy.blobs") == {name: name.encode() for name in NAMES}


async def test_what_is_there_already_stays_and_what_is_missing_comes(blobs, tmp_path):
    copy_folder(tmp_path / "blobs", tmp_path / "copy.blobs")
    await blobs.erase("round-1/")
    await blobs.put("round-3/x", b"3")
    copy_folder(tmp_path / "copy.blobs", tmp_path / "blobs")
    assert await blobs.names("") == sorted([*NAMES, "round-3/x"])


async def test_another_servers_folder_is_not_mixed_with_it(blobs, tmp_path):
    await FolderBlobs.open(tmp_path / "other", b"S1")
    with pytest.raises(StorageError, match="other holds the blobs of another server"):
        copy_folder(tmp_path / "blobs", tmp_path / "other")
    assert sorted(os.listdir(tmp_path / "other")) == [".owner"]


async def test_other_content_under_a_name_is_refused(blobs, tmp_path):
    copy_folder(tmp_path / "blobs", tmp_path / "copy.blobs")
    await blobs.erase("round-2/")
    await blobs.put("round-2/parts/ben/5f", b"something else")
    with pytest.raises(StorageError, match="is there already, with other content"):
        copy_folder(tmp_path / "copy.blobs", tmp_path / "blobs")
