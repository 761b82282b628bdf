"""`fsl-async preflight` of a server with doors: their key, their addresses, room for them, each mistake by name."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from fsl_async.wire.codec import decode
from fsl_async.wire.door_messages import MOST_DOORS, DoorHello
from parties.commands.preflight import Finding, Verdict, passed, preflight
from parties.commands.preflight import doors as checks
from parties.commands.report import ExitCode
from parties.files.models import save_model
from parties.identity.channel_keys import ChannelKeys
from parties.identity.keys import Identity
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses, to_toml, write_deployment
from tests.support.shop import TASK, model
from transport import HandshakeSettings, Kind, Refusal, Role, Service, SocketTransport

GOOD, DOUBTFUL, BAD = Verdict.GOOD, Verdict.DOUBTFUL, Verdict.BAD


@pytest.fixture
def homes(tmp_path) -> list[Path]:
    """Two servers, each with a door's key; S0's core is at a socket, S1's at a port."""
    identities = [Identity.generate(name) for name in ("S0", "S1")]
    public = [identity.public for identity in identities]
    clients, links = free_addresses(2), free_addresses(3)
    for number, identity in enumerate(identities):
        home = tmp_path / f"S{number}"
        (home / "run").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        identity.save(home / "own.key")
        ChannelKeys.of(identity).save(home / "doors.key")
        write_deployment(home, TASK, public, clients, [Identity.generate("anna").public])
        text = (home / "task.toml").read_text()
        (home / "task.toml").write_text(text.replace(f'"{clients[0]}"', f'"{clients[0]}"\nlink = "{links[0]}"'))
        save_model(home / "model.npz", model())
        doors = {"core": f"unix:{home}/run/core", "keys": "doors.key", "count": 2, "link": links[0]}
        if number:
            doors = {"core": links[1], "keys": "doors.key"}
        write(
            home,
            server=number,
            identity="own.key",
            task="task.toml",
            clients="clients.toml",
            model="model.npz",
            listen=clients[number],
            store="state.sqlite",
            doors=doors,
        )
    return [tmp_path / "S0", tmp_path / "S1"]


def write(home: Path, **table) -> None:
    (home / "party.toml").write_text(to_toml(table))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


async def found(home: Path, **environment: str) -> dict[str, Finding]:
    findings = await preflight(home / "party.toml", environment)
    return {finding.check: finding for finding in findings}


def place(home: Path, key: str) -> int:
    """The port that a key of the server's file names."""
    (line,) = (line for line in (home / "party.toml").read_text().splitlines() if line.startswith(f"{key} = "))
    return int(line.strip('"').rpartition(":")[2])


async def test_a_server_with_doors_passes_before_its_first_start(homes):
    for home in homes:
        findings = await found(home)
        assert passed(findings.values()), [each.text for each in findings.values() if each.verdict is BAD]
        assert {"doors' keys", "doors' memory", "core", "link", "port"} <= findings.keys()
    findings = await found(homes[0])
    assert "its port can be shared by several doors" in findings["port"].text
    assert "in a folder that nobody else can write" in findings["core"].text
    assert "2 doors of this host take up to" in findings["doors' memory"].text
    assert not (homes[0] / "run" / "core").exists()  # looking leaves nothing
    findings = await found(homes[1])
    assert "only who holds the server's channel key is taken for a door" in findings["core"].text
    assert findings["link"].text == "S1 dials S0, and listens for no server"
    assert findings["other core"].verdict is DOUBTFUL
    assert "if it is not started yet, that is all" in findings["other core"].text


async def test_a_door_s_key_that_is_another_s_or_signs_is_named(homes):
    home = homes[0]
    keys = home / "doors.key"
    keys.unlink()
    assert "make it with `fsl-async keygen doors.key --channel-of`" in (await found(home))["doors' keys"].text
    ChannelKeys.of(Identity.generate("S0")).save(keys)
    finding = (await found(home))["doors' keys"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.MISUSE)
    assert "does not hold the channel key that" in finding.text
    assert "`fsl-async keygen doors.key --channel-of own.key`" in finding.text
    keys.write_text((home / "own.key").read_text())
    assert "holds the key that signs, too" in (await found(home))["doors' keys"].text


async def test_a_core_s_folder_that_is_missing_or_not_private_is_named(homes):
    folder = homes[0] / "run"
    folder.chmod(0o770)
    finding = (await found(homes[0]))["core"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.MISUSE)
    assert "others can write" in finding.text
    assert "`chmod go-w` it" in finding.text
    folder.rmdir()
    assert "install --directory --mode 0700" in (await found(homes[0]))["core"].text


@pytest.mark.parametrize(("home", "key", "check"), [(0, "link", "link"), (1, "core", "core"), (0, "listen", "port")])
async def test_addresses_that_are_taken_are_named(homes, home, key, check):
    with socket.create_server(("127.0.0.1", place(homes[home], key))):
        finding = (await found(homes[home]))[check]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.CHANNEL)
    assert f"{key} = " in finding.text


