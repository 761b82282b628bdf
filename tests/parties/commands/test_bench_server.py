"""`bench server`: every figure at tiny sizes, the constants it measures, and what it refuses. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsl_async.costs.scaling import ANOTHER_MACHINE, load_of
from parties.commands.application import app
from parties.commands.bench.server import adding, calibrating, figures, parts
from parties.commands.bench.server.deployed import Deployed, RoundTaken, take_rounds
from parties.commands.bench.server.figures import FIGURES, Size
from parties.commands.bench.server.spent import Spent, memory_of, require_proc, spent_by
from parties.commands.bench.workload import Case
from parties.commands.plan.constants_file import load_constants

FEW = Size("few", 512, 4, 6)
MORE = Size("more", 4096, 64, 4)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = app(["bench", *map(str, words)], exit_on_error=False, print_error=False)
    captured = capsys.readouterr()
    return int(code), captured.out, " ".join(captured.err.split())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MANY", 300)
    monkeypatch.setattr(parts, "LARGE_PART", 30_000)
    monkeypatch.setattr(parts, "SMALL_PART", 3_000)
    monkeypatch.setattr(adding, "CROWD", 40)
    monkeypatch.setattr(adding, "SIZES", ((600, 9),))
    monkeypatch.setattr(adding, "REPETITIONS", 1)


@pytest.mark.parametrize("figure", ["submitted", "outcomes", "blobs", "batch", "crowd"])
def test_a_figure_alone_is_one_or_more_results(figure: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "server", "--only", figure, "--format", "json")
    results = json.loads(out)["results"]
    assert code == 0
    assert results
    for result in results:
        assert result["rate"] > 0
        assert result["seconds_min"] <= result["seconds"] <= result["seconds_max"]


def test_submissions_recorded_together_and_what_is_compared_are_in_one_result() -> None:
    (result,) = parts.submitted()
    assert result.parameters["clients"] == 300
    assert result.bound is not None
    (target,) = result.targets
    assert (target.sense, target.limit) == ("at most", 0.1)


def test_files_are_compared_with_the_database() -> None:
    large, small = parts.blobs()
    assert large.bound is not None
    assert small.parameters["count"] == 400


@pytest.mark.slow
def test_processes_are_measured_thread_by_thread() -> None:
    taken = take_rounds(Deployed(FEW.task(), FEW.clients))
    for until_receipts, until_outcome in taken.spent:
        assert 0 < until_receipts.loop <= until_outcome.loop
        assert until_outcome.total >= until_receipts.total
    assert taken.until(1).total == pytest.approx(sum(spent[1].total for spent in taken.spent) / 2)
    assert 0 < taken.receipts <= taken.outcome
    assert taken.ending > 0
    assert all(most >= before > 10**7 for most, before in taken.memory)


def test_a_client_s_share_has_no_part_of_the_round_s_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small ones, what follows the receipts is asking for the outcome; with large ones, that is added alone."""
    seen = {
        figures.SMALL.rows: [Spent(loop=0.2, writer=0.2), Spent(loop=0.4, writer=0.2)],
        figures.LARGE.rows: [Spent(loop=0.4, writer=0.0), Spent(loop=9.0, writer=9.0)],
    }

    def take(deployed: Deployed) -> RoundTaken:
        moments = seen[deployed.task.blocks[0].rows]
        return RoundTaken(spent=[moments, moments])

    monkeypatch.setattr(figures, "take_rounds", take)
    small, _, _, large, *_ = figures.one_process()
    assert small.seconds.median == pytest.approx(0.4 / figures.SMALL.clients)
    assert large.seconds.median == pytest.approx(0.4 / figures.LARGE.clients + 0.2 / figures.SMALL.clients)


@pytest.mark.slow
def test_constants_are_measured_and_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibrating, "SMALL", FEW)
    monkeypatch.setattr(calibrating, "LARGE", MORE)
    monkeypatch.setattr(calibrating, "FEWER", 1.0)
    monkeypatch.setattr(calibrating, "NARROW", Case(rows=2**12, select=64, bits=64))
    monkeypatch.setattr(calibrating, "WIDE", Case(rows=2**11, select=64, bits=64, width=8))
    monkeypatch.setattr(calibrating, "LARGE_PART", 30_000)
    path = tmp_path / "constants.json"
    code, out, _ = run(capsys, "server", "--calibrate", path)
    assert code == 0
    constants = load_constants(path)
    assert "this machine" in constants.machine
    assert constants.machine in out
    assert constants.loop.client > 0
    assert constants.fold > 0
    assert constants.leaf >= 0  # a difference of measurements, which at this size may be lost in their scatter
    assert constants.disk > 0
    assert constants.retrieval is not None
    assert constants != ANOTHER_MACHINE


def test_the_large_one_runs_only_if_it_is_named_and_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", {"outcomes": parts.outcomes})
    monkeypatch.setattr(figures, "ASKED_FOR", {"large": parts.outcomes})
    for words, warned in (((), False), (("--only", "large"), True)):
        code, out, err = run(capsys, "server", *words, "--format", "json")
        assert (code, len(json.loads(out)["results"])) == (0, 1)
        assert ("14 GiB of memory" in err) == warned


def test_lines_go_through_both_points_and_are_never_negative() -> None:
    line = calibrating._through(1e5, 0.005, 2e6, 0.018)
    assert line.at(1e5) == pytest.approx(0.005)
    assert line.at(2e6) == pytest.approx(0.018)
    assert calibrating._through(1e5, 0.005, 2e6, 0.001).megabyte == 0
    assert calibrating._through(1e6, 0.001, 2e6, 0.018).client == 0


def test_what_a_retrieval_adds_is_the_difference_of_deployments() -> None:
    def deployments(loop: float) -> calibrating._Deployments:
        until, outcome = Spent(loop=100 * loop), Spent(loop=100 * loop + 1)
        taken = RoundTaken(spent=[[until, outcome], [until, outcome]])
        return calibrating._Deployments(taken, taken, (figures.SMALL, figures.LARGE))

    line = deployments(0.5).line_beside(deployments(0.2), calibrating._loop)
    few, many = figures.LARGE.clients, figures.SMALL.clients
    first, second = (load_of(size.task()).size for size in (figures.SMALL, figures.LARGE))
    assert line.at(first) == pytest.approx(30 / many)
    assert line.at(second) == pytest.approx(30 / few)


def test_a_thread_is_named_by_what_it_does() -> None:
    import os

    require_proc()
    spent = spent_by(os.getpid())
    assert spent.loop > 0
    assert spent.total >= spent.loop + spent.others
    now, most = memory_of(os.getpid())
    assert most >= now > 10**7


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("server", "--only", "nothing"), f"one of {', '.join(FIGURES)}, large expected, got 'nothing'"),
        (("server", "--rows", 3), "its sizes are fixed"),
        (("server", "--calibrate", "c.json", "--only", "blobs"), "not measured with --calibrate"),
        (("server", "--calibrate", "/none/c.json"), "there is no folder /none"),
        (("round", "--only", "blobs"), "--only: expected with server, not with round"),
        (("round", "--calibrate", "c.json"), "--calibrate: expected with server"),
    ],
)
def test_bad_options_are_refused_by_name(words: tuple, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (3, "")
    assert expected in err
