"""Stores that another release wrote: no command misreads one, and each names the format that it found."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from fsl_async.errors import StorageError
from parties.client import state
from parties.commands.report import ExitCode
from parties.compute import InlineLane
from parties.deployment.server import server_setup
from parties.identity.keys import Identity
from parties.storage.sqlite_file import APPLICATION, COPY, FORMAT
from parties.storage.store import MemoryStore
from tests.support.shop import TASK, Basket
from tests.support.town import deploy

FORMAT_1 = """
    PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = wal;
    CREATE TABLE journal (place INTEGER PRIMARY KEY, name BLOB NOT NULL, entry BLOB NOT NULL, digest BLOB NOT NULL);
    CREATE INDEX journal_by_name ON journal (name);
    CREATE TABLE kept (id INTEGER PRIMARY KEY, key BLOB UNIQUE, size INTEGER NOT NULL, digest BLOB NOT NULL);
    CREATE TABLE chunk (kept INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kept, number));
    CREATE TABLE life (identity BLOB NOT NULL, transactions INTEGER NOT NULL);
    INSERT INTO life VALUES (randomblob(16), 0);
    PRAGMA user_version = 1;
"""


def store_of_format_1(path: Path, application: int = APPLICATION) -> bytes:
    """Make a store as the release before this format made it; returns its bytes."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{FORMAT_1} PRAGMA application_id = {application};")
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A server's files and a client's, in the working folder."""
    deploy(tmp_path, ("anna",))
    Basket("anna").save(tmp_path / "update.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "old"),
    [
        ("backup S0.toml new.copy", "S0.sqlite"),
        ("clients list S0.toml --enrolled", "S0.sqlite"),
        ("preflight S0.toml", "S0.sqlite"),
        ("restore S0.toml old.copy", "old.copy"),
        ("submit anna.toml --update update.npz", "anna.state"),
        ("outcome anna.toml", "anna.state"),
        ("resume anna.toml", "anna.state"),
    ],
)
def test_every_command_refuses_a_store_of_another_format_by_name(folder, words, old, in_process):
    content = store_of_format_1(folder / old, COPY if words.startswith("restore") else APPLICATION)
    code, out, _ = in_process(*words.split(), "--format", "json")
    assert code == ExitCode.STORAGE
    assert f"{old} is a store of format 1, and this release has format {FORMAT}" in out
    assert "Run that release; or" in out
    assert (folder / old).read_bytes() == content
    assert not (folder / "new.copy").exists()


async def test_a_client_s_state_of_another_version_is_refused_with_what_to_do(monkeypatch):
    store, identity = MemoryStore(), Identity.generate("anna")
    monkeypatch.setattr(state, "VERSION", state.VERSION - 1)
    await state.ClientState(store, identity.public, TASK, InlineLane()).claim()
    content = bytes(await store.blob("owner"))
    monkeypatch.undo()
    told = rf"of version {state.VERSION - 1}, this .* {state.VERSION}\. Run the release that wrote it; or, after that"
    with pytest.raises(StorageError, match=told):
        await state.ClientState(store, identity.public, TASK, InlineLane()).load()
    assert bytes(await store.blob("owner")) == content


def test_a_server_does_not_start_from_a_store_of_another_format(folder):
    content = store_of_format_1(folder / "S0.sqlite")
    with pytest.raises(StorageError, match=rf"S0\.sqlite is a store of format 1, and this release has format {FORMAT}"):
        trio.run(server_setup, "S0.toml")
    assert (folder / "S0.sqlite").read_bytes() == content
