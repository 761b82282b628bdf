"""What a cell finds around it: data sets, packages, the machine."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fsl_async import kernels
from parties.commands.bench.machine import cores, processor
from tests.bench.measures import versions

ROOT = Path(__file__).resolve().parents[2]
DATA = "data/"


def default_data() -> Path:
    """The data's folder: FSL_DATA, or shared/data beside the checkout."""
    return Path(os.environ.get("FSL_DATA") or ROOT.parent / "shared" / "data")


def missing(need: str, data: Path) -> str:
    """What is missing, and how to get it; empty if the need is there."""
    if need.startswith(DATA):
        folder = data / need.removeprefix(DATA)
        return "" if folder.is_dir() else f"there is no {folder}; name the folder with the data by --data or FSL_DATA"
    return "" if find_spec(need) else f"{need} is not installed; install fsl-async[{need}]"


def machine() -> dict[str, Any]:
    """The machine, as far as speed depends on it."""
    return {"processor": processor(), "cores": cores(), "instructions": kernels.active_isa()}


def used_versions() -> dict[str, str]:
    """Of the software that results and seconds depend on; of torch only where it was loaded."""
    torch = {"torch": importlib.metadata.version("torch")} if "torch" in sys.modules else {}
    return versions() | torch
