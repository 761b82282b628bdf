"""`fsl-async serve` as a process: its signals, its files, and the ways in which it does not start."""

import re
import signal
import socket
import time
from pathlib import Path

import pytest
import trio

from parties import connect
from parties.commands.report import ExitCode
from parties.files.models import checkpoints, load_model
from parties.settings.lists import revoke_client
from parties.settings.writing import free_addresses
from tests.support.serving import ENDS_WITHIN, PLAIN, processes
from tests.support.shop import Basket, assert_equal, model_after
from tests.support.town import deploy, take_part
from transport import RefusedError

NAMES = ("anna", "ben")


@pytest.fixture
def serve():
    """Starts `fsl-async serve` in a folder; without kernels, unless it is told another program."""
    with processes() as start:
        yield lambda folder, *words, program=("-c", PLAIN), **options: start(
            folder, "serve", *words, program=program, **options
        )


@pytest.fixture
def folder(tmp_path) -> Path:
    """A deployment on one host: two servers, two clients."""
    deploy(tmp_path, NAMES, checkpoints="models-{}", checkpoints_kept=2, save_model="now-{}.npz")
    return tmp_path


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    for _ in range(100 * ENDS_WITHIN):
        if path.exists():
            return
        time.sleep(0.01)
    pytest.fail(f"{path} was not written")


def assert_little_is_held_of_the_compiler(pid: int) -> None:
    """Where the system tells, which is Linux."""
    status = Path(f"/proc/{pid}/status")
    for _ in range(100 if status.exists() else 0):
        lines = status.read_text(encoding="utf-8").splitlines()
        held = next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile:"))
        if held < 60 << 20:
            return
        time.sleep(0.1)
    assert not status.exists(), f"{held:,} bytes of programs and libraries"


# ---- a life


def test_a_server_is_stopped_and_goes_on_where_it_was(folder, serve):
    """SIGTERM ends with 0, an open round is parked, the models are on disk, and the next start goes on from there.

    A model file that was lost in between is written again at the start. Of the compiler little is held after a round:
    S0 computes with kernels in the first life, and S1 in the second.
    """
    for start in (1, 2):
        compiled, plain = ("-m", "parties"), ("-c", PLAIN)
        programs = (compiled, plain) if start == 1 else (plain, compiled)
        servers = [serve(folder, f"S{server}.toml", program=program) for server, program in enumerate(programs)]
        for server in servers:
            server.says('"event": "round (opened|resumed)"')
        if start == 2:
            wait_for(folder / "now-0.npz")
            assert_equal(load_model(folder / "now-0.npz"), model_after(NAMES))
        trio.run(take_part, folder, *NAMES)
        for server in servers:
            server.says('"event": "round done"')
            server.says('"event": "round opened"')
        assert_little_is_held_of_the_compiler(servers[start - 1].child.pid)
        for server in servers:
            server.child.send_signal(signal.SIGTERM)
        for number, server in enumerate(servers):
            code, said, words = server.ended()
            assert code == ExitCode.OK
            assert f"stopped: round {start + 1} is parked, Open with 0 submissions; it resumes when" in words
            assert said["result"].pop("state").startswith(f"round {start + 1}: Open")  # it may add that the other stops
            assert said["result"] == {"server": number, "rounds_done": start, "rounds_aborted": 0, "ending": "stopped"}
            made = checkpoints(folder / f"models-{number}")
            assert [checkpoint.number for checkpoint in made] == list(range(1, start + 1))
            for path in (made[-1].path, folder / f"now-{number}.npz"):
                assert_equal(load_model(path), model_after(*[NAMES] * start))
        (folder / "now-0.npz").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "signals", "code"), [("0.5", 1, ExitCode.OK), ("600", 2, ExitCode.INTERRUPTED)])
