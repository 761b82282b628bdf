"""A tiny version of each measuring command, and that a child never outlives its parent."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import trio

from parties.storage.sqlite_file import LONGEST_LOG_BYTES

from . import hostile, kills, memory
from .children import Child, ChildFailedError, python_module

SEED = 3

pytestmark = pytest.mark.timeout(1800)  # real processes, which are killed and started again


def run(monkeypatch, capsys, module, *arguments) -> tuple[int, dict]:
    """Run a command in this process; its exit code, and the JSON line at the end of what it prints."""
    monkeypatch.setattr(sys, "argv", ["soak", *map(str, arguments), "--seed", str(SEED)])
    code = module.main()
    out = capsys.readouterr()
    return code, json.loads(out.out.splitlines()[-1])


@pytest.mark.slow
def test_parties_are_killed_and_nothing_is_lost(monkeypatch, capsys):
    monkeypatch.setitem(kills.ROUNDS, "seconds", 6.0)  # so long a round waits for a client that was killed
    arguments = ("--kills", 4, "--rounds", 1, "--pace", 0.1, "--scene", "adaptive")
    code, told = run(monkeypatch, capsys, kills, *arguments)
    assert told["violations"] == 0, told
    assert code == 0
    assert told["kills"] >= 4
    assert told["rounds_done"] >= 1
    assert told["counted"] >= 2


@pytest.mark.slow
def test_honest_clients_are_measured_with_and_without_hostile_connections(monkeypatch, capsys):
    monkeypatch.setattr(hostile, "SETTLING_SECONDS", 0.0)
    arguments = ("--idle", 6, "--trickling", 3, "--runs", 2, "--rows", 512, "--select", 8, "--arrival", 0.5)
    code, told = run(monkeypatch, capsys, hostile, *arguments)
    assert code == (1 if told["median_ratio"] > told["asked"] else 0)
    assert [sum(kinds.values()) for kinds in told["standing"]] == [9, 9]
    assert {phase: len(seconds) for phase, seconds in told["seconds"].items()} == dict.fromkeys(hostile.PHASES, 2)


@pytest.mark.slow
def test_the_memory_of_tiny_rounds_is_measured(monkeypatch, capsys):
    code, told = run(monkeypatch, capsys, memory, "--rounds", 6, "--warm-up", 2)
    assert code == (1 if max(told["growth"]) > told["asked"] else 0)
    assert [len(each) for each in told["memory_kib"]] == [6, 6]
    assert max(told["longest_log"]) <= LONGEST_LOG_BYTES


def test_an_error_of_a_child_is_told_with_its_last_words(tmp_path):
    child = Child(
        "a server", python_module("tests.system.soak.server_process", tmp_path / "none.toml"), tmp_path / "log", print
    )
    with pytest.raises(ChildFailedError, match=r"a server ended with code 1: [\s\S]*none\.toml cannot be read"):
        trio.run(child.run_well)


def test_a_child_ends_with_its_parent(tmp_path):
    """However the parent ends, and even if the child is frozen."""
    started = tmp_path / "started"
    sleeper = f"import pathlib, os, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    parent = (
        "import sys, time, pathlib; from tests.system.soak.children import Child; "
        f"Child('sleeper', [sys.executable, '-c', {sleeper!r}], pathlib.Path({str(tmp_path / 'log')!r}), print); "
        "time.sleep(600)"
    )
    elder = Child("parent", [sys.executable, "-c", parent], tmp_path / "parent.log", print)
    pid = int(until(lambda: started.exists() and started.read_text()))
    os.kill(pid, signal.SIGSTOP)
    elder.send(signal.SIGKILL)
    assert trio.run(elder.run) == -signal.SIGKILL
    assert until(lambda: not runs(pid))


def runs(pid: int) -> bool:
    """Whether a process is there and is not a corpse."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(ready):
    """What a condition gives, once it gives something; not later than in twenty seconds."""
    last = time.monotonic() + 20
    while not (found := ready()):
        assert time.monotonic() < last
        time.sleep(0.01)
    return found
