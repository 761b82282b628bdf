"""`fsl-async bench --calibrate`: the constants of the scaling model, measured on this machine."""

import os
from pathlib import Path

import pytest

from fsl_async.costs.scaling import ANOTHER_MACHINE, load_of
from parties.commands.application import app
from parties.commands.bench import calibrating, deployed
from parties.commands.bench.deployed import RoundTaken, Size
from parties.commands.bench.machine import Spent, memory_of, require_proc, spent_by
from parties.commands.bench.workload import Case
from parties.commands.plan.calibration import load_constants

FEW, MORE = Size("few", 600, 9, 4), Size("more", 4096, 64, 4)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = app(["bench", *map(str, words)], exit_on_error=False, print_error=False)
    captured = capsys.readouterr()
    return int(code), captured.out, " ".join(captured.err.split())


@pytest.mark.slow
def test_constants_are_measured_and_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibrating, "SMALL", FEW)
    monkeypatch.setattr(calibrating, "LARGE", MORE)
    for name, value in (("FEWER", 1.0), ("REPETITIONS", 1), ("TURNS", 1)):
        monkeypatch.setattr(calibrating, name, value)
    monkeypatch.setattr(calibrating, "NARROW", Case(rows=2**12, select=64, bits=64))
    monkeypatch.setattr(calibrating, "WIDE", Case(rows=2**11, select=64, bits=64, width=8))
    monkeypatch.setattr(calibrating, "LARGE_PART", 30_000)
    path = tmp_path / "constants.json"
    code, out, _ = run(capsys, "--calibrate", path)
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
        return calibrating._Deployments(taken, taken, (deployed.SMALL, deployed.LARGE))

    line = deployments(0.5).line_beside(deployments(0.2), "loop")
    few, many = deployed.LARGE.clients, deployed.SMALL.clients
    first, second = (load_of(size.task()).size for size in (deployed.SMALL, deployed.LARGE))
    assert line.at(first) == pytest.approx(30 / many)
    assert line.at(second) == pytest.approx(30 / few)


def test_a_thread_is_named_by_what_it_does() -> None:
    require_proc()
    spent = spent_by(os.getpid())
    assert spent.loop > 0
    assert spent.total >= spent.loop + spent.others
    now, most = memory_of(os.getpid())
    assert most >= now > 10**7


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--calibrate", "/none/c.json")
    assert (code, out) == (3, "")
    assert "there is no folder /none" in err
