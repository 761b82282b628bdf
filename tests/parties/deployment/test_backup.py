"""`fsl-async backup`: a copy from which a server goes on with the same bytes, and nothing that is overwritten."""

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path

import pytest
import trio

from fsl_async.errors import StorageError
from parties import connect
from parties.commands.report import ExitCode
from parties.deployment.server import server_setup
from parties.errors import RoundClosedError
from parties.files.models import load_model
from parties.server.server import Server
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import DiskFullError
from tests.support.shop import Basket, assert_equal, model_after
from tests.support.town import deploy, happens, servers_of, take_part

NAMES = ("anna", "ben")
RESTED = ("--has-run", "no")
"""What only a person knows where there is no mark."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory) -> Path:
    """Two servers' files and two clients', from which every test begins."""
    made: Path = tmp_path_factory.mktemp("lives") / "deployed"
    made.mkdir()
    deploy(made, NAMES)
    return made


@pytest.fixture
def folder(deployed, tmp_path) -> Path:
    """These files, as a test's own."""
    return shutil.copytree(deployed, tmp_path / "own")


@pytest.fixture
def lived(deployed, folder) -> Callable[[Callable[[Path], Awaitable[None]]], None]:
    """Lets servers live in the folder, first of all; what the first test with that life has made, the others copy."""

    def live(life: Callable[[Path], Awaitable[None]]) -> None:
        kept = deployed.parent / life.__name__
        if kept.exists():
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        else:
            trio.run(life, folder)
            shutil.copytree(folder, kept)

    return live


@pytest.fixture
def run(folder, monkeypatch, in_process):
    """Runs `backup`, or `restore`, in this process: its exit code, JSON object or text, and complaint."""

    def run(*words: str, form: str = "json") -> tuple[int, dict | str, str]:
        monkeypatch.chdir(folder)
        before = [] if words[0] == "restore" else ["backup"]
        code, out, error = in_process(*before, *words, "--format", form)
        return code, json.loads(out) if form == "json" and out else out, error

    return run


def running(folder: Path) -> AbstractAsyncContextManager[list[Server]]:
    """Both servers, until the block ends."""
    return servers_of(folder / "S0.toml", folder / "S1.toml")


async def settled(servers: list[Server], rounds: int) -> None:
    """Wait until both have kept that so many rounds are done; clients hear of it a moment before."""
    await happens(lambda: [server.status().rounds_done for server in servers] == [rounds, rounds])


def test_a_server_goes_on_from_a_copy_that_was_made_while_it_ran(folder, run):
    """One client's submission is in the copy; after the servers were stopped, the copies take the stores' place."""

    async def copied_meanwhile() -> None:
        async with running(folder) as servers:
            await take_part(folder, *NAMES)
            await settled(servers, 1)
            async with connect(folder / "task.toml", folder / "anna.key") as client:
                await client.submit(Basket("anna").update)
                for number in (0, 1):
                    before = (folder / f"S{number}.sqlite").stat().st_ino
                    code, said, _ = run(f"S{number}.toml", f"copy-{number}.sqlite", "--model", f"model-{number}.npz")
                    assert code == ExitCode.OK
                    assert said["result"]["settled"] == 1
                    assert (folder / f"S{number}.sqlite").stat().st_ino == before

    async def second() -> None:
        async with running(folder) as servers:
            assert [server.status().round.submissions for server in servers] == [1, 1]
            await take_part(folder, "ben")
            await settled(servers, 2)
            assert_equal(servers[0].model, model_after(NAMES, NAMES))

    trio.run(copied_meanwhile)
    for number in (0, 1):
        copy = folder / f"copy-{number}.sqlite"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        put_aside(folder, number)
        code, said, _ = run("restore", f"S{number}.toml", copy.name)
        assert (code, said["result"]["settled"], said["result"]["newest"]) == (ExitCode.OK, 1, True)
        assert copy.exists()
    trio.run(second)


def put_aside(folder: Path, number: int, *, mark: bool = False) -> None:
    """The store of a stopped server, without its mark or with it."""
    (folder / "old").mkdir(exist_ok=True)
    for left in folder.glob(f"S{number}.sqlite*"):
        if mark or left.suffix != ".mark":
            left.rename(folder / "old" / left.name)


