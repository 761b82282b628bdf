"""Run a Flower app on this host: two servers of fsl-async, Flower's server and its nodes; nothing is left running.

    python -m parties.flower examples/flower --nodes 200
    python -m parties.flower examples/flower --nodes 4 --supernodes     # a process and a key file for each node

The app's pyproject.toml names the task and the first model, each as "module:name":

    [tool.fsl-async]
    task = "private_words.shared:TASK"
    model = "private_words.shared:MODEL"

With `--folder` everything is kept there, and the same command again goes on with the servers' model. Everything listens
on loopback. Telemetry, checks for updates and the installation of apps' dependencies are off, Flower's and Ray's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.outcome import Model
from parties.settings.writing import free_addresses, to_toml, write_deployment

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
BIN = Path(sys.executable).parent
SERVERS, COORDINATOR = ("s0", "s1"), "coordinator"
PATIENCE = 120.0


def named_by(app: Path, what: str) -> Any:
    """The task or the model of an app.

    Raises:
        MisuseError: its pyproject.toml does not name it, or names what is not there.
    """
    try:
        module, name = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["fsl-async"][what].split(":")
        return getattr(import_module(module), name)
    except (OSError, LookupError, ValueError, AttributeError, ImportError) as error:
        raise MisuseError(
            f'{app / "pyproject.toml"}: [tool.fsl-async] {what} = "module:name" expected: {error!r}'
        ) from error


def lay_out(folder: Path, task: Task, model: Model, clients: Sequence[str], enrolment: str) -> str:
    """Write every party's files; in a real deployment each makes its own keys. Returns S0's operator's address."""
    keys = {name: Identity.generate(name) for name in (*SERVERS, *clients)}
    for name, identity in keys.items():
        identity.save(folder / f"{name}.key")
        (folder / f"{name}.toml").write_text(to_toml({"task": "task.toml", "identity": f"{name}.key"}))
    public = [identity.public for identity in keys.values()]
    *addresses, port = free_addresses(3)
    save_model(folder / "model.npz", model)
    common = {"enrolment": enrolment, "task": "task.toml", "clients": "clients.toml", "model": "model.npz"}
    for number, (name, address) in enumerate(zip(SERVERS, addresses, strict=True)):
        own = {"server": number, "identity": f"{name}.key", "store": f"{name}.sqlite", "listen": address}
        tables = {"rounds": {"seconds": 3600, "grace": 1}, "limits": {"handshakes_per_second": 1000.0, "burst": 1000}}
        operator = {"operator": {"listen": port}} if number == 0 else {}
        (folder / f"{name}.toml").write_text(to_toml({**common, **own, **tables, **operator}))
    write_deployment(folder, task, public[:2], addresses, public[2:])  # the last: all of it is there
    return port