def test_a_round_that_cannot_end_is_parked_after_a_while_or_at_a_second_sigterm(folder, serve, patience, signals, code):
    """S1 hangs when S0's round closes: S0 waits for it, but not for ever, and not if it is told twice."""
    environment = {"FSL_ASYNC_ROUNDS_SECONDS": "2"}
    servers = [serve(folder, f"S{server}.toml", "--stop-seconds", patience, **environment) for server in (0, 1)]
    servers[0].says('"event": "round opened"')
    servers[1].child.send_signal(signal.SIGSTOP)
    servers[0].says('"event": "round moved".*"state": "Closed"')
    servers[0].child.send_signal(signal.SIGTERM)
    servers[0].says("asked to stop")
    if signals == 2:
        servers[0].child.send_signal(signal.SIGTERM)
    ended, said, words = servers[0].ended()
    assert ended == code
    if code == ExitCode.OK:
        assert said["result"]["state"] == "round 1: Closed"
        assert "stopped: round 1 is parked, Closed with 0 submissions; it resumes when" in words


def test_a_round_that_is_on_its_way_to_its_sum_is_finished_first(folder, serve):
    """S1 hangs when the round closes, S0 is asked to stop, S1 wakes: S0 ends with the round done, and says so."""
    servers = [serve(folder, f"S{server}.toml") for server in (0, 1)]
    for server in servers:
        server.says('"event": "round opened"')

    async def submit(name: str) -> None:
        async with connect(folder / f"{name}.toml") as client:
            await client.submit(Basket(name).update)

    async def both() -> None:
        await submit("anna")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit, "ben")
            await trio.to_thread.run_sync(servers[0].says, '"event": "round moved"')  # to Closed, or on from there
            servers[1].child.send_signal(signal.SIGSTOP)
            servers[0].child.send_signal(signal.SIGTERM)
            await trio.to_thread.run_sync(servers[0].says, "asked to stop")
            servers[1].child.send_signal(signal.SIGCONT)

    trio.run(both)
    code, said, words = servers[0].ended()
    assert code == ExitCode.OK
    assert said["result"] | {"state": ""} == {
        "server": 0, "rounds_done": 1, "rounds_aborted": 0, "ending": "stopped", "state": "",
    }  # fmt: skip
    stopped = re.search(r'"stopped: round (1 is done|2 is parked)', words)  # the latter if S1 was stopped too late
    assert stopped
    assert words.index('"round done"') < stopped.start()
    assert_equal(load_model(folder / "now-0.npz"), model_after(NAMES))


@pytest.mark.slow
@pytest.mark.parametrize("killed", [[0], [1], [0, 1]], ids=["S0", "S1", "both"])
def test_a_server_that_was_killed_is_started_by_the_same_command_and_resumes(folder, serve, killed):
    """One client's submission is acknowledged before; with the other one's, which comes after, the sum is whole."""
    servers = [serve(folder, f"S{server}.toml") for server in (0, 1)]
    for server in servers:
        server.says('"event": "round opened"')

    async def first() -> None:
        async with connect(folder / "anna.toml") as client:
            await client.submit(Basket("anna").update)

    trio.run(first)
    for number in killed:
        assert servers[number].stop(signal.SIGKILL).code == -signal.SIGKILL
    for number in killed:
        servers[number] = serve(folder, f"S{number}.toml")
    for number in killed:
        servers[number].says('"event": "round resumed after a restart".*"round": 1, "state": "Open"')
    trio.run(take_part, folder, "ben")
    for number, server in enumerate(servers):
        server.says('"event": "round done".*"counted": 2, "not_counted": 0')
        server.says('"event": "round opened"')
        assert server.stop().code == ExitCode.OK
        assert_equal(load_model(folder / f"now-{number}.npz"), model_after(NAMES))


