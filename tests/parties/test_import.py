"""`import parties` is quick: its names are found when they are used, and nothing heavy is loaded before."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"asyncio", "llvmlite", "msgpack", "msgspec", "nacl", "numba", "numpy", "rich", "sqlite3", "trio"}
MOST = 150
"""Modules; counted, because seconds depend on the machine."""


def loaded_by(statement: str) -> set[str]:
    script = (
        f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*set(sys.modules) - before]))"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(run.stdout))


def test_importing_the_package_loads_little() -> None:
    for package in ("parties", "fsl_async"):
        loaded = loaded_by(f"import {package}")
        assert not HEAVY & loaded
        assert len(loaded) < MOST, sorted(loaded)


def test_a_name_is_found_when_it_is_used() -> None:
    assert {"trio", "parties.client.client"} <= loaded_by("import parties; parties.Client")
