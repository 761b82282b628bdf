"""Every suite of `python -m tests.bench` on tiny sizes, the form of its results, and what it refuses."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.paper.efficiency.printed import PrintedTime
from fsl_async import kernels
from fsl_async.errors import FslError, MisuseError
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import Case, expected
from parties.commands.report import ExitCode
from tests.bench import page as page_module
from tests.bench.__main__ import app
from tests.bench.alone import server_alone
from tests.bench.growth import START, axes
from tests.bench.measures import Bound, Spread, aes_bound, alternate, read_bound, update_bound
from tests.bench.results import BenchReport, Result, Target
from tests.bench.rounds import PAPER, whole_round
from tests.bench.run import SUITES, WHOLE, run_bench
from tests.bench.workload import Options, aes_per_leaf, aes_spent_per_leaf, clients_of

TINY = Options(rows=600, select=9, width=2, bits=64, clients=2)
SIZES = "--rows 600 --select 9 --width 2 --bits 64 --clients 2"
REQUIRED = {"name", "parameters", "seconds", "rate", "unit", "bound", "ratio", "paper"}


def run(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = app(f"{words} --format json", exit_on_error=False, print_error=False)
    return int(code), json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def fastest_instructions() -> Iterator[None]:
    """Other tests take the fastest set for granted."""
    yield
    kernels.select_isa()


OF_THEIR_OWN = {"growth", "cluster"}  # one is slow, the other has tests of its own


@pytest.mark.parametrize(
    "suite", [*sorted(SUITES.keys() - OF_THEIR_OWN), pytest.param("growth", marks=pytest.mark.slow)]
)
def test_a_suite_gives_one_json_object(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(f"{suite} {SIZES}", capsys)
    assert code == ExitCode.OK
    assert {key: said[key] for key in ("version", "command")} == {"version": 1, "command": f"bench {suite}"}
    assert set(said) == {"version", "command", "results"}
    assert said["results"]
    for result in said["results"]:
        assert result.keys() >= REQUIRED
        assert result["parameters"]["width"] in (2, *(2**power for power in range(7)))
        assert result["seconds_min"] <= result["seconds"] <= result["seconds_max"]
        assert result["rate"] > 0
        if result["bound"] is None:
            assert result["ratio"] is None
        else:
            assert result["bound_min"] <= result["bound"] <= result["bound_max"]
            assert math.isclose(result["ratio"], result["rate"] / result["bound"])


def test_sizes_that_are_given_replace_the_suites_cases(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = run(f"generate {SIZES}", capsys)
    for result in said["results"]:
        found = {key: result["parameters"][key] for key in ("rows", "select", "width", "bits", "clients")}
        assert found == {"rows": 600, "select": 9, "width": 2, "bits": 64, "clients": 2}


@pytest.mark.parametrize(("bits", "methods"), [(32, {"projected"}), (128, {"exact", "projected"})])
def test_bounds_are_measured_in_every_ring(bits: int, methods: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(f"bounds --rows 600 --select 9 --bits {bits}", capsys)
    assert code == ExitCode.OK
    assert {result["parameters"].get("bound_proof") for result in said["results"]} - {None} == methods


def test_a_selection_that_is_not_given_stays_as_large_a_part() -> None:
    assert Options(rows=2**16).apply(Case(rows=2**20, select=2**17)).select == 2**13


def test_an_instruction_set_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(f"generate {SIZES} --isa plain", capsys)
    assert code == ExitCode.OK
    assert said["results"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("kernels --rows 0", "rows must be an integer"),
        ("kernels --rows 10 --select 11", "select must be an integer"),
        ("round --rows 600 --clients 0", "clients: at least 1"),
        ("psr --threads 0", "threads: at least 1"),
        ("din --isa none", "instruction set 'none'"),
        ("psr --write somewhere", "--write"),
        ("all --rows 600", "name one suite"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_the_common_form(
    words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(words, capsys)
    assert code == ExitCode.MISUSE
    assert said["error"]["code"] == ExitCode.MISUSE
    assert reason in said["error"]["message"]


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(f"generate {SIZES}", exit_on_error=False, print_error=False) == ExitCode.OK
    table = capsys.readouterr().out
    assert all(heading in table for heading in ("what", "rate", "bound", "ratio", "paper"))
    assert "plant, m=600" in table


RESULT = Result(
    name="x",
    parameters={},
    seconds=Spread(1, 1, 1),
    rate=2.0,
    unit="leaves/s",
    bound=Spread(4, 4, 4),
    targets=(Target(2.0, "at most", 1.0, "s"),),
)


@pytest.mark.parametrize("targets", [False, True])
def test_targets_are_shown_to_developers_alone(targets: bool, capsys: pytest.CaptureFixture[str]) -> None:
    BenchReport("bench x", "text", targets=targets).results([RESULT])
    table = capsys.readouterr().out
    assert "0.50" in table  # the ratio to the bound is everybody's
    assert ("MISSED" in table) is ("target" in table) is targets
    BenchReport("bench x", "json", targets=targets).results([RESULT])
    assert ("targets" in json.loads(capsys.readouterr().out)["results"][0]) is targets


def test_the_flag_for_targets_is_a_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, shown in (("", False), (" --targets", True)):
        _, said = run(f"kernels {SIZES}{flag}", capsys)
        assert any("targets" in result for result in said["results"]) is shown


# ---- the page


@pytest.fixture
def tiny_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `all` runs, on tiny sizes."""
    start = Case(rows=2**10, select=16, bits=64)
    monkeypatch.setattr("tests.bench.growth.START", start)
    monkeypatch.setattr("tests.bench.growth.REPETITIONS", 1)
    monkeypatch.setattr("tests.bench.run.large_round", lambda: whole_round(start))
    for suite, function in SUITES.items():
        if suite != "growth":
            monkeypatch.setitem(SUITES, suite, lambda _, function=function: function(TINY))


