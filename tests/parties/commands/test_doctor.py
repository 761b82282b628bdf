"""`fsl-async doctor` is right about damaged folders: what a start says is what it says, and it changes nothing."""

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import trio

from fsl_async.errors import FslError
from parties import connect
from parties.commands.doctor import doctor
from parties.commands.preflight.findings import Finding, Verdict
from parties.commands.report import ExitCode, exit_code
from parties.deployment.server import server_setup
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.server.history import PastRounds
from parties.server.lasting_state import LastingState
from parties.storage.mark import read_mark, write_mark
from parties.storage.sqlite_file import copy
from tests.support.shop import Basket
from tests.support.town import deploy, servers_of


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> Path:
    """The folder of S0 and S1 after a round, with a copy of S0's store then, and one submission in the next round."""
    folder: Path = tmp_path_factory.mktemp("used")
    deploy(folder, ("anna", "ben"))
    trio.run(a_round_and_a_half, folder)
    return folder


async def a_round_and_a_half(folder: Path) -> None:
    async with servers_of(folder / "S0.toml", folder / "S1.toml"):
        async with connect(folder / "task.toml", folder / "anna.key") as anna:
            async with connect(folder / "task.toml", folder / "ben.key") as ben:
                await anna.submit(Basket("anna").update)
                await ben.submit(Basket("ben").update)
                await anna.outcome()
            copy(folder / "S0.sqlite", folder / "old-copy.sqlite")
            await anna.submit(Basket("anna").update)
        shutil.copy(folder / "S0.sqlite", folder / "unlogged")
        shutil.copy(folder / "S0.sqlite-wal", folder / "unlogged-wal")


@pytest.fixture
def folder(used, tmp_path) -> Path:
    """S0's folder, without S1's store, and the copy elsewhere."""
    (there := tmp_path / "s0").mkdir(mode=0o700)
    for name in ("S0.toml", "S0.key", "task.toml", "clients.toml", "model.npz", "S0.sqlite", "S0.sqlite.mark"):
        shutil.copy(used / name, there)
    shutil.copytree(used / "S0.blobs", there / "S0.blobs")
    return there


def examined(folder: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in trio.run(doctor, folder)}


def content(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file's digest and mode."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


async def started(config: Path) -> None:
    """What `serve` does until it listens."""
    setup = await server_setup(config)
    try:
        await (lasting := LastingState(setup)).restore(setup.store)
        await PastRounds(setup.store).has_begun(lasting.progress.settled + 1)
    finally:
        await setup.store.aclose()
        await setup.bulk.aclose()


def sql(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "S0.sqlite")) as connection:
        connection.create_function("flip", 1, lambda data: bytes([data[0] ^ 4]) + data[1:])
        connection.execute(statement)
        connection.commit()


def put(folder: Path, used: Path, source: str, target: str = "S0.sqlite") -> None:
    (folder / target).unlink(missing_ok=True)
    shutil.copy(used / source, folder / target)


def flip(path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[3] ^= 1
    path.write_bytes(changed)


def another_task(folder: Path) -> None:
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace("max_clients = 6", "max_clients = 7"))


def another_mark(folder: Path, identity: bool = False, by: int = 0) -> None:
    mark = read_mark(folder / "S0.sqlite")
    write_mark(folder / "S0.sqlite", type(mark)(bytes(16) if identity else mark.identity, mark.transactions + by))


def bulk_of(folder: Path, number: int) -> None:
    """A blob of that round, as if another store had put it."""
    (place := folder / "S0.blobs" / f"round-{number:08}").mkdir(exist_ok=True)
    (place / "parts,ben,submit-0,5f").write_bytes(b"bulk")