async def test_a_link_that_leads_elsewhere_is_doubtful_and_none_is_refused(homes):
    home = homes[0]
    text = (home / "task.toml").read_text()
    change(home / "task.toml", f":{place(home, 'link')}", ":9")
    finding = (await found(home))["link"]
    assert finding.verdict is DOUBTFUL
    assert "the task file sends S1 to 127.0.0.1:9" in finding.text
    (home / "task.toml").write_text("".join(line for line in text.splitlines(True) if not line.startswith("link")))
    assert "S0 has doors, and so needs a link" in (await found(home))["link"].text


async def test_a_link_to_a_server_without_doors_is_refused(homes):
    home = homes[0]
    text = (home / "party.toml").read_text()
    (home / "party.toml").write_text(text[: text.index("[doors]")])
    finding = (await found(home))["link"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.MISUSE)
    assert "where only a server with [doors] listens" in finding.text


async def test_doors_that_need_more_memory_than_there_is_are_named(homes, monkeypatch):
    monkeypatch.setattr(checks, "total_and_free_memory", lambda: (10**9, 10**8))
    change(homes[0] / "party.toml", "count = 2", f"count = {MOST_DOORS}")
    finding = (await found(homes[0]))["doors' memory"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.MISUSE)
    assert "lower doors.count or limits.memory_bytes" in finding.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_s_process_at_the_port_is_named(homes):
    port = place(homes[0], "listen")
    code = f"import os, socket, sys; os.setuid(65534); socket.create_server(('127.0.0.1', {port}), reuse_port=True)"
    other = await trio.lowlevel.open_process(
        [sys.executable, "-c", code.replace("; socket", "; kept = socket") + "; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert await other.stdout.receive_some(1)
        finding = (await found(homes[0]))["port"]
        assert "processes of another user (user id 65534)" in finding.text
    finally:
        other.kill()
        await other.wait()


# ---- a door, on its own host


@pytest.fixture
def door_home(homes, tmp_path) -> Path:
    """What a door's host has of S0: its file, the task file, the doors' key."""
    home = tmp_path / "front"
    (home / "blobs").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    for name in ("party.toml", "task.toml", "doors.key"):
        (home / name).write_bytes((homes[0] / name).read_bytes())
    (home / "doors.key").chmod(0o600)
    return home


async def found_at_door(home: Path) -> dict[str, Finding]:
    findings = await preflight(home / "party.toml", {}, door=True)
    return {finding.check: finding for finding in findings}


@asynccontextmanager
async def core(home: Path, refusal: str = "") -> AsyncIterator[list[DoorHello]]:
    """What takes doors in the place of S0's core; it has met these, or refuses all."""
    file = ServerFile.load(home / "party.toml", {})
    met = []

    async def admit(key: bytes, payload: bytes) -> bytes | Refusal:
        met.append(decode(payload, DoorHello, "door").message)
        return Refusal(refusal) if refusal else b"welcome"

    settings = HandshakeSettings(ChannelKeys.load(home / "doors.key").secret, Role.CORE_0, Kind.LIVE, os.urandom)
    async with trio.open_nursery() as nursery:
        service = Service(settings, admit, lambda channel: channel.awaited())
        await nursery.start(SocketTransport(mode=0o600).listen, file.doors.core, service)
        yield met
        nursery.cancel_scope.cancel()


async def test_a_door_s_host_needs_less_and_what_is_missing_is_named(door_home):
    findings = await found_at_door(door_home)
    assert findings["doors' keys"].verdict is GOOD
    assert "the keys that sign are not here" in findings["key folder"].text
    assert (findings["core"].verdict, findings["core"].code) == (DOUBTFUL, ExitCode.OK)
    assert "a door waits for it" in findings["core"].text
    assert (findings["blobs"].verdict, findings["blobs"].code) == (BAD, ExitCode.STORAGE)
    assert "a door on another host needs an object store instead" in findings["blobs"].text
    assert not {"model", "store", "clients", "keys"} & findings.keys()


async def test_a_core_that_takes_the_door_or_refuses_it_says_so(door_home):
    async with core(door_home) as met:
        finding = (await found_at_door(door_home))["core"]
    assert finding.verdict is GOOD, finding.text
    assert met[0].door.startswith("preflight-")
    assert met[0].task == Deployment.load(door_home / "task.toml").task.digest()
    async with core(door_home, refusal="S0 has release 0.2.0, and this door 0.1.0"):
        finding = (await found_at_door(door_home))["core"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.CHANNEL)
    assert "S0 has release 0.2.0, and this door 0.1.0" in finding.text


async def test_the_keys_that_sign_have_no_business_on_a_door_s_host(homes, door_home):
    (door_home / "own.key").write_bytes((homes[0] / "own.key").read_bytes())
    finding = (await found_at_door(door_home))["key folder"]
    assert finding.verdict is DOUBTFUL
    assert "the keys that sign: right on the server's own host alone" in finding.text


async def test_what_is_no_server_with_doors_is_refused(homes):
    text = (homes[0] / "party.toml").read_text()
    (homes[0] / "party.toml").write_text(text[: text.index("[doors]")])
    finding = (await found_at_door(homes[0]))["doors"]
    assert (finding.verdict, finding.code) == (BAD, ExitCode.MISUSE)
    assert "is not the file of a server with [doors]" in finding.text
