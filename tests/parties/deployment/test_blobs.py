"""The place of a server's bulk, opened as its file says."""

import secrets
import shutil

import pytest

from fsl_async.errors import MisuseError, StorageError
from parties.commands.demo.processes import write_server
from parties.deployment import blobs as blobs_module
from parties.deployment.blobs import blobs_owner, open_blobs, read_options
from parties.deployment.server import server_setup
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import to_toml
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.blobs.objects import ObjectBlobs
from parties.storage.store import DiskFullError
from tests.support.object_store import options
from tests.support.town import deploy


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    deploy(tmp_path, ["anna", "ben"], ["127.0.0.1:7000", "127.0.0.1:7001"])
    return Deployment.load(tmp_path / "task.toml")


def server_file(folder, server=0, **changes) -> ServerFile:
    keys = {"enrolment": "open", "clients": None, "model": None} | changes
    path = write_server(folder, server, f"127.0.0.1:700{server}", **keys)
    return ServerFile.load(path, {})


async def test_a_folder_beside_the_store_and_none_beside_memory(tmp_path, deployment):
    assert isinstance(await open_blobs(server_file(tmp_path), deployment), FolderBlobs)
    assert (tmp_path / "S0.blobs" / ".owner").read_bytes() == blobs_owner(deployment, 0)
    assert isinstance(await open_blobs(server_file(tmp_path, store="memory"), deployment), MemoryBlobs)


async def test_a_store_whose_folder_is_gone_is_told_of_and_a_first_start_is_not(tmp_path, deployment, caplog):
    server_file(tmp_path, model="model.npz")

    async def start() -> None:
        setup = await server_setup(tmp_path / "S0.toml")
        await setup.store.aclose()
        await setup.bulk.aclose()

    await start()
    await start()
    assert "is made anew" not in caplog.text
    shutil.rmtree(tmp_path / "S0.blobs")
    await start()
    assert "S0.blobs is made anew, and the store" in caplog.text


async def test_two_servers_in_one_folder_are_refused(tmp_path, deployment):
    await open_blobs(server_file(tmp_path, blobs={"folder": "bulk"}), deployment)
    with pytest.raises(StorageError, match=r"bulk holds the blobs of another server.*give every server a folder"):
        await open_blobs(server_file(tmp_path, 1, blobs={"folder": "bulk"}), deployment)


async def test_a_worker_on_another_host_does_not_find_the_folder(tmp_path, deployment):
    with pytest.raises(StorageError, match=r"S0\.blobs is not there: the server makes it when it starts"):
        await open_blobs(server_file(tmp_path), deployment, create=False)


async def test_an_object_store_is_reached_with_the_options_of_a_file(tmp_path, deployment, s3):
    credentials = tmp_path / "s3.toml"
    credentials.write_text(to_toml(options(s3)))
    credentials.chmod(0o600)
    place = {"url": f"s3://bucket/{secrets.token_hex(8)}", "options": "s3.toml"}
    assert isinstance(await open_blobs(server_file(tmp_path, blobs=place), deployment), ObjectBlobs)
    with pytest.raises(StorageError, match="another server"):
        await open_blobs(server_file(tmp_path, 1, blobs=place), deployment)


def test_a_file_of_options_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "s3.toml"
    path.write_text('secret_access_key = "x"\n')
    path.chmod(0o644)
    with pytest.raises(MisuseError, match=r"holds credentials and others can read it: `chmod 600 .*s3\.toml`"):
        read_options(path)
    path.write_text("region = 7\n")
    path.chmod(0o600)
    with pytest.raises(MisuseError, match="region must be a text"):
        read_options(path)
    assert read_options(None) == {}


async def test_without_obstore_the_extra_is_named(tmp_path, deployment, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "parties.storage.blobs.objects", None)
    with pytest.raises(MisuseError, match=r"needs obstore: pip install 'fsl-async\[objects\]'"):
        await open_blobs(server_file(tmp_path, blobs={"url": "s3://bucket/s0"}), deployment)


async def test_a_folder_without_room_is_waited_for(tmp_path, deployment, monkeypatch, autojump_clock, caplog):
    opened, full = blobs_module.open_once, [DiskFullError("S0.blobs takes nothing: the disk is full")]

    async def open_once(*arguments, **named):
        if full:
            raise full.pop()
        return await opened(*arguments, **named)

    monkeypatch.setattr(blobs_module, "open_once", open_once)
    assert isinstance(await open_blobs(server_file(tmp_path), deployment), FolderBlobs)
    assert caplog.messages == ["S0.blobs takes nothing: the disk is full; the server waits, and then starts"]
