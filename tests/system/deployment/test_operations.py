"""docs/operations.md, section by section: what it describes is brought about, what it says is typed, and all is well.

A section's scenario first breaks something, or lets something happen; `carry_out` then types the section's commands, on
the terminals of those whom it names. Whatever the section has in double quotes somebody must have seen by its end.
"""

import os
import shutil
import sqlite3
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from fsl_async.errors import ChannelError
from parties.files.models import load_model, save_model
from parties.identity.keys import Identity
from parties.settings.task_file import Deployment
from tests import ROOT
from tests.support.shop import assert_equal, model, plain_sum
from tests.system.deployment.terminals import SERVE, Terminals, terminals
from tests.system.deployment.walkthrough import Written, has_seen, quoted, sections, steps, walk
from tests.system.soak.hostile_process import WHOLE_HANDSHAKE, Way, shake_hands

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SECTIONS = sections(PAGE)

BOTH_STOP = "kill %1; wait %1"

Scenario = Callable[[Terminals], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(title: str) -> Callable[[Scenario], Scenario]:
    """Names the section that a scenario is for."""

    def register(function: Scenario) -> Scenario:
        SCENARIOS[title] = function
        return function

    return register


def carry_out(site: Terminals, title: str) -> None:
    """Do what a section says."""
    walk(steps(SECTIONS[title]), site, site.typed)


@pytest.fixture
def site(tmp_path) -> Iterator[Terminals]:
    with terminals(tmp_path) as made:
        yield made


@pytest.mark.parametrize("title", SECTIONS)
def test_the_section_works_as_it_is_written(site, title):
    SCENARIOS[title](site)
    for words in quoted(SECTIONS[title]):
        assert has_seen(words, site.seen()), f"{title} quotes {words!r}, which nobody has seen:\n{site.seen()}"


def test_what_no_section_says_is_not_rehearsed_either():
    assert SCENARIOS.keys() == SECTIONS.keys()


# ---- from day to day


@scenario("Status")
def _(site: Terminals) -> None:
    site.serve()
    site.round(1, "alice", "bob")
    carry_out(site, "Status")


@scenario("Backup")
def _(site: Terminals) -> None:
    """After the copy that the section makes first come two rounds; then somebody starts S0 from it all the same, and
    from a store that was copied by hand."""
    site.serve()
    site.round(1, "alice", "bob")
    carry_out(site, "Backup")
    assert (site.home("s0") / "s0-copy.sqlite").stat().st_mode & 0o777 == 0o600
    assert_equal(load_model(site.home("s0") / "model-copy.npz"), load_model(site.models("s0")[-1]))
    site.round(2, "alice", "bob")
    site.round(3, "bob", "alice")
    site.assert_sum(*["alice", "bob"] * 3)
    site.type("s0", BOTH_STOP)
    site.type("s0", "mkdir aside; mv s0.sqlite aside/; cp s0-copy.sqlite s0.sqlite; fsl-async serve s0.toml", code=6)
    site.type("s0", "rm s0.sqlite; fsl-async restore s0.toml s0-copy.sqlite", code=6)
    site.type("s0", "cp old/s0.sqlite s0.sqlite; fsl-async serve s0.toml", code=6)


@scenario("What lies in a folder")
def _(site: Terminals) -> None:
    site.serve()
    site.round(1, "alice", "bob")
    carry_out(site, "What lies in a folder")
    site.round(2, "alice", "bob")
    site.type("s0", f"{BOTH_STOP}; mv s0.sqlite elsewhere.sqlite; fsl-async doctor .", code=6)


def take_the_guides_files(site: Terminals) -> None:
    """Both servers have the files of docs/deploy.md as they stand there, but for the ports."""
    for step in steps((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")):
        if isinstance(step, Written) and step.file in {"s0.toml", "s1.toml"}:
            (place,) = step.places
            path = site.home(place) / step.file
            own = tomllib.loads(path.read_text(encoding="utf-8"))
            ports = {"0.0.0.0:7000": own["listen"], "127.0.0.1:9470": own["operator"]["listen"]}
            content = step.content
            for written, port in ports.items():
                assert content.count(written) == 1
                content = content.replace(written, port)
            path.write_text(content, encoding="utf-8")


@scenario("Room for several tasks")
def _(site: Terminals) -> None:
    take_the_guides_files(site)
    site.serve()
    site.type("alice", "fsl-async submit alice.toml --update update.npz")
    carry_out(site, "Room for several tasks")
    site.round(1, "bob")
    site.assert_sum("alice", "bob")


@scenario("Another task on the same servers")
def _(site: Terminals) -> None:
    """S1 reads the new table first, and waits."""
    take_the_guides_files(site)
    site.serve()
    carry_out(site, "Room for several tasks")
    site.type("alice", "fsl-async submit alice.toml --update update.npz")
    site.type("s1", "cp s1.toml s1.before.toml; cp task.toml town.toml")
    site.type("s1", "sed -i '0,/^name = .*/s//name = \"town\"/' town.toml")
    table = 'task = "town.toml"\nclients = "clients.toml"\nmodel = "model.npz"\nstore = "town.sqlite"\n'
    (site.home("s1") / "early.table").write_text(f"[[tasks]]\n{table}", encoding="utf-8")
    site.type("s1", "cat early.table >> s1.toml; kill -HUP %1")
    site.until(lambda: site.lines("s1", "does not serve") + site.lines("s1", "serves another task") > 0, "s1")
    site.type("s1", "mv s1.before.toml s1.toml; kill -HUP %1")
    site.until(lambda: site.lines("s1", "task 'town' is removed") > 0, "s1")
    site.type("s1", "rm town.sqlite*")
    carry_out(site, "Another task on the same servers")
    for name in ("s0", "s1"):
        (saved,) = sorted((site.home(name) / "town-models").glob("*.npz"))
        assert_equal(load_model(saved), plain_sum(["alice", "bob"]))
    site.round(1, "bob")
    site.assert_sum("alice", "bob")


@scenario("Both servers begin anew")
def _(site: Terminals) -> None:
    site.serve()
    site.round(1, "alice", "bob")
    site.type("alice", "fsl-async submit alice.toml --update update.npz")  # of a round that is lost
    carry_out(site, "Both servers begin anew")
    site.type("bob", "mv bob.sqlite bob.sqlite.old")
    site.round(1, "alice", "bob")
    site.assert_sum(*["alice", "bob"] * 2)


@scenario("Upgrade")
def _(site: Terminals) -> None:
    site.serve()
    site.type("alice", "fsl-async submit alice.toml --update update.npz")
    carry_out(site, "Upgrade")
    site.round(1, "bob")
    site.assert_sum("alice", "bob")


@scenario("New keys for a client")
def _(site: Terminals) -> None:
    site.serve()
    carry_out(site, "New keys for a client")
    assert "was revoked at" in site.type("alice", "fsl-async submit alice.toml --update update.npz", code=4)
    site.type("alice", "fsl-async submit alice-2.toml --update update.npz")
    site.round(1, "bob")
    site.assert_sum("alice", "bob")


@scenario("New keys for a server")
def _(site: Terminals) -> None:
    site.serve()
    site.round(1, "alice", "bob")
    site.type("bob", "cp task.toml task.old.toml")
    carry_out(site, "New keys for a server")
    carry_out(site, "Both servers begin anew")
    site.type("bob", "mv bob.sqlite bob.sqlite.old")
    site.type("bob", "fsl-async submit task.old.toml --identity bob.key --update update.npz --patience 0", code=4)
    site.round(1, "alice", "bob")
    site.assert_sum(*["alice", "bob"] * 2)


# ---- when something goes wrong


@scenario("S1 is down")
def _(site: Terminals) -> None:
    site.serve()
    site.type("alice", "fsl-async submit alice.toml --update update.npz")
    site.type("s1", "kill -KILL %1")
    site.until(lambda: has_seen("peer lost", site.seen()), "s0")
    carry_out(site, "S1 is down")
    site.round(1, "bob")
    site.assert_sum("alice", "bob")


@scenario("Close a round now")
def _(site: Terminals) -> None:
    """A round waits for a third client, which never comes."""
    for server in ("s0", "s1"):
        site.type(server, f"sed -i 's/^clients = 2$/clients = 3/' {server}.toml")
    site.serve()
    for client in ("alice", "bob"):
        site.type(client, f"fsl-async submit {client}.toml --update update.npz")
    carry_out(site, "Close a round now")
    for server in ("s0", "s1"):
        site.until(lambda server=server: len(site.models(server)) == 1, server)
    site.assert_sum("alice", "bob")


@scenario("Abort a round")
def _(site: Terminals) -> None:
    site.serve()
    site.type("alice", "fsl-async submit alice.toml --update update.npz")
    carry_out(site, "Abort a round")
    site.round(2, "alice", "bob")
    site.assert_sum("alice", "bob")


@scenario("A slow client")
def _(site: Terminals) -> None:
    site.serve()
    site.round(1, "alice", "bob")
    with pytest.raises(ExceptionGroup) as ended:
        trio.run(begin_a_request_and_stall, site.home("alice"))
    assert ended.group_contains(ChannelError) or ended.group_contains(trio.BrokenResourceError)
    site.until(lambda: has_seen("connection failed", site.seen()), "s0")
    carry_out(site, "A slow client")
    site.until(lambda: has_seen("take effect when the server is started again", site.seen()), "s0")


async def begin_a_request_and_stall(home: Path) -> None:
    """Shake hands with S0, send half of a message, and wait until S0 has had enough."""
    deployment, identity = Deployment.load(home / "task.toml"), Identity.load(home / "alice.key")
    host, _, port = deployment.addresses[0].rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await shake_hands(deployment, 0, identity, Way("half of a request", WHOLE_HANDSHAKE + 5_000, 10_000), stream)


@scenario("A disk is full")
def _(site: Terminals) -> None:
    """The disk fills up when the round is open; the clients wait until there is room."""
    with disk_of_its_own(site, "s0", megabytes=64):
        site.serve()
        ballast = site.home("s0") / "old" / "ballast"
        fill_up(ballast)
        with ThreadPoolExecutor() as pool:
            both = pool.submit(site.round, 1, "alice", "bob")
            site.until(lambda: fill_up(ballast) or has_seen(FULL, site.seen()), "s0")
            carry_out(site, "A disk is full")
            both.result()
        site.assert_sum("alice", "bob")
        site.type("s0", BOTH_STOP)


FULL = "the disk … full"
"""What is said of a blob, which comes first, or of the store."""


def fill_up(ballast: Path) -> None:
    """Let a file take what room there is; a store whose log was emptied meanwhile has given some back."""
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(65_536))


@contextmanager
def disk_of_its_own(site: Terminals, name: str, megabytes: int) -> Iterator[None]:
    """A server's home, all but its log, lies on a small disk while the block lasts."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own needs root")
    home, aside = site.home(name), site.folder / "aside"
    (site.folder / "log").touch()
    (home / f"{name}.log").symlink_to(site.folder / "log")
    shutil.copytree(home, aside, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", home], check=True)
    try:
        shutil.copytree(aside, home, symlinks=True, dirs_exist_ok=True)
        (home / "old").mkdir()
        site.type(name, f"cd {home}")
        yield
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


@scenario("The blobs' disk is full")
def _(site: Terminals) -> None:
    """A small disk for blobs alone fills up when the round is open; the clients wait until there is room."""
    blobs = site.home("s0") / "s0.blobs"
    with small_disk(blobs, megabytes=16):
        site.serve()
        fill_up(blobs / "ballast")
        with ThreadPoolExecutor() as pool:
            both = pool.submit(site.round, 1, "alice", "bob")
            site.until(lambda: has_seen("was not stored: the disk of", site.seen()), "s0")
            carry_out(site, "The blobs' disk is full")
            both.result()
        site.assert_sum("alice", "bob")
        site.type("s0", BOTH_STOP)


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[None]:
    """A folder on a small disk of its own while the block lasts."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own needs root")
    place.mkdir(mode=0o700)
    options = f"size={megabytes}m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@scenario("A clock is wrong")
def _(site: Terminals) -> None:
    site.serve()
    carry_out(site, "A clock is wrong")
    site.round(1, "alice", "bob")


@scenario("A client's key is compromised")
def _(site: Terminals) -> None:
    site.serve()
    site.type("bob", "fsl-async submit bob.toml --update update.npz")
    carry_out(site, "A client's key is compromised")
    site.type("bob", "fsl-async retrieve bob.toml --block items --rows 3 --output rows.npz", code=4)
    site.round(1, "alice")
    site.assert_sum("alice", "bob")


@scenario("A server's key is compromised")
def _(site: Terminals) -> None:
    site.serve()
    carry_out(site, "A server's key is compromised")


@scenario("A key is lost")
def _(site: Terminals) -> None:
    site.type("s0", "rm s0.key")
    carry_out(site, "A key is lost")


@scenario("A store is damaged")
def _(site: Terminals) -> None:
    """A bit of the model has flipped."""
    site.serve()
    site.round(1, "alice", "bob")
    site.type("s0", BOTH_STOP)
    with closing(sqlite3.connect(site.home("s0") / "s0.sqlite")) as connection:
        connection.create_function("flip", 1, lambda data: bytes([data[0] ^ 4]) + data[1:])
        model = "(SELECT id FROM blob WHERE key = CAST('model/items' AS BLOB))"
        connection.execute(f"UPDATE chunk SET data = flip(data) WHERE blob = {model}")
        connection.commit()
    carry_out(site, "A store is damaged")


@scenario("A store is lost")
def _(site: Terminals) -> None:
    """S0 is started with an empty store all the same, and then with a file that is none."""
    site.serve()
    site.round(1, "alice", "bob")
    site.type("s0", f"{BOTH_STOP}; mkdir aside && mv s0.sqlite* aside/; fsl-async serve s0.toml", code=6)
    site.type("s0", "rm s0.sqlite*; head --bytes 100000 /dev/urandom > s0.sqlite")
    carry_out(site, "A store is lost")


@scenario("A server has stopped with code 5")
def _(site: Terminals) -> None:
    save_model(site.home("s1") / "model.npz", model())
    for name in ("s0", "s1"):
        site.type(name, f"{SERVE} {name}.toml 2>> {name}.log &")
    carry_out(site, "A server has stopped with code 5")
