"""Blobs in a folder: what outlives the process, and which folders are refused."""

import os
from pathlib import Path

import pytest

from fsl_async.errors import StorageError
from parties.files.disk import InUseError
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.store import DiskFullError, StoreLostError


async def test_they_outlive_the_process_and_only_their_owner_can_read_them(tmp_path):
    first = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await first.put("round-1/parts/alice/5f", b"kept")
    await first.aclose()
    second = await FolderBlobs.open(tmp_path / "blobs", b"S0", create=False)
    assert await second.read("round-1/parts/alice/5f") == b"kept"
    for path in (tmp_path / "blobs", *(tmp_path / "blobs").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_another_servers_folder_is_refused(tmp_path):
    await FolderBlobs.open(tmp_path / "blobs", b"S0")
    with pytest.raises(StorageError, match="another server, or of another task; give every server a folder of its own"):
        await FolderBlobs.open(tmp_path / "blobs", b"S1")


async def test_a_worker_opens_only_what_its_server_has_made(tmp_path):
    with pytest.raises(StorageError, match="the server makes it when it starts"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0", create=False)
    assert not (tmp_path / "blobs").exists()


async def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "blobs").mkdir(mode=0o700)
    (tmp_path / "blobs" / "letter.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"'letter\.txt' in it and no owner; name a folder of its own"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0")
    assert (tmp_path / "blobs" / "letter.txt").read_text() == "mine"


async def test_a_folder_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "blobs").mkdir(mode=0o755)
    (tmp_path / "blobs").chmod(0o755)
    with pytest.raises(StorageError, match="must belong to the user who runs this command, and to nobody else: `chmod"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0")


async def test_a_folder_below_none_is_refused(tmp_path):
    with pytest.raises(StorageError, match="blobs is not there"):
        await FolderBlobs.open(tmp_path / "none" / "blobs", b"S0")


async def test_what_an_interrupted_erasing_has_left_goes_at_the_next_start(tmp_path):
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await blobs.put("round-1/x", b"1")
    (tmp_path / "blobs" / "round-1").rename(tmp_path / "blobs" / ".erased-1")
    assert await blobs.names("") == []
    await blobs.aclose()
    await FolderBlobs.open(tmp_path / "blobs", b"S0")
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [".owner"]


async def test_an_unfinished_put_leaves_nothing(tmp_path, monkeypatch):
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    monkeypatch.setattr(os, "fdatasync", _failing(28))
    with pytest.raises(DiskFullError, match=r"the blob round-1/x was not stored: the disk of .* is full"):
        await blobs.put("round-1/x", b"1" * 10_000)
    monkeypatch.undo()
    assert await blobs.names("") == []
    await blobs.put("round-1/x", b"2")
    assert await blobs.read("round-1/x") == b"2"


async def test_after_a_failed_sync_nothing_more_is_stored(tmp_path, monkeypatch):
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    monkeypatch.setattr(os, "fdatasync", _failing(5))
    with pytest.raises(StoreLostError, match="failed"):
        await blobs.put("x/1", b"1")
    monkeypatch.undo()
    with pytest.raises(StoreLostError, match="failed"):
        await blobs.put("x/2", b"1")


async def test_what_is_not_durable_is_there_for_a_worker_and_gone_when_the_server_starts(tmp_path):
    server = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await server.put("round-1/loan", b"1", durable=False)
    await server.put("round-1/kept", b"2", durable=False)
    await server.put("round-1/kept", b"2")
    await server.put("round-1/kept", b"2", durable=False)
    worker = await FolderBlobs.open(tmp_path / "blobs", b"S0", create=False)
    assert await worker.read("round-1/loan") == b"1"
    assert await worker.names("") == ["round-1/kept", "round-1/loan"]
    await server.aclose()
    again = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    assert await again.names("") == ["round-1/kept"]
    assert await again.size("round-1/loan") is None
    assert await again.read("round-1/kept") == b"2"


async def test_what_a_power_failure_has_torn_does_not_stand_in_the_way(tmp_path):
    server = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await server.put("round-1/loan", b"whole", durable=False)
    (tmp_path / "blobs" / "round-1" / "loan~").write_bytes(b"")
    await server.aclose()
    again = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await again.put("round-1/loan", b"whole")
    assert await again.read("round-1/loan") == b"whole"


async def test_a_second_process_of_the_same_server_is_refused(tmp_path):
    first = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    with pytest.raises(InUseError, match="blobs is in use by another process of the same server; stop that one first"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await first.aclose()
    await (await FolderBlobs.open(tmp_path / "blobs", b"S0")).aclose()


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    await (await FolderBlobs.open(tmp_path / "blobs", b"S0")).aclose()
    monkeypatch.setattr(Path, "mkdir", _failing(30))
    with pytest.raises(StorageError, match=r"blobs cannot be written: the file system is read-only"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0")


async def test_a_full_disk_is_told_by_its_folder_once_what_an_erasing_has_left_is_gone(tmp_path, monkeypatch):
    await (await FolderBlobs.open(tmp_path / "blobs", b"S0")).aclose()
    (tmp_path / "blobs" / ".erased-1").mkdir()
    monkeypatch.setattr(os, "write", _failing(28))
    for _ in range(2):
        with pytest.raises(DiskFullError, match=r"the disk of \S*/blobs is full; free some of it"):
            await FolderBlobs.open(tmp_path / "blobs", b"S0")
        assert [path.name for path in (tmp_path / "blobs").iterdir()] == [".owner"]
    monkeypatch.undo()
    await (await FolderBlobs.open(tmp_path / "blobs", b"S0")).aclose()


async def test_erasing_needs_no_room(tmp_path, monkeypatch):
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await blobs.put("round-1/part", b"content")
    monkeypatch.setattr(os, "mkdir", _failing(28))
    await blobs.erase("round-1/")
    assert await blobs.names("") == []


async def test_a_file_system_that_cannot_give_names_to_files_is_refused(tmp_path, monkeypatch):
    (tmp_path / "blobs").mkdir(mode=0o700)
    (tmp_path / "blobs" / ".owner").write_bytes(b"S0")
    monkeypatch.setattr(os, "link", _failing(95))
    with pytest.raises(StorageError, match="the blob trial cannot be stored"):
        await FolderBlobs.open(tmp_path / "blobs", b"S0")
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [".owner"]


async def test_groups_and_usage(tmp_path):
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await blobs.put("round-1/x", b"123")
    await blobs.put("round-1/x", b"123")
    await blobs.put("round-2/x", b"45")
    assert await blobs.groups() == ["round-1", "round-2"]
    assert blobs.usage().stored == 5
    await blobs.erase("round-1/")
    assert await blobs.groups() == ["round-2"]
    assert blobs.usage().stored == 2
    assert blobs.usage().where == str(tmp_path / "blobs")
    assert blobs.usage().free


async def test_a_link_in_the_place_of_a_blob_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    blobs = await FolderBlobs.open(tmp_path / "blobs", b"S0")
    await blobs.put("round-1/x", b"1")
    (tmp_path / "blobs" / "round-1" / "y").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="the blob round-1/y cannot be read"):
        await blobs.read("round-1/y")


def _failing(code: int):
    def fail(*args: object, **words: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_paths_do_not_leave_the_folder(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    for name in ("a..b/.c", "x/.owner", ".owner", "x/" + "." * 239 + "y." * 30, "x/~", "x/y~"):
        path = blobs._path(name)
        assert ".." not in path.parts
        assert path.parent != tmp_path or path.name != ".owner"


async def test_a_crash_before_a_folder_has_its_owner_is_no_obstacle(tmp_path):
    """What is written lies in the folder alone: it may be a disk of its own."""
    folder = tmp_path / "blobs"
    folder.mkdir(mode=0o700)
    (folder / ".owner-left").write_bytes(b"S")
    blobs = await FolderBlobs.open(folder, b"S0")
    assert [path.name for path in tmp_path.iterdir()] == ["blobs"]
    assert await blobs.names("") == []
    await blobs.aclose()