def test_what_is_printed_says_what_was_copied_and_how_to_go_on_from_it(folder, lived, run):
    lived(one_round)
    code, out, error = run("S0.toml", "copy.sqlite", "--model", "then.npz", form="text")
    assert (code, error) == (ExitCode.OK, "")
    first, *_, last = out.splitlines()
    size = (folder / "copy.sqlite").stat().st_size
    assert first == f"copy.sqlite: the store of S0 after round 1, {size:,} bytes, checked"
    assert last == "then.npz: the model after round 1"
    assert "`fsl-async restore` makes a store from it. `serve` refuses the copy itself" in out
    assert "If S0 has run since, do not" in out
    code, said, _ = run("S1.toml", "other.sqlite")
    assert code == ExitCode.OK
    assert {key: said["result"][key] for key in ("server", "store", "copy", "settled", "model")} == {
        "server": 1, "store": "S1.sqlite", "copy": "other.sqlite", "settled": 1, "model": "",
    }  # fmt: skip
    assert sorted(load_model(folder / "then.npz")) == ["head", "items"]
    assert {path.name for path in folder.glob("*copy*")} == {"copy.sqlite", "copy.blobs"}


@pytest.fixture
def stopped(folder, lived) -> Path:
    """The folder after both servers have run for a moment."""
    lived(a_moment)
    return folder


async def a_moment(folder: Path) -> None:
    async with running(folder):
        pass


@pytest.mark.parametrize("words", [["there"], ["copy.sqlite", "--model", "there"]], ids=["copy", "model"])
def test_nothing_is_overwritten(stopped, run, words):
    (stopped / "there").write_text("precious")
    code, said, _ = run("S0.toml", *words)
    assert code == ExitCode.STORAGE
    assert "there exists already, and is not overwritten; name a new file" in said["error"]["message"]
    assert (stopped / "there").read_text() == "precious"
    assert not (stopped / "copy.sqlite").exists()


def test_a_copy_named_as_the_store_is_told_that_its_bulk_would_be_the_server_s_own(stopped, run):
    before = sorted(stopped.rglob("*"))
    code, said, _ = run("S0.toml", "S0.copy")
    assert code == ExitCode.STORAGE
    assert (
        "S0.blobs, where the bulk of S0.copy goes, exists already; name the copy otherwise" in said["error"]["message"]
    )
    assert sorted(stopped.rglob("*")) == before


