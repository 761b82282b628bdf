"""What one submission takes of the processors: of a server in all, of its event loop, of its client.

    python -m tests.bench server --only submission
    python -m tests.bench server --only submission --beside ../before/.venv/bin/python

Two servers and a hundred clients over TCP, all on this machine; of the second of two rounds, its end included, half of
what both servers had. With `--beside`, another version takes turns with this one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from fsl_async.errors import FslError
from tests.bench.measures import Spread
from tests.bench.results import Result

TURNS = 5
CLIENTS = 100
SIZES = {"84 kB": (2**15, 256), "2 MB": (2**20, 10_486)}
NAMES = ("a server", "its event loop", "its store's thread", "a client")

ONE_ROUND = """
import json, sys
from parties.commands.bench.deployed import Deployed, Size, take_rounds
rows, select, clients = map(int, sys.argv[1:])
taken = take_rounds(Deployed(Size("", rows, select, clients).task(), clients))
spent = taken.until(1)
print(json.dumps([each / clients for each in (spent.total, spent.loop, spent.writer, taken.clients)]))
"""
"""Run by each version's own interpreter, with what every version has had since it measures deployments."""


def submission(beside: Path | None = None) -> Iterator[Result]:
    """Seconds of the processors for a client, by size and by who had them.

    Args:
        beside: another version's interpreter.

    Raises:
        FslError: a round failed.
    """
    versions = [Path(sys.executable), *([beside.absolute()] if beside else [])]
    for size, (rows, select) in SIZES.items():
        turns = [[_taken(python, rows, select) for python in versions] for _ in range(TURNS)]
        for place, name in enumerate(NAMES):
            ours, *others = zip(*([version[place] for version in turn] for turn in turns), strict=True)
            seconds = Spread.of(ours)
            yield Result(
                name=f"{name}, {size} a client",
                parameters={"rows": rows, "select": select, "clients": CLIENTS, **_compared(ours, *others)},
                seconds=seconds,
                rate=1 / seconds.median,
                unit="clients/s",
                bound=Spread.of([1 / each for each in others[0]]) if others else None,
                against=f"the version of {beside}" if others else "",
            )


def _compared(ours: Sequence[float], its: Sequence[float] = ()) -> dict[str, float]:
    """The median ratio to the other version, turn by turn, if there is one."""
    return {"of_the_other": median(mine / each for mine, each in zip(ours, its, strict=True))} if its else {}


def _taken(python: Path, rows: int, select: int) -> list[float]:
    words = [str(python), "-c", ONE_ROUND, *map(str, (rows, select, CLIENTS))]
    done = subprocess.run(
        words, cwd="/", capture_output=True, text=True, check=False
    )  # away from any version's sources
    if done.returncode:
        raise FslError(f"{python}: {done.stderr.strip()[-1000:]}")
    taken: list[float] = json.loads(done.stdout)
    return taken
