"""Doors as children of a server's process: started again when they die, ended with it however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import trio

from parties.deployment import door_processes
from parties.deployment.door_processes import DoorProcesses, door_command, door_environment, with_processes
from parties.status import DoorStatus, ServerStatus
from tests import ROOT

PATIENCE = 60

OBEDIENT = "import sys; sys.stdin.read()"
STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); import time; time.sleep(600)"
DYING = "import os; os.kill(os.getpid(), 9)"
WRONG = "raise SystemExit(3)"

SERVE = f"""
import sys, trio
from parties.deployment.door_processes import DoorProcesses
doors = DoorProcesses(2, lambda name: [sys.executable, "-c", {OBEDIENT!r}], print)
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(doors.run)
        while not all(door.pid for door in doors.doors):
            await trio.sleep(0.01)
        print(*[door.pid for door in doors.doors], flush=True)
trio.run(main)
"""


def stub(code: str):
    return lambda name: [sys.executable, "-c", code, name]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition):
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a process changes it
            await trio.sleep(0.01)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(door_processes, "FIRST_PAUSE", 0.01)


async def test_they_run_and_none_is_left_when_they_are_cancelled():
    doors = DoorProcesses(2, stub(OBEDIENT), pytest.fail)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(doors.run)
        await until(lambda: all(door.pid for door in doors.doors))
        assert [door.name for door in doors.doors] == ["door-1", "door-2"]
        assert [door.standing for door in doors.doors] == 2 * ["running"]
        pids = [door.pid for door in doors.doors]
        assert all(map(is_alive, pids))
        nursery.cancel_scope.cancel()
    assert not any(map(is_alive, pids))
    assert [door.standing for door in doors.doors] == 2 * ["ended"]


async def test_one_that_dies_is_started_again_and_the_operator_is_told(nursery):
    told = []
    doors = DoorProcesses(2, stub(OBEDIENT), told.append)
    nursery.start_soon(doors.run)
    await until(lambda: all(door.pid for door in doors.doors))
    first, second = doors.doors
    pid, other = first.pid, second.pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: first.pid not in (0, pid))
    assert told == [f"door-1 (process {pid}) was ended by SIGKILL; it is started again in 0.01 s (restart 1)"]
    assert (first.restarts, second.restarts, second.pid) == (1, 0, other)


async def test_a_hangup_does_not_end_one_that_is_still_starting(nursery, tmp_path):
    go, heard = tmp_path / "go", tmp_path / "heard"
    starting = f"""
import pathlib, signal, time
while not pathlib.Path({str(go)!r}).exists():
    time.sleep(0.01)
signal.signal(signal.SIGHUP, lambda *_: pathlib.Path({str(heard)!r}).touch())
pathlib.Path({str(go)!r}).unlink()
while True:
    time.sleep(0.01)
"""
    doors = DoorProcesses(1, stub(starting), pytest.fail)
    nursery.start_soon(doors.run)
    await until(lambda: doors.doors[0].pid)
    pid = doors.doors[0].pid
    doors.hang_up()
    go.touch()
    await until(lambda: not go.exists())
    assert not heard.exists()
    doors.hang_up()
    await until(heard.exists)
    assert (doors.doors[0].pid, doors.doors[0].restarts) == (pid, 0)


@pytest.mark.parametrize(("code", "words"), [(DYING, "was ended by SIGKILL"), (WRONG, "has ended with exit code 3")])
async def test_one_that_dies_again_and_again_waits_longer_each_time(nursery, code, words):
    told = []
    doors = DoorProcesses(1, stub(code), told.append)
    nursery.start_soon(doors.run)
    await until(lambda: len(told) >= 3)
    assert all(words in line for line in told)
    pauses = [line.partition("again in ")[2].partition(" s")[0] for line in told]
    assert pauses[:3] == ["0.01", "0.02", "0.04"]


async def test_one_that_cannot_be_started_is_told(nursery):
    told = []
    nursery.start_soon(DoorProcesses(1, lambda name: ["/nowhere/fsl-async"], told.append).run)
    await until(lambda: told)
    assert told[0].startswith("door-1 cannot be started: No such file")


async def test_one_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(door_processes, "ENDING_PATIENCE", 0.2)
    doors = DoorProcesses(1, stub(STUBBORN), pytest.fail)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(doors.run)
        await until(lambda: doors.doors[0].pid)
        await trio.sleep(0.1)
        pid = doors.doors[0].pid
        nursery.cancel_scope.cancel()
    assert not is_alive(pid)


def test_none_outlives_a_server_that_was_killed():
    words = [sys.executable, "-c", SERVE]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as serving:
        pids = [int(word) for word in serving.stdout.readline().split()]
        assert len(pids) == 2
        serving.kill()
    end = time.monotonic() + PATIENCE
    while any(map(is_alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_status_has_the_doors_that_are_away_as_well():
    status = ServerStatus.away(0, "goods", bytes(32), (bytes(32), bytes(32)))
    assert with_processes(status, ()) is status
    status = msgspec.structs.replace(
        status, doors=(DoorStatus(name="front-a", clients=3), DoorStatus(name="door-1", connected=True, clients=5))
    )
    kept = DoorProcesses(2, stub(OBEDIENT), pytest.fail).doors
    kept[0].restarts, kept[1].restarts, kept[1].pid = 1, 4, 77
    assert with_processes(status, kept).doors == (
        DoorStatus(name="door-1", connected=True, clients=5, restarts=1),
        DoorStatus(name="door-2", process=77, restarts=4),
        DoorStatus(name="front-a", clients=3),
    )


def test_a_door_is_started_with_the_same_code_and_reports_to_no_supervisor(monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("FSL_ASYNC_LOG_LEVEL", "debug")
    environment = door_environment()
    assert "NOTIFY_SOCKET" not in environment
    assert environment["FSL_ASYNC_LOG_LEVEL"] == "debug"
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    words = door_command(Path("s0.toml"))("door-2")
    assert words[1:] == ["-P", "-m", "parties", "door", "s0.toml", "--name", "door-2", "--until-stdin-ends"]


DEPOSIT = """
import sys
import trio
from parties.compute import KernelFreeLane
from parties.deployment import door
from parties.server.clients.deposits import examine, named
from parties.server.peer.forwarding import looked_through
from parties.server.round.reading_back import ReadBack, layouts_of
from fsl_async import Dense, Ring, Sparse, Task
blocks = Sparse("items", rows=64, select=4, width=1), Dense("head", size=8)
task = Task(name="shop", blocks=blocks, ring=Ring(64), min_clients=2, max_clients=9)
layout = layouts_of(task, "submit")[0]
part = memoryview(bytes(layout.size))
trio.run(KernelFreeLane(1).run, lambda: looked_through(task, layout, part))
print("numba" in sys.modules)
"""


def test_what_doors_do_with_bulk_loads_no_compiler():
    """Half a second of a door's first client, and as much memory again as all else."""
    done = subprocess.run([sys.executable, "-c", DEPOSIT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "False\n")