def test_a_client_that_is_revoked_while_the_server_runs_is_refused_and_the_rest_goes_on(folder, serve):
    servers = [serve(folder, f"S{server}.toml") for server in (0, 1)]
    for server in servers:
        server.says('"event": "round opened"')

    async def meet(name: str) -> None:
        async with connect(folder / f"{name}.toml"):
            pass

    trio.run(meet, "anna")
    (folder / "S0.toml").write_text((folder / "S0.toml").read_text().replace("clients = 2", "clients = 3") + "[log]\n")
    revoke_client(folder / "clients.toml", "anna")
    for server in servers:
        server.child.send_signal(signal.SIGHUP)
        server.says('"event": "client revoked".*"client": "anna"')
    with pytest.raises(RefusedError, match="of 'anna' was revoked at"):
        trio.run(meet, "anna")
    trio.run(meet, "ben")
    (folder / "clients.toml").write_text("[[clients")
    servers[0].child.send_signal(signal.SIGHUP)
    servers[0].says("is not TOML.*the file as read before stays in force")
    trio.run(meet, "ben")
    _, _, words = servers[0].stop()
    assert "changes of rounds.clients take effect when the server is started again" in words


def test_a_reload_says_what_has_changed_and_what_waits_for_the_next_start(folder, serve):
    """A louder log says so in its new voice, a quieter one in its old; a file that cannot be read changes nothing.

    A store in memory is shouted about, and a supervisor that is not there stops nobody.
    """
    environment = {"FSL_ASYNC_STORE": "memory", "NOTIFY_SOCKET": "@nobody-listens-here", "FSL_ASYNC_LOG_FORMAT": "json"}
    server = serve(folder, "S0.toml", **environment)
    assert '"level": "warning"' in server.says("THE STORE IS IN MEMORY")
    server.says("NOTIFY_SOCKET cannot be told")
    text = (folder / "S0.toml").read_text()

    def reload(file: str, *said: str) -> None:
        (folder / "S0.toml").write_text(file)
        server.child.send_signal(signal.SIGHUP)
        for words in said:
            server.says(words)

    reload(text, "S0.toml has been read again: log.level is info as before")
    reload(text + '[log]\nlevel = "error"\n', "log.level is error now, and was info")
    reload(text + '[log]\nlevel = "debug"\n', "log.level is debug now, and was error")
    reload(
        text.replace("clients = 2", "clients = 3\nseconds = 60") + '[log]\nlevel = "debug"\n',
        "log.level is debug as before",
        '"level": "warning".*changes of rounds.clients, rounds.seconds take effect when the server is started again',
    )
    reload("server = nothing", "is not TOML.*the file as read at the start stays in force")
    reload(text + '[log]\nlevel = "error"\n', "log.level is error now, and was debug")
    code, _, words = server.stop()
    assert code == ExitCode.OK
    assert "asked to stop" not in words.split("and was debug")[1]


# ---- whoever started it


