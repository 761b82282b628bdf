"""Each protocol alone over TCP: two `fsl-async serve`, and clients that are commands.

Secure aggregation and epochs over TCP are the scenarios "basic" and "fixed" of test_scenarios_tcp.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from fsl_async import Sparse, Task
from parties.files.models import load_model, save_model
from parties.identity.keys import Identity
from parties.settings.writing import write_deployment
from tests import ROOT
from tests.parties.deployment.test_scenarios_tcp import NAMES, SERVERS, free_ports, serve

PSR = Task(
    name="lookup", protocol="psr", blocks=[Sparse("items", rows=300, select=4, width=2)], retrievals=2, max_clients=6
)
PSU = Task(name="seen", protocol="psu", blocks=[Sparse("items", rows=300, select=4)], min_clients=2, max_clients=6)
MODEL = {"items": np.arange(600, dtype=np.float32).reshape(300, 2)}


def deployed(folder: Path, task: Task, rounds: str) -> None:
    """The files of two servers and their clients."""
    identities = {name: Identity.generate(name) for name in (*SERVERS, *NAMES)}
    for name, identity in identities.items():
        identity.save(folder / f"{name}.key")
    public = [identity.public for identity in identities.values()]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    write_deployment(folder, task, public[:2], addresses, public[2:])
    model = 'model = "model.npz"\n' if task.model_blocks else ""
    if task.model_blocks:
        save_model(folder / "model.npz", MODEL)
    for server, address in enumerate(addresses):
        (folder / f"{SERVERS[server]}.toml").write_text(
            f'server = {server}\nidentity = "{SERVERS[server]}.key"\ntask = "task.toml"\n{model}'
            f'clients = "clients.toml"\nlisten = "{address}"\nthreads = 1\nstore = "memory"\n[rounds]\n{rounds}\n'
        )


async def told(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a client's command to its end: its exit code, and its JSON object."""
    command = [sys.executable, "-m", "parties", *words, "--format", "json"]
    done = await trio.run_process(
        command, capture_stdout=True, stderr=subprocess.DEVNULL, check=False, cwd=folder, env=environment()
    )
    return done.returncode, json.loads(done.stdout)


def environment() -> dict[str, str]:
    """In which the commands are found."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.slow
async def test_rows_are_retrieved_until_time_ends_the_round(tmp_path: Path) -> None:
    deployed(tmp_path, PSR, "seconds = 60")
    with trio.fail_after(120):
        async with trio.open_nursery() as servers:
            for name in SERVERS:
                await servers.start(serve, tmp_path / f"{name}.toml")
            ada = ("task.toml", "--identity", "ada.key")
            code, said = await told(
                tmp_path, "retrieve", *ada, "--block", "items", "--rows", "3,14", "--output", "rows.npz"
            )
            assert (code, said["result"]["shape"]) == (0, [2, 2])
            assert np.array_equal(load_model(tmp_path / "rows.npz")["values"], MODEL["items"][[3, 14]])
            save_model(tmp_path / "update.npz", {"items.rows": np.array([3]), "items.values": np.ones((1, 2))})
            code, said = await told(tmp_path, "submit", *ada, "--update", "update.npz")
            assert code != 0
            assert "only serve retrievals" in said["error"]["message"]
            servers.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_union_is_found_and_printed(tmp_path: Path) -> None:
    deployed(tmp_path, PSU, "clients = 2")
    found: dict[str, tuple[int, dict[str, Any]]] = {}

    async def unite(name: str, rows: str) -> None:
        who = ("task.toml", "--identity", f"{name}.key")
        found[name] = await told(tmp_path, "unite", *who, "--block", "items", "--rows", rows, "--wait")

    with trio.fail_after(120):
        async with trio.open_nursery() as servers:
            for name in SERVERS:
                await servers.start(serve, tmp_path / f"{name}.toml")
            bob = ("task.toml", "--identity", "bob.key")
            code, said = await told(tmp_path, "retrieve", *bob, "--block", "items", "--rows", "3", "--output", "x.npz")
            assert code != 0
            assert "only find a union" in said["error"]["message"]
            async with trio.open_nursery() as uniting:
                uniting.start_soon(unite, "ada", "3,14")
                uniting.start_soon(unite, "bob", "14,200")
            servers.cancel_scope.cancel()
    for code, said in found.values():
        assert (code, said["result"]["counted"]) == (0, True)
        assert said["result"]["union"] == {"items": [3, 14, 200]}


@pytest.mark.parametrize(
    ("task", "rounds", "expected"),
    [(PSR, "seconds = 0", "rounds.seconds = 0"), (PSU, "clients = 7", "rounds.clients must be at most 6")],
)
def test_serve_and_preflight_refuse_rounds_that_never_end(
    task: Task, rounds: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    deployed(tmp_path, task, rounds)
    monkeypatch.chdir(tmp_path)
    code, said, _ = answer("serve", "S0.toml")
    assert (code != 0, expected in said["error"]["message"]) == (True, True)
    code, said, _ = answer("preflight", "S0.toml")
    (finding,) = [each for each in said["result"]["findings"] if each["check"] == "rounds"]
    assert (code != 0, finding["verdict"], expected in finding["words"]) == (True, "bad", True)
