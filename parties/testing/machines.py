"""The package's own machines, by name: what worlds of rounds listen to, and what their plans of faults name."""

from __future__ import annotations

from typing import Any

from fsl_async.protocols.catalogue import machines
from fsl_async.protocols.machine import Machine
from parties.testing.recorder import Transition, transitions_of

__all__ = ["MACHINES", "declared"]

MACHINES: dict[str, Machine[Any]] = {name: module.MACHINE for name, module in machines().items()}


def declared(machine: str) -> list[Transition]:
    """All transitions in the table of one of them, sorted."""
    return transitions_of(machine, MACHINES[machine])
