"""The demo in processes: S0, S1 and every client is one on this machine, deployed as real parties are.

The parent makes keys and files in a temporary folder, starts the servers with `fsl-async serve`, then one process for
each client; every child belongs to a nursery, so none outlives the demo. Run as a module, this file is one client:
`python -m parties.commands.demo.processes FOLDER NUMBER CLIENTS ROUNDS SEED`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trio
from rich.progress import Progress, TaskID

from fsl_async.errors import FslError, MisuseError
from fsl_async.task import Task
from parties.commands.demo.corpus import load
from parties.commands.demo.learner import Learner, initial_model
from parties.commands.demo.taking_part import PHASES, Summary, demo_task, take_part
from parties.deployment.compute import WITHOUT_DASK
from parties.deployment.connecting import connect
from parties.files.models import load_model, save_model
from parties.identity.keys import Identity
from parties.settings.writing import free_addresses, to_toml, write_deployment

SERVERS = ("S0", "S1")
LAST_LINES = 12
WORKING = (("scheduler",), ("worker",), ("worker",))


async def in_processes(
    clients: int,
    rounds: int,
    seed: int,
    progress: Progress,
    transport: Literal["tcp", "unix"],
    compute: Literal["threads", "dask"] = "threads",
) -> Summary:
    """Run the whole demo in processes that are connected over TCP or over Unix-domain sockets.

    If asked for, with a cluster that computes for S0.

    Raises:
        FslError: a process failed; the message has its last lines.
    """
    summary = Summary(initial_model())
    with tempfile.TemporaryDirectory(prefix="fsl-async-demo-") as name:
        folder = Path(name)
        addresses = free_addresses(2) if transport == "tcp" else [f"unix:{folder / name}.socket" for name in SERVERS]
        cluster = write_cluster(folder) if compute == "dask" else {}
        _write_files(folder, demo_task(clients), addresses, clients, rounds, cluster)
        bar = progress.add_task("client rounds", total=clients * rounds)
        started = time.perf_counter()
        async with trio.open_nursery() as computing:
            async with trio.open_nursery() as nursery:
                for server in SERVERS:
                    await nursery.start(serve, folder, server, lambda line: None)
                if cluster:
                    computing.start_soon(run_cluster, folder / "S0.toml")
                for number in range(clients):
                    arguments = [str(folder), *map(str, (number, clients, rounds, seed))]
                    nursery.start_soon(_take_part, arguments, number, summary, progress, bar)
            computing.cancel_scope.cancel()
        busy = sum(summary.seconds[phase] for phase in PHASES[:3])
        summary.seconds["aggregate"] = max(0.0, time.perf_counter() - started - busy)
        summary.model = load_model(folder / "model-0.npz")
    return summary


def _write_files(
    folder: Path, task: Task, addresses: Sequence[str], clients: int, rounds: int, cluster: dict[str, str]
) -> None:
    """Keys, task file, client list and model: what the operators of two servers would exchange."""
    write_parties(folder, task, addresses, [f"client-{number:02}" for number in range(clients)])
    save_model(folder / "model.npz", initial_model())
    limits = {"handshakes_per_second": 1000.0, "burst": 4 * clients}
    common: dict[str, Any] = {"threads": 1, "limits": limits, "rounds": {"clients": clients, "count": rounds}}
    for server, address in enumerate(addresses):
        own = {"compute": cluster} if cluster and server == 0 else {"store": "memory"}
        write_server(folder, server, address, save_model=f"model-{server}.npz", **common, **own)


def write_parties(
    folder: Path, task: Task, addresses: Sequence[str], clients: Iterable[str], servers: Sequence[str] = SERVERS
) -> None:
    """Make keys for everybody, `NAME.key`, and write what `write_deployment` does: a whole deployment in one folder."""
    identities = [Identity.generate(name) for name in (*servers, *clients)]
    for identity in identities:
        identity.save(folder / f"{identity.name}.key")
    publics = [identity.public for identity in identities]
    write_deployment(folder, task, publics[:2], addresses, publics[2:])


def write_server(folder: Path, number: int, address: str, name: str = "", **keys: Any) -> Path:
    """Write a server's own file, `NAME.toml`; what else it says is given, and a key that is None is left out."""
    name = name or SERVERS[number]
    files = {"identity": f"{name}.key", "task": "task.toml", "clients": "clients.toml", "model": "model.npz"}
    table = {"server": number, **files, "store": f"{name}.sqlite", "listen": address} | keys
    path = folder / f"{name}.toml"
    path.write_text(to_toml({key: value for key, value in table.items() if value is not None}), encoding="utf-8")
    return path