def test_a_server_alone_is_ready_for_its_supervisor_and_operator_and_stops_at_once(folder, serve):
    """It leaves no core dump, and its operator's port and token come and go with it."""
    (address,) = free_addresses(1)
    with (folder / "S0.toml").open("a") as file:
        file.write(f'[operator]\nlisten = "{address}"\n[web]\nlisten = "ws://127.0.0.1:0/fsl"\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(folder / "notify"))
        supervisor.settimeout(ENDS_WITHIN)
        server = serve(folder, "S0.toml", NOTIFY_SOCKET=str(folder / "notify"))
        assert supervisor.recv(100) == b"READY=1"
        host, port = re.search(r'^listen = "(.*):(\d+)"', (folder / "S0.toml").read_text(), re.MULTILINE).groups()
        socket.create_connection((host, int(port))).close()
        server.says(r"S0 listens at [\d.:]+ and ws://127.0.0.1:[1-9]\d*/fsl")
        server.says("the operator's page is at")
        (token,) = folder.glob("*.operator-token")
        assert token.stat().st_mode & 0o777 == 0o600
        limits = Path(f"/proc/{server.child.pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        started = time.monotonic()
        server.child.send_signal(signal.SIGTERM)
        assert supervisor.recv(100) == b"STOPPING=1"
        code, said, words = server.ended()
    assert (code, said["result"]["ending"]) == (ExitCode.OK, "stopped")
    assert "asked to stop: the running round has 60 s to end" in words
    assert "stopped: no round is open" in words
    assert time.monotonic() - started < 60, "it waits for nothing"
    assert not token.exists()


# ---- not at all


@pytest.fixture
def refused(folder, monkeypatch, answer):
    """Runs `serve` in this process, which must not start; its exit code, and why."""

    def run(*words: str, **environment: str) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        code, said, error = answer("serve", *words)
        return code, said["error"]["message"] if said else error

    return run


def test_a_second_server_on_the_same_store_or_port_is_refused(folder, serve, refused):
    serve(folder, "S0.toml").says("listens at")
    code, words = refused("S0.toml")
    assert code == ExitCode.STORAGE
    assert re.search(r"S0\.sqlite is in use by another server \(process \d+\); stop that one", words)
    code, words = refused("S0.toml", FSL_ASYNC_STORE="other.sqlite")
    assert code == ExitCode.CHANNEL
    assert "cannot listen at" in words
    assert "is the port free?" in words


def test_an_operators_port_in_use_is_refused(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, words = refused("S0.toml", FSL_ASYNC_OPERATOR_LISTEN=f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == ExitCode.CHANNEL
    assert "the operator's port cannot listen at" in words


@pytest.mark.parametrize(
    ("changes", "code", "pattern"),
    [
        ({"FSL_ASYNC_STORE": "nowhere/S0.sqlite"}, ExitCode.STORAGE, "its folder does not exist"),
        ({"FSL_ASYNC_STORE": "model.npz"}, ExitCode.STORAGE, "model.npz"),
        ({"FSL_ASYNC_CHECKPOINTS": "model.npz"}, ExitCode.STORAGE, "model.npz, the folder of checkpoints"),
        ({"FSL_ASYNC_IDENTITY": "S1.key"}, ExitCode.MISUSE, "does not hold the keys that task.toml gives for server 0"),
        ({"FSL_ASYNC_MODEL": "task.toml"}, ExitCode.MISUSE, "task.toml cannot be read as a model"),
        ({"FSL_ASYNC_CLIENTS": "none.toml"}, ExitCode.MISUSE, "none.toml cannot be read"),
        ({"FSL_ASYNC_ROUNDS_CLIENTS": "7"}, ExitCode.MISUSE, "S0.toml: rounds.clients must be at most 6"),
        ({"FSL_ASYNC_LIMITS_MEMORY_BYTES": "1"}, ExitCode.MISUSE, "memory_bytes is 1, and one request of this task"),
        ({"FSL_ASYNC_LISTEN": "192.0.2.1:7000"}, ExitCode.CHANNEL, "is the address this host's"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_named_and_ends_with_its_code(refused, changes, code, pattern):
    ended, words = refused("S0.toml", **changes)
    assert ended == code
    assert re.search(pattern, words), words


def test_a_wrong_flag_is_a_wrong_word(refused):
    code, words = refused("S0.toml", "--stop-second", "3")
    assert code == ExitCode.USAGE
    assert "--stop-second" in words


# ---- a server that waits for room on its disk

ON_A_FULL_DISK = f"""
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import DiskFullError
async def full(path, **words):
    raise DiskFullError(f"{{path}}: the disk is full")
SqliteStore.open = full
{PLAIN}
"""


def test_a_server_that_waits_for_room_can_be_stopped(folder, serve):
    server = serve(folder, "S0.toml", program=("-c", ON_A_FULL_DISK))
    server.says("the server waits, and then starts")
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):  # in whatever order they are heard
        server.child.send_signal(number)
    code, _, words = server.ended()
    assert code == ExitCode.INTERRUPTED, words
