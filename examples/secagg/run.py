"""Both sides measured in turns, round by round, so that other load on the machine affects both."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from examples.secagg.cases import Case, Figures, cells
from examples.secagg.side import ROOT, Side

VERSION = 1
SIZES = (2**18, 2**20)
REPEATS = 5
FLOWER = ROOT / ".venv-flower" / "bin" / "python"
MAKE = "`make secagg` installs flwr 1.41.0 there, and runs this"
SHARES = ((3, 2), (11, 6), (20, 11))
SHARING_CLIENTS = 20

Progress = Callable[[str], None]


def compare(sizes: Sequence[int], repeats: int, flower: Path, say: Progress) -> dict[str, Any]:
    """Everything that the page shows, from one run.

    Raises:
        SideFailedError: an environment is missing, or a side failed.
    """
    started = time.monotonic()
    environment = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    with (
        Side("secaggplus", flower, inherited | environment, MAKE) as theirs,
        Side("ours", Path(sys.executable), os.environ, "`make .venv/demo` makes its environment") as ours,
    ):
        settings = {"ours": ours.ask("setting"), "secaggplus": theirs.ask("setting")}
        table = [_both(case, repeats, ours, theirs, say) for case in cells(*sizes)]
        dropout = _both(Case(max(sizes), 10, dropped=1), repeats, ours, theirs, say)
        sharing = [_sharing(min(sizes), *shares, repeats, theirs, say) for shares in SHARES]
        clipping = {"ours": ours.ask("clip"), "secaggplus": theirs.ask("clip")}
        weak = theirs.ask("masks_follow_32_bits")
    return {
        "version": VERSION,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
        "clients": Case.clients,
        "repeats": repeats,
        "seconds": round(time.monotonic() - started),
        "settings": settings,
        "cells": table,
        "dropout": dropout,
        "sharing": sharing,
        "clipping": clipping,
        "masks_follow_32_bits": weak,
    }


def _both(case: Case, repeats: int, ours: Side, theirs: Side, say: Progress) -> dict[str, Any]:
    """A case measured in turns."""
    pairs = []
    for repeat in range(repeats):
        say(f"{case.weights:,} weights, {case.share / 10:g} %, rows of {case.width}: {repeat + 1} of {repeats}")
        pairs.append((ours.measure(case), theirs.measure(case)))
    first, second = zip(*pairs, strict=True)
    return asdict(case) | {"select": case.select, "ours": spread(first), "secaggplus": spread(second)}


def _sharing(weights: int, shares: int, threshold: int, repeats: int, theirs: Side, say: Progress) -> dict[str, Any]:
    case = Case(weights, 10, clients=SHARING_CLIENTS)
    say(f"SecAgg+ with {shares} shares of {case.clients} clients")
    measured = spread([theirs.measure(case, shares, threshold) for _ in range(repeats)])
    return asdict(case) | {"num_shares": shares, "threshold": threshold, "secaggplus": measured}


def spread(figures: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """Of every figure the median, the least and the greatest."""
    return {each.name: _three([getattr(one, each.name) for one in figures]) for each in fields(Figures)}


def _three(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def ratio(cell: Mapping[str, Any], figure: str) -> float:
    """How many times as much SecAgg+ takes: above 1, ours takes less."""
    return float(cell["secaggplus"][figure]["median"] / cell["ours"][figure]["median"])


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
