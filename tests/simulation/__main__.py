"""Simulated worlds by the thousand: `python -m tests.simulation --seeds 2000`, and one of them again: `--seed 17`.

Exit code 0 means that every check held in every world; 1 that one did not, and then the seed's faults are printed,
reduced to those that it takes, with the command that runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from parties.cluster import SERVERS
from parties.testing.recorder import MACHINES, declared
from parties.testing.shrinking import shrink
from parties.testing.trials import MOMENTS, Trial

from .crew import Seen, try_all
from .malice import draw, run

__all__ = ["main"]

PROGRAM = "python -m tests.simulation"


def main(words: argparse.Namespace) -> int:
    """Run what was asked for; the exit code."""
    if words.replay:
        return show(msgspec.json.decode(words.replay.read_bytes(), type=Trial), shrinking=False)
    if words.seed is not None:
        return show(draw(words.seed), shrinking=True)
    return simulate(range(words.first, words.first + words.seeds), words.workers, words.format == "json")


def simulate(seeds: range, workers: int, as_json: bool) -> int:
    """Run many seeds and print a summary."""
    console, begun, seen = Console(stderr=True), time.monotonic(), Seen()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        for some in try_all(seeds, workers):
            for seed, failures in some.failures.items():
                console.print(f"[red]seed {seed}[/red]: {failures[0]}", highlight=False)
            seen += some
            progress.update(bar, completed=seen.seeds)
    told = summary(seen, time.monotonic() - begun)
    if as_json:
        print(json.dumps(told, indent=1))
    else:
        print_summary(told)
    if seen.failures:
        console.print(f"\nThe first of {len(seen.failures)} seeds that failed:", highlight=False)
        show(draw(min(seen.failures)), shrinking=True)
    return 1 if seen.failures else 0


def summary(seen: Seen, seconds: float) -> dict[str, Any]:
    """All figures of a run."""
    taken = {name: [t for t in seen.transitions if t.machine == name] for name in MACHINES}
    points = [
        (server, transition, moment)
        for machine in ("toss", "round")
        for transition in declared(machine)
        for server in SERVERS
        for moment in MOMENTS
    ]
    return {
        "version": 1,
        "command": "simulate",
        "seeds": seen.seeds,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(seen.seeds / seconds, 2),
        "virtual_hours": round(seen.virtual / 3600, 1),
        "rounds": dict(seen.rounds),
        "faults": dict(sorted(seen.faults.items())),
        "transitions": {name: [len(taken[name]), len(declared(name))] for name in MACHINES},
        "transitions_missing": [str(t) for name in MACHINES for t in declared(name) if t not in seen.transitions],
        "crash_points": [len(seen.crash_points), len(points)],
        "crash_points_missing": [f"{s} {m}: {t}" for s, t, m in points if (s, t, m) not in seen.crash_points],
        "failures": {str(seed): list(words) for seed, words in sorted(seen.failures.items())},
    }


def print_summary(told: dict[str, Any]) -> None:
    """The same for people."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    rounds = told["rounds"]
    table.add_row("seeds", f"{told['seeds']:,} in {told['seconds']:,.0f} s: {told['seeds_per_second']} per second")
    table.add_row("virtual time", f"{told['virtual_hours']:,} hours")
    table.add_row("rounds", f"{rounds.get('done', 0):,} done, {rounds.get('aborted', 0):,} aborted")
    table.add_row("faults that struck", ", ".join(f"{kind} {count:,}" for kind, count in told["faults"].items()))
    covered = (f"{name} {taken} of {of}" for name, (taken, of) in told["transitions"].items())
    table.add_row("transitions", ", ".join(covered))
    table.add_row("crash points", "{} of {}".format(*told["crash_points"]))
    table.add_row("violations", f"{len(told['failures'])} seeds" if told["failures"] else "none")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for name in ("transitions_missing", "crash_points_missing"):
        if told[name] and len(told[name]) <= 40:
            print(f"\n{name.replace('_', ' ')}:")
            print("\n".join(f"    {line}" for line in told[name]))


def show(trial: Trial, shrinking: bool) -> int:
    """Run one trial, and tell all about it; one that fails is reduced first."""
    verdict = run(trial)
    if verdict.violations and shrinking:
        names = {violation.check for violation in verdict.violations}
        trial = shrink(trial, lambda other: bool(names & {violation.check for violation in run(other).violations}))
        verdict = run(trial)
    print(f"seed {trial.seed}: {trial.scenario.clients} clients, {trial.scenario.rounds} rounds, {trial.scenario.task}")
    for fault in trial.faults:
        print(f"    {fault}{'' if fault in verdict.fired else '  (did not strike)'}")
    for violation in verdict.violations:
        print(f"  {violation}")
    if not verdict.violations:
        print(f"  every check holds; {verdict.seconds:.1f} virtual seconds, transcript {verdict.transcript[:16]}")
        return 0
    replay = Path(f"trial-{trial.seed}.json")
    replay.write_bytes(msgspec.json.encode(trial))
    print(f"\nthe same again: {PROGRAM} --replay {replay}")
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one alone, and tell all about it")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a trial from a file, and tell all about it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    sys.exit(main(parser.parse_args()))
