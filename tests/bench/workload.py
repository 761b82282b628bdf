"""What the benchmarks fix of their cases, and what they count of them; see `parties.commands.bench.workload`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from fsl_async.costs.message_sizes import inner_nodes
from parties.commands.bench.workload import Case, Client, client_of


@dataclass(frozen=True)
class Options:
    """What the caller fixed of the cases; None for what is left to each benchmark."""

    rows: int | None = None
    select: int | None = None
    width: int | None = None
    bits: Literal[32, 64, 128] | None = None
    clients: int | None = None
    threads: int | None = None

    @property
    def given(self) -> bool:
        """Whether anything but the number of threads is fixed; then one case is run, not a set."""
        return any(getattr(self, field.name) is not None for field in fields(self) if field.name != "threads")

    def apply(self, case: Case) -> Case:
        """The case with what is fixed; where rows are fixed and the selection is not, it stays as large a part."""
        fixed = {
            field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name) is not None
        }
        if "rows" in fixed and "select" not in fixed:
            fixed["select"] = max(1, round(fixed["rows"] * case.select / case.rows))
        return replace(case, **fixed)


def clients_of(case: Case) -> list[Client]:
    """All of a case's clients."""
    return [client_of(case, number) for number in range(case.clients)]


def aes_per_leaf(case: Case) -> int:
    """AES blocks by which a leaf is counted: one for the walk, one for each plane, one for a proof (design §14)."""
    return 1 + case.forest.planes + case.task.verified


def aes_spent_per_leaf(case: Case) -> float:
    """AES blocks that are spent on a leaf: a tree has about as many inner nodes as leaves."""
    forest = case.forest
    return inner_nodes(forest.leaves) / forest.leaves + forest.planes + case.task.verified
