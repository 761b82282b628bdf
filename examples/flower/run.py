"""The whole example on this host: two servers, Flower's server, four nodes, four rounds; nothing is left running.

    python examples/flower/run.py          # with the extra `flower`

Everything listens on loopback. Flower's telemetry, its check for updates and its installation of apps' dependencies are
off; with them on, `flower-superlink` and `flwr run` speak to hosts of Flower's makers and to a package index.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from parties import Identity, free_addresses, save_model, write_deployment  # noqa: E402
from parties.settings.writing import to_toml  # noqa: E402
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
    keys = {name: Identity.generate(name) for name in (*SERVERS, *CLIENTS)}
    for name, identity in keys.items():
        identity.save(folder / f"{name}.key")
    public = [identity.public for identity in keys.values()]
    first, second, port = free_addresses(3)
    write_deployment(folder, TASK, public[:2], [first, second], public[2:])
    save_model(folder / "model.npz", MAPPING.model(STATE))
    for number, (name, address) in enumerate(zip(SERVERS, (first, second), strict=True)):
        table = {
            "server": number,
            "identity": f"{name}.key",
            "task": "task.toml",
            "clients": "clients.toml",
            "model": "model.npz",
            "store": f"{name}.sqlite",
            "listen": address,
            "rounds": {"seconds": 600, "grace": 1},
        }
        (folder / f"{name}.toml").write_text(to_toml(table | ({"operator": {"listen": port}} if number == 0 else {})))
    for name in CLIENTS:
        (folder / f"{name}.toml").write_text(to_toml({"task": "task.toml", "identity": f"{name}.key"}))


@contextmanager
def running(log: Path, command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process, and all that it starts, for as long as the block lasts."""
    with log.open("wb") as file:
        words = [str(word) for word in command]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            yield
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


def until(log: Path, pattern: str) -> None:
    """Wait until a log has a line."""
    end = time.monotonic() + PATIENCE
    while not re.search(pattern, log.read_text(errors="replace")):
        if time.monotonic() > end:
            raise SystemExit(f"{log} does not say {pattern!r}:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


def run(folder: Path, config: Sequence[str]) -> int:
    """Run everything in a folder; returns the exit code of the run."""
    link, *nodes = free_addresses(1 + NODES)
    home = folder / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{link}"\ninsecure = true\n'
    )
    environment = os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    host, port = link.split(":")
    with ExitStack() as started:

        def start(name: str, *command: str | Path) -> None:
            started.enter_context(running(folder / f"{name}.log", command, folder, environment))

        for name in SERVERS:
            start(name, sys.executable, "-m", "parties", "serve", f"{name}.toml")
        start("superlink", BIN / "flower-superlink", "--insecure", "--host", host, "--port", port)
        until(folder / "superlink.log", "Uvicorn running")
        until(folder / "s0.log", "round opened")
        for number, node in enumerate(nodes):
            host, port = node.split(":")
            words = ["--insecure", "--superlink", link, "--host", host, "--port", port]
            start(f"node-{number}", BIN / "flower-supernode", *words, "--node-config", f"partition-id={number}")
        words = [word for setting in config for word in ("--run-config", setting)]
        return subprocess.run(
            [BIN / "flwr", "run", HERE, "here", "--stream", *words], cwd=folder, env=environment, check=False
        ).returncode


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Private words, learnt by four nodes of Flower.")
    parser.add_argument("--run-config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--folder", type=Path, help="an empty folder, which is kept; left out: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        lay_out(folder)
        return run(folder, given.run_config)


if __name__ == "__main__":
    sys.exit(main())