def gone(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def new_keys(folder: Path) -> None:
    (folder / "S0.key").unlink()
    Identity.generate("S0").save(folder / "S0.key")


Damage = Callable[[Path, Path], object]
GOES_ON = "it starts, and goes on with round 2, which has 1 submission"

# What was done to the folder, what is looked at, and doctor's words about it; a start is asked as well.
CASES: dict[str, tuple[Damage, dict[str, str]]] = {
    "nothing": (lambda f, u: None, {"start": GOES_ON, "store": "of S0 after round 1", "blobs": "is this server's"}),
    "no store": (lambda f, u: (f / "S0.sqlite").unlink(), {"start": "the store is missing", "store": "is missing"}),
    "no mark": (lambda f, u: (f / "S0.sqlite.mark").unlink(), {"start": "has no mark", "mark": "only you know"}),
    "no store, no mark": (
        lambda f, u: [(f / "S0.sqlite").unlink(), (f / "S0.sqlite.mark").unlink(), shutil.rmtree(f / "S0.blobs")],
        {"start": "it starts, and opens round 1", "store": "a start makes it", "mark": "none"},
    ),
    "a new store beside the bulk of the one before": (
        lambda f, u: [(f / "S0.sqlite").unlink(), (f / "S0.sqlite.mark").unlink(), bulk_of(f, 2)],
        {
            "start": "has bulk of round 2, and the last round that this store has begun is 0",
            "blobs": "S0.sqlite is not there: put it back",
        },
    ),
    "the bulk of a later store": (
        lambda f, u: bulk_of(f, 3),
        {"start": "has bulk of round 3, and the last round that this store has begun is 2: it is another store's bulk"},
    ),
    "no tokens": (
        lambda f, u: (f / "S0.toml").write_text(
            'enrolment = "token"\ntokens = "t.toml"\n' + (f / "S0.toml").read_text()
        ),
        {"start": "t.toml cannot be read: No such file or directory; copy the other server's, which is the same, or"},
    ),
    "an older copy in its place": (lambda f, u: put(f, u, "old-copy.sqlite"), {"start": "is a copy made by"}),
    "an older copy beside it": (
        lambda f, u: put(f, u, "old-copy.sqlite", "old.sqlite"),
        {"start": GOES_ON, "copies": "the server has run since: of use for its model alone"},
    ),
    "a new copy beside it": (
        lambda f, u: copy(f / "S0.sqlite", f / "new.sqlite"),
        {"start": GOES_ON, "copies": "the server has done nothing since"},
    ),
    "a copy without a mark": (
        lambda f, u: [copy(f / "S0.sqlite", f / "new.sqlite"), [gone(path) for path in f.glob("S0.[sb]*")]],
        {"start": "it starts, and opens round 1", "copies": "only you know whether the server has run since"},
    ),
    "a store without its log": (
        lambda f, u: put(f, u, "unlogged"),
        {"start": "is older than what this server has done"},
    ),
    "a store with its log": (
        lambda f, u: [put(f, u, "unlogged"), put(f, u, "unlogged-wal", "S0.sqlite-wal")],
        {"start": GOES_ON, "store's log": "they belong together"},
    ),
    "a log alone": (
        lambda f, u: [(f / "S0.sqlite").unlink(), put(f, u, "unlogged-wal", "S0.sqlite-wal")],
        {"start": "the store is missing", "store's log": "is the log of a store that is not there"},
    ),
    "S1's store": (
        lambda f, u: put(f, u, "S1.sqlite"),
        {"start": "is not the store that was used here", "store": "of S1"},
    ),
    "S1's store and mark": (
        lambda f, u: [put(f, u, "S1.sqlite"), put(f, u, "S1.sqlite.mark", "S0.sqlite.mark")],
        {"start": "the store belongs to S1", "store": "of S1 after round 1"},
    ),
    "another mark": (
        lambda f, u: another_mark(f, identity=True),
        {"start": "is not the store that was used here last"},
    ),
    "a mark ahead": (lambda f, u: another_mark(f, by=1), {"start": "is older than what this server has done"}),
    "a mark behind": (lambda f, u: another_mark(f, by=-1), {"start": GOES_ON}),
    "a damaged mark": (
        lambda f, u: (f / "S0.sqlite.mark").write_text("?"),
        {"start": "is damaged, so nobody knows", "mark": "is damaged"},
    ),
    "noise for a store": (
        lambda f, u: (f / "S0.sqlite").write_bytes(np.random.default_rng(1).bytes(100_000)),
        {"start": "is not a store", "store": "is not a store"},
    ),
    "an empty store": (
        lambda f, u: (f / "S0.sqlite").write_bytes(b""),
        {"start": "is not the store that was used here"},
    ),
    "half a store": (
        lambda f, u: (f / "S0.sqlite").write_bytes((f / "S0.sqlite").read_bytes()[: 3 * 16384]),
        {"start": "damaged", "store": "damaged"},
    ),
    "a changed model": (
        lambda f, u: sql(
            f,
            "UPDATE chunk SET data = flip(data) WHERE blob = "
            "(SELECT id FROM blob WHERE key = CAST('model/items' AS BLOB))",
        ),
        {"start": "is not what was written", "store": "model/items is not what was written"},
    ),
    "a changed past": (
        lambda f, u: sql(
            f,
            "UPDATE chunk SET data = flip(data) WHERE blob = "
            "(SELECT id FROM blob WHERE key = CAST('past/00000001' AS BLOB))",
        ),
        {"store": "past/00000001 is not what was written"},
    ),
    "a changed event": (
        lambda f, u: sql(f, "UPDATE journal SET entry = flip(entry) WHERE name = CAST('round-00000002/toss' AS BLOB)"),
        {"store": "round-00000002/toss is not what was written"},
    ),
    "no name": (lambda f, u: sql(f, "UPDATE life SET identity = 7"), {"start": "does not say which store it is"}),
    "no row with its name": (lambda f, u: sql(f, "DELETE FROM life"), {"store": "does not say which store it is"}),
    "another format": (lambda f, u: sql(f, "PRAGMA user_version = 1"), {"start": "is a store of format 1"}),
    "another program's": (lambda f, u: sql(f, "PRAGMA application_id = 7"), {"start": "a database of another program"}),
    "another task": (lambda f, u: another_task(f), {"start": "belongs to another task", "blobs": "of another task"}),
    "a broken task file": (lambda f, u: (f / "task.toml").write_text("[task"), {"task": "task.toml"}),
    "a broken file": (lambda f, u: (f / "S0.toml").write_text("server = 0\nlistne = 1\n"), {"configuration": "listne"}),
    "no keys": (
        lambda f, u: (f / "S0.key").unlink(),
        {"start": "S0.key", "keys": "S0.key cannot be read: No such file or directory; put its copy back"},
    ),
    "S1's keys": (lambda f, u: put(f, u, "S1.key", "S0.key"), {"start": "S0.key", "keys": "S0.key"}),
    "new keys": (lambda f, u: new_keys(f), {"start": "does not hold the keys", "keys": "does not hold the keys"}),
    "keys for all to read": (lambda f, u: (f / "S0.key").chmod(0o644), {"start": "chmod", "keys": "chmod"}),
    "no model": (lambda f, u: (f / "model.npz").unlink(), {"start": "model.npz"}),
    "another model": (
        lambda f, u: save_model(f / "model.npz", {"items": np.zeros((3, 3), np.float32)}),
        {"start": "head"},
    ),
    "no store and no mark beside an empty folder of blobs": (
        lambda f, u: [
            (f / "S0.sqlite").unlink(),
            (f / "S0.sqlite.mark").unlink(),
            *[shutil.rmtree(each) for each in (f / "S0.blobs").glob("round-*")],
        ],
        {"start": "opens round 1", "blobs": "S0.sqlite is not there: put it back"},
    ),
    "no blobs": (lambda f, u: shutil.rmtree(f / "S0.blobs"), {"start": GOES_ON, "blobs": "mount its disk"}),
    "S1's blobs": (
        lambda f, u: [shutil.rmtree(f / "S0.blobs"), shutil.copytree(u / "S1.blobs", f / "S0.blobs")],
        {"blobs": "holds the blobs of another server"},
    ),
    "blobs for all to read": (lambda f, u: (f / "S0.blobs").chmod(0o755), {"blobs": "chmod 700"}),
    "blobs of nobody": (lambda f, u: (f / "S0.blobs" / ".owner").unlink(), {"blobs": ".owner"}),
    "a log for all to read": (lambda f, u: (f / "S0.log").write_text("x"), {"start": GOES_ON, "log": "`chmod 600` it"}),
    "a locked-up log": (
        lambda f, u: [(f / "S0.log").write_text("x"), (f / "S0.log").chmod(0o600)],
        {"start": GOES_ON, "log": "has 1 bytes"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_a_folder_is_true_and_a_start_says_the_same(case, folder, used):
    damage, expected = CASES[case]
    damage(folder, used)
    before = content(folder)
    findings = examined(folder)
    assert content(folder) == before, "nothing is changed"
    for name, words in expected.items():
        assert words in findings[name].text, f"{name}: {findings[name].text}"
        assert "/fsl-async-" not in findings[name].text, "it names the folder's own files"
    code = next((finding.code for finding in findings.values() if finding.code), ExitCode.OK)
    refusal = refused_start(folder / "S0.toml")
    if refusal is None:
        assert "start" not in findings or not findings["start"].code
    else:
        said = findings.get("start", findings["configuration"]).text
        assert without_names(said) == without_names(str(refusal)) or case in ("a broken task file", *OF_BLOBS)
        assert code == exit_code(refusal)


OF_BLOBS = ("S1's blobs", "blobs for all to read", "blobs of nobody", "another task")
"""Where a start comes to the store after the blobs, or not at all."""


def without_names(text: str) -> str:
    """A store that is made of nothing has a name of its own each time."""
    return re.sub(r"store [0-9a-f]{8}", "store", text)


def refused_start(config: Path) -> FslError | None:
    try:
        trio.run(started, config)
    except FslError as error:
        return error
    return None


@pytest.mark.parametrize("spoil", [Path.unlink, flip], ids=["gone", "changed"])
def test_blobs_that_the_running_round_needs_are_missed_by_name(spoil, used, tmp_path):
    """One of the two servers carries anna's submission, and has its dense share."""
    (server,) = [one for one in ("S0", "S1") if list((used / f"{one}.blobs").glob("round-00000002/dense*"))]
    shutil.copytree(used, there := tmp_path / "all")
    assert "nothing that its round needs is missing" in examined(there / f"{server}.toml")["blobs"].text
    spoil(next((there / f"{server}.blobs").glob("round-00000002/dense*")))
    finding = examined(there / f"{server}.toml")["blobs"]
    assert finding.verdict is Verdict.DOUBTFUL
    assert "1 blob of the running round is missing or altered" in finding.text
    assert "dense/anna" in finding.text


def test_a_server_that_runs_is_not_disturbed(folder):
    async def runs() -> Finding:
        setup = await server_setup(folder / "S0.toml")
        try:
            return {finding.check: finding for finding in await doctor(folder)}["start"]
        finally:
            await setup.store.aclose()
            await setup.bulk.aclose()

    assert "the server is running" in trio.run(runs).text
    assert examined(folder)["start"].text == GOES_ON


def test_the_command_ends_as_the_server_would(folder, in_process, tmp_path):
    assert in_process("doctor", str(folder))[0] == ExitCode.OK
    (folder / "S0.sqlite").unlink()
    code, out, _ = in_process("doctor", str(folder), "--format", "json")
    assert code == ExitCode.STORAGE
    assert json.loads(out)["result"]["passed"] is False
    code, _, said = in_process("doctor", str(tmp_path))
    assert code == ExitCode.MISUSE
    assert "has no server's TOML file" in said
