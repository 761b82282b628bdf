"""`fsl-async preflight`: what stands in the way is found, and named with what to do; what does not is let be."""

import errno
import json
import os
import re
import resource
import shutil
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import SimpleNamespace

import msgspec
import numpy as np
import obstore
import pytest
import trio

from parties.commands.preflight import Finding, Verdict, bulk, compute, host, others, preflight
from parties.commands.report import ExitCode
from parties.deployment import process_memory
from parties.events import ConnectionFailed
from parties.files import disk
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.identity.tokens import add_tokens
from parties.operator.recent_problems import problem_of
from parties.server.round.records import submission_bytes
from parties.server.server import Server
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses, to_toml, write_deployment
from tests.support.object_store import options, s3
from tests.support.shop import TASK, model
from tests.support.town import happens, servers_of

__all__ = ["s3"]

GOOD, DOUBTFUL, BAD = Verdict.GOOD, Verdict.DOUBTFUL, Verdict.BAD
TOKEN = "00112233445566778899aabbccddeeff"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A deployment: a folder for each party, with what it has."""
    identities = {name: Identity.generate(name) for name in ("S0", "S1", "anna", "ben", "eve")}
    public = {name: identity.public for name, identity in identities.items()}
    addresses = free_addresses(2)
    for name, identity in identities.items():
        home = tmp_path / name
        home.mkdir(mode=0o700)
        identity.save(home / "own.key")
        (home / "own.pub").write_text(identity.public.to_toml())
        write_deployment(home, TASK, [public["S0"], public["S1"]], addresses, [public["anna"], public["ben"]])
        task = (home / "task.toml").read_text()
        for address, organisation in zip(addresses, ("North", "South"), strict=True):
            task = task.replace(f'"{address}"', f'"{address}"\noperator = "{organisation}"')
        (home / "task.toml").write_text(task)
        (home / "party.toml").write_text('task = "task.toml"\nidentity = "own.key"\nstate = "state.sqlite"\n')
    for number, address in enumerate(addresses):
        home = tmp_path / f"S{number}"
        save_model(home / "model.npz", model())
        (home / "party.toml").write_text(
            f'server = {number}\nidentity = "own.key"\ntask = "task.toml"\nclients = "clients.toml"\n'
            f'model = "model.npz"\nlisten = "{address}"\nstore = "state.sqlite"\n'
            f'[operator]\nlisten = "{free_addresses(1)[0]}"\n'
        )
    return tmp_path


async def found(home: Path, **environment: str) -> dict[str, Finding]:
    findings = await preflight(home / "party.toml", environment)
    return {finding.check: finding for finding in findings}


async def bad(home: Path, check: str, code: ExitCode) -> str:
    """What is said of a check that finds something bad, with which the command ends with that code."""
    finding = (await found(home))[check]
    assert (finding.verdict, finding.code) == (BAD, code)
    return finding.text


async def doubtful(home: Path, check: str, **environment: str) -> str:
    """What is said of a check that finds something doubtful."""
    finding = (await found(home, **environment))[check]
    assert finding.verdict is DOUBTFUL
    return finding.text


def passed(findings):
    return not any(finding.code for finding in findings)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def running(*homes: Path) -> AbstractAsyncContextManager[list[Server]]:
    """The servers of these folders, as they run."""
    return servers_of(*(home / "party.toml" for home in homes))


# ---- a server


async def test_a_server_before_its_first_start_passes_with_the_other_one_still_away(folder):
    findings = await found(folder / "S0")
    assert passed(findings.values())
    doubts = {check for check, finding in findings.items() if finding.verdict is DOUBTFUL}
    assert {"clients", "two hosts", "other server"} <= doubts <= {
        "clients", "two hosts", "other server", "clock", "descriptors", "memory",
    }  # fmt: skip
    assert "if it is not started yet, that is all" in findings["other server"].text
    assert findings["two operators"].text == "North and South"
    assert not (folder / "S0" / "state.sqlite").exists()  # looking makes nothing


@pytest.mark.parametrize(("own", "other"), [("S0", "S1"), ("S1", "S0")])
async def test_each_server_finds_the_other_one_and_whether_it_is_the_right_one(folder, own, other):
    async with running(folder / other):
        findings = await found(folder / own)
        assert findings["other server"].verdict is GOOD
        assert f"{other} at 127.0.0.1" in findings["other server"].text
        task = (folder / own / "task.toml").read_text()
        change(folder / own / "task.toml", "select = 8", "select = 9")
        told = await bad(folder / own, "other server", ExitCode.MISUSE)
        assert re.search(r"runs another task: its digest is [0-9a-f]{16}…, ours is", told)
        key = Identity.generate("x").public.channel.hex()
        real = re.search(rf'channel = "({_channel(folder / other)})"', task)[1]
        (folder / own / "task.toml").write_text(task.replace(real, key))
        assert "it holds another key" in await bad(folder / own, "other server", ExitCode.CHANNEL)


async def test_several_tasks_are_checked_each_by_its_name_and_their_servers_once(folder):
    """The other server, which has one task yet, serves the one and not the other."""
    home = folder / "S0"
    own = 'task = "{0}"\nclients = "clients.toml"\nmodel = "model.npz"\nstore = "{1}.sqlite"\n'
    text = (home / "party.toml").read_text()
    for line in ("task", "clients", "model", "store"):
        text = re.sub(rf"^{line} = .*\n", "", text, flags=re.MULTILINE)
    tables = [f"[[tasks]]\n{own.format(*names)}" for names in (("task.toml", "shop"), ("town.toml", "town"))]
    (home / "party.toml").write_text(text + "".join(tables))
    (home / "town.toml").write_text((home / "task.toml").read_text().replace('name = "shop"', 'name = "town"', 1))
    async with running(folder / "S1"):
        findings = await found(home)
    assert findings["tasks"].verdict is GOOD
    assert re.fullmatch(r"2: 'shop', digest [0-9a-f]{16}…; 'town', digest [0-9a-f]{16}…", findings["tasks"].text)
    assert {"keys", "memory", "port", "two hosts", "shop: store", "town: store", "town: model"} <= findings.keys()
    assert findings["shop: other server"].verdict is GOOD
    assert findings["town: other server"].verdict is BAD
    assert "room for rounds of 2 tasks at once" in findings["disk"].text
    change(home / "town.toml", 'name = "town"', 'name = "shop"')
    findings = await found(home)
    assert "are called 'shop'; each task of a server has a name and a digest of its own" in findings["tasks"].text
    assert not passed(findings.values())
    findings = await found(home, FSL_ASYNC_STORE="other.sqlite")
    assert "FSL_ASYNC_STORE in the environment would override store of every task" in findings["configuration"].text


def _channel(home: Path) -> str:
    return Identity.load(home / "own.key").public.channel.hex()


async def test_a_running_server_is_found_running(folder):
    async with running(folder / "S0"):
        findings = await found(folder / "S0")
        assert passed(findings.values())
        assert findings["store"].verdict is DOUBTFUL
        assert "is in use: the server is running" in findings["store"].text
        assert "is the running server's" in findings["port"].text
    findings = await found(folder / "S0")
    assert findings["store"].verdict is GOOD
    assert "can be read and written" in findings["store"].text


BROKEN = {
    "no file": ({"FSL_ASYNC_IDENTITY": "none.key"}, "keys", ExitCode.MISUSE, "make one with `fsl-async keygen`"),
    "another's keys": ({"FSL_ASYNC_IDENTITY": "../S1/own.key"}, "keys", ExitCode.MISUSE, "does not hold the keys that"),
    "no model": ({"FSL_ASYNC_MODEL": "none.npz"}, "model", ExitCode.MISUSE, "none.npz cannot be read as a model"),
    "no list": ({"FSL_ASYNC_CLIENTS": "none.toml"}, "clients", ExitCode.MISUSE, "none.toml cannot be read"),
    "no folder": (
        {"FSL_ASYNC_STORE": "no/where.db"},
        "store",
        ExitCode.STORAGE,
        "its folder is missing or not writable",
    ),
    "no store": ({"FSL_ASYNC_STORE": "model.npz"}, "store", ExitCode.STORAGE, "model.npz"),
    "no host": ({"FSL_ASYNC_LISTEN": "192.0.2.1:7000"}, "port", ExitCode.CHANNEL, "is the address this host's"),
    "no memory": ({"FSL_ASYNC_LIMITS_MEMORY_BYTES": "1000000000000"}, "memory", ExitCode.MISUSE, "lower limits.memory"),
    "no task": ({"FSL_ASYNC_TASK": "none.toml"}, "task", ExitCode.MISUSE, "none.toml cannot be read"),
    "no setting": ({"FSL_ASYNC_LISTENS": "x"}, "configuration", ExitCode.MISUSE, "did you mean FSL_ASYNC_LISTEN?"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_what_stands_in_a_servers_way_is_found_and_named(folder, case):
    environment, check, code, words = BROKEN[case]
    findings = await found(folder / "S0", **environment)
    assert not passed(findings.values())
    assert next(finding.check for finding in findings.values() if finding.verdict is BAD) == check
    assert findings[check].code == code
    assert words in findings[check].text


async def test_ports_that_are_taken_are_found(folder):
    addresses = re.findall(r'listen = "(.*)"', (folder / "S0" / "party.toml").read_text())
    for check, address in zip(("port", "operator's port"), addresses, strict=True):
        (listener,) = await trio.open_tcp_listeners(int(address.rpartition(":")[2]), host="127.0.0.1")
        async with listener:
            assert "is the port free" in await bad(folder / "S0", check, ExitCode.CHANNEL)


async def test_a_model_of_another_shape_is_found(folder):
    save_model(folder / "S0" / "model.npz", {"items": np.zeros((3, 3)), "head": np.zeros(5)})
    assert "items" in await bad(folder / "S0", "model", ExitCode.MISUSE)


async def test_keys_that_others_can_read_or_replace_are_found(folder):
    (folder / "S0" / "own.key").chmod(0o644)
    assert "`chmod 600` it" in (await found(folder / "S0"))["keys"].text
    (folder / "S0" / "own.key").chmod(0o600)
    (folder / "S0").chmod(0o770)
    assert "`chmod go-w` it" in await doubtful(folder / "S0", "key folder")
    (folder / "S0").chmod(0o777)
    assert (await found(folder / "S0"))["keys"].verdict is BAD


async def test_both_servers_keys_in_one_folder_are_found(folder):
    (folder / "S0" / "other.key").write_bytes((folder / "S1" / "own.key").read_bytes())
    (folder / "S0" / "other.key").chmod(0o600)
    assert "has the secret keys of both servers" in await doubtful(folder / "S0", "key folder")


async def test_one_operator_of_both_servers_is_found(folder):
    change(folder / "S0" / "task.toml", '"South"', '" NORTH "')
    assert "both servers are run by 'North'" in await doubtful(folder / "S0", "two operators")
    change(folder / "S0" / "task.toml", 'operator = " NORTH "', "")
    assert "does not say who runs the servers" in (await found(folder / "S0"))["two operators"].text


async def test_one_host_of_both_servers_is_found_and_two_are_not_doubted(folder, monkeypatch):
    task = (folder / "S0" / "task.toml").read_text()

    async def told(first: str, second: str) -> str:
        addresses = iter((first, second))
        path = folder / "S0" / "task.toml"
        path.write_text(re.sub(r'address = ".*"', lambda _: f'address = "{next(addresses)}"', task))
        return (await found(folder / "S0"))["two hosts"].text

    monkeypatch.setattr(others, "PATIENCE", 0.2)
    assert "both servers are at 192.0.2.7" in await told("192.0.2.7:1", "192.0.2.7:2")
    assert "both servers are at 127.0.0.2" in await told("192.0.2.7:1", "127.0.0.2:2")
    assert await told("192.0.2.7:1", "192.0.2.8:1") == "two hosts, as far as their addresses tell"
    assert "cannot be resolved" in await told("192.0.2.7:1", "nobody.invalid:1")


async def test_a_store_in_memory_open_enrolment_and_variables_are_doubtful(folder):
    findings = await found(folder / "S0", FSL_ASYNC_STORE="memory", FSL_ASYNC_ENROLMENT="open")
    assert passed(findings.values())
    assert findings["store"].text.startswith("THE STORE IS IN MEMORY")
    assert "enrolment is open" in findings["clients"].text
    assert findings["environment"].verdict is DOUBTFUL
    assert "FSL_ASYNC_STORE overrides store" in findings["environment"].text


async def test_too_few_clients_are_doubtful(folder):
    (folder / "S0" / "clients.toml").write_text("")
    assert "lists 0 clients, and a round needs at least 2" in (await found(folder / "S0"))["clients"].text


async def test_a_round_that_closes_with_as_few_as_it_needs_is_advised_to_wait_for_more(folder):
    assert "the fewest that it needs" not in (await found(folder / "S0"))["rounds"].text
    rounds = await doubtful(folder / "S0", "rounds", FSL_ASYNC_ROUNDS_CLIENTS="2")
    assert "let it close after some more" in rounds


@pytest.mark.parametrize(("version", "verdict"), [(-1, DOUBTFUL), (4, GOOD)])
async def test_a_kernel_that_cannot_confine_what_talks_to_a_cluster_is_doubtful(folder, monkeypatch, version, verdict):
    async def nobody(*settings: object) -> str:
        return "there is no scheduler to wait for"

    monkeypatch.setattr(compute, "workers", nobody)
    monkeypatch.setattr(compute, "landlock_version", lambda: version)
    assert "confinement" not in await found(folder / "S0"), "there is no cluster"
    cluster = {"FSL_ASYNC_COMPUTE_ENGINE": "dask", "FSL_ASYNC_COMPUTE_SCHEDULER": "tcp://127.0.0.1:9"}
    confinement = (await found(folder / "S0", **cluster))["confinement"]
    assert confinement.verdict is verdict
    assert "Landlock" in confinement.text


async def test_a_store_on_another_hosts_disk_is_found(folder, monkeypatch, tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text("36 35 98:0 / / rw shared:1 - nfs4 elsewhere:/disk rw\n")
    monkeypatch.setattr(disk, "MOUNTS", mounts)
    text = await bad(folder / "S0", "store", ExitCode.STORAGE)
    assert "lies on a network file system (nfs4)" in text
    assert "name a file on a local disk" in text


@pytest.mark.parametrize(
    ("free", "verdict", "words"),
    [
        (100_000_000_000, GOOD, "room for 6 submissions"),
        (4_296_000_000, BAD, "free some of it, or name a file on a larger disk"),
        (0, BAD, "0 MB free; "),
    ],
    ids=["room", "less than two submissions above that", "none"],
)
async def test_a_disk_without_room_for_a_round_is_found(folder, monkeypatch, free, verdict, words):
    """The disk has 100 GB, of which 4 GiB must stay free; one submission of this task takes some megabytes."""
    change(folder / "S0" / "task.toml", "rows = 300", "rows = 1000000")
    change(folder / "S0" / "task.toml", "select = 8", "select = 1000")
    save_model(folder / "S0" / "model.npz", {"items": np.zeros((1_000_000, 3), np.float32), "head": np.zeros(5)})
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(total=100_000_000_000, free=free))
    finding = (await found(folder / "S0"))["disk"]
    assert finding.verdict is verdict
    assert words in finding.text
    if verdict is BAD:
        assert finding.code == ExitCode.STORAGE
        needed = float(re.search(r"([\d,]+) MB are needed", finding.text)[1].replace(",", "")) * 1e6
        setup = ServerFile.load(folder / "S0" / "party.toml")
        task = Deployment.load(setup.task).task
        assert needed >= 2 * submission_bytes(task) > 1_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
async def test_keys_of_another_user_are_found(folder):
    os.chown(folder / "S0" / "own.key", 65_534, -1)
    text = await bad(folder / "S0", "keys", ExitCode.MISUSE)
    assert "belongs to another user; a secret must belong to the one who uses it" in text


async def test_the_place_of_bulk_is_looked_at_and_not_made(folder):
    home = folder / "S0"
    finding = (await found(home))["blobs"]
    assert finding.verdict is GOOD
    assert finding.text.endswith("state.blobs is made when the server starts")
    assert not (home / "state.blobs").exists()
    async with running(home):
        assert "in use: the server is running" in await doubtful(home, "blobs")
    assert "gives back what it has taken, and belongs to S0" in (await found(home))["blobs"].text
    shutil.rmtree(home / "state.blobs")
    assert "if its disk is not mounted, mount it before the server starts" in await doubtful(home, "blobs")


async def test_a_folder_of_bulk_that_is_another_servers_or_open_to_others_is_found(folder):
    home = folder / "S0"
    (home / "state.blobs").mkdir(mode=0o755)
    assert "nobody else: `chmod 700" in await bad(home, "blobs", ExitCode.STORAGE)
    (home / "state.blobs").chmod(0o700)
    (home / "state.blobs" / ".owner").write_text("S1\n")
    assert "holds the blobs of another server" in (await found(home))["blobs"].text


async def test_an_object_store_that_cannot_be_reached_is_found_at_once(folder):
    home = folder / "S0"
    (home / "s3.toml").write_text(
        'endpoint = "http://127.0.0.1:9"\naccess_key_id = "a"\nsecret_access_key = "b"\nregion = "r"\n'
    )
    (home / "s3.toml").chmod(0o600)
    with (home / "party.toml").open("a") as file:
        file.write('[blobs]\nurl = "s3://bucket/s0"\noptions = "s3.toml"\n')
    assert "s3://bucket/s0 cannot be reached" in await bad(home, "blobs", ExitCode.STORAGE)


@pytest.mark.parametrize(
    ("kind", "verdict", "words"),
    [("nfs4", BAD, "lies on a network file system (nfs4)"), ("tmpfs", DOUBTFUL, "lies in memory (tmpfs)")],
)
async def test_bulk_on_another_file_system_than_promised_is_found(folder, monkeypatch, tmp_path, kind, verdict, words):
    home = folder / "S0"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"35 1 98:0 / / rw shared:1 - ext4 /dev/disk rw\n36 35 98:1 / {home / 'state.blobs'} rw - {kind} other rw\n"
    )
    monkeypatch.setattr(disk, "MOUNTS", mounts)
    monkeypatch.setattr(bulk, "MOUNTS", mounts)
    findings = await found(home)
    assert findings["store"].verdict is GOOD
    assert findings["blobs"].verdict is verdict
    assert words in findings["blobs"].text


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "the file system is read-only"), (errno.ENOSPC, "the disk of .* is full")],
    ids=["read-only", "full"],
)
async def test_a_folder_of_bulk_that_takes_nothing_is_found(folder, monkeypatch, number, words):
    home = folder / "S0"
    async with running(home):
        pass  # which makes it
    opened = os.open

    def refusing(path, flags, *others, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", refusing)
    assert re.search(words, await bad(home, "blobs", ExitCode.STORAGE))


async def test_one_folder_of_bulk_for_both_servers_is_found(folder):
    for number in (0, 1):
        with (folder / f"S{number}" / "party.toml").open("a") as file:
            file.write(f'[blobs]\nfolder = "{folder / "bulk"}"\n')
    async with running(folder / "S0"):
        assert "holds the blobs of another server" in await bad(folder / "S1", "blobs", ExitCode.STORAGE)


async def test_an_object_store_that_lies_about_what_it_keeps_is_found(folder, monkeypatch, s3):
    home = folder / "S0"
    (home / "s3.toml").write_text(to_toml(options(s3)))
    (home / "s3.toml").chmod(0o600)
    with (home / "party.toml").open("a") as file:
        file.write(f'[blobs]\nurl = "s3://bucket/{token_hex(8)}"\noptions = "s3.toml"\n')
    assert (await found(home))["blobs"].verdict is GOOD
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, path, content, **words: put(store, path, content[:-1], **words))
    assert "it is no place for blobs" in await bad(home, "blobs", ExitCode.STORAGE)


async def test_a_store_that_cannot_be_written_is_found(folder):
    (folder / "S0" / "state.sqlite").mkdir()
    assert "state.sqlite" in await bad(folder / "S0", "store", ExitCode.STORAGE)


# ---- the host


def test_the_clock_is_what_the_kernel_says(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "TIMESYNC", tmp_path / "none")
    monkeypatch.setattr(host, "kernel_clock", lambda: (True, 0.0123))
    assert host.clock() == "synchronised, to within 0.012 s as the kernel reckons; ask the same of the other server"
    monkeypatch.setattr(host, "kernel_clock", lambda: (False, 16.0))
    with pytest.raises(Exception, match="run chrony or systemd-timesyncd"):
        host.clock()
    monkeypatch.setattr(host, "TIMESYNC", tmp_path)
    assert host.clock() == "synchronised, as systemd-timesyncd says; ask the same of the other server"


def test_the_kernel_can_be_asked():
    synchronised, seconds = host.kernel_clock()
    assert synchronised in (True, False)
    assert 0 <= seconds <= 16 or not synchronised  # beyond 16 s the kernel calls its clock unsynchronised


def test_memory_is_the_smaller_of_the_hosts_and_the_containers(monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  500 kB\n")
    (tmp_path / "max").write_text("max\n")
    monkeypatch.setattr(process_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(process_memory, "CGROUP_LIMIT", tmp_path / "max")
    assert process_memory.total_and_free_memory() == (1_024_000, 512_000)
    (tmp_path / "max").write_text("600000\n")
    assert process_memory.total_and_free_memory() == (600_000, 512_000)
    (tmp_path / "max").unlink()
    assert process_memory.total_and_free_memory() == (1_024_000, 512_000)


def test_descriptors_are_counted(monkeypatch, folder):
    file = ServerFile.load(folder / "S0" / "party.toml", {"FSL_ASYNC_LIMITS_CONNECTIONS": "600"})
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    with pytest.raises(Exception, match=r"512 connections, not 600; raise the limit to 1,200"):
        host.descriptors(file)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1200, 4096))
    assert host.descriptors(file) == "enough for 600 connections"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 0))
    assert host.descriptors(file) == "enough for 600 connections"


# ---- a client


async def test_a_client_finds_both_servers_and_that_they_know_it(folder):
    findings = await found(folder / "anna")
    assert not passed(findings.values())
    assert [findings[check].code for check in ("S0", "S1", "admission")] == [ExitCode.CHANNEL] * 3
    async with running(folder / "S0", folder / "S1"):
        findings = await found(folder / "anna")
        assert passed(findings.values()), findings
        assert findings["admission"].text == "both servers know 'anna'"
        findings = await found(folder / "eve")
        assert findings["S0"].verdict is GOOD
        assert (findings["admission"].verdict, findings["admission"].code) == (BAD, ExitCode.CHANNEL)
        assert "is not on S0's list" in findings["admission"].text
        change(folder / "anna" / "task.toml", "select = 8", "select = 9")
        findings = await found(folder / "anna")
        assert findings["S1"].code == ExitCode.MISUSE
        assert "S0 runs another task: blocks" in findings["admission"].text


async def test_asking_uses_up_no_token(folder):
    for number in (0, 1):
        add_tokens(folder / f"S{number}" / "tokens.toml", TASK.digest(), [TOKEN])
        change(folder / f"S{number}" / "party.toml", "model =", 'enrolment = "token"\ntokens = "tokens.toml"\nmodel =')
    async with running(folder / "S0", folder / "S1") as servers:
        finding = (await found(folder / "eve"))["admission"]
        assert finding.verdict is BAD
        assert "enrols with a token" in finding.text
        (folder / "eve" / "token").write_text(TOKEN)
        (folder / "eve" / "token").chmod(0o600)
        findings = await found(folder / "eve", FSL_ASYNC_TOKEN="token")
        assert passed(findings.values())
        assert "the token is used with the first call" in findings["admission"].text
        assert all("eve" not in server.enrolment for server in servers)
        (folder / "eve" / "token").chmod(0o644)
        assert (await found(folder / "eve", FSL_ASYNC_TOKEN="token"))["token"].verdict is BAD


async def foreign(stream: trio.SocketStream) -> None:
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize(("serve", "words"), [(foreign, "fsl-async"), (silent, "no channel with")])
async def test_what_is_no_server_at_all_or_never_answers_is_found(folder, monkeypatch, serve, words):
    monkeypatch.setattr(others, "PATIENCE", 0.3)
    address = re.search(r'address = "127.0.0.1:(\d+)"', (folder / "anna" / "task.toml").read_text())
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, serve, int(address[1]))
        assert words in await bad(folder / "anna", "S0", ExitCode.CHANNEL)
        nursery.cancel_scope.cancel()


async def test_a_client_s_state_lies_beside_its_keys_where_its_file_names_none(folder):
    change(folder / "anna" / "party.toml", 'state = "state.sqlite"\n', "")
    finding = (await found(folder / "anna"))["state"]
    assert re.search(r"anna/\w+\.state ", finding.text)
    assert finding.verdict is GOOD


# ---- the command


@pytest.fixture
def run(in_process):
    return partial(in_process, "preflight")


def test_the_command_prints_a_table_and_passed(folder, run):
    path = str(folder / "S0" / "party.toml")
    code, out, error = run(path)
    assert (code, error) == (ExitCode.OK, "")
    *table, empty, last = out.splitlines()
    assert empty == ""
    assert re.fullmatch(rf"PASSED: {re.escape(path)}, with \d+ warnings \(!\)", last)
    assert {line[0] for line in table} == {"✓", "!"}
    code, out, _ = run(path, "--format", "json")
    result = json.loads(out)["result"]
    assert code == ExitCode.OK
    assert result["passed"]
    assert [finding["check"] for finding in result["findings"]][:3] == ["configuration", "task", "environment"]
    assert {finding["verdict"] for finding in result["findings"]} == {"good", "doubtful"}


def test_the_command_ends_with_the_code_of_the_first_problem(folder, run):
    change(folder / "S0" / "party.toml", '"state.sqlite"', '"no/where.sqlite"')
    code, out, _ = run(str(folder / "S0" / "party.toml"))
    assert code == ExitCode.STORAGE
    assert "✗ store " in out
    assert re.search(r"^FAILED: .*its folder is missing or not writable", out, re.MULTILINE)
    change(folder / "S0" / "party.toml", "listen", "lisen")
    code, out, _ = run(str(folder / "S0" / "party.toml"), "--format", "json")
    assert code == ExitCode.MISUSE
    assert not json.loads(out)["result"]["passed"]
    code, out, _ = run(str(folder / "S0" / "task.toml"))
    assert code == ExitCode.MISUSE
    assert "is a task file" in out
    assert out.splitlines()[-1].startswith(f"FAILED: {folder / 'S0' / 'task.toml'} is a task file"), "named once"


# ---- the model's numbers


@pytest.mark.parametrize(
    ("items", "ring", "verdict", "words"),
    [
        (np.zeros, "fraction_bits = 0", BAD, "block 'items' is of float64, and the task's ring has no fraction bits"),
        (lambda shape: np.full(shape, np.nan), "fraction_bits = 16", BAD, r"nan at \[0, 0\] is not a finite number"),
        (
            lambda shape: np.zeros(shape, "f2"),
            "fraction_bits = 16",
            DOUBTFUL,
            "is of float16, which holds 65504 at most",
        ),
        (
            lambda shape: np.zeros(shape, "i8"),
            "fraction_bits = 16",
            DOUBTFUL,
            "of int64, so that clients can submit who",
        ),
    ],
    ids=["floats without a fraction", "not a number", "narrow", "integers"],
)
async def test_a_models_numbers_are_compared_with_the_ring(folder, items, ring, verdict, words):
    home = folder / "S0"
    change(home / "task.toml", "fraction_bits = 16", ring)
    save_model(home / "model.npz", model() | {"items": items(model()["items"].shape)})
    finding = (await found(home))["model"]
    assert finding.verdict is verdict
    assert re.search(words, finding.text)


async def test_looking_is_no_trouble_of_the_server_that_is_looked_at(folder):
    """Whoever starts second finds the first one's page clean."""
    heard = []
    async with servers_of(folder / "S0" / "party.toml", observe=heard.append):
        findings = await found(folder / "S1")
        assert findings["other server"].verdict is GOOD
        await happens(lambda: any(isinstance(happening, ConnectionFailed) for happening in heard))
    (failed,) = [happening for happening in heard if isinstance(happening, ConnectionFailed)]
    assert failed.kind == "LookedOnlyError"
    assert problem_of(failed) is None
    assert problem_of(msgspec.structs.replace(failed, kind="ConnectionLostError")) is not None
