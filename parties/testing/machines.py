"""Every protocol machine of the package by its name, for pages, tests and charts that are about all of them.

A machine is named after the module or package that has it, below `fsl_async.protocols`: `ssa`, and `ssa.client` for a
module in that package. A new one is found by itself.
Worlds of rounds listen to them, and plans of faults name them.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from fsl_async import protocols
from fsl_async.protocols.machine import Machine
from parties.testing.recorder import Transition, transitions_of


def machines() -> dict[str, ModuleType]:
    """By name, the modules and packages with a `MACHINE`; that of a package may lie in one of its modules."""
    found: dict[str, ModuleType] = {}
    prefix = f"{protocols.__name__}."
    for info in pkgutil.walk_packages(protocols.__path__, prefix):
        module = importlib.import_module(info.name)
        machine = getattr(module, "MACHINE", None)
        if machine is not None and all(machine is not other.MACHINE for other in found.values()):
            found[info.name.removeprefix(prefix)] = module
    return found


MACHINES: dict[str, Machine[Any]] = {name: module.MACHINE for name, module in machines().items()}


def declared(machine: str) -> list[Transition]:
    """All transitions in the table of one of them, sorted."""
    return transitions_of(machine, MACHINES[machine])