@contextmanager
def running(
    log: Path, command: Sequence[str | Path], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, and all that it starts, for as long as the block lasts."""
    with log.open("wb") as file:
        words = [str(word) for word in command]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            yield process
        finally:
            ended(process)


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, gently at first."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until(process: subprocess.Popen[bytes], log: Path, pattern: str) -> None:
    """Wait until the log of a process has a line."""
    end = time.monotonic() + PATIENCE
    while not re.search(pattern, log.read_text(errors="replace")):
        if time.monotonic() > end or process.poll() is not None:
            raise SystemExit(f"{log} does not say {pattern!r}:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


def launch(app: Path, folder: Path, nodes: int, supernodes: bool, settings: Sequence[str]) -> int:
    """Run an app once; returns its exit code.

    Args:
        app: its folder.
        folder: where the parties' files and logs are.
        nodes: how many nodes there are.
        supernodes: each node is a process; otherwise Flower's simulation calls the app for all of them.
        settings: what is given with `--run-config`.
    """
    clients = [COORDINATOR, *(f"client-{number}" for number in range(nodes * supernodes))]
    if not (folder / "task.toml").exists():
        enrolment = "list" if supernodes else "open"  # simulated nodes make their keys as they come
        lay_out(folder, named_by(app, "task"), named_by(app, "model"), clients, enrolment)
    home = folder / "flwr"
    home.mkdir(exist_ok=True)
    environment = os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    with ExitStack() as started:

        def start(name: str, *command: str | Path) -> subprocess.Popen[bytes]:
            return started.enter_context(running(folder / f"{name}.log", command, folder, environment))

        serving = {name: start(name, sys.executable, "-m", "parties", "serve", f"{name}.toml") for name in SERVERS}
        for name, process in serving.items():
            until(process, folder / f"{name}.log", "listens at")
        (link,) = free_addresses(1)  # of those at which the servers do not listen: by now they do
        connection = {"here": {"address": link, "insecure": True}}
        (home / "config.toml").write_text(to_toml({"superlink": {"default": "here", **connection}}))
        host, port = link.split(":")
        simulated = () if supernodes else ("--simulation",)
        words = ("--insecure", "--host", host, "--port", port, *simulated)
        superlink = start("superlink", BIN / "flower-superlink", *words)
        until(superlink, folder / "superlink.log", "Uvicorn running")
        until(serving["s0"], folder / "s0.log", "round opened|round .*resume")
        joining = {}
        for number, node in enumerate(free_addresses(nodes * supernodes)):
            host, port = node.split(":")
            words = ("--insecure", "--superlink", link, "--host", host, "--port", port)
            name, config = f"node-{number}", f"partition-id={number}"
            joining[name] = start(name, BIN / "flower-supernode", *words, "--node-config", config)
        for name, process in joining.items():
            until(process, folder / f"{name}.log", "SuperNode ID")
        flwr = Flwr(folder, environment)
        flwr.said("run", str(app), "here", "--stream", *_config(folder, nodes, supernodes, settings), shown=True)
        run, status = flwr.ended_run()
        (folder / "run.log").write_text(flwr.said("log", run, "here", "--show"))
    if status != "finished:completed":  # the stream may have ended before it was told why
        print((folder / "run.log").read_text(), f"the run is {status}", sep="\n")
    return int(status != "finished:completed")


def _config(folder: Path, nodes: int, supernodes: bool, settings: Sequence[str]) -> list[str]:
    given, cores = [f"nodes={nodes}", *settings], os.cpu_count() or 1
    if supernodes:
        return ["--run-config", " ".join(given)]
    simulated = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus={cores}"
    task = f"fsl-task='{folder / 'task.toml'}'"
    return ["--run-config", " ".join([task, *given]), "--federation-config", simulated]


@dataclass(frozen=True)
class Flwr:
    """The command `flwr`, in a folder."""

    folder: Path
    environment: dict[str, str]

    def said(self, *words: str, shown: bool = False) -> str:
        """What a command prints; nothing where it is shown instead."""
        piped = None if shown else subprocess.PIPE
        done = subprocess.run(
            [BIN / "flwr", *words], cwd=self.folder, env=self.environment, stdout=piped, text=True, check=True
        )
        return done.stdout or ""

    def ended_run(self) -> tuple[str, str]:
        """The number of the run, and how it has ended, which the exit code of `flwr run` does not say."""
        end = time.monotonic() + PATIENCE
        while True:
            (listed,) = json.loads(self.said("list", "here", "--format", "json"))["runs"]
            if listed["status"].startswith("finished") or time.monotonic() > end:
                return str(listed["run-id"]), listed["status"]
            time.sleep(0.5)


def main() -> int:
    """Run an app as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m parties.flower", description="Run a Flower app on this host.")
    parser.add_argument("app", type=Path, help="its folder, with a pyproject.toml")
    parser.add_argument("--nodes", type=int, default=4, help="how many nodes; the app hears of it as `nodes`")
    parser.add_argument(
        "--supernodes", action="store_true", help="a process and keys for each; else they are simulated"
    )
    parser.add_argument("--run-config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--folder", type=Path, help="where everything is kept, to go on with; left out: nothing is")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended, too
    if given.nodes < 1:
        parser.error(f"--nodes: at least 1 expected, got {given.nodes}")
    if not given.supernodes and find_spec("ray") is None:
        parser.error("simulated nodes need Ray: pip install 'flwr[simulation]==1.41.0', or give --supernodes")
    sys.path.insert(0, str(given.app.resolve()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return launch(given.app.resolve(), folder, given.nodes, given.supernodes, given.run_config)
        except MisuseError as error:
            parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
