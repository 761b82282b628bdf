"""Deployed for real: docs/files.md, word for word, with every party a process of its own."""

import shutil
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fsl_async.task import Task
from parties.commands.report import ExitCode
from parties.deployment.server import server_setup
from parties.files.models import load_model
from parties.identity.keys import PublicIdentity
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses, to_toml
from tests.support import guide
from tests.support.serving import PLAIN, Process, processes
from tests.support.shop import TASK, model
from tests.support.town import deploy

ITEMS, HEAD = (1000, 4), (3,)


@pytest.fixture
def start():
    with processes() as start:
        yield start


@pytest.fixture
def command(monkeypatch, answer):
    """Runs a command in this process, in a folder; gives its exit code, its JSON object and its stderr."""

    def run(folder: Path, *words: str) -> tuple[int, dict, str]:
        monkeypatch.chdir(folder)
        return answer(*words)

    return run


HOSTS = {"s0": "on the first host", "s1": "on the second", "alice": "on each client", "bob": "on each client"}


@pytest.fixture
def hosts(tmp_path, command) -> dict[str, Path]:
    """A folder for each party with the files that the guide gives it; keys made by the guide's commands."""
    folders = {name: tmp_path / name for name in HOSTS}
    for name, folder in folders.items():
        folder.mkdir()
        (words,) = [words for words, place in guide.commands() if words[1] == "keygen" and place == HOSTS[name]]
        code, _, _ = command(folder, *[word.replace("alice", name) for word in words[1:]])
        assert code == ExitCode.OK
    public = {name: PublicIdentity.load(folder / f"{name}.pub") for name, folder in folders.items()}
    addresses = free_addresses(2)
    task = guide.file("task.toml")
    for server, address in zip(("s0", "s1"), addresses, strict=True):
        task = task.replace(f"{server}.example.org:7000", address)
        task = task.replace(f"<channel of {server}.pub>", public[server].channel.hex())
        task = task.replace(f"<statement of {server}.pub>", public[server].statement.hex())
    listed = "".join(f"[[clients]]\n{(folders[name] / f'{name}.pub').read_text()}" for name in ("alice", "bob"))
    for folder in folders.values():
        (folder / "task.toml").write_text(task)
    for number, (server, address) in enumerate(zip(("s0", "s1"), addresses, strict=True)):
        text = guide.file("s0.toml").replace("0.0.0.0:7000", address).replace("s0.key", f"{server}.key")
        (folders[server] / f"{server}.toml").write_text(text.replace("server = 0", f"server = {number}"))
        (folders[server] / "clients.toml").write_text(listed)
        np.savez(folders[server] / "model.npz", items=np.zeros(ITEMS, np.float32), head=np.ones(HEAD, np.float32))
    for name in ("alice", "bob"):
        update = {
            "items.rows": [3, 10 + len(name)],
            "items.values": np.full((2, 4), len(name) / 8),
            "head": np.ones(HEAD),
        }
        np.savez(folders[name] / "update.npz", **update)
    return folders


def serving(start, hosts: dict[str, Path], *program: str) -> list[Process]:
    servers = [start(hosts[name], "serve", f"{name}.toml", program=program) for name in ("s0", "s1")]
    for server in servers:
        server.says("listens at")
    return servers


def test_the_guide_to_two_hosts_works_as_it_is_written(hosts, start, command):
    servers = serving(start, hosts, "-m", "parties")
    retrieved = command(
        hosts["alice"], "retrieve", "task.toml", "--identity", "alice.key", "--block", "items", "--rows", "3,5",
        "--output", "rows.npz",
    )  # fmt: skip
    assert retrieved[0] == ExitCode.OK
    assert retrieved[1]["result"]["shape"] == [2, 4]
    np.testing.assert_array_equal(load_model(hosts["alice"] / "rows.npz")["values"], np.zeros((2, 4), np.float32))

    (submit,) = [words[1:] for words, _ in guide.commands() if words[1] == "submit"]
    clients = {name: start(hosts[name], *[word.replace("alice", name) for word in submit]) for name in ("alice", "bob")}
    for name, client in clients.items():
        code, envelope, error = client.ended()
        assert code == ExitCode.OK, error
        assert (envelope["version"], envelope["command"]) == (1, "submit"), name
        assert envelope["result"]["counted"]
        assert envelope["result"]["participants"] == 2
    for number, server in enumerate(servers):
        code, said, error = server.ended()
        assert code == ExitCode.OK, error
        result = said["result"]
        assert result.pop("state").startswith("resting after round 1")
        assert result == {"server": number, "rounds_done": 1, "rounds_aborted": 0, "ending": "rounds-over"}
        assert '"event": "round done"' in error
    for name in ("s0", "s1"):
        final = load_model(hosts[name] / "model-now.npz")
        expected = np.zeros(ITEMS, np.float32)
        for client in ("alice", "bob"):
            expected[[3, 10 + len(client)]] += len(client) / 8
        np.testing.assert_array_equal(final["items"], expected)
        np.testing.assert_array_equal(final["head"], np.full(HEAD, 3, np.float32))


