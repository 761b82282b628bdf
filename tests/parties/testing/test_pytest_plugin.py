"""The pytest plugin as its users meet it: projects of their own, run by pytest inside pytest."""

import re
import subprocess
import sys

import numba
import pytest

import parties.testing.chart
import parties.testing.lab
import parties.testing.world  # noqa: F401 - imported once here, and not anew in every project
from fsl_async import kernels

pytest_plugins = ["pytester"]

LOADED = ("-p", "fsl_async.pytest_plugin")

PROJECT = """
import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from parties import Schedule
from parties.testing import AtTime, Crash, Delay

TASK = Task(name="mine", blocks=[Sparse("items", rows=16, select=2)], ring=Ring(32), min_clients=2, max_clients=5)
MODEL = {"items": np.zeros((16, 1), np.int64)}
FAULTS = [Crash("S0", AtTime(0.5), down=1.0), Delay("anna", connection=99, seconds=3.0)]

async def take_part(client):
    if client.pending:
        await client.resume()
    else:
        await client.submit({"items": ([1, 2], np.ones((2, 1), np.int64))})

async def a_round(fsl_world, faults=(), **options):
    names = ("anna", "ben")
    schedule = Schedule(clients=2, rounds=1)
    async with fsl_world(TASK, MODEL, faults=faults, schedule=schedule, clients=names, **options) as world:
        for name in names:
            world.start(name, take_part)
        await world.wait_settled(1)
        return world
"""


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """What a project's run loads goes with it, and numba bears its modules and our kernels once alone."""
    numba.njit(lambda: None)()
    for name in kernels.__all__:
        getattr(kernels, name)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with a settings file of its own."""
    known = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # by a test before, in this process
    ini = f"[pytest]\ntrio_mode = true\naddopts = --strict-markers\nfilterwarnings =\n  error\n  {known}\n"
    pytester.makeini(ini)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> tuple[pytest.RunResult, str]:
    result = project.runpytest_inprocess(*LOADED, *arguments)
    return result, result.stdout.str()


def account(output: str) -> str:
    """What a report says of a world."""
    return output.partition("- simulated world, ")[2].partition("\n===")[0]


def written(project: pytest.Pytester, tests: str) -> None:
    project.makepyfile(test_mine=PROJECT + tests)


def test_a_world_is_there_for_the_asking(project: pytest.Pytester) -> None:
    written(
        project,
        """
async def test_a_round(fsl_world, fsl_seed, autojump_clock):
    world = await a_round(fsl_world)
    assert world.seed == fsl_seed == 0
    assert tuple(world.settled[0][1].clients) == ("anna", "ben")
    assert not any(ended for ended in world.ended)
    assert world.process("anna").lives == 1, "both servers listen before the first client comes"

async def test_a_seed_of_its_own(fsl_world, autojump_clock):
    assert (await a_round(fsl_world, seed=12)).seed == 12
""",
    )
    result, output = run(project)
    result.assert_outcomes(passed=2)
    assert "fsl-async: seed 0 (--fsl-seed chooses one, --fsl-seeds how many)" in output


def test_a_failure_tells_the_seed_the_faults_and_the_end_of_the_chart(project: pytest.Pytester) -> None:
    written(
        project,
        """
async def test_a_round(fsl_world, autojump_clock):
    world = await a_round(fsl_world, FAULTS)
    assert tuple(world.settled[0][1].clients) == ("anna",), "as I had hoped"
""",
    )
    result, output = run(project, "--fsl-seed", "5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*simulated with*",
            "seed 5; again with: pytest 'test_mine.py::test_a_round[[]seed5[]]' --fsl-seed 5",
            "*simulated world, seed 5*",
            "faults:",
            "  struck   Crash(party='S0', point=AtTime(seconds=0.5), down=1.0)",
            "  not yet  Delay(party='anna', connection=99, seconds=3.0)",
            "*seconds   S0*anna*ben*S1*",
            "*rows before)",
            "*round 1 settled: anna, ben*",
        ]
    )
    charts = re.findall(r"^ +\d+\.\d{3}", output, re.MULTILINE)
    assert charts
    chart = account(output).partition("the end of what happened:")[2]
    assert chart.count("\n") > 20
    assert max(map(len, chart.splitlines())) <= 100


def test_the_replay_line_replays(project: pytest.Pytester) -> None:
    written(
        project,
        """