@pytest.mark.usefixtures("tiny_suites")
@pytest.mark.parametrize("targets", [False, True])
def test_everything_leaves_a_page_with_plots(targets: bool, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra [plot]")
    folder = tmp_path / "benchmarks"
    run_bench("all", Options(), "", folder, BenchReport("bench all", "json", targets=targets))
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.count("    python -m tests.bench ") == 1 + len(WHOLE)
    for name in ("rows", "select", "width", "clients", "threads"):
        assert f"({name}.png)" in page
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for line in page.splitlines():
        assert not line.startswith("|") or line.count("|") == 7 + targets
    assert ("targets are met" in page) is targets


def test_without_matplotlib_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MisuseError, match=r"fsl-async\[plot\]"):
        page_module.check_writable(tmp_path / "benchmarks")


def test_every_axis_grows_in_one_parameter_alone() -> None:
    for axis in axes(START):
        values = [getattr(case, axis.name) for case in axis.cases]
        assert values == sorted(set(values))


# ---- measures


def test_work_and_bound_take_turns() -> None:
    turns: list[str] = []

    def bound() -> float:
        turns.append("bound")
        return float(len(turns))

    found, seconds = alternate(3, Bound("turns", bound), lambda: turns.append("work"))
    assert turns == ["bound", "work"] + 3 * ["work", "bound"]
    assert found == Spread(6.0, 4.0, 8.0)
    assert len(seconds) == 1
    assert seconds[0].least <= seconds[0].median <= seconds[0].greatest


@pytest.mark.parametrize("threads", [1, 2])
def test_every_job_runs_once(threads: int) -> None:
    ran: list[int] = []
    run_all([lambda number=number: ran.append(number) for number in range(20)], threads)
    assert sorted(ran) == list(range(20))


def test_an_error_in_a_thread_comes_out() -> None:
    def fail() -> None:
        raise FslError("this job fails")

    with pytest.raises(FslError, match="this job fails"):
        run_all([fail], 2)


@pytest.mark.parametrize("bound", [aes_bound, read_bound, update_bound])
def test_bounds_are_positive(bound: Any) -> None:
    assert bound(2).measure() > 0


@pytest.mark.parametrize(("sense", "met"), [("at most", False), ("at least", True)])
def test_a_target_is_met_on_its_side(sense: Any, met: bool) -> None:
    target = Target(2.0, sense, 1.0, "s")
    assert target.met is met
    assert ("MISSED" in str(target)) is not met
    assert Target(1.0, sense, 1.0, "s").met


def test_a_result_without_a_bound_has_no_ratio() -> None:
    plain = Result(name="x", parameters={}, seconds=Spread(1, 1, 1), rate=2.0, unit="bytes").plain()
    assert plain["bound"] is None
    assert plain["ratio"] is None


# ---- the workload


def test_work_is_counted_as_stated() -> None:
    case = Case(rows=2**14, select=164, width=64, bits=32)
    assert aes_per_leaf(case) == 1 + 16 + 1
    inner = sum(-(-case.forest.leaves // 2**level) for level in range(1, case.forest.depth + 1))
    assert aes_spent_per_leaf(case) == inner / case.forest.leaves + 16 + 1


def test_the_expected_sum_is_the_clients_updates() -> None:
    case = Case(rows=50, select=7, width=3, bits=32, clients=3)
    clients = clients_of(case)
    total = np.zeros((50, 3), dtype=np.uint32)
    for client in clients:
        for row, elements in zip(client.rows, client.elements, strict=True):
            total[row] += elements
    assert np.array_equal(expected(case, clients), total)


def test_a_wrong_sum_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(rows=600, select=9, clients=2)
    monkeypatch.setattr("tests.bench.rounds.expected", lambda case, clients: case.task.ring.zeros(case.rows, 1))
    with pytest.raises(FslError, match="must never happen"):
        list(whole_round(case))


def test_a_server_alone_reports_its_memory() -> None:
    case = Case(rows=600, select=9, clients=2)
    account = server_alone(case, clients_of(case), fold=True)
    assert account.peak >= account.started > 2**20
    assert len(account.evaluation) == 2


def test_a_server_that_fails_alone_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "no memory left\n")

    monkeypatch.setattr(subprocess, "run", failed)
    case = Case(rows=600, select=9)
    with pytest.raises(FslError, match="no memory left"):
        server_alone(case, clients_of(case), fold=False)


def test_the_papers_misplaced_time_is_shown_as_a_bound() -> None:
    result = Result(name="x", parameters={}, seconds=Spread(1, 1, 1), rate=2.0, unit="per s")
    printed = {
        "paper": replace(result, paper=PrintedTime(22.806)),
        "bound": replace(result, paper=PrintedTime(0.98, at_most=True)),
        "bytes": replace(result, unit="bytes", paper=1e6),
    }
    assert {name: shown.cells()[5] for name, shown in printed.items()} == {
        "paper": "22.806 s",
        "bound": "≤ 0.98 s",
        "bytes": "1 M bytes",
    }
    assert (printed["bound"].plain()["paper"], printed["bound"].plain()["paper_at_most"]) == (0.98, True)
    assert PAPER["evaluate, per client"] == PrintedTime(0.98, at_most=True)
