"""The paper's four scenarios over TCP: `fsl-async serve` twice, and every client a process of its own."""

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from parties.files.models import load_model, save_model
from parties.identity.keys import Identity
from parties.settings.writing import write_deployment
from tests import ROOT
from tests.support.plaintext import Clear, Update, random_update, shape_of

SERVE = Path(sys.executable).with_name("fsl-async")
SERVERS, NAMES = ("S0", "S1"), ("ada", "bob")
ROUNDS = 2

BASIC = Task(
    name="goods",
    blocks=(Sparse("items", rows=300, select=10), Dense("head", size=5)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=6,
)
WIDE = (
    Sparse("items", rows=100, select=6, width=18),
    Dense("head", size=5),
    Sparse("shops", rows=20, select=3, width=7, stash=1),
)
SCENARIOS = {
    "basic": BASIC,
    "fixed": msgspec.structs.replace(BASIC, selection="fixed"),
    "union": msgspec.structs.replace(BASIC, alignment="union", security="semi-honest"),
    "mega-elements": msgspec.structs.replace(BASIC, blocks=WIDE),
}


@dataclass(frozen=True)
class Round:
    """What every client does in one round, and what it must find."""

    plans: dict[str, dict[str, Any]]
    found: dict[str, dict[str, list[Any]]]


class Deployment:
    """The files of two servers and two clients in a folder, and the processes that they are for."""

    def __init__(self, folder: Path, task: Task, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.folder = folder
        self.task = task
        self.clear = Clear(task, {block.name: rng.normal(size=shape_of(block)) for block in task.blocks})
        self._write_files()
        self.rounds = list(self._rounds(rng))
        for name in NAMES:
            (folder / f"{name}.json").write_text(json.dumps([round_.plans[name] for round_ in self.rounds]))

    def _write_files(self) -> None:
        identities = {name: Identity.generate(name) for name in (*SERVERS, *NAMES)}
        for name, identity in identities.items():
            identity.save(self.folder / f"{name}.key")
        public = [identity.public for identity in identities.values()]
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        write_deployment(self.folder, self.task, public[:2], addresses, public[2:])
        save_model(self.folder / "model.npz", self.clear.model)
        rounds = ROUNDS * (2 if self.task.alignment == "union" else 1)
        for server, address in enumerate(addresses):
            (self.folder / f"{SERVERS[server]}.toml").write_text(
                f'server = {server}\nidentity = "{SERVERS[server]}.key"\ntask = "task.toml"\n'
                f'clients = "clients.toml"\nmodel = "model.npz"\nlisten = "{address}"\n'
                f'save_model = "after-{server}.npz"\nthreads = 1\n'
                'store = "memory"\n[limits]\nhandshakes_per_second = 1000.0\nburst = 20\n'
                f"[rounds]\nclients = {len(NAMES)}\ncount = {rounds}\n"
            )

    def _rounds(self, rng: np.random.Generator) -> Any:
        """Plan all rounds; the model in the clear goes through them."""
        rows = self._selections(rng)
        for number in range(ROUNDS):
            if number and self.task.selection == "adaptive":
                rows = self._selections(rng)
            if self.task.alignment == "union":
                yield Round({name: {"unite": chosen} for name, chosen in rows.items()}, {name: {} for name in NAMES})
            yield self._main_round(rng, rows)

    def _selections(self, rng: np.random.Generator) -> dict[str, dict[str, list[int]]]:
        return {
            name: {
                block.name: rng.permutation(block.rows)[: rng.integers(1, block.select + 1)].tolist()
                for _, block in self.task.sparse_blocks()
            }
            for name in NAMES
        }

    def _main_round(self, rng: np.random.Generator, rows: dict[str, dict[str, list[int]]]) -> Round:
        plans, found = {}, {}
        dense = [block.name for _, block in self.task.dense_blocks()]
        for name in NAMES:
            update = random_update(rng, self.task, {block: np.array(of) for block, of in rows[name].items()})
            plans[name] = {"retrieve": rows[name] | dict.fromkeys(dense, "all"), "submit": as_json(update)}
            found[name] = {block: self.clear.model[block][of].tolist() for block, of in rows[name].items()}
            found[name] |= {block: self.clear.model[block].tolist() for block in dense}
            self.clear.add(update)
        self.clear.settle()
        return Round(plans, found)

    async def run(self) -> dict[str, list[dict[str, Any]]]:
        """Run all processes to their end; what every client printed."""
        printed: dict[str, list[dict[str, Any]]] = {}

        async def client(name: str) -> None:
            lines = await child([sys.executable, "-m", "tests.support.scenario_client", str(self.folder), name])
            printed[name] = [json.loads(line) for line in lines]

        async with trio.open_nursery() as servers:
            for name in SERVERS:
                await servers.start(serve, self.folder / f"{name}.toml")
            for name in NAMES:
                servers.start_soon(client, name)
        return printed


def as_json(update: Update) -> dict[str, Any]:
    return {
        name: {"rows": of[0].tolist(), "values": of[1].tolist()} if isinstance(of, tuple) else {"values": of.tolist()}
        for name, of in update.items()
    }


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


async def serve(config: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    await child([str(SERVE), "serve", str(config)], listening=task_status.started)


async def child(command: list[str], listening: Any = None) -> list[str]:
    """Run a process to its end; it must end well. Returns the lines of its output."""
    lines: list[str] = []
    errors = subprocess.STDOUT if listening else None
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
    try:
        rest = b""
        async for data in process.stdout:
            *whole, rest = (rest + data).split(b"\n")
            lines += [line.decode() for line in whole]
            if listening and any("listens at" in line for line in lines):
                listening()
                listening = None
        await process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            with trio.CancelScope(shield=True):
                await process.wait()
    assert process.returncode == 0, lines
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_scenario_between_processes_is_what_it_would_be_in_the_clear(scenario: str, tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, SCENARIOS[scenario], seed=1)
    with trio.fail_after(120):
        printed = await deployment.run()
    for name in NAMES:
        assert len(printed[name]) == len(deployment.rounds)
        for number, (line, round_) in enumerate(zip(printed[name], deployment.rounds, strict=True), start=1):
            assert (line["number"], line["counted"], line["participants"]) == (number, True, len(NAMES))
            assert line["found"] == round_.found[name]
    for server in (0, 1):
        after = load_model(tmp_path / f"after-{server}.npz")
        assert after.keys() == deployment.clear.model.keys()
        for block, array in deployment.clear.model.items():
            assert after[block].tobytes() == array.tobytes(), (server, block)
    if scenario == "fixed":
        first, second = (line["sent"] for line in printed["ada"])
        assert second < first / 3, "a later round sends hints alone"
