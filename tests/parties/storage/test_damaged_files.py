"""A store's file in which other things lie than were written: nothing else than what was kept is ever read."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fsl_async.errors import StorageError
from parties.storage.sqlite_connections import Commit, ReadConnection, WriteConnection
from parties.storage.sqlite_errors import translated
from parties.storage.store import DiskFullError, Put, Record, StoreLostError

CONTENT = bytes(range(200))

DAMAGE = {
    "a size far beyond the content": ("UPDATE blob SET size = 1099511627776", "v of 1099511627776 bytes has 200"),
    "a negative size": ("UPDATE blob SET size = -1", "v of -1 bytes has 200"),
    "a size that is a text": ("UPDATE blob SET size = 'many'", "v of 'many' bytes has 200"),
    "content that is a text": ("UPDATE chunk SET data = substr(hex(data), 1, 200)", "str where bytes were written"),
    "content that is a number": ("UPDATE blob SET size = 3; UPDATE chunk SET data = 123", "int where bytes were"),
    "content that is gone": ("DELETE FROM chunk", "v of 200 bytes has 0"),
    "a name that is a text": ("UPDATE blob SET key = CAST(key AS TEXT)", ""),
    "a name that is no text": ("UPDATE blob SET key = x'76ff'", "is damaged .*utf-8"),
    "an entry that is a number": ("UPDATE journal SET entry = 5", "int where bytes were written"),
    "a table that is gone": ("DROP TABLE chunk", "no such table"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with closing(WriteConnection(path)) as end:
        end.transact([Commit.of((Put("v", CONTENT), Record("journal", b"entry")))])
    return path


def read_all(path: Path) -> tuple[list[bytes], dict[str, bytes]]:
    with closing(ReadConnection(path)) as end:
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


def test_a_schema_that_is_no_text_is_damage(path):
    data = path.read_bytes()
    place = data.index(b"CREATE TABLE blob") + len("CREATE TABLE ")
    path.write_bytes(data[:place] + b"\xff\xfe" + data[place + 2 :])
    with pytest.raises(StorageError, match=r"store\.db.*damaged"), closing(WriteConnection(path)):
        pytest.fail("it was opened")


# ---- one flipped bit


def flipped(path: Path, script: str) -> None:
    """Change what lies there as a disk does: neither sizes nor digests follow."""
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("flip", 1, lambda data: bytes([data[0] ^ 4]) + data[1:])
        connection.executescript(script)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("UPDATE chunk SET data = flip(data)", "v"),
        ("UPDATE journal SET entry = flip(entry)", "journal"),
        ("UPDATE blob SET digest = flip(digest)", "v"),
        ("UPDATE blob SET key = CAST('w' AS BLOB)", "w"),
        ("UPDATE journal SET digest = zeroblob(32)", "journal"),
    ],
    ids=["content", "entry", "digest", "content under another name", "no digest"],
)
def test_one_flipped_bit_is_found_when_it_is_read(script, name, path):
    flipped(path, script)
    with pytest.raises(StoreLostError, match=rf"damaged \({name} is not what was written.*do not put an older copy"):
        read_all(path)


def test_a_name_that_is_not_found_any_more_is_found_out_when_the_store_is_opened(path):
    """Without it a server whose standing is not found would begin anew by itself."""
    with closing(WriteConnection(path)) as end:
        end.transact([Commit.of((Put("standing", CONTENT),))])
    data = path.read_bytes()
    assert data.count(b"standing") == 2  # in the table, and in its index
    for place in (data.index(b"standing"), data.rindex(b"standing")):
        path.write_bytes(data[:place] + b"3" + data[place + 1 :])
        with pytest.raises(StoreLostError, match="is damaged"), closing(WriteConnection(path)):
            pytest.fail("it was opened")


# ---- a disk that fails is no damage


def sqlite_error(code: int, name: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


MALFORMED = sqlite_error(sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT")


def told(path: Path, error: sqlite3.Error) -> str:
    with pytest.raises(StorageError) as caught, translated(path):
        raise error
    return str(caught.value)


def test_a_read_that_fails_is_not_told_as_damage(path):
    """SQLite calls it malformed, and the file is whole when it is read once more."""
    words = told(path, MALFORMED)
    assert "the disk failed (SQLITE_CORRUPT" in words
    assert "check the disk" in words
    assert "start again" in words
    assert "damaged (" not in words
    assert "the file is whole" in words


def test_a_file_that_cannot_be_read_to_its_end_is_the_disks_fault(tmp_path):
    """/proc/self/mem gives an I/O error at its beginning, as a bad sector does."""
    (tmp_path / "store.db").symlink_to("/proc/self/mem")
    assert "the disk failed ([Errno 5] Input/output error)" in told(tmp_path / "store.db", MALFORMED)


def test_a_damaged_file_is_told_as_damaged(path):
    path.write_bytes(path.read_bytes()[: 3 * 8192])
    words = told(path, MALFORMED)
    assert "is damaged (" in words
    assert "backup" not in words


@pytest.mark.parametrize(
    ("code", "system", "words"),
    [
        (sqlite3.SQLITE_CANTOPEN, errno.EMFILE, "Too many open files; allow this process more"),
        (sqlite3.SQLITE_CANTOPEN, errno.EIO, "the disk failed"),
        (sqlite3.SQLITE_CANTOPEN, 0, "cannot be written"),
        (sqlite3.SQLITE_IOERR_WRITE, errno.EDQUOT, "the quota is used up; free some of it"),
        (sqlite3.SQLITE_IOERR_WRITE, 0, "the disk failed"),
        (sqlite3.SQLITE_IOERR_FSYNC, errno.EDQUOT, "the disk failed"),
        (sqlite3.SQLITE_ERROR, 0, "SQLite refuses what is asked of it"),
        (sqlite3.SQLITE_NOMEM, 0, "not enough memory"),
    ],
)
def test_errors_are_called_by_their_names(code, system, words, path, monkeypatch):
    def refuses(*args, **kwargs):
        if system:
            raise OSError(system, os.strerror(system))
        return real(*args, **kwargs)

    place = "open" if code == sqlite3.SQLITE_CANTOPEN else "fsync"
    real = getattr(os, place)
    monkeypatch.setattr(os, place, refuses)
    message = told(path, sqlite_error(code, "SQLITE_X"))
    assert words in message
    full = code == sqlite3.SQLITE_IOERR_WRITE and system == errno.EDQUOT
    with pytest.raises(DiskFullError if full else StoreLostError), translated(path):
        raise sqlite_error(code, "SQLITE_X")
