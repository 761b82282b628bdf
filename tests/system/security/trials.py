"""Malformed and honest submissions by the thousand: `python -m tests.system.security.trials --trials 20000`.

How it is counted: a malformed *trial* is one submission, of 66 to 96 trees, in which as little as possible is wrong:
one tree, wherever its kind allows it, with its proof made anew as well as can be. Before a trial counts, its leaves on
both servers are compared in the clear, and it is skipped if it happens to be sound. It is *rejected* when the servers'
proof digests differ. Honest trials are counted in trees: a submission is accepted only if all of its trees are.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .forgeries import TASKS, Malformation, Workshop, honest
from .malformations import MALFORMATIONS


@dataclass
class Tally:
    """What came of one kind of trial.

    Attributes:
        trials: how many.
        rejected: of how many the servers' digests differed.
        inconsistent: how many had a tree that is no point function; in the others a proof is not its tree's.
    """

    trials: int = 0
    rejected: int = 0
    inconsistent: int = 0


def try_malformed(malformation: Malformation, trials: int, seed: int) -> Iterator[Tally]:
    """Run trials of one kind, spread over all tasks; yields the tally after each."""
    tally = Tally()
    for task, share in zip(TASKS, _shares(trials), strict=True):
        workshop = Workshop(task, seed)
        for forgery in itertools.islice(workshop.spoil(malformation), share):
            tally.trials += 1
            tally.rejected += not workshop.judges.accept(forgery)
            tally.inconsistent += not forgery.is_point_function()
            yield tally


def try_honest(trees: int, seed: int) -> Iterator[tuple[int, int, int]]:
    """Run honest submissions until so many trees were judged; yields submissions, trees and trees accepted."""
    submissions = judged = accepted = 0
    workshops = [Workshop(task, seed) for task in TASKS]
    for workshop, forgery in itertools.cycle([(workshop, honest(workshop)) for workshop in workshops]):
        submission = next(forgery)
        count = sum(forest.trees for forest in submission.forests.values())
        submissions, judged = submissions + 1, judged + count
        accepted += count if workshop.judges.accept(submission) else 0
        yield submissions, judged, accepted
        if judged >= trees:
            return


def _shares(trials: int) -> list[int]:
    return [trials * (i + 1) // len(TASKS) - trials * i // len(TASKS) for i in range(len(TASKS))]


def main() -> int:
    """Run the command; the exit code tells whether everything came out as it must."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000, help="malformed submissions, and honest trees")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    each = -(-arguments.trials // len(MALFORMATIONS))
    table = Table("kind", "trials", "rejected", "with a tree that is no point function", title="malformed submissions")
    good = True
    totals = Tally()
    console = Console(width=None if sys.stdout.isatty() else 150)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("malformed", total=each * len(MALFORMATIONS))
        for malformation in MALFORMATIONS:
            for tally in try_malformed(malformation, each, arguments.seed):  # noqa: B007 - the last one counts
                progress.advance(bar)
            good &= tally.rejected == tally.trials and (tally.inconsistent == tally.trials) == malformation.trees
            totals = Tally(
                totals.trials + tally.trials, totals.rejected + tally.rejected, totals.inconsistent + tally.inconsistent
            )
            table.add_row(malformation.name, *(f"{n:,}" for n in (tally.trials, tally.rejected, tally.inconsistent)))
        bar = progress.add_task("honest", total=arguments.trials)
        for submissions, judged, accepted in try_honest(arguments.trials, arguments.seed):  # noqa: B007 - as above
            progress.update(bar, completed=judged)
    good &= accepted == judged
    table.add_section()
    table.add_row(
        f"{len(MALFORMATIONS)} kinds", *(f"{n:,}" for n in (totals.trials, totals.rejected, totals.inconsistent))
    )
    console.print(table)
    console.print(f"honest: {submissions:,} submissions of {judged:,} trees, {accepted:,} trees accepted")
    console.print(f"seed {arguments.seed}: {'as it must be' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
