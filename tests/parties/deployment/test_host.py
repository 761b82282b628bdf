"""The tasks of one server's process: started, drained, removed, failed, each while the others run."""

import io
import json
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties import Client, connect
from parties.commands.report import ExitCode
from parties.deployment import hosted_task
from parties.deployment.host import ServerProcess
from parties.deployment.hosted_task import HostedTask, Running
from parties.files.models import load_model
from parties.identity.keys import Identity
from parties.operator import Log
from parties.settings import host_file
from parties.settings.host_file import HostFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses, write_deployment
from parties.status import TaskState
from parties.storage.store import StoreLostError
from tests.parties.deployment.test_process import serve  # noqa: F401 - a fixture
from tests.support.serving import ENDS_WITHIN
from tests.support.shop import Basket, model_after
from tests.support.town import deploy, happens

NAMES = ("anna", "ben", "cleo")
TABLE = """
[[tasks]]
task = "{name}/task.toml"
clients = "{name}/clients.toml"
model = "model.npz"
store = "{name}/S{server}.sqlite"
save_model = "{name}/now-{server}.npz"
[tasks.rounds]
clients = 2
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two servers on one host, with the tasks shop and town; the files of a third, city, are there."""
    addresses = deploy(tmp_path, NAMES)
    text = (tmp_path / "task.toml").read_text()
    for name in ("shop", "town", "city"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.toml").write_text(text.replace('"shop"', f'"{name}"', 1))
        shutil.copy(tmp_path / "clients.toml", tmp_path / name)
    for server, (address, operators) in enumerate(zip(addresses, free_addresses(2), strict=True)):
        (tmp_path / f"top-{server}").write_text(
            f'server = {server}\nidentity = "S{server}.key"\nlisten = "{address}"\nthreads = 1\n'
            f'[operator]\nlisten = "{operators}"\n'
        )
    write(tmp_path, "shop", "town")
    return tmp_path


def write(folder: Path, *tasks: str) -> None:
    """Give both servers these tasks."""
    for server in (0, 1):
        tables = "".join(TABLE.format(name=name, server=server) for name in tasks)
        (folder / f"S{server}.toml").write_text((folder / f"top-{server}").read_text() + tables)


@asynccontextmanager
async def hosts(folder: Path, *servers: int) -> AsyncIterator[list[ServerProcess]]:
    """The servers' processes, without the processes."""
    found: list[ServerProcess] = []
    async with trio.open_nursery() as nursery:
        for server in servers or (0, 1):
            file, opened = HostFile.load(folder / f"S{server}.toml"), trio.Event()
            host = ServerProcess(file, Log(f"S{server}", "json", stream=io.StringIO()), 0.2, nursery)
            found.append(host)

            async def told(opened: trio.Event = opened) -> None:
                opened.set()

            nursery.start_soon(host.run, told)
            with trio.fail_after(ENDS_WITHIN):
                await opened.wait()
            await happens(lambda host=host: "starting" not in [task.standing().state for task in host.tasks()])
        yield found
        nursery.cancel_scope.cancel()


def state(host: ServerProcess, name: str) -> TaskState:
    return {task.name: task for task in host.tasks()}[name].standing().state


async def until(host: ServerProcess, name: str, wanted: TaskState) -> None:
    await happens(lambda: state(host, name) == wanted)


@asynccontextmanager
async def submitted(folder: Path, task: str, name: str) -> AsyncIterator[Client]:
    place = folder / f"{name}-{task}.state"
    async with connect(folder / task / "task.toml", folder / f"{name}.key", state=place) as client:
        await client.submit(Basket(name).update)
        yield client


async def take_part(folder: Path, task: str, name: str) -> None:
    async with submitted(folder, task, name) as client:
        assert (await client.outcome()).counted


async def submit(folder: Path, task: str, name: str) -> None:
    async with submitted(folder, task, name):
        pass


async def round_of(folder: Path, task: str, *names: str) -> None:
    with trio.fail_after(ENDS_WITHIN):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(take_part, folder, task, name)


async def expect(folder: Path, task: str, *names: str) -> None:
    """Both servers write the same exact model, of these clients' baskets."""
    now = model_after(names)
    for server in (0, 1):
        await happens(lambda server=server: _is(folder / task / f"now-{server}.npz", now))


def _is(path: Path, wanted: dict[str, np.ndarray]) -> bool:
    return path.exists() and all(np.array_equal(array, wanted[name]) for name, array in load_model(path).items())


async def test_both_tasks_have_rounds_at_the_same_time(folder):
    async with hosts(folder), trio.open_nursery() as nursery:
        nursery.start_soon(round_of, folder, "shop", "anna", "ben")
        nursery.start_soon(round_of, folder, "town", "ben", "cleo")
        nursery.start_soon(expect, folder, "shop", "anna", "ben")
        nursery.start_soon(expect, folder, "town", "ben", "cleo")


async def test_a_task_is_drained_and_started_while_the_other_s_round_runs(folder):
    async with hosts(folder) as (s0, s1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_part, folder, "shop", "anna")  # its round is open from here on
            await happens(lambda: bool(s0.tasks()[1].status().peer_release))
            for host in (s0, s1):
                await host.drain("town")
                await until(host, "town", "drained")
                with pytest.raises(MisuseError, match="task 'town' is not running: it is drained"):
                    await host.drain("town")
                with pytest.raises(MisuseError, match="task 'shop' is running; only one that has ended can be"):
                    await host.start("shop")
                if host is s0:
                    await happens(lambda: "S0 stops as planned, since 2" in s1.tasks()[1].status().waiting_for)
                    assert not s1.tasks()[1].status().peer_connected
            nursery.start_soon(take_part, folder, "shop", "ben")
        await expect(folder, "shop", "anna", "ben")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(round_of, folder, "town", "ben", "cleo")  # they are told to come back, and do
            await trio.sleep(0.5)
            for host in (s1, s0):
                await host.start("town")
        assert [s1.tasks()[1].status().peer_stops_since, s0.tasks()[1].status().peer_stops_since] == [None, None]
        await expect(folder, "town", "ben", "cleo")


async def test_tasks_are_added_changed_and_removed_with_the_file(folder):
    async with hosts(folder) as (s0, s1):
        write(folder, "shop", "city")
        changed = (folder / "S0.toml").read_text().replace("clients = 2", "clients = 3", 1)
        (folder / "S0.toml").write_text(changed.replace("threads = 1", "threads = 2"))
        for host in (s0, s1):
            host.reload()
            await until(host, "city", "running")
        await round_of(folder, "city", "anna", "cleo")
        await expect(folder, "city", "anna", "cleo")
        await happens(lambda: len(s0.tasks()) == len(s1.tasks()) == 2)
        assert [task.name for task in s0.tasks()] == ["shop", "city"]
        (trouble,) = s0.tasks()[0].observer.problems.latest()
        assert (
            trouble.explanation == "changes of rounds.clients take effect when task 'shop' is drained and started again"
        )
        (trouble,) = [one for one in s0.process.problems.latest() if one.about == "configuration"]
        assert trouble.explanation == "changes of threads take effect when the server is started again"


async def test_a_task_that_comes_back_while_it_is_drained_is_taken_up_later(folder):
    async with hosts(folder) as (s0, _):
        write(folder, "shop")
        s0.reload()
        write(folder, "shop", "town")
        s0.reload()
        assert [task.name for task in s0.tasks()] == ["shop", "town"]
        town = s0.tasks()[1]
        assert "still being drained" in town.observer.problems.latest()[0].explanation
        await happens(lambda: len(s0.tasks()) == 1)
        s0.reload()
        await until(s0, "town", "running")
        assert s0.tasks()[1] is not town


async def test_a_process_whose_tasks_are_all_drained_waits_and_stops_when_it_is_told_to(folder):
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        host = ServerProcess(HostFile.load(folder / "S0.toml"), Log("S0", "json", stream=io.StringIO()), 0, nursery)

        async def run() -> None:
            await host.run(trio.lowlevel.checkpoint)
            ended.set()
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        for name in ("shop", "town"):
            await until(host, name, "running")
        for name in ("shop", "town"):
            await host.drain(name)
            await until(host, name, "drained")
        await trio.sleep(0.1)
        assert not ended.is_set()
        with trio.fail_after(ENDS_WITHIN):
            await host.stop()
            await ended.wait()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('store = "city/S0.sqlite"', 'store = "shop/S0.sqlite"', "store of [[tasks]] 3 and store of"),
        ("city/task.toml", "none/task.toml", "task.toml cannot be read"),
        ("city/task.toml", "town/task.toml", "are called 'town'"),
        ("clients = 2\n", "clients = 2\nlisten = 3\n", "unknown key 'listen'"),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing(folder, old, new, words):
    async with hosts(folder, 0) as (host,):
        write(folder, "shop", "town", "city")
        text = (folder / "S0.toml").read_text()
        (folder / "S0.toml").write_text(text.replace(old, new))
        host.reload()
        assert [task.name for task in host.tasks()] == ["shop", "town"]
        (trouble,) = host.process.problems.latest()
        assert words in trouble.explanation
        assert trouble.explanation.endswith("the file as read at the start stays in force")


async def test_a_damaged_store_ends_its_task_alone_and_is_started_again_once_mended(folder):
    (folder / "town" / "S0.sqlite").write_bytes(b"not a store at all" * 1000)
    async with hosts(folder) as (s0, s1):
        await until(s0, "town", "failed")
        assert "town/S0.sqlite" in {task.name: task for task in s0.tasks()}["town"].standing().explanation
        await round_of(folder, "shop", "anna", "ben")
        await expect(folder, "shop", "anna", "ben")
        assert state(s1, "town") == "running"
        for path in (folder / "town").glob("S0.sqlite*"):
            path.unlink()
        await s0.start("town")
        await round_of(folder, "town", "ben", "cleo")
        await expect(folder, "town", "ben", "cleo")


async def test_where_no_task_is_left_the_process_ends_with_the_first_error(folder):
    for name in ("shop", "town"):
        (folder / name / "S0.sqlite").write_bytes(b"not a store at all" * 1000)
    with pytest.RaisesGroup(StorageError, allow_unwrapped=True, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            host = ServerProcess(HostFile.load(folder / "S0.toml"), Log("S0", "json", stream=io.StringIO()), 0, nursery)
            await host.run(trio.lowlevel.checkpoint)


def hosted(host: ServerProcess, name: str) -> HostedTask:
    return {task.name: task for task in host.tasks()}[name]


async def test_a_drain_that_outlives_its_task_does_not_end_the_one_that_is_started_after_it(folder, monkeypatch):
    async with hosts(folder, 0) as (host,):
        task, winds_up = hosted(host, "town"), trio.Event()

        async def wind_up(seconds: float) -> str:  # a round is on its way to its sum, which never comes
            await winds_up.wait()
            return ""

        assert isinstance(task.stage, Running)
        monkeypatch.setattr(task.stage.server, "wind_up", wind_up)
        await host.drain("town")
        task.stage.server._store_failed.send_nowait(StoreLostError("the store is lost"))
        await until(host, "town", "failed")
        await host.start("town")
        await until(host, "town", "running")
        winds_up.set()
        await trio.sleep(0.2)
        assert state(host, "town") == "running"


async def test_a_task_that_ends_as_it_is_drained_does_not_end_the_process(folder):
    async with hosts(folder, 0) as (host,):
        task = hosted(host, "town")
        assert isinstance(task.stage, Running)
        task.stage.server._store_failed.send_nowait(StoreLostError("the store is lost"))
        draining = task.begin_to_drain()
        assert draining is not None
        await until(host, "town", "failed")
        await task.drain(draining, 0.1)
        assert state(host, "town") == "failed"
        assert state(host, "shop") == "running"


async def test_a_task_that_is_drained_as_it_comes_to_run_is_drained_and_not_over(folder):
    async with hosts(folder, 0) as (host,):
        await host.drain("town")
        await until(host, "town", "drained")
        await host.start("town")
        task = hosted(host, "town")
        moved, enter = trio.Event(), task._enter

        def entered(stage: object) -> None:
            if isinstance(stage, Running):
                task._scope.cancel()  # as a drain does that came while the task was starting
                moved.set()
            enter(stage)

        task._enter = entered
        await moved.wait()
        await until(host, "town", "drained")


async def test_a_task_whose_drain_ends_with_its_round_has_written_the_model(folder, monkeypatch):
    def drained() -> None:  # called where a round has just been settled: by this server, and not yet by the other one
        for host in found:
            task = hosted(host, "shop")
            draining = task.begin_to_drain() if task.status().rounds_done else None
            if draining is not None:
                draining.scope.cancel()

    found: list[ServerProcess] = []
    monkeypatch.setattr(hosted_task, "_tidy", drained)
    async with hosts(folder) as running, trio.open_nursery() as nursery:
        found += running
        for name in ("anna", "ben"):  # a server that ends at once tells nobody of the outcome
            nursery.start_soon(submit, folder, "shop", name)
        for host in running:
            await happens(lambda host=host: hosted(host, "shop").status().rounds_done >= 1)
            await until(host, "shop", "drained")
        await expect(folder, "shop", "anna", "ben")
        nursery.cancel_scope.cancel()


async def test_no_task_is_started_in_a_process_that_has_been_told_to_stop(folder):
    async with hosts(folder, 0) as (host,):
        await host.drain("town")
        await until(host, "town", "drained")
        host.stopping.set()
        with pytest.raises(MisuseError, match="task 'town' cannot be started: S0 has been told to stop"):
            await host.start("town")


async def test_a_new_task_cannot_have_the_store_of_one_that_still_uses_it(folder):
    async with hosts(folder, 0) as (host,):
        write(folder, "city", "town")
        path = folder / "S0.toml"
        path.write_text(path.read_text().replace("city/S0.sqlite", "shop/S0.sqlite"))
        host.reload()
        assert [task.name for task in host.tasks()] == ["shop", "town"]
        (trouble,) = host.process.problems.latest()
        assert "store of task 'city'" in trouble.explanation
        assert "is in use by task 'shop'" in trouble.explanation
        assert state(host, "shop") == "running"


async def test_the_file_of_the_other_server_changes_nothing(folder):
    async with hosts(folder, 0) as (host,):
        (folder / "S0.toml").write_text((folder / "S1.toml").read_text())
        host.reload()
        (trouble,) = host.process.problems.latest()
        assert "is the file of S1, and this is S0" in trouble.explanation


async def test_task_files_of_other_servers_change_nothing(folder):
    async with hosts(folder, 0) as (host,):
        write(folder, "city")
        other = Identity.generate("S1")
        task = Deployment.load(folder / "city" / "task.toml")
        own = Identity.load(folder / "S0.key")
        write_deployment(folder / "city", task.task, [own.public, other.public], task.addresses, [])
        host.reload()
        assert [task.name for task in host.tasks()] == ["shop", "town"]
        assert "gives S1 other keys" in host.process.problems.latest()[0].explanation


async def test_tasks_that_are_still_to_be_removed_count(folder, monkeypatch):
    monkeypatch.setattr(host_file, "MOST_TASKS", 2)
    async with hosts(folder, 0) as (host,):
        write(folder, "shop", "city")
        host.reload()
        assert "3 tasks; one server has 2 at most" in host.process.problems.latest()[0].explanation
        assert [task.name for task in host.tasks()] == ["shop", "town"]


# ---- as processes


@pytest.mark.slow
def test_processes_with_two_tasks_are_killed_asked_and_stopped(folder, serve, answer, monkeypatch):  # noqa: F811
    def asked(*words: str) -> tuple[int, dict]:
        code, out, _ = answer(*words)
        return code, out.get("result") or out.get("error")

    monkeypatch.chdir(folder)
    servers = [serve(folder, f"S{number}.toml") for number in (0, 1)]
    for server in servers:
        server.says("the operator's page is at")
    trio.run(submit, folder, "shop", "anna")
    servers[0].stop(signal.SIGKILL)
    servers[0] = serve(folder, "S0.toml")
    servers[0].says("the operator's page is at")
    trio.run(round_of, folder, "shop", "ben")  # what anna submitted was in the store
    trio.run(expect, folder, "shop", "anna", "ben")
    trio.run(round_of, folder, "town", "ben", "cleo")
    trio.run(expect, folder, "town", "ben", "cleo")

    code, rows = asked("tasks", "list", "S0.toml")
    assert code == ExitCode.OK
    assert [(row["name"], row["state"], row["rounds_done"]) for row in rows["tasks"]] == [
        ("shop", "running", 1),
        ("town", "running", 1),
    ]
    code, error = asked("status", "S0.toml", "--once")
    assert (code, "several tasks; name one with --task" in error["message"]) == (ExitCode.MISUSE, True)
    code, status = asked("status", "S0.toml", "--task", "town")
    assert (code, status["task"], status["rounds_done"]) == (ExitCode.OK, "town", 1)
    code, listed = asked("rounds", "list", "S1.toml", "--task", "shop")
    assert [past["counted"] for past in listed["rounds"]] == [2]
    code, error = asked("backup", "S0.toml", "copy.sqlite")
    assert "has several tasks; name one with --task: shop, town" in error["message"]
    code, made = asked("backup", "S0.toml", "copy.sqlite", "--task", "town")
    assert (code, made["settled"]) == (ExitCode.OK, 1)

    code, row = asked("tasks", "drain", "S0.toml", "town")
    assert (code, row["name"]) == (ExitCode.OK, "town")
    servers[0].says("stopped: round 2 is parked")
    code, error = asked("tasks", "drain", "S0.toml", "city")
    assert "there is no task 'city' here; there are: shop, town" in error["message"]
    write(folder, "shop", "city")
    for server in servers:
        server.child.send_signal(signal.SIGHUP)
        server.says("task 'city' is new in")
    trio.run(round_of, folder, "city", "anna", "cleo")
    trio.run(expect, folder, "city", "anna", "cleo")

    for server in servers:
        server.child.send_signal(signal.SIGTERM)
    for number, server in enumerate(servers):
        code, out, error = server.ended()
        assert code == ExitCode.OK, error
        assert (out["result"]["server"], out["result"]["ending"]) == (number, "stopped")
        assert [task["name"] for task in out["result"]["tasks"]] == ["shop", "city"]
        assert {task["standing"] for task in out["result"]["tasks"]} == {"drained"}
        lines = [json.loads(line) for line in error.splitlines() if line.startswith("{")]
        assert {line.get("task") for line in lines if line["event"] == "round done"} >= {"city"}