@pytest.mark.fsl_seeds(3)
@pytest.mark.parametrize("word", ["a b", "c"])
async def test_a_round(fsl_world, fsl_seed, word, autojump_clock):
    await a_round(fsl_world)
    assert (fsl_seed, word) != (2, "a b")
""",
    )
    result, output = run(project)
    result.assert_outcomes(passed=5, failed=1)
    (replay,) = re.findall(r"again with: pytest '(.*)' --fsl-seed 2$", output, re.MULTILINE)
    again, output_again = run(project, replay, "--fsl-seed", "2")
    again.assert_outcomes(failed=1)
    assert account(output_again) == account(output)
    assert "settled" in account(output)


def test_an_error_comes_out_of_a_world_as_it_is(project: pytest.Pytester) -> None:
    written(
        project,
        """
async def test_raises(fsl_world, autojump_clock):
    with pytest.raises(LookupError, match="mine"):
        async with fsl_world(TASK, MODEL):
            raise LookupError("mine")

async def test_a_client_fails(fsl_world, autojump_clock):
    async def take_part(client):
        raise LookupError("my client's")
    with pytest.raises(LookupError, match="my client's"):
        async with fsl_world(TASK, MODEL) as world:
            world.start("anna", take_part)
            await world.wait_settled(1)
""",
    )
    result, _ = run(project)
    result.assert_outcomes(passed=2)


def test_a_world_without_its_clock_is_refused_at_once(project: pytest.Pytester) -> None:
    written(
        project,
        """
async def test_no_clock(fsl_world):
    await a_round(fsl_world)
""",
    )
    result, output = run(project)
    result.assert_outcomes(failed=1)
    assert "ask for the fixture `autojump_clock`" in output
    assert "seed 0; again with" in output


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [
        ((), [0, 1, 2, 3]),
        (("--fsl-seed", "9"), [9]),
        (("--fsl-seeds", "2"), [0, 1]),
        (("--fsl-seed", "7", "--fsl-seeds", "3"), [7, 8, 9]),
    ],
    ids=["as marked", "one", "fewer", "from one on"],
)
def test_which_seeds_a_test_runs_with(project: pytest.Pytester, arguments: tuple[str, ...], seeds: list[int]) -> None:
    written(project, "\n@pytest.mark.fsl_seeds(4)\ndef test_seed(fsl_seed):\n    print(f'ran with {fsl_seed}')\n")
    result, output = run(project, "-s", *arguments)
    result.assert_outcomes(passed=len(seeds))
    assert [int(seed) for seed in re.findall(r"ran with (\d+)", output)] == seeds


def test_a_test_may_choose_its_seeds_itself(project: pytest.Pytester) -> None:
    written(
        project,
        "\n@pytest.mark.parametrize('fsl_seed', [3, 8])\ndef test_seed(fsl_seed):\n    assert fsl_seed in (3, 8)\n",
    )
    result, _ = run(project)
    result.assert_outcomes(passed=2)


def test_seeds_by_name_alone(project: pytest.Pytester) -> None:
    written(project, "\ndef test_seed(request):\n    assert request.getfixturevalue('fsl_seed') == 6\n")
    run(project, "--fsl-seed", "6")[0].assert_outcomes(passed=1)


@pytest.mark.parametrize("marker", ["fsl_seeds", "fsl_seeds(0)", "fsl_seeds('3')", "fsl_seeds(n=3)", "fsl_seeds(1, 2)"])
def test_a_wrong_marker_is_told(project: pytest.Pytester, marker: str) -> None:
    written(project, f"\n@pytest.mark.{marker}\ndef test_seed(fsl_seed):\n    pass\n")
    result, output = run(project)
    assert result.ret != 0
    assert "takes one number of seeds, 1 or more" in output


@pytest.mark.parametrize("words", ["0", "-3", "many"])
def test_a_wrong_number_of_seeds_is_told(project: pytest.Pytester, words: str) -> None:
    result = project.runpytest_inprocess(*LOADED, f"--fsl-seeds={words}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()


def test_a_project_that_asks_and_makes_no_world_does_not_notice(project: pytest.Pytester) -> None:
    project.makepyfile("def test_mine():\n    assert 1 == 2\n")
    result, output = run(project)
    result.assert_outcomes(failed=1)
    assert "fsl" not in output
    assert "simulated" not in output


def test_nothing_heavy_is_imported_when_pytest_starts() -> None:
    heavy = "{'trio', 'numpy', 'numba', 'msgspec', 'nacl', 'parties', 'transport'}"
    script = f"import sys, fsl_async.pytest_plugin; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_project_that_does_not_ask_has_none_of_it(project: pytest.Pytester) -> None:
    project.makepyfile("def test_mine(fsl_world):\n    pass\n")
    result = project.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    assert "fixture 'fsl_world' not found" in result.stdout.str()


def test_a_project_asks_in_its_conftest(project: pytest.Pytester) -> None:
    project.makeconftest('pytest_plugins = ["fsl_async.pytest_plugin"]\n')
    project.makepyfile("def test_seed(fsl_seed):\n    assert fsl_seed == 6\n")
    project.runpytest_inprocess("--fsl-seed", "6").assert_outcomes(passed=1)


# ---- laboratories and charts

LABORATORY = """
import pytest
import trio

