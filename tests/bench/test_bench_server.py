"""The benchmark of a server: every figure at tiny sizes, and what it refuses. Nothing here is timed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsl_async.costs.scaling import ANOTHER_MACHINE
from parties.commands.bench.deployed import Deployed, RoundTaken, Size, take_rounds
from parties.commands.bench.machine import Spent
from tests.bench.__main__ import app
from tests.bench.server import adding, figures, parts, rounds, submission
from tests.bench.server.figures import ASKED_FOR, FIGURES

FEW = Size("few", 512, 4, 6)
MORE = Size("more", 4096, 64, 4)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = app([*map(str, words)], exit_on_error=False, print_error=False)
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


def test_two_versions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    def taken(python: Path, rows: int, select: int) -> list[float]:
        turns.append((python.name, rows))
        return [0.01, 0.02, 0.03, 0.04] if python.name == "other" else [0.005, 0.01, 0.03, 0.02]

    monkeypatch.setattr(submission, "_taken", taken)
    monkeypatch.setattr(submission, "TURNS", 2)
    loop = list(submission.submission(Path("other")))[1]
    assert [name == "other" for name, _ in turns] == [False, True] * 4
    assert loop.parameters["of_the_other"] == pytest.approx(0.5)
    assert loop.ratio == pytest.approx(2)
    assert next(submission.submission()).bound is None


@pytest.mark.slow
def test_rounds_are_measured_thread_by_thread_beside_their_evaluation_and_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[RoundTaken] = []

    def take(deployed: Deployed) -> RoundTaken:
        seen.append(take_rounds(deployed))
        return seen[-1]

    more = {"take_rounds": take, "calibrated": lambda progress: ANOTHER_MACHINE}
    for name, value in ({"SIZES": ((FEW, FEW.clients, True),), "TURNS": 1} | more).items():
        monkeypatch.setattr(rounds, name, value)
    (result,) = rounds.whole_rounds()
    assert result.bound is not None
    (target,) = result.targets
    (taken,) = seen
    assert target.figure == pytest.approx(abs(result.parameters["predicted_seconds"] / taken.outcome - 1))
    for until_receipts, until_outcome in taken.spent:
        assert 0 < until_receipts.loop <= until_outcome.loop
        assert until_outcome.total >= until_receipts.total
    assert taken.until(1).total == pytest.approx(sum(spent[1].total for spent in taken.spent) / 2)
    assert 0 < taken.receipts <= taken.outcome
    assert taken.ending > 0
    assert all(10**7 < before <= until <= most for before, until, most in taken.memory)


@pytest.mark.slow
def test_the_memory_of_large_submissions_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WEIGHTS": 5_000, "WAYS": {"one after the other": 1}}.items():
        monkeypatch.setattr(rounds, name, value)
    (result,) = rounds.budget()
    assert result.targets[0].met == (result.rate <= result.targets[0].limit)
    assert len(result.parameters["memory_bytes"]) == 2


@pytest.mark.slow
def test_this_version_measures_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "CLIENTS", 3)
    assert all(seconds > 0 for seconds in submission._taken(Path(sys.executable), FEW.rows, FEW.select))


def test_the_large_one_runs_only_if_it_is_named_and_warns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", {"outcomes": parts.outcomes})
    monkeypatch.setattr(figures, "ASKED_FOR", {"large": parts.outcomes})
    for words, warned in (((), False), (("--only", "large"), True)):
        code, out, err = run(capsys, "server", *words, "--format", "json")
        assert (code, len(json.loads(out)["results"])) == (0, 1)
        assert ("14 GiB of memory" in err) == warned


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("server", "--only", "nothing"), f"one of {', '.join([*FIGURES, *ASKED_FOR])} expected, got 'nothing'"),
        (("server", "--only", "crowd", "--beside", "python"), "--beside: expected with --only submission"),
        (("round", "--beside", "python"), "--beside: expected with server, not with round"),
        (("server", "--rows", 3), "its sizes are fixed"),
        (("round", "--only", "blobs"), "--only: expected with server, not with round"),
    ],
)
def test_bad_options_are_refused_by_name(words: tuple, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (3, "")
    assert expected in err
