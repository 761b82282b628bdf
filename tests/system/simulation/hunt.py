"""The laboratory hunts bugs that are planted on purpose: `python -m tests.system.simulation.hunt`.

A bug that is not found within so many seeds means that the laboratory is too weak. Exit code 0: all of them were found.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.table import Table

from .bugs import BUGS, planted
from .malice import draw, judged

PROGRAM = "python -m tests.system.simulation.hunt"


@dataclass(frozen=True)
class Hunt:
    """What came of the hunt for a bug.

    Attributes:
        bug: its name.
        tried: the seeds.
        failures: what the last of them showed; nothing: the bug was not found.
        seconds: what it took.
    """

    bug: str
    tried: tuple[int, ...]
    failures: tuple[str, ...]
    seconds: float

    @property
    def found(self) -> bool:
        """Whether the bug was found."""
        return bool(self.failures)

    @property
    def checks(self) -> str:
        """By which checks."""
        return ", ".join(dict.fromkeys(failure.partition(":")[0] for failure in self.failures))


def hunt(name: str, seeds: Iterable[int]) -> Hunt:
    """Try seeds with a bug until one fails; in worlds with malice, where it takes malice to show."""
    bug, begun, tried = BUGS[name], time.monotonic(), []
    with planted(bug):
        for seed in seeds:
            tried.append(seed)
            _, found = judged(draw(seed, surely=not bug.alone))
            if found:
                return Hunt(name, tuple(tried), found, time.monotonic() - begun)
    return Hunt(name, tuple(tried), (), time.monotonic() - begun)


def main(options: argparse.Namespace) -> int:
    """Hunt what was asked for, and print a table; the exit code."""
    wanted = [name for name in BUGS if options.bug in ("", name)]
    if not wanted:
        print(f"no bug is called {options.bug!r}; these are: {', '.join(BUGS)}", file=sys.stderr)
        return 2
    table = Table("bug", "found by seed", "by the check", "seeds", "seconds", title="planted bugs")
    seeds = range(options.first, options.first + options.seeds)
    missed = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for ended in pool.imap(partial(hunt, seeds=seeds), wanted):
            words_found = ended.checks if ended.found else "[red]not found[/red]"
            seed = str(ended.tried[-1]) if ended.found else "–"
            table.add_row(ended.bug, seed, words_found, str(len(ended.tried)), f"{ended.seconds:.1f}")
            missed += [] if ended.found else [ended.bug]
            print(f"{ended.bug}: {seed}, {words_found} ({ended.seconds:.1f} s)", file=sys.stderr, flush=True)
            if options.verbose:
                print("\n".join(f"    {failure}" for failure in ended.failures[:3]), file=sys.stderr, flush=True)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--bug", default="", metavar="NAME", help="this one alone")
    parser.add_argument("--seeds", type=int, default=500, metavar="N", help="how many to try for each")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--verbose", action="store_true", help="print what was seen")
    sys.exit(main(parser.parse_args()))
