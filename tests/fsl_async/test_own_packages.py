"""Projects with a `transport` or a `parties` of their own: what works there, and the error where nothing can."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

OWN = "mine = 'the project'"


@pytest.fixture(params=["folder with __init__.py", "file"])
def project(request, tmp_path):
    """Makes a project whose root has packages, or modules, of these names."""

    def make(*names: str) -> Path:
        for name in names:
            if request.param == "file":
                (tmp_path / f"{name}.py").write_text(OWN)
            else:
                (tmp_path / name).mkdir()
                (tmp_path / name / "__init__.py").write_text(OWN)
        return tmp_path

    return make


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A script in the project's root: Python searches that first, then what is installed."""
    (folder / "main.py").write_text(code)
    command = [sys.executable, *options, folder / "main.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: fsl-async needs its own package")
    return last


IMPORTS = [
    "from parties import simulate",
    "import parties",
    "from fsl_async.parties import simulate",
    "import fsl_async.parties",
    "from parties.testing import Crash",
]


@pytest.mark.parametrize("code", IMPORTS)
def test_a_project_s_own_transport_is_named_with_ours(project, code):
    folder = project("transport")
    message = refusal(run(folder, code))
    assert f"its own package `transport`, which is {ROOT / 'transport'}" in message
    assert f"Python finds {folder / 'transport'}" in message
    assert "rename your `transport`, or put it into a package of yours" in message


@pytest.mark.parametrize("name", ["parties", "transport"])
def test_the_import_path_below_fsl_async_speaks_where_ours_is_hidden(project, name):
    folder = project("parties", "transport")
    message = refusal(run(folder, f"import fsl_async.{name}"))
    assert f"its own package `{name}`, which is {ROOT / name}" in message
    assert f"Python finds {folder / name}" in message


def test_what_was_imported_already_is_named_too(project):
    folder = project("transport")
    code = f"import sys, transport\nsys.path.remove({str(folder)!r})\nimport parties"
    assert str(folder / "transport") in refusal(run(folder, code))


def test_the_mathematics_needs_neither(project):
    code = "import parties, transport, fsl_async.udpf; from fsl_async import Ring; print(parties.mine, transport.mine)"
    done = run(project("parties", "transport"), code)
    assert (done.returncode, done.stdout) == (0, "the project the project\n"), done.stderr


def test_a_folder_that_is_no_package_hides_nothing(tmp_path):
    for name in ("parties", "transport"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("no Python here")
    done = run(
        tmp_path, "from fsl_async.parties import simulate; from parties import connect; print(simulate.__name__)"
    )
    assert (done.returncode, done.stdout) == (0, "simulate\n"), done.stderr


def test_what_the_message_advises_works(project):
    folder = project("transport")
    assert run(folder, "import parties", "-P").returncode == 0
    mine = folder / "myproject"
    mine.mkdir()
    for found in folder.glob("transport*"):
        found.rename(mine / found.name)
    done = run(folder, "import parties, myproject.transport; print(myproject.transport.mine)")
    assert (done.returncode, done.stdout) == (0, "the project\n"), done.stderr


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-m", "pytest", "-q", "-p", "fsl_async.pytest_plugin", "test_mine.py"]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("options", [[], ["-P"]])
def test_the_tests_of_such_a_project_run_where_fsl_async_is_merely_installed(project, options):
    """pytest loads the plugin of every installed distribution before the project's root is searched, or after."""
    folder = project("parties", "transport")
    (folder / "conftest.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})")
    (folder / "test_mine.py").write_text(
        "import parties, transport\n\ndef test_mine():\n    assert parties.mine == transport.mine == 'the project'\n"
    )
    done = run_pytest(folder, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_world_in_such_a_project_says_what_hides_it(project):
    folder = project("parties")
    (folder / "test_mine.py").write_text(
        "async def make(fsl_world):\n    async with fsl_world(None, {}):\n        pass\n\n"
        "def test_mine(fsl_world):\n    import trio\n    trio.run(make, fsl_world)\n"
    )
    assert "ImportError: fsl-async needs its own package `parties`" in run_pytest(folder).stdout


def test_both_import_paths_give_the_same_names():
    import fsl_async.parties
    import fsl_async.transport
    import parties
    import transport

    for passed_on, package in ((fsl_async.parties, parties), (fsl_async.transport, transport)):
        assert sorted(passed_on.__all__) == dir(passed_on) == sorted(package.__all__)
        for name in package.__all__:
            assert getattr(passed_on, name) is getattr(package, name)
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
            passed_on.nonsense  # noqa: B018