async def greet(host):
    host.tell(f"hello from {host.name}")

async def test_greetings(fsl_laboratory, fsl_seed, autojump_clock):
    async with fsl_laboratory({"ann": greet, "bob": greet}, {}) as lab:
        await lab.wait_left()
        assert lab.seed == fsl_seed
        assert lab.told_by("ann") == ["hello from ann"]

async def test_a_failure(fsl_laboratory, autojump_clock):
    async with fsl_laboratory({"zoe": greet}, {}) as lab:
        await lab.wait_left()
        assert lab.told_by("zoe") == []
"""


def test_a_laboratory_is_there_for_the_asking_and_reports_its_failures(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine=LABORATORY)
    result, output = run(project)
    result.assert_outcomes(passed=1, failed=1)
    assert "◆ hello from zoe" in account(output)


@pytest.mark.parametrize(("name", "others"), [("c.html", []), ("c.txt", []), ("c.svg", ["c-2.svg"])])
def test_charts_of_all_tests_are_saved(project: pytest.Pytester, name: str, others: list[str]) -> None:
    project.makepyfile(test_mine=LABORATORY)
    _, output = run(project, "--fsl-chart", name)
    assert f"fsl-async: 2 charts in {name}" in output
    assert sorted(path.name for path in project.path.glob("c*.*") if path.suffix != ".py") == sorted([name, *others])
    words = "".join((project.path / each).read_text(encoding="utf-8") for each in [name, *others])
    for word in ("test_mine.py::test_greetings[seed0]", "test_a_failure", "hello from bob", "hello from zoe"):
        assert word in words


@pytest.mark.slow
def test_workers_save_their_charts_beside_each_other(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    project.makepyfile(test_mine=LABORATORY)
    options = ("-p", "xdist", "-n2", "--dist=each", "--fsl-chart=c.txt")
    output = project.runpytest_subprocess(*LOADED, *options).stdout.str()
    for worker in ("gw0", "gw1"):
        assert f"fsl-async: 2 charts in c-{worker}.txt" in output
        assert "hello from zoe" in (project.path / f"c-{worker}.txt").read_text(encoding="utf-8")
    assert "no chart" not in output
    assert not (project.path / "c.txt").exists()


def test_a_run_without_worlds_has_no_chart(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine="def test_nothing(): pass")
    _, output = run(project, "--fsl-chart=c.html")
    assert "fsl-async: no chart in c.html: no test has made a simulated world" in output
    assert not (project.path / "c.html").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [("chart.png", "a chart is a file .txt, .svg or .html"), ("nowhere/c.svg", "there is no folder nowhere")],
)
def test_a_chart_that_cannot_be_saved_is_refused(project: pytest.Pytester, words: str, reason: str) -> None:
    result = project.runpytest_inprocess(*LOADED, f"--fsl-chart={words}")
    assert reason in "\n".join(result.errlines + result.outlines)
