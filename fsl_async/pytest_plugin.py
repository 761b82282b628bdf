"""A pytest plugin: simulated worlds for tests, seeds for each test, charts, and a report when a test fails.

    async def test_a_round(fsl_world, autojump_clock):
        async with fsl_world(task, model, faults=[...]) as world:
            ...

    @pytest.mark.fsl_seeds(20)      # this test with twenty seeds; `--fsl-seeds 500` for more, `--fsl-seed 17` for one

`fsl_laboratory` is the same for actors of one's own. `--fsl-chart FILE` saves the charts of all that the tests made.

Rules: a project asks for it, with `pytest_plugins = ["fsl_async.pytest_plugin"]` in the `conftest.py` at its root. It
imports nothing heavy until a test asks for a world, and says nothing of tests without one. It lies in `fsl_async`, and
imports `parties` only then, because a project may have a `parties` of its own (docs/adr/0016).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from fsl_async.own_packages import require_own

if TYPE_CHECKING:
    import numpy.typing as npt

    from fsl_async.task import Task
    from parties.host import Actor
    from parties.schedule import Schedule
    from parties.testing.faults import FaultBase
    from parties.testing.lab import Laboratory, MachineOrModule
    from parties.testing.round_faults import Fault
    from parties.testing.surroundings import Surroundings
    from parties.testing.world import World

__all__ = ["MakeLaboratory", "MakeWorld", "fsl_laboratory", "fsl_seed", "fsl_world"]

ROWS = 40
"""How many rows of a chart the report of a failed test shows."""

MakeWorld: TypeAlias = "Callable[..., AbstractAsyncContextManager[World]]"
"""Called as `world(task, model, seed=…, faults=[…], schedule=…, clients=[…])`; see `parties.testing.world.world`."""

MakeLaboratory: TypeAlias = "Callable[..., AbstractAsyncContextManager[Laboratory]]"
"""Called as `laboratory(actors, machines, seed=…, faults=[…])`; see `parties.testing.laboratory`."""


_WORLDS = pytest.StashKey["list[Surroundings]"]()
_CHARTS = pytest.StashKey["list[tuple[str, Surroundings]]"]()
_SAVED = pytest.StashKey[list[tuple[str, int]]]()
_SAVED_BY_WORKER = "fsl_charts"


# ---- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("fsl-async", "simulated servers and clients (fsl-async)")
    group.addoption("--fsl-seed", type=int, metavar="N", help="the seed of tests with simulated worlds, or the first")
    group.addoption("--fsl-seeds", type=_count, metavar="N", help="with how many seeds to run each of these tests")
    group.addoption(
        "--fsl-chart",
        type=_chart,
        metavar="FILE",
        help="save charts of the simulated worlds; FILE is .txt, .svg or .html",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.stash[_CHARTS], config.stash[_SAVED] = [], []
    config.addinivalue_line("markers", "fsl_seeds(n): run a test of a simulated world with n seeds")


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """Report which seeds are used, if any are."""
    used = sorted({item.callspec.params["fsl_seed"] for item in items if _has_seed(item)})  # type: ignore[attr-defined]
    if not used:
        return []
    span = f"seed {used[0]}" if len(used) == 1 else f"{len(used)} seeds, {used[0]} to {used[-1]}"
    return [f"fsl-async: {span} (--fsl-seed chooses one, --fsl-seeds how many)"]


def _has_seed(item: pytest.Item) -> bool:
    return "fsl_seed" in getattr(getattr(item, "callspec", None), "params", ())


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} seeds; at least one is needed")
    return count


def _chart(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".txt", ".svg", ".html"):
        raise argparse.ArgumentTypeError(f"{text}: a chart is a file .txt, .svg or .html")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}")
    return path


# ---- seeds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that uses a seed with all seeds."""
    chosen = any("fsl_seed" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "fsl_seed" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("fsl_seed", _seeds(metafunc), ids="seed{}".format, indirect=True)


def _seeds(metafunc: pytest.Metafunc) -> range:
    """The seeds of the command line, or else of the test's marker, or else seed 0."""
    first, count = metafunc.config.getoption("fsl_seed"), metafunc.config.getoption("fsl_seeds")
    marker = metafunc.definition.get_closest_marker("fsl_seeds")
    if count is None:
        count = _marked(marker, metafunc) if marker is not None and first is None else 1
    return range(first or 0, (first or 0) + count)


def _marked(marker: pytest.Mark, metafunc: pytest.Metafunc) -> int:
    match marker.args:
        case (int(count),) if count >= 1 and not marker.kwargs:
            return count
    raise pytest.UsageError(
        f"{metafunc.definition.nodeid}: @pytest.mark.fsl_seeds takes one number of seeds, 1 or more, not {marker.args}"
    )


@pytest.fixture
def fsl_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test: 0, or as `--fsl-seed`, `--fsl-seeds` and `@pytest.mark.fsl_seeds(n)` say."""
    return int(getattr(request, "param", request.config.getoption("fsl_seed") or 0))


# ---- worlds


@pytest.fixture
def fsl_world(request: pytest.FixtureRequest, fsl_seed: int) -> MakeWorld:
    """Make simulated worlds, in a test that also asks for `autojump_clock`; see `MakeWorld`."""
    made = request.node.stash.setdefault(_WORLDS, [])

    @asynccontextmanager
    async def make(
        task: Task,
        model: Mapping[str, npt.ArrayLike],
        seed: int = fsl_seed,
        faults: Sequence[Fault] = (),
        schedule: Schedule | None = None,
        **options: Any,
    ) -> AsyncIterator[World]:
        require_own("parties")
        world = import_module("parties.testing.world").world

        async with world(task, model, seed, faults, schedule, **options) as new:
            made.append(new)
            await new.wait_listening()
            yield new

    return make


@pytest.fixture
def fsl_laboratory(request: pytest.FixtureRequest, fsl_seed: int) -> MakeLaboratory:
    """Make laboratories, in a test that also asks for `autojump_clock`; see `MakeLaboratory`."""
    made = request.node.stash.setdefault(_WORLDS, [])

    @asynccontextmanager
    async def make(
        actors: Mapping[str, Actor],
        machines: Mapping[str, MachineOrModule],
        seed: int = fsl_seed,
        faults: Sequence[FaultBase] = (),
        **options: Any,
    ) -> AsyncIterator[Laboratory]:
        require_own("parties")
        laboratory = import_module("parties.testing.lab").laboratory

        async with laboratory(actors, machines, seed, faults, **options) as new:
            made.append(new)
            yield new

    return make


# ---- charts


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Keep what a test has made for the file of charts, if one is asked for."""
    if item.config.getoption("fsl_chart"):
        worlds = item.stash.get(_WORLDS, [])
        for number, world in enumerate(worlds, 1):
            name = item.nodeid if len(worlds) == 1 else f"{item.nodeid}, world {number}"
            item.config.stash[_CHARTS].append((name, world))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save the charts; a worker of pytest-xdist has a file of its own, which it reports to the main process."""
    config = session.config
    path, worlds = config.getoption("fsl_chart"), config.stash.get(_CHARTS, [])
    if path and worlds:
        worker = getattr(config, "workerinput", None)
        if worker is not None:
            path = path.with_stem(f"{path.stem}-{worker['workerid']}")
            config.workeroutput[_SAVED_BY_WORKER] = (str(path), len(worlds))  # type: ignore[attr-defined]
        chart = import_module("parties.testing.chart")
        chart.save(path, [(name, chart.Chart.of(world)) for name, world in worlds])
        config.stash[_SAVED].append((str(path), len(worlds)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Hear of the charts that a worker of pytest-xdist has saved."""
    if saved := getattr(node, "workeroutput", {}).get(_SAVED_BY_WORKER):
        node.config.stash[_SAVED].append(tuple(saved))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the charts are."""
    path, saved = config.getoption("fsl_chart"), config.stash[_SAVED]
    if path and not saved:
        terminalreporter.write_line(f"fsl-async: no chart in {path}: no test has made a simulated world")
    for name, charts in sorted(saved):
        count = f"{charts} charts" if charts > 1 else "a chart"
        terminalreporter.write_line(f"fsl-async: {count} in {name}")


# ---- failures


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test what happened in its worlds, and how to replay it."""
    report = yield
    if report.failed and _has_seed(item):
        seed = item.callspec.params["fsl_seed"]  # type: ignore[attr-defined]
        replay = f"pytest {shlex.quote(item.nodeid)} --fsl-seed {seed}"
        report.sections.append(("simulated with", f"seed {seed}; again with: {replay}"))
        for world in item.stash.get(_WORLDS, []):
            report.sections.append((f"simulated world, seed {world.seed}", _account(world)))
    return report


def _account(world: Surroundings) -> str:
    """The full plan of faults, and the last rows of the chart."""
    struck = world.injector.fired
    plan = [f"  {'struck' if fault in struck else 'not yet':7}  {fault}" for fault in world.faults] or ["  none"]
    chart = import_module("parties.testing.chart").Chart.of(world).last(ROWS)
    return "\n".join(["faults:", *plan, "the end of what happened:", chart.text()])
