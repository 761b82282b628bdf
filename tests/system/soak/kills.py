"""Servers and clients are killed at random, and nothing may be lost: `python -m tests.system.soak.kills --kills 300`.

For each scene (see `scenes`) two servers and five clients are deployed as processes over TCP with their stores on disk;
while they work, they are killed and frozen as `fates` draws it, and started again. Afterwards `audit` checks ledgers,
accounts and models. The exit code tells whether all is well; the folder of a scene that is not is kept.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .audit import KINDS
from .battlefield import Battle, Outcome, fight
from .fates import Fates
from .scenes import CLIENTS, SCENES, names
from .site import lay_out
from .telling import console, tell

ROUNDS = {"clients": CLIENTS, "seconds": 15.0, "grace": 3.0, "patience": 60.0}
"""When a round closes: with all clients, or by the clock; and how long servers wait for each other."""

LIMITS = {"handshakes_per_second": 10_000.0, "burst": 10_000, "half_open": 10_000, "idle_seconds": 3_600.0}
"""All clients come from one address here, and again and again: the limits must let them."""


def run_scene(
    folder: Path, scene: str, kills: int, rounds: int, seed: int, pace: float, progress: Any = None
) -> Outcome:
    """Deploy a scene, fight, and check.

    Args:
        folder: where everything is written.
        scene: one of `SCENES`.
        kills: how many at least.
        rounds: how many at least.
        seed: of model, updates and fates.
        pace: seconds that a client dawdles between two steps, at most.
        progress: called with how many kills and rounds there were.
    """
    rng = np.random.default_rng((seed, *scene.encode()))
    task, clients = SCENES[scene], names()
    site = lay_out(folder, task, clients, rng, threads=1, rounds=ROUNDS, limits=LIMITS)
    fates = Fates(rng, clients, kills, rounds)
    battle = Battle(site, clients, fates, seed, pace)
    if progress is not None:
        battle.on_change = lambda: progress(fates.kills, fates.rounds)
    return trio.run(fight, battle, task)


def main() -> int:
    """Run the command; the exit code tells whether anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=0.4, metavar="SECONDS", help="how long clients dawdle, at most")
    parser.add_argument("--scene", choices=SCENES, action="append", help="only this one; may be given several times")
    parser.add_argument("--keep", action="store_true", help="keep the folders of good scenes, too")
    options = parser.parse_args()
    chosen = options.scene or list(SCENES)
    outcomes: dict[str, Outcome] = {}
    with Progress(console=console()) as progress:
        bars = [
            progress.add_task(name, total=total)
            for name, total in (("kills", options.kills), ("rounds", options.rounds))
        ]
        for index, scene in enumerate(chosen):
            kills, rounds = (_share(total, index, len(chosen)) for total in (options.kills, options.rounds))
            folder = Path(tempfile.mkdtemp(prefix=f"fsl-async-soak-{scene.replace(', ', '-')}-"))
            show = partial(_show, progress, bars, list(outcomes.values()))
            outcomes[scene] = run_scene(folder, scene, kills, rounds, options.seed, options.pace, show)
            _settle(folder, scene, outcomes[scene], progress.console, options.keep)
    told = figures(outcomes, options.seed)
    tell(told, *_tables(outcomes, told))
    return 1 if told["violations"] else 0


def _share(total: int, index: int, parts: int) -> int:
    return total * (index + 1) // parts - total * index // parts


def _show(progress: Progress, bars: Any, before: list[Outcome], kills: int, rounds: int) -> None:
    progress.update(bars[0], completed=kills + sum(outcome.kills.total() for outcome in before))
    progress.update(bars[1], completed=rounds + sum(outcome.rounds.total() for outcome in before))


def _settle(folder: Path, scene: str, outcome: Outcome, console: Console, keep: bool) -> None:
    """Keep the folder of a scene in which something went wrong, and say so; remove any other."""
    if not outcome.violations and not keep:
        shutil.rmtree(folder)
        return
    for violation in outcome.violations[:20]:
        console.print(
            f"{scene}: {violation.kind}: {violation.explanation}", markup=False, highlight=False, soft_wrap=True
        )
    console.print(f"{scene}: ledgers, logs, accounts and stores are kept in {folder}", soft_wrap=True)


def figures(outcomes: dict[str, Outcome], seed: int) -> dict[str, Any]:
    """What is reported of all scenes together."""
    every = list(outcomes.values())
    kinds = Counter(violation.kind for outcome in every for violation in outcome.violations)
    hits: Counter[str] = Counter()
    for outcome in every:
        for (party, _, state), count in outcome.kills.items():
            hits[f"{party}: {state}"] += count
    return {
        "seed": seed,
        "kills": sum(outcome.kills.total() for outcome in every),
        "freezes": sum(outcome.freezes for outcome in every),
        "rounds_done": sum(outcome.rounds["done"] for outcome in every),
        "rounds_aborted": sum(outcome.rounds["aborted"] for outcome in every),
        "acknowledged": sum(outcome.acknowledged for outcome in every),
        "counted": sum(outcome.counted for outcome in every),
        "violations": sum(kinds.values()),
        "violations_by_kind": {kind: kinds[kind] for kind in dict.fromkeys([*KINDS, *kinds])},
        "kills_by_state": dict(hits.most_common()),
        "kills_at_steps": sum(
            n for outcome in every for (_, how, _), n in outcome.kills.items() if how != "at a moment"
        ),
        "seconds": sum(outcome.seconds for outcome in every),
    }


def _tables(outcomes: dict[str, Outcome], told: dict[str, Any]) -> tuple[Table, ...]:
    table = Table("scene", "kills", "freezes", "done", "aborted", "acknowledged", "counted", "violations", "seconds")
    table.title = f"killed and started again, seed {told['seed']}"
    for scene, outcome in outcomes.items():
        numbers = (
            outcome.kills.total(),
            outcome.freezes,
            outcome.rounds["done"],
            outcome.rounds["aborted"],
            outcome.acknowledged,
            outcome.counted,
            len(outcome.violations),
        )
        table.add_row(scene, *map(str, numbers), f"{outcome.seconds:.0f}")
    states = Table("killed while", "kills", title=f"{told['kills_at_steps']} of {told['kills']} kills at a chosen step")
    for state, count in told["kills_by_state"].items():
        states.add_row(state, str(count))
    kinds = Table("violation", "times")
    for kind, count in told["violations_by_kind"].items():
        kinds.add_row(kind, str(count))
    return table, states, kinds


if __name__ == "__main__":
    sys.exit(main())
