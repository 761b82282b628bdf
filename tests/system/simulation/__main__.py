"""Simulated worlds by the thousand: `python -m tests.system.simulation --seeds 2000`; one again: `--seed 17`.

`--reach` runs worlds that are made for one place each, until a server has died at every crash point and every declared
transition has been taken.

Exit code 0 means that every check held in every world, and with `--reach` that nothing is left to be reached; 1 that
this is not so. The first trial that fails is then printed, reduced to the faults that it takes, with the command that
runs it again.
"""

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

from parties.testing.machines import MACHINES, declared
from parties.testing.recorder import Transition
from parties.testing.trials import Trial, shrink

from .crew import Seen, try_all
from .malice import draw, run
from .reaching import TRIES, Goal, Search, as_text, crash_points, reach, transitions

PROGRAM = "python -m tests.system.simulation"
SHOWN = 20
"""Lines at most of what has gone wrong; all of it is in the JSON."""


def main(options: argparse.Namespace) -> int:
    """Run what was asked for; the exit code."""
    if options.replay:
        return show(msgspec.json.decode(options.replay.read_bytes(), type=Trial), shrinking=False)
    if options.seed is not None:
        return show(draw(options.seed, surely=options.malice, alone=options.alone), shrinking=True)
    if options.reach:
        return reach_all(range(options.first, options.first + options.tries), options.workers, options.format == "json")
    seeds = range(options.first, options.first + options.seeds)
    return simulate(seeds, options.workers, options.format == "json", malice=options.malice, alone=options.alone)


def simulate(seeds: range, workers: int, as_json: bool, *, malice: bool, alone: bool) -> int:
    """Run many seeds and print a summary."""
    console, begun, seen = Console(stderr=True), time.monotonic(), Seen()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        for some in try_all(seeds, workers, surely=malice, alone=alone):
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
        show(draw(min(seen.failures), surely=malice, alone=alone), shrinking=True)
    return 1 if seen.failures else 0


def summary(seen: Seen, seconds: float) -> dict[str, Any]:
    """All figures of a run."""
    taken = {name: [t for t in seen.transitions if t.machine == name] for name in MACHINES}
    points = crash_points()
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
        "crash_points_missing": [as_text(point) for point in points if point not in seen.crash_points],
        "failures": {str(seed): list(violations) for seed, violations in sorted(seen.failures.items())},
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


# ---- directed trials


def reach_all(numbers: range, workers: int, as_json: bool) -> int:
    """Search for every crash point and every transition, and print what was reached."""
    console, begun = Console(stderr=True), time.monotonic()
    goals: list[Goal] = [*crash_points(), *transitions()]
    searches: list[Search] = []
    reached: set[Goal] = set()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("goals", total=len(goals))
        for ended in reach(goals, workers, numbers):
            searches.append(ended)
            reached |= ended.reached
            progress.update(bar, completed=len(reached.intersection(goals)))
    told = reach_summary(goals, reached, searches, time.monotonic() - begun)
    print(json.dumps(told, indent=1) if as_json else reach_words(told))
    failed = [ended for ended in searches if ended.failures]
    for ended in failed[:1]:
        console.print(f"\nThe first of {len(failed)} trials that failed:", highlight=False)
        save(ended.trial)
        show(ended.trial, shrinking=True)
    return 1 if failed or told["missing"] else 0


def reach_summary(goals: list[Goal], reached: set[Goal], searches: list[Search], seconds: float) -> dict[str, Any]:
    """All figures of directed trials."""
    of_transitions = [goal for goal in goals if isinstance(goal, Transition)]
    taken = len(reached.intersection(of_transitions))
    hardest = sorted(searches, key=lambda ended: -ended.tries)
    return {
        "version": 1,
        "command": "reach",
        "trials": sum(ended.tries for ended in searches),
        "seconds": round(seconds, 1),
        "crash_points": [len(reached.intersection(goals)) - taken, len(goals) - len(of_transitions)],
        "transitions": [taken, len(of_transitions)],
        "missing": [as_text(goal) for goal in goals if goal not in reached],
        "tries": {as_text(ended.goal): ended.tries for ended in hardest},
        "failures": {as_text(ended.goal): list(ended.failures) for ended in searches if ended.failures},
    }


def reach_words(told: dict[str, Any]) -> str:
    """The same for people."""
    lines = [
        "crash points  {} of {}".format(*told["crash_points"]),
        "transitions   {} of {}".format(*told["transitions"]),
        f"trials        {told['trials']:,} in {told['seconds']:,.0f} s; most were made for",
        *(f"              {tries:4} {goal}" for goal, tries in list(told["tries"].items())[:5]),
        f"violations    {len(told['failures']) or 'none'}",
        *(f"not reached   {goal}" for goal in told["missing"][:SHOWN]),
        *(
            f"violation     {violations[0]}  (on the way to {goal})"
            for goal, violations in list(told["failures"].items())[:SHOWN]
        ),
    ]
    return "\n".join(lines)


# ---- one trial


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
    print()
    save(trial)
    return 1


def save(trial: Trial) -> None:
    """Write a trial to a file, and say how to run it again."""
    replay = Path(f"trial-{trial.seed}.json")
    replay.write_bytes(msgspec.json.encode(trial))
    print(f"the same again: {PROGRAM} --replay {replay}")


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first of them, or of the tries")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one alone, and tell all about it")
    parser.add_argument("--alone", action="store_true", help="tasks that run one protocol alone")
    parser.add_argument("--malice", action="store_true", help="with a malicious party in every world")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a trial from a file, and tell all about it")
    parser.add_argument("--reach", action="store_true", help="reach every crash point and transition instead")
    parser.add_argument("--tries", type=_at_least_one, default=TRIES, metavar="N", help="how many trials for each")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    sys.exit(main(parser.parse_args()))
