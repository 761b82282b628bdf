"""Every command that a page shows is executed by a test, or listed here with the reason why it is not."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.costs.scaling import ANOTHER_MACHINE
from parties.commands.application import app
from parties.commands.demo.processes import write_server
from parties.commands.plan.calibration import save_constants
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.settings.writing import write_deployment
from parties.storage.sqlite_store import SqliteStore
from tests import ROOT
from tests.parties.conftest import in_process as in_process
from tests.support import guide
from tests.support.cases import in_turn

EXECUTED = {
    "docs/deploy.md": "tests/system/deployment/test_guide.py",
    "docs/files.md": "tests/parties/deployment/test_deployment.py",
    "docs/operations.md": "tests/system/deployment/test_operations.py",
    "docs/planner.md": "tests/test_shown_commands.py",
    "docs/registration.md": "tests/test_shown_commands.py",
    "docs/releases.md": "tests/test_release.py",
    "docs/scaling.md": "tests/test_shown_commands.py",
    "docs/tutorials/over-tcp.md": "tests/test_tutorials.py",
}
"""By page, the test that executes all of its commands, but for those listed below."""

NOT_EXECUTED = {
    r"make (demo|test|test-fast|lint|docs)": "they set up environments; tests run the demo, `make test` runs them",
    r"make (reach|soak|fuzz|secagg|paper)\b.*": "minutes to hours; tests run the same programs on small sizes",
    r"make learn": "it makes environments; what it runs in them are tests",
    r"(setsid .*|python) -m tests\.system\.(soak|fuzzing)\b.*": "the same",
    r"fsl-async bench .*": "minutes of measurement; tests/parties/commands/test_bench_host.py has small sizes",
    r"python -m tests\.bench\b.*": "minutes of measurement; tests/bench has small sizes",
    r"python docs/benchmarks/peers/compare\.py .*": "the same, test_bench_peers.py has small sizes",
    r"fsl-async (scheduler|worker|preflight) s0\.toml": "processes; tests/system/deployment/test_cluster.py runs them",
    r"fsl-async demo .*": "tests/parties/commands/test_demo.py has the like, with fewer clients and rounds",
    r"python -m transport\.testing .*": "tests/transport/test_conformance.py has the command",
    r"pytest.*": "a reader's own tests; tests/parties/testing/test_guide_to_testing.py runs the page's",
    r"fsl-async (status|rounds|tasks|log-level) .*": "a server in its 18th round; docs/operations.md has the like",
}

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]


def reason_against(command: str) -> str:
    """Why a command is not executed; empty where it is."""
    return next((reason for pattern, reason in NOT_EXECUTED.items() if re.fullmatch(pattern, command)), "")


def shown(page: str) -> list[str]:
    return guide.shown_commands((ROOT / page).read_text(encoding="utf-8"))


@in_turn("page", PAGES)
def test_every_command_is_executed_or_listed(page):
    for command in shown(page):
        assert page in EXECUTED or reason_against(command), f"{page} shows a command that no test executes: {command}"


def test_the_lists_name_what_there_is():
    for page, test in EXECUTED.items():
        assert shown(page), f"{page} shows no command"
        names = Path(page).name, "tests.support import guide"
        assert any(name in (ROOT / test).read_text(encoding="utf-8") for name in names), f"{test} does not read {page}"
    everything = [command for page in PAGES for command in shown(page)]
    for pattern in NOT_EXECUTED:
        assert any(re.fullmatch(pattern, command) for command in everything), f"no page shows {pattern}"


def mentioned() -> list[str]:
    """Every command on a page, in a block or within a line."""
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    inline = [code for text in texts for code in re.findall(r"`((?:make|fsl-async|python -m) [^`]+)`", text)]
    return sorted({*inline, *(command for text in texts for command in guide.shown_commands(text))})


def test_every_command_that_is_mentioned_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checked = 0
    for command in mentioned():
        for target in re.findall(r"^make (\w+)", command):
            assert f"\n{target}:" in makefile, command
            checked += 1
        for module in re.findall(r"python -m ([\w.]+)", command):
            assert module == "pip" or find_spec(module) is not None, command
            checked += 1
        for words in re.findall(r"(?:^|; )fsl-async ([a-z][a-z-]*)", command):
            assert words in [name for name in app if not name.startswith("-")], command
            checked += 1
    assert checked > 50


@in_turn("command", sorted({c for page in PAGES for c in shown(page) if c.startswith("fsl-async")}))
def test_every_option_that_is_shown_exists(command):
    words = shlex.split(re.split(r" (?:2?>>?|\|\||&)", command)[0])[1:]
    if words != ["--version"]:
        app.parse_args(words, print_error=False, exit_on_error=False)


# ---- pages that are executed here


@pytest.fixture
def run(folder, monkeypatch, in_process):
    """Types a command in the folder, in this process; it must succeed."""
    monkeypatch.chdir(folder)

    def run(command: str) -> str:
        code, said, error = in_process(*shlex.split(command)[1:])
        assert code == 0, f"{command}\nended with {code} and said:\n{said}{error}"
        return said

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the pages: a task, its servers' and some clients' keys, S0's file and its model."""
    task = Task(
        name="goods",
        blocks=(Sparse(name="items", rows=20_000, width=4, select=16), Dense(name="head", size=3)),
        ring=Ring(64, fraction_bits=24),
        min_clients=2,
        max_clients=100,
    )
    parties = {name: Identity.generate(name) for name in ("S0", "S1", "s1-new", "anna", "ben")}
    for name, identity in parties.items():
        identity.save_both(tmp_path / f"{name}.key")
    publics = [identity.public for identity in parties.values()]
    write_deployment(tmp_path, task, publics[:2], ["127.0.0.1:7000", "127.0.0.1:7001"], ())
    save_model(tmp_path / "model.npz", {"items": np.zeros((20_000, 4)), "head": np.zeros(3)})
    write_server(tmp_path, 0, "127.0.0.1:7000")
    return tmp_path


@pytest.mark.slow
def test_the_commands_of_the_planner_s_page(folder, run):
    can_plot = find_spec("matplotlib") is not None  # an extra that tests do without
    for command in shown("docs/planner.md"):
        assert run(command if can_plot else command.replace(" --plot upload.svg", "")).strip(), command
    assert (folder / "upload.svg").exists() == can_plot


def test_the_commands_of_the_page_on_scaling(folder, run):
    save_constants(folder / "constants.json", ANOTHER_MACHINE)
    for command in shown("docs/scaling.md"):
        if not reason_against(command):
            assert re.search("first.limit", run(command)), command


def test_the_commands_of_the_page_on_registration(folder, run):
    trio.run(make_store, folder / "S0.sqlite")
    (listed, *others) = shown("docs/registration.md")
    assert "anna" not in run(listed)
    for command in others:
        run(command)
    assert "anna" in run(listed)


async def make_store(path: Path) -> None:
    await (await SqliteStore.open(path)).aclose()
