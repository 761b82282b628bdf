"""The wheel: exactly three packages, typed, with the command as its entry point."""

import configparser
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

from tests import ROOT

PACKAGES = ("fsl_async", "transport", "parties")
NEEDED = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Iterator[zipfile.ZipFile]:
    """A wheel built from a copy of the sources, with what lies about in a checkout beside them."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel; it is in the extra `test`")
    folder: Path = tmp_path_factory.mktemp("sources")
    for package in (*PACKAGES, "tests", "examples"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        shutil.copy(ROOT / name, folder)
    (folder / "fsl_async" / "__pycache__").mkdir()
    (folder / "fsl_async" / "__pycache__" / "task.cpython-311.pyc").write_bytes(b"")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def test_exactly_three_packages_are_in_the_wheel(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_every_module_of_the_three_is_in_it_and_nothing_else(wheel):
    packed = {name for name in wheel.namelist() if not name.split("/")[0].endswith(".dist-info")}
    there = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == there


def test_all_three_are_typed(wheel):
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_the_command_is_the_only_entry_point(wheel):
    """So pytest loads our plugin in the projects that ask for it, and in no other."""
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    found = configparser.ConfigParser()
    found.read_string(wheel.read(name).decode())
    assert {section: dict(found[section]) for section in found.sections()} == {
        "console_scripts": {"fsl-async": "parties.commands.application:main"}
    }


def test_the_metadata_names_licence_python_and_wide_ranges(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = message_from_bytes(wheel.read(name))
    assert metadata["Name"] == "fsl-async"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert required
    for line in required:
        assert ">=" in line, line
        assert "<" not in line, f"{line}: an upper bound keeps it from being installed beside others"
        assert "==" not in line, line
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
