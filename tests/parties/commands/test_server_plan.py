"""A server's plan: what the command says of a host, what it refuses, and that its advice is true."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsl_async import Ring, Sparse, Task
from fsl_async.costs.scaling import ANOTHER_MACHINE, HostCapacity, capacity
from fsl_async.errors import MisuseError
from parties.commands.application import app
from parties.commands.plan.calibration import load_constants, save_constants
from parties.commands.plan.server_plan import plan_server, result_of_server

TASK = Task(name="large", blocks=(Sparse("items", rows=2**20, select=10_486),), ring=Ring(64), max_clients=100_000)
GIB = 2**30
TWO_THREADS = HostCapacity(threads=2, link=1e10)


def planned(host: HostCapacity = TWO_THREADS, clients: int = 100, **more):
    return plan_server(TASK, clients=clients, host=host, constants=ANOTHER_MACHINE, dtype="f4", **more)


def test_each_step_moves_the_limit_that_it_speaks_of() -> None:
    plan = planned()
    assert plan.limit.first.part == "processors"
    assert plan.steps[0].words == "a bigger host, of 4 threads"
    assert plan.stuck.startswith("the event loop is one thread")
    gained = [plan.limit.clients_per_hour, *(step.limit.clients_per_hour for step in plan.steps)]
    assert gained == sorted(gained)
    assert plan.steps[-1].limit == capacity(plan.load, plan.steps[-1].host, ANOTHER_MACHINE, 100)


def test_what_one_process_cannot_do_is_said() -> None:
    task = Task(name="small", blocks=(Sparse("items", rows=2**10, select=8),), ring=Ring(64))
    host = HostCapacity(threads=512, network=1e13, link=1e13)
    plan = plan_server(task, clients=10, host=host, constants=ANOTHER_MACHINE, dtype="f4")
    assert plan.steps == ()
    assert "divide the clients among several tasks" in plan.stuck


def test_memory_and_disk_that_are_short_come_first() -> None:
    plan = planned(clients=100_000, memory=0.5 * GIB, disk=100 * GIB)
    assert [name for name, _, _ in plan.rooms.short()] == ["memory", "disk"]
    assert list(planned(memory=64 * GIB, disk=100 * GIB).rooms.short()) == []


def test_constants_come_back_from_their_file(tmp_path: Path) -> None:
    mine = replace(ANOTHER_MACHINE, machine="this one", leaf=3e-9)
    save_constants(tmp_path / "constants.json", mine)
    assert load_constants(tmp_path / "constants.json") == mine


NEGATIVE = {name: {"client": 0.1, "megabyte": -0.1 * (name == "writer")} for name in ("loop", "writer")}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "has no constants"),
        ("[]", "has no constants"),
        ('{"version": 2, "constants": {"machine": "x"}}', "missing required field"),
        ("{old}", "of version 0, not 2"),
        ("{negative}", "0.0 - at .*constants.leaf`"),
        ("{retrieval}", "0.0 - at .*retrieval.writer.megabyte`"),
        ("{strange}", "unknown field"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "constants.json"
    save_constants(path, ANOTHER_MACHINE)
    good = json.loads(path.read_text())
    content = {
        "{old}": json.dumps(good | {"version": 0}),
        "{negative}": json.dumps(good | {"constants": good["constants"] | {"leaf": -1.0}}),
        "{retrieval}": json.dumps(good | {"constants": good["constants"] | {"retrieval": NEGATIVE}}),
        "{strange}": json.dumps(good | {"more": 1}),
    }.get(content, content)
    path.write_text(content)
    with pytest.raises(MisuseError, match=expected) as refused:
        load_constants(path)
    assert "constants.json" in str(refused.value)
    assert "--calibrate" in str(refused.value)


def test_a_file_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="cannot be written"):
        save_constants(tmp_path / "none" / "constants.json", ANOTHER_MACHINE)


# ---- the command


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = app(["plan", *map(str, words)], exit_on_error=False, print_error=False)
    captured = capsys.readouterr()
    return int(code), captured.out, " ".join(captured.err.split())


SMALL = ("--rows", 4000, "--select", 40, "--clients", 50)


def test_the_first_limit_is_the_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--threads", 16, "--memory", 8, "--disk", 100)
    assert (code, err) == (0, "")
    assert out.startswith("The first limit in time is the event loop: ")
    assert "event loop ◀" in out
    assert "the event loop is one thread, and no larger host raises this limit" in out
    assert " of 8 GiB" in out
    assert "Constants measured on another machine" in out
    assert "bench --calibrate" in out
    assert max(len(line) for line in out.splitlines()[2:15]) <= 120


def test_too_little_room_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--memory", 0.1)
    assert out.startswith("Does not fit: memory: ")


def test_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--threads", 1, "--format", "json")
    assert code == 0
    server = json.loads(out)["result"]["server"]
    assert (server["host"]["threads"], server["clients"]) == (1, 50)
    assert server["constants"]["of_this_machine"] is False
    assert {stage["part"] for stage in server["stages"]} >= {"event loop", "writer", "evaluation", "processors"}
    assert server["steps"][0]["clients_per_hour"] > server["clients_per_hour"]


def test_measured_constants_are_used_and_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    save_constants(path, replace(ANOTHER_MACHINE, machine="this one, on a Tuesday"))
    _, out, _ = run(capsys, *SMALL, "--constants", path)
    assert out.rstrip().endswith("Constants measured on this one, on a Tuesday.")


def test_a_file_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(
        '[task]\nname = "books"\nmin_clients = 2\nmax_clients = 40\nring = {bits = 64}\n'
        '[[task.blocks]]\ntype = "sparse"\nname = "words"\nrows = 1000\nselect = 10\n'
    )
    code, out, err = run(capsys, path, "--threads", 2)
    assert code == 0, err
    assert 'task "books": 40 clients in a round' in out
    code, _, err = run(capsys, path, "--threads", 2, "--clients", 41)
    assert (code, "max_clients=40" in err) == (3, True)
    code, _, err = run(capsys, path, "--threads", 2, "--rows", 41)
    assert (code, "leave out --rows" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--threads", 0), "threads"),
        (("--memory", -1), "memory"),
        (("--disk", "nan"), "disk"),
        (("--network", 0), "network"),
        (("--threads", 2, "--paper"), "no --paper"),
        (("--threads", 2, "--dtype", "f3"), "'f3'"),
        (("--threads", 2, "--plot", "x.svg"), "no --plot"),
        (("--constants", "/none"), "/none cannot be read"),
        (("--workers", "0"), "workers: a number from 1 to 10000"),
        (("--workers", "4,0"), "1 to 1024 threads"),
        (("--workers", "4,"), "such as 4,16"),
        (("--workers", "many"), "such as 4,16"),
        (("--workers", "1,2,3"), "such as 4,16"),
        (("--workers", "4", "--worker-network", 0), "network"),
        (("--workers", "4", "--hourly", 0), "hourly"),
        (("--workers", "4", "--hourly", "nan"), "hourly"),
        (("--workers", "4", "--hourly", 1e15), "more than 10,000"),
        (("--workers", "4", "--paper"), "no --paper"),
        (("--hourly", 1000), "add --workers"),
        (("--worker-network", 1000), "add --workers"),
    ],
)
def test_bad_arguments_are_refused_by_name(capsys: pytest.CaptureFixture[str], words: tuple, expected: str) -> None:
    code, out, err = run(capsys, *SMALL, *words)
    assert (code, out) == (3, "")
    assert expected in err


WORKERS = ("--threads", 8, "--link", 10_000)


def test_workers_and_how_many_are_needed_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rows", 2**24, "--select", 16_777, *WORKERS, "--hourly", 150_000, "--workers", "2,4")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert ", 2 workers of 4 threads; " in out
    assert "for every 256" in out
    _, told, _ = run(capsys, *words, "--format", "json")
    server = json.loads(told)["result"]["server"]
    workers, needed = server["workers"], server["workers"]["needed"]
    assert (workers["count"], workers["threads"], server["host"]["workers"]["network"]) == (2, 4, 1e10)
    one = workers["clients_per_hour_of_one"]
    assert (needed["workers"] - 1) * one < 150_000 <= needed["workers"] * one
    assert f"150,000 clients an hour need {needed['workers']} workers of 4 threads; " in out
    assert needed["enough"] is (needed["server_clients_per_hour"] >= 150_000) is True
    _, told, _ = run(capsys, *words[:-1], f"{needed['workers']},4", "--format", "json")
    with_them = json.loads(told)["result"]["server"]
    assert with_them["clients_per_hour"] == pytest.approx(needed["server_clients_per_hour"]) != pytest.approx(one)
    assert with_them["clients_per_hour"] >= 150_000


def test_a_server_that_takes_less_than_its_workers_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, *WORKERS, "--workers", 1, "--hourly", 5_000_000)
    assert out.startswith("The first limit in time is the event loop: ")
    assert " (event loop) an hour are then possible, which is less" in out
    assert "1 worker of 8 threads" in out, "as many as the server's host"


def test_more_workers_are_advised_where_they_are_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--rows", 2**24, "--select", 16_777, *WORKERS, "--workers", "1,1")
    assert out.startswith("The first limit in time is the evaluation: ")
    assert "  1. 2 workers: " in out


def test_without_workers_nothing_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *SMALL, "--threads", 1, "--format", "json")
    server = json.loads(out)["result"]["server"]
    assert server["workers"] is server["host"]["workers"] is None


def test_a_plan_is_json_as_it_is() -> None:
    json.dumps(result_of_server(planned()), allow_nan=False)