async def serve(
    folder: Path,
    name: str,
    heard: Callable[[str], None],
    *,
    task_status: trio.TaskStatus[trio.Process] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a server's process to its end, and call `heard` with each line of its output; started once it listens."""
    listens = trio.Event()

    def told(line: str) -> None:
        if "listens at" in line and not listens.is_set():
            listens.set()
            task_status.started(child.process)
        heard(line)

    async with started(name, ["parties", "serve", str(folder / f"{name}.toml")], told) as child:
        await child.hear()


async def run_cluster(file: Path) -> None:
    """Run the scheduler and workers of a server's file until cancelled; they may take their time to leave."""
    async with trio.open_nursery() as nursery:
        for words in WORKING:
            # What a worker says is told if it fails.
            nursery.start_soon(_child, ["parties", *words, str(file)], words[0], lambda line: None)


async def _take_part(arguments: Sequence[str], number: int, summary: Summary, progress: Progress, bar: TaskID) -> None:
    """Run a client's process; the first client's figures are the summary's."""

    def heard(line: str) -> None:
        figures: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if "round" in figures:
            progress.advance(bar)
        if number == 0 and "sent" in figures:
            summary.sent, summary.received = figures["sent"], figures["received"]
            summary.seconds.update(figures["seconds"])

    await _child(["parties.commands.demo.processes", *arguments], f"client {number}", heard)


async def _child(words: Sequence[str], name: str, heard: Callable[[str], None]) -> None:
    """Run a process to its end, and call `heard` with each line of its output.

    Raises:
        FslError: it failed; the message has its last lines.
    """
    async with started(name, words, heard) as child:
        await child.hear()


class Child:
    """One process, and what it says."""

    def __init__(self, name: str, process: trio.Process, heard: Callable[[str], None]) -> None:
        self.name = name
        self.process = process
        self._heard = heard
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    async def hear(self) -> None:
        """Hear it out.

        Raises:
            FslError: it failed.
        """
        assert self.process.stdout is not None  # noqa: S101 - asked for
        rest = b""
        async for data in self.process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._last.append(line.decode(errors="replace"))
                self._heard(self._last[-1])
        if code := await self.process.wait():
            raise FslError(f"{self.name} ended with code {code}: " + "\n".join(self._last))


@asynccontextmanager
async def started(name: str, words: Sequence[str], heard: Callable[[str], None]) -> AsyncIterator[Child]:
    """A process of this Python, whose lines are heard; it is ended with the block."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield Child(name, process, heard)
    finally:
        if process.poll() is None:
            process.terminate()
            with trio.CancelScope(shield=True), trio.move_on_after(20):
                await process.wait()
            process.kill()


async def _client(folder: Path, number: int, clients: int, rounds: int, seed: int) -> None:
    """One client's whole life."""
    summary = Summary({})
    learner = Learner(load(clients, seed).shards[number], clients)
    async with connect(folder / "task.toml", folder / f"client-{number:02}.key") as client:
        for round_number in range(rounds):
            await take_part(client, learner, round_number, summary)
            outcome = await client.outcome()
            if not outcome.counted:
                raise FslError(f"round {outcome.number}: not counted: {outcome.reason}")
            _say({"round": round_number})
        if summary.doubts:
            raise FslError("; ".join(summary.doubts))
        _say({"sent": client.bytes_sent, "received": client.bytes_received, "seconds": summary.seconds})


def _say(figures: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def write_cluster(folder: Path) -> dict[str, str]:
    """Write certificates, and return a server's table [compute] that names them.

    Raises:
        MisuseError: Dask is not installed.
    """
    try:
        from distributed import Security
    except ImportError as error:
        raise MisuseError(WITHOUT_DASK) from error
    made = Security.temporary()
    for name, content in (("compute.pem", made.tls_ca_file), ("compute.key", made.tls_client_key)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content)
    certificates = {"ca": "compute.pem", "certificate": "compute.pem", "key": "compute.key"}
    return {"engine": "dask", "scheduler": f"tls://{free_addresses(1)[0]}"} | certificates


if __name__ == "__main__":
    trio.run(partial(_client, Path(sys.argv[1]), *map(int, sys.argv[2:])))
