"""Servers with doors as people run them: rounds through them, and what becomes of a round when processes are killed."""

import os
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from parties.server.round.submission_reader import StoredSubmission
from parties.settings.writing import free_addresses, to_toml
from tests.support.object_store import options, s3
from tests.system.deployment.deployed import Deployed, deployed, doors_of, give_doors, sum_of

__all__ = ["s3"]

CLIENTS = ("alice", "bob")


@pytest.fixture
def site(tmp_path) -> Iterator[Deployed]:
    with deployed(tmp_path) as made:
        addresses = free_addresses(2)
        made.lay_out(addresses, addresses, CLIENTS, rounds={"clients": 2, "seconds": 3600.0}, threads=1)
        yield made


def served(site: Deployed, *with_doors: str, count: int = 2) -> None:
    """Both servers, as soon as a round is open, those named with doors."""
    for name in with_doors:
        give_doors(site.folder, name, count)
    for name in ("s0", "s1"):
        site.serve(name)
    for name in with_doors:
        site.until(name, '"door connected"', times=count)
    for name in ("s0", "s1"):
        site.until(name, '"round opened"')


def until_models(site: Deployed, count: int = 1) -> None:
    end = time.monotonic() + 120
    while any(len(site.models(name)) < count for name in ("s0", "s1")):
        assert time.monotonic() < end, site.log("s0")[-4_000:] + site.log("s1")[-4_000:]
        time.sleep(0.05)


def assert_sum(site: Deployed, *clients: str) -> None:
    until_models(site)
    for name in ("s0", "s1"):
        np.testing.assert_array_equal(site.models(name)[-1], sum_of(*clients), err_msg=name)


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


ALONE = [pytest.param((name,), id=name, marks=pytest.mark.slow) for name in ("s0", "s1")]


@pytest.mark.parametrize("with_doors", [*ALONE, pytest.param(("s0", "s1"), id="both")])
def test_a_round_through_doors_is_exact_and_the_doors_end_with_their_server(site, with_doors):
    served(site, *with_doors)
    for client in CLIENTS:
        ended = site.submit(client)
        assert ended.code == 0, ended.words
    assert_sum(site, *CLIENTS)
    for name in ("s0", "s1"):
        assert site.stop(name) == 0
        assert doors_of(site.home(name)) == []
        assert "the server that started this door has ended" not in site.log(name)


@pytest.mark.slow
def test_a_door_that_is_killed_loses_nothing_that_was_acknowledged(site):
    """While it is started again, the other one takes all clients; then that one is killed as well."""
    served(site, "s0", count=2)
    assert site.submit("alice").code == 0
    first, second = doors_of(site.home("s0"))
    os.kill(first, signal.SIGKILL)
    ended = site.submit("bob")
    assert ended.code == 0, ended.words
    os.kill(second, signal.SIGKILL)
    assert_sum(site, *CLIENTS)
    site.until("s0", r"\(process \d+\) was ended by SIGKILL; it is started again in 0.5 s \(restart 1\)", times=2)
    site.until("s0", '"door connected"', times=4)


@pytest.mark.slow
def test_a_core_that_is_killed_takes_its_doors_with_it_and_goes_on(site):
    served(site, "s0", "s1")
    assert site.submit("alice").code == 0
    for name in ("s0", "s1"):
        site.stop(name, signal.SIGKILL)
        until(lambda name=name: not doors_of(site.home(name)))
    assert "the server that started this door has ended, and so does the door" in site.log("s0")
    for name in ("s0", "s1"):
        site.serve(name)
    for name in ("s0", "s1"):
        site.until(name, r"door-\d of S\d listens at", times=4)
    ended = site.submit("bob")
    assert ended.code == 0, ended.words
    assert_sum(site, *CLIENTS)


def test_no_key_stands_in_a_door_s_title_environment_or_log(site):
    served(site, "s0")
    assert site.submit("alice").code == 0
    secrets = re.findall(r'secret = "(\w+)"', (site.home("s0") / "s0.key").read_text())
    assert len(secrets) == 2
    for pid in doors_of(site.home("s0")):
        seen = "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))
        assert not any(secret in seen for secret in secrets)
        assert re.search(r"Max core file size +0 +0 ", Path(f"/proc/{pid}/limits").read_text())
        opened = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        assert not any("s0.sqlite" in name or name.endswith("s0.key") for name in opened)
        mapped = Path(f"/proc/{pid}/maps").read_text()
        assert "llvmlite" not in mapped, "a door compiles nothing"
    assert not any(secret in site.log("s0") for secret in secrets)


