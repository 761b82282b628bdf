"""`import parties` is quick: its names are found when they are used, and nothing heavy is loaded before."""

import json
import subprocess
import sys
from pathlib import Path

from parties import client

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


def test_a_client_does_not_load_how_servers_choose_bins() -> None:
    """It reads their number in a round's configuration (docs/adr/0032)."""
    modules = [f"parties.client.{path.stem}" for path in Path(client.__path__[0]).glob("*.py") if path.stem[0] != "_"]
    assert {"parties.client.submitting", "parties.client.entering"} <= set(modules)
    loaded = loaded_by(f"import {', '.join(modules)}")
    assert "fsl_async.geometry" in loaded
    assert "fsl_async.bin_count" not in loaded