def test_whoever_does_not_belong_is_turned_away_and_the_round_goes_on(hosts, start, command):
    for name in ("s0", "s1"):  # this one host comes more often than five clients would
        file = hosts[name] / f"{name}.toml"
        file.write_text(file.read_text() + "\n[limits]\nburst = 50\n")
    servers = serving(start, hosts, "-c", PLAIN)
    submit = ("submit", "task.toml", "--update", "update.npz", "--identity")
    alice = hosts["alice"]
    task = (alice / "task.toml").read_text()

    code, said, _ = command(alice, "keygen", "mallory.key")
    assert code == ExitCode.OK
    code, said, error = command(alice, *submit, "mallory.key")
    assert (code, said["error"]["kind"]) == (ExitCode.CHANNEL, "RefusedError")
    assert "mallory" in error or PublicIdentity.load(alice / "mallory.pub").channel.hex()[:16] in error

    (alice / "other.toml").write_text(task.replace("select = 16", "select = 17"))
    code, said, _ = command(alice, "submit", "other.toml", "--update", "update.npz", "--identity", "alice.key")
    assert (code, said["error"]["code"]) == (ExitCode.MISUSE, 3)
    assert "S0 runs another task: blocks" in said["error"]["message"]

    s0 = PublicIdentity.load(hosts["s0"] / "s0.pub").channel.hex()
    s1 = PublicIdentity.load(hosts["s1"] / "s1.pub").channel.hex()
    (alice / "swapped.toml").write_text(task.replace(s0, "?").replace(s1, s0).replace("?", s1))
    code, said, _ = command(alice, "submit", "swapped.toml", "--update", "update.npz", "--identity", "alice.key")
    assert (code, said["error"]["kind"]) == (ExitCode.CHANNEL, "WrongServerKeyError")

    assert command(alice, *submit, "alice.key")[0] == ExitCode.OK
    code, said, _ = command(alice, *submit, "alice.key")
    assert (code, said["error"]["kind"]) == (ExitCode.MISUSE, "MisuseError")
    assert "this client has submitted to it" in said["error"]["message"]
    code, said, _ = command(alice, *submit, "alice.key", "--no-state")  # other trees, hence other bytes
    assert (code, said["error"]["kind"]) == (ExitCode.SENT, "RequestDeniedError")
    assert "another submission of yours" in said["error"]["message"] or "conflict" in said["error"]["message"]

    code, said, _ = command(hosts["bob"], *submit, "bob.key", "--wait")
    assert code == ExitCode.OK
    assert said["result"]["counted"]
    assert [server.ended()[0] for server in servers] == [ExitCode.OK, ExitCode.OK]


@pytest.mark.slow
def test_servers_with_unequal_models_both_end_and_say_so(hosts, start):
    np.savez(hosts["s1"] / "model.npz", items=np.ones(ITEMS, np.float32), head=np.ones(HEAD, np.float32))
    servers = [start(hosts[name], "serve", f"{name}.toml") for name in ("s0", "s1")]
    for server in servers:
        code, said, error = server.ended()
        assert code == said["error"]["code"] == ExitCode.PEER, error
        assert "holds another model" in said["error"]["message"]
        assert "Traceback" not in error


def test_an_interrupted_server_ends_with_130(hosts, start):
    server = start(hosts["s0"], "serve", "s0.toml", program=("-c", PLAIN))
    server.says("listens at")
    server.child.send_signal(signal.SIGINT)
    code, said, error = server.ended()
    assert code == ExitCode.INTERRUPTED == 130
    assert said["error"]["kind"] == "KeyboardInterrupt"
    assert "Traceback" not in error


