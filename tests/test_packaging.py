"""The wheel holds exactly the three packages, and importing them is light."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"fsl_async", "transport", "parties"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=source, check=True, capture_output=True
    )
    [path] = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_exactly_the_three_packages(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    [entry_points] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "fsl-async = parties.command:main" in wheel.read(entry_points).decode()


def test_importing_loads_neither_compiler_nor_command_line() -> None:
    code = "import sys, fsl_async, parties; print([m for m in ('numba', 'rich', 'cyclopts') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
