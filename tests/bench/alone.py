"""One server in a process of its own, to measure its memory: `python -m tests.bench.alone FOLDER`.

The folder has the submissions that the server would have received, so that the process never plants a tree; it prints
one JSON object. Clients are evaluated one after the other, and each submission is read just before its evaluation.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from fsl_async import kernels
from fsl_async.errors import FslError
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import Case, Client, aggregate
from parties.deployment.process_memory import give_back_code
from tests.bench.measures import timed


@dataclass(frozen=True)
class ServerFigures:
    """The measurements of a server that ran alone.

    Attributes:
        peak: the peak memory in bytes.
        started: the memory in bytes before the first client: Python, numpy, the compiler, the kernels' self-test.
        evaluation: seconds for each client.
        fold: seconds for the fold to rows; 0 if there was none.
    """

    peak: int
    started: int
    evaluation: list[float]
    fold: float

    def parameters(self) -> dict[str, Any]:
        """The memory figures, for a result's parameters."""
        return {"bytes_started": self.started, "bytes_beyond_start": self.peak - self.started}


def server_alone(case: Case, clients: Sequence[Client], *, fold: bool) -> ServerFigures:
    """Run S0 for these clients in a new process.

    Args:
        case: the round.
        clients: its clients, in the order in which they are evaluated.
        fold: whether to fold the sum to rows at the end.

    Raises:
        FslError: the process failed; its stderr says why.
    """
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as name:
        folder = Path(name)
        order = {"case": asdict(case), "clients": len(clients), "fold": fold, "isa": kernels.active_isa()}
        (folder / "order.json").write_text(json.dumps(order), encoding="utf-8")
        for number, client in enumerate(clients):
            write_submission(folder / f"{number}", client, 0)
        command = [sys.executable, "-m", "tests.bench.alone", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FslError(f"the server process failed: {done.stderr.strip()}")
    return msgspec.json.decode(done.stdout, type=ServerFigures)


def write_submission(path: Path, client: Client, server: int) -> None:
    """Write what a server has of a client's submission, for `read_submission`."""
    submission = client.submissions()[server]
    secrets = {
        "client": submission.client,
        "msk": submission.msk,
        "commitments": submission.commitments,
        "tree": submission.tree,
    }
    path.with_suffix(".head").write_bytes(msgspec.msgpack.encode(secrets))
    path.with_suffix(".part").write_bytes(submission.part.data)


def read_submission(path: Path, case: Case) -> Submission:
    """Read what `write_submission` wrote."""
    head = msgspec.msgpack.decode(path.with_suffix(".head").read_bytes())
    data = memoryview(path.with_suffix(".part").read_bytes())
    part = Part(Layout.submission(case.config.shape, Trees.OWN), data)
    first, second = head["commitments"]
    return Submission(head["client"], head["msk"], (first, second), head["tree"], part, part, memoryview(b""))


def _serve(folder: Path) -> ServerFigures:
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    kernels.select_isa(order["isa"])
    case = Case(**order["case"])
    started = peak_memory()
    give_back_code()
    server = aggregate(case, 0)
    seconds = [
        _evaluate(server, read_submission(folder / f"{number}", case), case.threads)
        for number in range(order["clients"])
    ]
    fold = timed(server.share) if order["fold"] else 0.0
    return ServerFigures(max(peak_memory(), started), started, seconds, fold)  # Linux updates the count with a delay


def _evaluate(server: Aggregate, submission: Submission, threads: int) -> float:
    """Add one client; everything except the sum is released before the next client is read."""
    jobs, finish = server.jobs(submission, threads)
    seconds = timed(lambda: run_all(jobs, threads))
    finish()
    return seconds


def peak_memory() -> int:
    """The peak memory of this process in bytes.

    On Linux `ru_maxrss` includes the process before it executed this program, so `VmHWM` is read instead.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_serve(Path(sys.argv[1])))))
