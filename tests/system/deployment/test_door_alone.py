"""A door by itself: it waits for its core, ends as it is told, and says why it cannot start."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from parties.deployment.blobs import open_blobs
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses
from tests.system.deployment.deployed import Deployed, deployed, give_doors


@pytest.fixture
def site(tmp_path) -> Iterator[Deployed]:
    with deployed(tmp_path) as made:
        addresses = free_addresses(2)
        made.lay_out(addresses, addresses, [])
        give_doors(made.folder, "s0", 0)
        yield made


@pytest.fixture
def alone(site) -> Deployed:
    """A door whose server has made its folder of blobs, and does not run."""
    trio.run(make_blobs, site.home("s0"))
    return site


async def make_blobs(home: Path) -> None:
    blobs = await open_blobs(ServerFile.load(home / "s0.toml", {}), Deployment.load(home / "task.toml"))
    await blobs.aclose()


def test_a_door_waits_for_its_core_and_ends_when_it_is_told_to(alone):
    alone.start_door("front-a", "s0.toml", "front-a", home="s0")
    alone.until("front-a", "S0 cannot be asked: nothing listens at unix:")
    assert alone.stop("front-a") == 0
    alone.start_door("front-a", "s0.toml", "front-a", home="s0")
    alone.until("front-a", "S0 cannot be asked: nothing listens at unix:", times=2)
    assert alone.stop("front-a", signal.SIGINT) == 130


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("sed -i '/^\\[doors\\]/,$d' s0.toml", 3, "has no [doors]: clients connect to the server itself"),
        ("rm s0-doors.key", 3, "make it with `fsl-async keygen s0-doors.key --channel-of`"),
        ("cp s0.key s0-doors.key", 3, "holds the key that signs, too"),
        ("chmod 644 s0-doors.key", 3, "can be read by others"),
        ("rm -r s0.blobs", 6, "a door on another host needs an object store instead"),
    ],
)
def test_a_door_that_cannot_start_says_why(alone, change, code, words):
    subprocess.run(["sh", "-c", change], cwd=alone.home("s0"), check=True)
    ended = alone.run("s0", "door", "s0.toml")
    assert ended.code == code
    assert words in ended.words
    assert ended.said["error"]["message"] in ended.words


def test_a_door_s_name_is_one_that_can_be_shown(alone):
    ended = alone.run("s0", "door", "s0.toml", "--name", "front a")
    assert ended.code == 3
    assert "letters, digits, dots, dashes and underlines" in ended.words


def test_a_folder_of_blobs_on_another_host_is_refused_by_name(site):
    home, s0 = site.folder / "front", site.home("s0")
    home.mkdir(mode=0o700)
    for name in ("s0.toml", "task.toml", "s0-doors.key"):
        (home / name).write_text((s0 / name).read_text())
        (home / name).chmod(0o600)
    refused = site.run("front", "door", "s0.toml", "--name", "front-a")
    assert refused.code == 6
    assert "a door on another host needs an object store instead" in refused.words
