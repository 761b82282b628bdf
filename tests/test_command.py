"""The command line as scripts use it: one JSON object on stdout, stable exit codes, a deployment from nothing."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from parties import PublicIdentity
from parties.deployment import free_addresses, save_model, write_deployment

TASK = Task(
    name="shop",
    blocks=[Sparse("items", rows=200, width=2, select=5)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=2,
)


def run(*words: str | Path, code: int = 0) -> dict[str, Any]:
    """Run the command with JSON output; check its exit code and envelope."""
    command = [sys.executable, "-m", "parties", *map(str, words), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    assert envelope["version"] == 1
    assert envelope["command"] == words[0]
    assert ("error" in envelope) == (code != 0)
    return envelope


def start(*words: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "parties", *map(str, words), "--format", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make_deployment(folder: Path) -> None:
    """What two operators would do: keys, task file, list of clients, model, and a file for each server."""
    for name in ("S0", "S1", "anna", "boris", "stranger"):
        run("keygen", folder / f"{name}.key")
    publics = [PublicIdentity.load(folder / f"{name}.pub") for name in ("S0", "S1", "anna", "boris")]
    addresses = free_addresses(2)
    write_deployment(folder, TASK, publics[:2], addresses, publics[2:])
    save_model(folder / "model.npz", {"items": np.arange(400.0).reshape(200, 2)})
    for number, address in enumerate(addresses):
        (folder / f"S{number}.toml").write_text(
            f'server = {number}\nidentity = "S{number}.key"\ntask = "task.toml"\nclients = "clients.toml"\n'
            f'model = "model.npz"\nlisten = "{address}"\nsave_model = "after-{number}.npz"\n'
            "handshakes_per_second = 1000.0\nhandshake_burst = 100\n[rounds]\nclients = 2\ncount = 1\n"
        )


def test_a_deployment_from_nothing(tmp_path: Path) -> None:
    make_deployment(tmp_path)
    update = {"items.rows": np.array([7, 11]), "items.values": np.full((2, 2), 0.5)}
    save_model(tmp_path / "update.npz", update)
    servers = [start("serve", tmp_path / f"S{number}.toml") for number in (0, 1)]
    try:
        for server in servers:
            assert server.stderr is not None
            assert "listens at" in server.stderr.readline()
        task = tmp_path / "task.toml"
        stranger = run("retrieve", task, "--identity", tmp_path / "stranger.key", "--block", "items",
                       "--rows", "1", "--output", tmp_path / "no.npz", code=4)  # fmt: skip
        assert "unknown client" in stranger["error"]["message"]
        run("retrieve", task, "--identity", tmp_path / "anna.key", "--block", "items", "--rows", "7,11",
            "--output", tmp_path / "rows.npz")  # fmt: skip
        found = np.load(tmp_path / "rows.npz")
        assert found["values"].tolist() == [[14.0, 15.0], [22.0, 23.0]]
        words = ("--update", tmp_path / "update.npz", "--wait")
        waiting = start("submit", task, "--identity", tmp_path / "anna.key", *words)
        second = run("submit", task, "--identity", tmp_path / "boris.key", *words)
        first = json.loads(waiting.communicate(timeout=60)[0])
        assert first["result"]["counted"]
        assert second["result"]["clients"] == ["anna", "boris"]
        for server in servers:
            assert json.loads(server.communicate(timeout=60)[0])["result"]["rounds_done"] == 1
            assert server.returncode == 0
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    after = [np.load(tmp_path / f"after-{number}.npz")["items"] for number in (0, 1)]
    np.testing.assert_array_equal(after[0], after[1])
    assert after[0][7].tolist() == [15.0, 16.0]


def test_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "anna.key"
    made = run("keygen", path)
    assert made["result"]["name"] == "anna"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    refused = run("keygen", path, code=6)
    assert "never overwritten" in refused["error"]["message"]
    assert path.read_bytes() == before


def test_nobody_listens(tmp_path: Path) -> None:
    make_deployment(tmp_path)
    refused = run("retrieve", tmp_path / "task.toml", "--identity", tmp_path / "anna.key", "--block", "items",
                  "--rows", "1", "--output", tmp_path / "no.npz", code=4)  # fmt: skip
    assert "nothing listens" in refused["error"]["message"]


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    make_deployment(tmp_path)
    file = tmp_path / "S0.toml"
    file.write_text(file.read_text().replace("listen =", "lisen ="))
    refused = run("serve", file, code=3)
    assert "did you mean 'listen'" in refused["error"]["message"]


@pytest.mark.parametrize("words", [["demo", "--wrong", "1"], ["nothing"], ["keygen"], ["demo", "--rounds", "many"]])
def test_wrong_words_end_in_two(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "parties", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) >= 1


def test_help_names_every_command() -> None:
    done = subprocess.run([sys.executable, "-m", "parties", "--help"], capture_output=True, text=True, check=True)
    for name in ("demo", "keygen", "enrol", "serve", "retrieve", "submit", "plan", "bench"):
        assert name in done.stdout


@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_the_demo_is_exact_and_learns(transport: str) -> None:
    clients = "4" if transport == "memory" else "2"
    words = ("demo", "--clients", clients, "--rounds", "2", "--transport", transport)
    result = run(*words)["result"]
    assert result["exact"] is True
    assert result["accuracy_after"] > result["accuracy_before"] + 0.05
    assert result["bytes_up_per_client_and_round"] < result["trivial_bytes_up"]
    if transport == "memory":
        again = run(*words)["result"]
        assert again["transcript"] == result["transcript"] != ""
        assert again["accuracy_after"] == result["accuracy_after"]
