"""A store's file in which other things lie than were written: nothing else than what was kept is ever read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fsl_async.errors import StorageError
from parties.sqlite_ends import Commit, ReadingEnd, WritingEnd
from parties.store import Keep, Put, Record

CONTENT = bytes(range(200))

DAMAGE = {
    "a size far beyond the content": ("UPDATE kept SET size = 1099511627776", "a blob of 1099511627776 bytes has 200"),
    "a negative size": ("UPDATE kept SET size = -1", "a blob of -1 bytes has 200"),
    "a size that is a text": ("UPDATE kept SET size = 'many'", "a blob of 'many' bytes has 200"),
    "content that is a text": ("UPDATE chunk SET data = substr(hex(data), 1, 200)", "str where bytes were written"),
    "content that is a number": ("UPDATE kept SET size = 3; UPDATE chunk SET data = 123", "int where bytes were"),
    "content that is gone": ("DELETE FROM chunk", "a blob of 200 bytes has 0"),
    "a name that is a text": ("UPDATE kept SET key = CAST(key AS TEXT)", ""),
    "a name that is no text": ("UPDATE kept SET key = x'76ff'", "is damaged .*utf-8"),
    "an entry that is a number": ("UPDATE journal SET entry = 5", "int where bytes were written"),
    "a table that is gone": ("DROP TABLE chunk", "no such table"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with closing(WritingEnd(path)) as end:
        end.transact([Commit.of((Put("v", CONTENT), Record("journal", b"entry")))])
    return path


def read_all(path: Path) -> tuple[list[bytes], dict[str, bytes]]:
    with closing(ReadingEnd(path)) as end:
        return end.entries("journal"), {key: bytes(end.blob(key)) for key in end.keys("")}


def test_what_is_not_damaged_is_read(path):
    assert read_all(path) == ([b"entry"], {"v": CONTENT})


@pytest.mark.parametrize("case", DAMAGE)
def test_what_was_not_written_is_not_read(case, path):
    script, words = DAMAGE[case]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    if not words:  # such a name is found by nobody who asks for bytes
        assert read_all(path) == ([b"entry"], {})
        return
    with pytest.raises(StorageError, match=rf"store\.db.*{words}"):
        read_all(path)


def test_a_blob_is_not_compared_with_what_was_not_written(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("UPDATE chunk SET data = substr(hex(data), 1, 200)")
    with closing(WritingEnd(path)) as end:
        (refusal,) = end.transact([Commit.of((Keep("v", CONTENT),))]).values()
    assert "str where bytes were written" in str(refusal)


def test_a_schema_that_is_no_text_is_damage(path):
    data = path.read_bytes()
    place = data.index(b"CREATE TABLE kept") + len("CREATE TABLE ")
    path.write_bytes(data[:place] + b"\xff\xfe" + data[place + 2 :])
    with pytest.raises(StorageError, match=r"store\.db.*damaged"), closing(WritingEnd(path)):
        pytest.fail("it was opened")
