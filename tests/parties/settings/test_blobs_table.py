"""`[blobs]` of a server's file: one place, beside the store where the file names none."""

import pytest

from fsl_async.errors import MisuseError
from parties.settings.host_file import HostFile
from parties.settings.party_file import ServerFile
from parties.settings.writing import to_toml
from tests.support.shop import SERVER_FILE

SERVER = SERVER_FILE | {"store": "s0.sqlite"}
COMMON = {key: SERVER[key] for key in ("server", "identity", "listen")}


def load(folder, blobs=None, **changes) -> ServerFile:
    path = folder / "s0.toml"
    path.write_text(to_toml(SERVER | changes | ({"blobs": blobs} if blobs else {})))
    return ServerFile.load(path, {})


def test_bulk_lies_beside_the_store_unless_the_file_says_where(tmp_path):
    assert load(tmp_path).blobs_folder == tmp_path / "s0.blobs"
    assert load(tmp_path, {"folder": "bulk"}).blobs_folder == tmp_path / "bulk"
    assert load(tmp_path, {"url": "s3://bucket/s0"}).blobs_folder is None
    assert load(tmp_path, store="memory").blobs_folder is None


@pytest.mark.parametrize(
    ("blobs", "changes", "words"),
    [
        ({"folder": "a", "url": "s3://bucket/s0"}, {}, r"blobs\.folder and blobs\.url are two places"),
        ({"options": "s3.toml"}, {}, r"blobs\.options needs blobs\.url, the object store"),
        ({"folder": "a"}, {"store": "memory"}, "name a file as the store, or remove"),
        ({"url": "s3://bucket/s0"}, {"store": "memory"}, "name a file as the store, or remove"),
        ({"place": "a"}, {}, "place"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_by_name(tmp_path, blobs, changes, words):
    with pytest.raises(MisuseError, match=words):
        load(tmp_path, blobs, **changes)


def test_each_task_of_a_server_has_a_place_of_its_own(tmp_path):
    path = tmp_path / "s0.toml"
    tasks = [{"task": f"{name}.toml", "store": f"{name}.sqlite", "enrolment": "open"} for name in ("shop", "town")]
    path.write_text(to_toml(COMMON | {"tasks": [tasks[0], tasks[1] | {"blobs": {"folder": "bulk"}}]}))
    assert [file.blobs_folder for file in HostFile.load(path, {}).tasks] == [tmp_path / "shop.blobs", tmp_path / "bulk"]
    path.write_text(to_toml(COMMON | {"tasks": [tasks[0] | {"store": "memory", "blobs": {"folder": "bulk"}}]}))
    with pytest.raises(MisuseError, match="name a file as the store"):
        HostFile.load(path, {})
