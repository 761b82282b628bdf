"""The whole example on this host: two servers, Flower's server, four nodes, four rounds; nothing is left running.

    python examples/flower/run.py          # with the extra `flower`

Everything listens on loopback. Flower's telemetry, its check for updates and its installation of apps' dependencies are
off; with them on, `flower-superlink` and `flwr run` speak to hosts of Flower's makers and to a package index.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import parties  # noqa: E402
from private_words.shared import MAPPING, STATE, TASK  # noqa: E402
from private_words.task import NODES  # noqa: E402

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
BIN = Path(sys.executable).parent
SERVERS, CLIENTS = ("s0", "s1"), [*(f"client-{number}" for number in range(NODES)), "coordinator"]
PATIENCE = 120.0


def lay_out(folder: Path) -> None:
    """Write every party's files; in a real deployment each makes its own keys, and shows the public ones."""
    keys = {name: parties.Identity.generate(name) for name in (*SERVERS, *CLIENTS)}
    for name, identity in keys.items():
        identity.save(folder / f"{name}.key")
    public = [identity.public for identity in keys.values()]
    first, second, port = parties.free_addresses(3)
    parties.write_deployment(folder, TASK, public[:2], [first, second], public[2:])
    parties.save_model(folder / "model.npz", MAPPING.model(STATE))
    for number, (name, address) in enumerate(zip(SERVERS, (first, second), strict=True)):
        operator = f'[operator]\nlisten = "{port}"\n' if number == 0 else ""
        (folder / f"{name}.toml").write_text(
            f'server = {number}\nidentity = "{name}.key"\ntask = "task.toml"\nclients = "clients.toml"\n'
            f'model = "model.npz"\nstore = "{name}.sqlite"\nlisten = "{address}"\n'
            f"[rounds]\nseconds = 600\ngrace = 1\n{operator}"
        )
    for name in CLIENTS:
        (folder / f"{name}.toml").write_text(f'task = "task.toml"\nidentity = "{name}.key"\n')


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


def run(folder: Path, config: Sequence[str]) -> int:
    """Run everything in a folder; returns the exit code of the run."""
    link, *nodes = parties.free_addresses(1 + NODES)
    home = folder / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{link}"\ninsecure = true\n'
    )
    environment = os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    host, port = link.split(":")
    with ExitStack() as started:

        def start(name: str, *command: str | Path) -> subprocess.Popen[bytes]:
            return started.enter_context(running(folder / f"{name}.log", command, folder, environment))

        serving = [start(name, sys.executable, "-m", "parties", "serve", f"{name}.toml") for name in SERVERS]
        superlink = start("superlink", BIN / "flower-superlink", "--insecure", "--host", host, "--port", port)
        until(superlink, folder / "superlink.log", "Uvicorn running")
        until(serving[0], folder / "s0.log", "round opened")
        for number, node in enumerate(nodes):
            host, port = node.split(":")
            words = ["--insecure", "--superlink", link, "--host", host, "--port", port]
            start(f"node-{number}", BIN / "flower-supernode", *words, "--node-config", f"partition-id={number}")
        flwr = Flwr(folder, environment)
        words = [word for setting in config for word in ("--run-config", setting)]
        flwr.said("run", str(HERE), "here", "--stream", *words, shown=True)
        number, status = flwr.ended_run()
        (folder / "run.log").write_text(flwr.said("log", number, "here", "--show"))
    if status != "finished:completed":  # the stream may have ended before it was told why
        print((folder / "run.log").read_text(), f"the run is {status}", sep="\n")
    return int(status != "finished:completed")


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
    """Run the example."""
    parser = argparse.ArgumentParser(description="Private words, learnt by four nodes of Flower.")
    parser.add_argument("--run-config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--folder", type=Path, help="an empty folder, which is kept; left out: a temporary one")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended, too
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        lay_out(folder)
        return run(folder, given.run_config)


if __name__ == "__main__":
    sys.exit(main())