def test_nobody_listening_is_told_by_address(hosts, command):
    address = Deployment.load(hosts["alice"] / "task.toml").addresses[0]
    code, said, _ = command(hosts["alice"], "submit", "task.toml", "--identity", "alice.key", "--update", "update.npz")
    assert (code, said["error"]["kind"]) == (ExitCode.CHANNEL, "UnreachableError")
    assert f"nothing listens at {address}" in said["error"]["message"]


def test_a_server_with_others_keys_does_not_start(hosts, command):
    shutil.copy(hosts["alice"] / "alice.key", hosts["s0"] / "s0.key")
    (hosts["s0"] / "s0.key").chmod(0o600)
    code, said, _ = command(hosts["s0"], "serve", "s0.toml")
    assert code == ExitCode.MISUSE
    assert "s0.key does not hold the keys that task.toml gives for server 0" in said["error"]["message"]


# ---- the files


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a deployment's files, as `write_deployment` makes them."""
    addresses = ("127.0.0.1:7000", "127.0.0.1:7001")
    deploy(tmp_path, ("anna", "ben"), addresses, store="memory", listen="127.0.0.1:0", rounds=None)
    return tmp_path


async def test_a_written_deployment_is_read_back_as_it_was(folder):
    deployment = Deployment.load(folder / "task.toml")
    assert deployment.task == TASK
    assert deployment.task.digest() == TASK.digest()
    assert deployment.addresses == ("127.0.0.1:7000", "127.0.0.1:7001")
    setup = await server_setup(folder / "S0.toml")
    assert setup.task == TASK
    assert setup.peer.keys == deployment.identity(1).keys
    assert "anna" in setup.registry
    assert len(setup.registry) == 2
    for name, array in model().items():
        np.testing.assert_array_equal(setup.model[name], array)


REFUSED = {
    "key of the file": ("[task]\n", "[tasks]\nname = 1\n[task]\n", "unknown key 'tasks'; did you mean 'task'?"),
    "key of the task": ("min_clients", "min_client", "task: unknown key 'min_client'; did you mean 'min_clients'?"),
    "key of the ring": ("fraction_bits", "fractions", "task, ring: unknown key 'fractions'; did you mean 'fraction_b"),
    "key of a block": ("width", "witdh", "task, blocks 1: unknown key 'witdh'; did you mean 'width'?"),
    "key of a dense one": (
        "size = 5",
        "size = 5\nrows = 5",
        "task, blocks 2: unknown key 'rows'; known are name, size",
    ),
    "key of a server": ("address", "adress", "servers 1: unknown key 'adress'; did you mean 'address'?"),
    "doors": (
        "address",
        'link = "127.0.0.1:7100"\naddress',
        "servers 1: unknown key 'link'; servers have no doors",
    ),
    "ring": ("bits = 64", "bits = 63", "bits must be 32, 64 or 128, not 63"),
    "range": ("select = 8", "select = 8000", "select must be an integer from 1 to 300, not 8000"),
    "type": ("select = 8", 'select = "eight"', "Expected `int`, got `str`"),
    "not TOML": ("[task]", "[task", "is not TOML"),
    "keys": ('channel = "', 'channel = "0', "channel must be 64 hexadecimal digits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_task_file_cannot_say_is_refused_by_name(folder, case, command):
    old, new, message = REFUSED[case]
    text = (folder / "task.toml").read_text()
    assert old in text
    (folder / "task.toml").write_text(text.replace(old, new, 1))
    code, said, _ = command(folder, "serve", "S0.toml")
    assert code == ExitCode.MISUSE
    assert message in said["error"]["message"]


def test_every_readme_file_is_a_valid_one(tmp_path):
    for kind, name in ((Deployment, "task.toml"), (ServerFile, "s0.toml")):
        (tmp_path / name).write_text(guide.file(name))
        kind.load(tmp_path / name)
    assert isinstance(Deployment.load(tmp_path / "task.toml").task, Task)


def test_tables_come_back_from_toml(tmp_path):
    table = {"a": 1, "b": 'quo"te', "c": {"d": 1.5, "e": {"f": True}}, "g": [{"h": 1}, {"h": 2, "i": {"j": "k"}}]}
    assert tomllib.loads(to_toml(table)) == table
