"""The example under `flwr run`, on a network that is loopback alone: it leaves no process, and says the same twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`, in an environment of its own: `make learn` makes it")

from fsl_async.errors import MisuseError
from parties.flower.__main__ import named_by
from tests import ROOT

LOOPBACK_ALONE = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
MARK = "TESTED_EXAMPLE"
ENDING = 20.0
"""Seconds in which a process that was killed, or whose parent has ended, may be gone."""
EXAMPLE = ROOT / "examples" / "flower"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(800)]


@dataclass
class Ran:
    """How the example ended, and what it said."""

    code: int
    words: str
    seconds: float
    left: list[str]

    @property
    def accuracies(self) -> list[str]:
        return re.findall(r"^round (\d+: accuracy [\d.]+)$", self.words, re.MULTILINE)

    @property
    def counted(self) -> list[int]:
        return [int(each) for each in re.findall(r"^round \d+: (\d+) nodes counted$", self.words, re.MULTILINE)]


@pytest.fixture(scope="session")
def isolated() -> list[str]:
    """What a command begins with to have loopback and no other network."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs unshare and ip, of util-linux and iproute2")
    tried = subprocess.run([*LOOPBACK_ALONE, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this system lets nobody make a network of its own: {tried.stderr.strip()}")
    return LOOPBACK_ALONE


def ran(folder: Path, isolated: list[str], *config: str, nodes: Sequence[str] = ("--supernodes",)) -> Ran:
    command = [sys.executable, "-m", "parties.flower", str(EXAMPLE), "--folder", str(folder), *nodes]
    settings = [word for each in ("stragglers=200.0", *config) for word in ("--run-config", each)]
    environment = os.environ | {MARK: str(folder), "PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    done = subprocess.run([*isolated, *command, *settings], env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    log = folder / "run.log"
    words = log.read_text() if log.exists() else done.stdout + done.stderr
    while (left := left_behind(f"{MARK}={folder}")) and time.monotonic() < begun + seconds + ENDING:
        time.sleep(0.1)
    return Ran(done.returncode, words, seconds, left)


def left_behind(mark: str) -> list[str]:
    """The commands of processes that have a variable of ours, wherever they have gone; ended ones have none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def test_four_nodes_learn_in_four_rounds_and_say_the_same_twice(tmp_path, isolated):
    runs = [ran(tmp_path / str(rounds), isolated, f"num-server-rounds={rounds}") for rounds in (4, 2)]
    for run, rounds in zip(runs, (4, 2), strict=True):
        assert run.code == 0, run.words
        assert run.left == []
        assert run.counted == [4] * rounds
    assert len(runs[0].accuracies) == 5
    assert runs[0].accuracies[:3] == runs[1].accuracies
    assert float(runs[0].accuracies[-1].split()[-1]) >= 0.8
    print(*(f"{run.seconds:.0f} s" for run in runs))


def test_one_node_of_four_fails_and_submits_zeros(tmp_path, isolated):
    run = ran(tmp_path / "failing", isolated, "failing=3 num-server-rounds=1")
    assert run.code == 0, run.words
    assert run.counted == [4]
    assert "as it was told to" not in run.words
    assert "as it was told to" in (tmp_path / "failing" / "node-3.log").read_text()
    assert run.left == []


def test_a_run_whose_servers_are_not_there_says_where_they_should_be(tmp_path, isolated):
    run = ran(tmp_path / "absent", isolated, "operator='http://127.0.0.1:9' token-file='s0.sqlite.operator-token'")
    assert run.code != 0
    assert "nothing answers at http://127.0.0.1:9" in run.words
    assert "is the server running" in run.words
    assert run.left == []


def test_simulated_nodes_learn_without_keys_of_their_own_and_a_second_run_does_what_is_left(tmp_path, isolated):
    pytest.importorskip("ray", reason="simulated nodes need it")
    folder, simulated = tmp_path / "simulated", ("--nodes", "12")
    for rounds, counted in ((1, [12]), (2, [12])):
        run = ran(folder, isolated, f"num-server-rounds={rounds} evaluating-nodes=3", nodes=simulated)
        assert run.code == 0, run.words
        assert run.counted == counted
        assert run.left == []
    assert len((folder / "checkpoints" / "rounds.jsonl").read_text().splitlines()) == 2
    assert sorted(path.name for path in folder.glob("*.key")) == ["coordinator.key", "s0.key", "s1.key"]


def test_an_app_that_names_no_task_is_told_what_is_missing(tmp_path):
    for table in ("[tool.flwr.app]", "[tool.fsl-async]\ntask = 'absent:TASK'", "[tool.fsl-async]\ntask = 'json:TASK'"):
        (tmp_path / "pyproject.toml").write_text(table)
        with pytest.raises(MisuseError, match=r'pyproject.toml: \[tool.fsl-async\] task = "module:name" expected'):
            named_by(tmp_path, "task")