def test_no_seed_stands_in_a_blob_log_title_or_environment(site):
    """The master seed of a submission is in its server's store alone, and in the file of its client."""
    served(site, "s0")
    assert site.submit("alice").code == 0
    pids = [running.pid for running in site.running.values()] + doors_of(site.home("s0"))
    assert len(pids) == 4
    seen = [Path(f"/proc/{pid}/{what}").read_bytes() for pid in pids for what in ("cmdline", "environ")]
    for name in ("s0", "s1"):
        assert site.stop(name) == 0
    blobs = [path for name in ("s0", "s1") for path in (site.home(name) / f"{name}.blobs").rglob("*") if path.is_file()]
    assert any(path.name.startswith("parts,alice,") for path in blobs)
    seen += [path.read_bytes() + bytes(path) for path in blobs]
    seen += [site.log(name).encode() for name in ("s0", "s1")]
    seeds = {seed for name in ("s0", "s1") for seed in seeds_of(site.home(name) / f"{name}.sqlite")}
    assert len(seeds) == 2
    assert not any(seed in each or seed.hex().encode() in each for seed in seeds for each in seen)


def seeds_of(path: Path) -> list[bytes]:
    """The master seeds of the first round in a server's store."""
    with closing(sqlite3.connect(path)) as store:
        chunks = store.execute(
            "SELECT data FROM chunk JOIN blob ON blob.id = chunk.blob "
            "WHERE CAST(key AS TEXT) LIKE 'round-00000001/submissions/%'"
        )
        return [msgspec.msgpack.decode(data, type=StoredSubmission).msk for (data,) in chunks]


def test_a_client_whose_first_connection_is_refused_ends_with_the_code_for_it(site):
    """As while the only door is being started again: nothing has left, and the same command may be repeated."""
    ended = site.submit("alice")
    assert (ended.code, ended.said["error"]["kind"]) == (4, "UnreachableError"), ended.words
    served(site, "s0")
    assert site.submit("alice").code == 0


# ---- a door on another host


@pytest.fixture
def front(site, s3) -> Path:
    """S0's only door is on another host, which has three files of S0's; both reach an object store."""
    (core,) = free_addresses(1)
    give_doors(site.folder, "s0", 0, core=core)
    home, s0 = site.folder / "front", site.home("s0")
    home.mkdir(mode=0o700)
    place = f"s3://bucket/{core.rpartition(':')[2]}"
    with (s0 / "s0.toml").open("a") as file:
        file.write(f'[blobs]\nurl = "{place}"\noptions = "objects.toml"\n')
    (s0 / "objects.toml").write_text(to_toml(options(s3)))
    (s0 / "objects.toml").chmod(0o600)
    for name in ("s0.toml", "task.toml", "s0-doors.key", "objects.toml"):
        (home / name).write_text((s0 / name).read_text())
        (home / name).chmod(0o600)
    return home


@pytest.mark.slow
def test_a_door_on_another_host_needs_three_files_and_the_object_store(site, front):
    site.serve("s0")
    site.until("s0", "S0 listens at .*, for S1, and at .*, for its doors")
    checked = site.run("front", "preflight", "s0.toml", "--door")
    assert checked.code == 0, checked.said
    words = {finding["check"]: finding for finding in checked.said["result"]["findings"]}
    assert words["core"]["verdict"] == words["blobs"]["verdict"] == "good", words
    site.start_door("front", "s0.toml", "front-a")
    site.until("front", "front-a of S0 listens at")
    site.serve("s1")
    site.until("s1", '"round opened"')
    for client in CLIENTS:
        ended = site.submit(client)
        assert ended.code == 0, ended.words
    assert_sum(site, *CLIENTS)
    assert site.stop("s0") == 0
    site.until("front", "S0 is about to stop")
    assert site.stop("front") == 0
    assert "asked to stop: what is under way has 10 s to end" in site.log("front")