def test_what_cannot_be_copied_is_named_and_nothing_stays(stopped, run, monkeypatch):
    before = {path.name for path in stopped.iterdir()}
    (stopped / "text.sqlite").write_text("not a store at all, but long enough for a header: " + "x" * 200)
    with closing(sqlite3.connect(stopped / "theirs.sqlite")) as theirs:
        theirs.execute("CREATE TABLE x (y)")
    cases = {
        "memory": (ExitCode.MISUSE, "the store is in memory: there is nothing to copy"),
        "none.sqlite": (ExitCode.MISUSE, "none.sqlite: there is no store yet; the server makes it when it starts"),
        "text.sqlite": (ExitCode.STORAGE, "text.sqlite is not a store"),
        "theirs.sqlite": (ExitCode.STORAGE, "theirs.sqlite is not a store of fsl-async"),
    }
    for store, (expected, words) in cases.items():
        monkeypatch.setenv("FSL_ASYNC_STORE", store)
        code, said, error = run("S0.toml", "copy.sqlite")
        assert code == expected
        assert words in said["error"]["message"]
        assert error.startswith("fsl-async backup: ")
    monkeypatch.delenv("FSL_ASYNC_STORE")
    code, said, _ = run("S0.toml", "copy.sqlite", "--model", "model.pt")
    assert code == ExitCode.MISUSE
    assert "its name must end in .npz or .safetensors" in said["error"]["message"]
    code, said, _ = run("S0.toml", "nowhere/copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "its folder does not exist" in said["error"]["message"]
    assert {path.name for path in stopped.iterdir()} == before | {"text.sqlite", "theirs.sqlite"}


async def test_a_clients_state_is_no_servers_store(stopped, run, monkeypatch):
    store = await SqliteStore.open(stopped / "client.sqlite")
    await store.aclose()
    monkeypatch.setenv("FSL_ASYNC_STORE", "client.sqlite")
    code, said, _ = run("S0.toml", "copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "is not a server's store, or no server has been started with it yet" in said["error"]["message"]


def test_a_damaged_store_is_found_out_and_no_copy_stays(stopped, run):
    """A page in the middle is scribbled over: SQLite copies it without a look."""
    path = stopped / "S0.sqlite"
    content = bytearray(path.read_bytes())
    page = 8192
    for number in range(3, len(content) // page):
        content[number * page : number * page + 64] = bytes(range(64))
    path.write_bytes(content)
    code, said, _ = run("S0.toml", "copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "damaged" in said["error"]["message"]
    assert not (stopped / "copy.sqlite").exists()


# ---- what becomes of a copy


async def one_round(folder: Path, number: int = 1) -> None:
    async with running(folder) as servers:
        await take_part(folder, *NAMES)
        await settled(servers, number)


async def half_a_round(folder: Path) -> None:
    """One of two submissions is in."""
    async with running(folder) as servers:
        async with connect(folder / "task.toml", folder / "anna.key") as client:
            await client.submit(Basket("anna").update)
        assert [server.status().round.submissions for server in servers] == [1, 1]


async def refused_at_start(folder: Path) -> str:
    with pytest.raises(StorageError) as caught:
        await server_setup(folder / "S0.toml")
    return str(caught.value)


def test_a_copy_is_refused_as_it_is(folder, lived, run):
    lived(one_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    put_aside(folder, 0)
    (folder / "copy.sqlite").rename(folder / "S0.sqlite")
    assert "is a copy made by `fsl-async backup`" in trio.run(refused_at_start, folder)


def test_a_server_does_not_go_on_from_a_copy_that_it_has_run_on_from(folder, lived, run):
    """Neither from one made by `backup` nor from one made by hand; it may have answered a round since."""
    lived(half_a_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    by_hand = (folder / "S0.sqlite").read_bytes()
    trio.run(take_part_and_end, folder)
    put_aside(folder, 0)
    code, said, _ = run("restore", "S0.toml", "copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "copy.sqlite is older than what its server has done" in said["error"]["message"]
    assert not (folder / "S0.sqlite").exists()
    (folder / "S0.sqlite").write_bytes(by_hand)
    words = trio.run(refused_at_start, folder)
    assert "S0.sqlite is older than what this server has done" in words
    assert "begin anew on both servers" in words


async def take_part_and_end(folder: Path) -> None:
    async with running(folder) as servers:
        await take_part(folder, "ben")
        await settled(servers, 1)


@pytest.mark.parametrize(
    ("typed", "words", "code", "told"),
    [
        ("", (), ExitCode.MISUSE, "Say --has-run no, or yes"),
        ("", ("--has-run", "yes"), ExitCode.STORAGE, "What ends: every round after 1"),
        ("", ("--has-run", "unknown"), ExitCode.STORAGE, "What stays: keys"),
        ("no", (), ExitCode.OK, "Has S0 run since the copy was made, after round 1?"),
        ("unknown", (), ExitCode.STORAGE, "Begin anew on both servers"),
        ("perhaps", (), ExitCode.MISUSE, "nothing is restored"),
    ],
)
def test_without_a_mark_whoever_knows_is_asked_whether_the_server_has_run(
    typed, words, code, told, folder, lived, run, monkeypatch
):
    lived(one_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    put_aside(folder, 0, mark=True)
    if typed:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda prompt: typed)
    ended, said, error = run("restore", "S0.toml", "copy.sqlite", *words)
    assert ended == code
    assert told in error + str(said)
    assert (folder / "S0.sqlite").exists() == (code == ExitCode.OK)


@pytest.mark.parametrize("twice", [False, True])
def test_without_its_mark_a_restored_server_gives_up_the_round_that_was_on(folder, lived, run, twice):
    """Another sum of it may have been opened; the next round is a new one."""
    lived(half_a_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    put_aside(folder, 0, mark=True)
    code, out, _ = run("restore", "S0.toml", "copy.sqlite", *RESTED, form="text")
    assert code == ExitCode.OK
    assert "aborts the round that the copy had begun" in out
    if twice:  # of the store itself, beside which there is a mark by now
        assert run("restore", "S0.toml", "S0.sqlite")[0] == ExitCode.OK

    async def goes_on() -> None:
        async with running(folder) as servers:
            await happens(lambda: [server.status().rounds_aborted for server in servers] == [1, 1])
            past = (await servers[0].past_rounds())[0].report
            assert past.explanation.startswith("S0 gave up: its store was made of a copy")
            await take_part(folder, *NAMES)
            await settled(servers, 1)

    trio.run(goes_on)
    trio.run(half_a_round, folder)  # opened since the restore: it goes on after a restart

    async def again() -> None:
        async with running(folder) as servers:
            await take_part(folder, "ben")
            await settled(servers, 2)

    trio.run(again)


def test_without_its_mark_a_restored_server_gives_up_the_round_that_it_was_tossing_for(folder, run):
    """With its half of the toss a malicious peer could open that round as the same one again."""

    async def half_a_toss() -> None:
        async with servers_of(folder / "S0.toml"):
            pass

    async def goes_on() -> None:
        async with running(folder) as servers:
            await happens(lambda: [server.status().rounds_aborted for server in servers] == [1, 1])
            await take_part(folder, *NAMES)
            await settled(servers, 1)

    trio.run(half_a_toss)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    put_aside(folder, 0, mark=True)
    assert run("restore", "S0.toml", "copy.sqlite", *RESTED)[0] == ExitCode.OK
    trio.run(goes_on)


def test_a_store_without_its_mark_is_made_one_where_it_lies(folder, lived, run):
    lived(one_round)
    (folder / "S0.sqlite.mark").unlink()
    assert "has no mark beside it" in trio.run(refused_at_start, folder)
    code, said, _ = run("restore", "S0.toml", "S0.sqlite", *RESTED)
    assert (code, said["result"]["newest"]) == (ExitCode.OK, False)

    async def one_more() -> None:
        """S0 gives up a round that it had begun when it was stopped; who is in it by then takes part in the next."""

        async def submit(name: str) -> None:
            async with connect(folder / "task.toml", folder / f"{name}.key") as client:
                for _ in range(2):
                    with suppress(RoundClosedError):
                        await client.submit(Basket(name).update)
                        break
                assert (await client.outcome()).counted

        async with running(folder) as servers, trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(submit, name)
            await settled(servers, 2)

    trio.run(one_more)


@pytest.mark.parametrize("number", ["0", "1"])
def test_what_is_restored_is_the_servers_own_and_overwrites_nothing(number, folder, lived, run):
    lived(one_round)
    assert run(f"S{number}.toml", "copy.sqlite")[0] == ExitCode.OK
    code, said, _ = run("restore", "S0.toml", "copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "S0.sqlite exists; put it aside first" in said["error"]["message"]
    put_aside(folder, 0, mark=True)
    code, said, _ = run("restore", "S0.toml", "copy.sqlite", *RESTED)
    assert (code == ExitCode.OK) == (number == "0")
    assert number == "0" or "is a store of S1" in said["error"]["message"]
    code, said, _ = run("restore", "S0.toml", "nowhere.sqlite")
    assert code == ExitCode.MISUSE


def test_a_copy_of_a_store_that_was_begun_anew_since_is_refused(folder, lived, run):
    lived(one_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    for index in (0, 1):
        put_aside(folder, index, mark=True)
    for state in folder.glob("*.state*"):
        state.unlink()  # as docs/operations.md has clients do
    trio.run(one_round, folder, 1)
    put_aside(folder, 0)
    code, said, _ = run("restore", "S0.toml", "copy.sqlite")
    assert code == ExitCode.STORAGE
    assert "its server has begun anew since" in said["error"]["message"]


def test_where_the_store_is_missing_none_is_made_and_the_copy_is_restored(folder, lived, run):
    lived(one_round)
    assert run("S0.toml", "copy.sqlite")[0] == ExitCode.OK
    put_aside(folder, 0)
    assert "the store is missing" in trio.run(refused_at_start, folder)
    assert not (folder / "S0.sqlite").exists()
    code, said, _ = run("restore", "S0.toml", "copy.sqlite")
    assert (code, said["result"]["newest"]) == (ExitCode.OK, True)


def test_another_store_beside_the_mark_of_a_lost_one_is_refused_and_both_are_named(folder, lived):
    lived(one_round)
    put_aside(folder, 0)
    (folder / "S0.sqlite").touch()
    words = trio.run(refused_at_start, folder)
    assert "is not the store that was used here last" in words
    assert f"S0.sqlite.mark is of store {(folder / 'S0.sqlite.mark').read_text().split()[2][:8]}" in words


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_log_that_lost_a_part_is_found_out(place, folder):
    """From a flipped bit on SQLite takes a log for cut off by a crash, and goes on as if nothing more had been said."""
    store, log = folder / "S0.sqlite", folder / "S0.sqlite-wal"

    async def killed() -> tuple[bytes, bytes]:
        async with running(folder) as servers:
            await take_part(folder, *NAMES)
            await settled(servers, 1)
            return store.read_bytes(), log.read_bytes()

    at_death, logged = trio.run(killed)
    store.write_bytes(at_death)
    log.write_bytes(logged)
    index = int(len(logged) * place)
    log.write_bytes(logged[:index] + bytes([logged[index] ^ 1]) + logged[index + 1 :])
    words = trio.run(refused_at_start, folder)
    assert "S0.sqlite is older than what this server has done" in words
    assert "S0.sqlite-wal) is missing or damaged" in words


def test_a_mark_that_cannot_be_read_is_named(folder, lived):
    lived(one_round)
    (folder / "S0.sqlite.mark").write_bytes(b"fsl-async mark 00")
    assert "S0.sqlite.mark is damaged" in trio.run(refused_at_start, folder)


# ---- a signal on the way

ENDED_ON_ITS_WAY = """
import os, signal
import {module} as module
real = module.connect
def connect(path):
    if path.name.startswith(".{prefix}"):
        os.kill(os.getpid(), signal.{name})
    return real(path)
module.connect = connect
from parties.commands.application import main
main()
"""


@pytest.mark.parametrize(("command", "name"), [("backup", "SIGTERM"), ("restore", "SIGHUP")])
def test_a_signal_on_the_way_leaves_nothing(command, name, stopped, run):
    """Else a whole copy stays in a hidden file, with all secrets."""
    if command == "restore":
        run("S0.toml", "copy.sqlite")
        put_aside(stopped, 0)
    module, prefix = (
        ("parties.storage.sqlite_file", "copy") if command == "backup" else ("parties.deployment.backup", "S0.sqlite")
    )
    before = {path.name for path in stopped.iterdir()}
    script = ENDED_ON_ITS_WAY.format(module=module, prefix=prefix, name=name)
    words = [sys.executable, "-c", script, command, "S0.toml", "copy.sqlite"]
    ended = subprocess.run(words, cwd=stopped, capture_output=True, check=False, timeout=120)
    assert ended.returncode == ExitCode.INTERRUPTED, ended.stderr.decode()
    assert {path.name for path in stopped.iterdir()} - {"S0.sqlite.lock"} == before - {"S0.sqlite.lock"}


# ---- a full disk at the start


async def test_a_server_that_starts_on_a_full_disk_waits(stopped, monkeypatch, autojump_clock):
    real, full = SqliteStore.open, [True] * 3

    async def opened(path: Path, **words: bool) -> SqliteStore:
        if full:
            full.pop()
            raise DiskFullError(f"{path}: the disk is full")
        return await real(path, **words)

    monkeypatch.setattr(SqliteStore, "open", opened)
    setup = await server_setup(stopped / "S0.toml")
    assert await setup.store.keys("standing") == ["standing"]
    await setup.store.aclose()
    await setup.bulk.aclose()
    assert not full
