"""A simulated world that has ended, with what is known of it, and what a check of it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from parties.testing.round_faults import Fault
from parties.testing.trials.members import Ledger
from parties.testing.world import World


@dataclass(frozen=True)
class Violation:
    """A rule that was violated: the check that found it, and an explanation."""

    check: str
    explanation: str

    def __str__(self) -> str:
        return f"{self.check}: {self.explanation}"


@dataclass(frozen=True)
class Case:
    """A world that has ended, and what is known of it.

    Attributes:
        world: the world at its end.
        rounds: how many rounds were scheduled.
        ledgers: by honest client, its ledger.
        honest: the indices of the honest servers.
        stranded: clients that waited in vain until the end.
        faults: the plan of faults.
        spoiled: by malicious client, the ids of rounds to which it sent a submission that must not be counted.
    """

    world: World
    rounds: int
    ledgers: Mapping[str, Ledger]
    honest: frozenset[int] = frozenset({0, 1})
    stranded: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    spoiled: Mapping[str, frozenset[bytes]] = field(default_factory=dict)


Check: TypeAlias = Callable[[Case], Iterator[str]]
"""Explains everything in a case that violates one rule."""
