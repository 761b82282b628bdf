"""The planner: what it recommends, what it prints, and how the command ends."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fsl_async.errors import MisuseError
from fsl_async.variants import Name, build
from parties.command import app
from parties.planning import calibration, plan, view
from parties.planning.calibration import TYPICAL
from parties.planning.plan import Assumptions, Plan, crossover, figures, make_plan, question_of, size, typical

HOME = typical(upload=20, download=100, link=1000, latency=5, cores=2)


def question(**changes):
    asked = {
        "rows": 20_000,
        "select": 100,
        "width": 1,
        "bits": 64,
        "clients": 50,
        "rounds": 1,
        "security": "verified",
        "union": 0,
        "dtype": "f4",
    }
    return question_of(**(asked | changes))


def said(plan: Plan) -> str:
    return " ".join(plan.why)


def test_few_rows_of_a_large_model_are_worth_trees() -> None:
    made = make_plan(question(), HOME)
    assert made.use is Name.BASIC
    assert made.costed[Name.BASIC].total.up < made.costed[Name.TRIVIAL].total.up
    assert "Use basic: at k/m = 0.5 %" in said(made)


def test_too_many_rows_are_not_and_groups_of_weights_are_suggested() -> None:
    made = make_plan(question(select=6000), HOME)
    assert made.use is Name.TRIVIAL
    assert "Use trivial: at k/m = 30 %" in said(made)
    assert "--width 16" in said(made)
    assert made.crossovers[Name.BASIC].transfer < 0.3


def test_wide_rows_are_moved_as_mega_elements() -> None:
    made = make_plan(question(rows=5_000, select=500, width=18), HOME)
    assert made.use is Name.MEGA
    assert made.crossovers[Name.MEGA].upload > 5 * made.crossovers[Name.BASIC].upload
    assert made.costed[Name.MEGA].total.up < made.costed[Name.BASIC].total.up / 5


def test_epochs_are_recommended_only_for_several_rounds() -> None:
    assert "epochs" not in said(make_plan(question(), HOME))
    assert 'selection="fixed"' in said(make_plan(question(rounds=5), HOME))


def test_a_small_union_is_recommended_where_the_servers_limit_a_round() -> None:
    wide = question(rows=20_000, select=60, width=64, union=80, clients=8)
    slow_link = replace(HOME, link=1e7)
    assert "use union" in said(make_plan(wide, slow_link))
    assert "Do not use union" in said(make_plan(question(union=20_000), HOME))


def test_a_variant_at_its_crossover_costs_what_trivial_does_and_one_row_more_costs_more() -> None:
    asked = question(rows=3000, select=30)
    limit = crossover(Name.BASIC, asked, HOME)
    for field, fraction in (("up", limit.upload), ("transfer_seconds", limit.transfer)):
        select = round(fraction * asked.rows)
        trivial, below, above = (
            getattr(figures(build(name, replace(asked, select=k, union=asked.rows)).first, 2, HOME), field)
            for name, k in ((Name.TRIVIAL, 30), (Name.BASIC, select), (Name.BASIC, select + 1))
        )
        assert below <= trivial < above


def test_totals_are_the_first_round_and_the_later_ones() -> None:
    for costed in make_plan(question(rounds=7), HOME).costed.values():
        for field in ("up", "down", "link", "client_blocks", "server_blocks", "seconds"):
            whole = getattr(costed.first, field) + 6 * getattr(costed.later, field)
            assert getattr(costed.total, field) == pytest.approx(whole)


def test_seconds_are_counts_over_speeds() -> None:
    costs = build(Name.BASIC, question()).first
    once = figures(costs, 50, HOME)
    assert once.transfer_seconds == pytest.approx(once.up / 2.5e6 + once.down / 12.5e6)
    assert once.client_seconds == pytest.approx(once.client_blocks / TYPICAL.client)
    assert once.link_seconds == pytest.approx(once.link / 2 / 125e6 + costs.steps * 0.005)
    assert figures(costs, 50, replace(HOME, cores=4)).server_seconds == pytest.approx(once.server_seconds / 2)
    more = figures(costs, 100, HOME).server_seconds - once.server_seconds
    per_client = once.server_blocks / TYPICAL.server + costs.work.read_rows / TYPICAL.read_rows
    assert more == pytest.approx(50 * per_client / 2)


def test_messages_beyond_what_the_codec_can_carry_are_marked() -> None:
    result = plan.result_of(make_plan(question(rows=2**29, select=2, width=4, clients=2), HOME))
    marks = {variant["name"]: variant["sendable"] for variant in result["variants"]}
    assert marks["trivial"] is False
    assert marks["mega-element"] is True


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"select": 20_001}, "select must be an integer from 1 to 20000"),
        ({"union": 99}, "from select=100 to rows=20000"),
        ({"union": 20_001}, "from select=100 to rows=20000"),
        ({"clients": 1}, "from 2 to"),
        ({"rounds": 0}, "at least 1"),
        ({"bits": 63}, "32, 64 or 128"),
        ({"dtype": "f3"}, "got 'f3'"),
    ],
)
def test_questions_outside_their_range_are_refused(changes: dict, expected: str) -> None:
    with pytest.raises(MisuseError, match=expected):
        question(**changes)


@pytest.mark.parametrize(
    "changes", [{"upload": 0}, {"cores": 0}, {"link": -1}, {"latency": -0.1}, {"download": math.nan}]
)
def test_assumptions_outside_their_range_are_refused(changes: dict) -> None:
    with pytest.raises(MisuseError, match="positive"):
        replace(HOME, **changes)


def test_the_most_a_union_can_be_is_the_default() -> None:
    assert question(clients=50, select=100).union == 5000
    assert question(clients=500, select=100).union == 20_000


# ---- the command


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = app(["plan", *words], exit_on_error=False, print_error=False)
    captured = capsys.readouterr()
    return int(code), captured.out, " ".join(captured.err.split())


SMALL = ("--rows", "4000", "--select", "40", "--clients", "10")


def test_json_is_one_object_with_every_variant(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--width", "4", "--rounds", "3", "--format", "json")
    assert (code, err) == (0, "")
    envelope = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert (envelope["version"], envelope["command"]) == (1, "plan")
    result = envelope["result"]
    assert [variant["name"] for variant in result["variants"]] == [name.value for name in Name]
    for variant in result["variants"]:
        phases = variant["phases"]["first_round"].values()
        assert sum(phase["up"] for phase in phases) == variant["first_round"]["up"]
        assert sum(phase["down"] for phase in phases) == variant["first_round"]["down"]
    assert result["recommendation"]["use"] == "mega-element"
    assert result["question"]["union"] == 400
    assert set(result["crossovers"]) == {"basic", "mega-element", "union", "epochs"}


def test_a_failure_that_cannot_happen_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--rows", "50", "--select", "50", "--format", "json")
    variants = {variant["name"]: variant for variant in json.loads(out)["result"]["variants"]}
    assert variants["basic"]["trees"][0]["log2_failure"] is None
    assert variants["trivial"]["trees"] == []


def test_text_shows_the_same_figures_and_the_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL)
    made = make_plan(question(rows=4000, select=40, clients=10), HOME)
    assert code == 0
    assert said(made) in out.replace("\n", " ")
    assert size(made.costed[Name.BASIC].first.up) in out
    assert "typical speeds" in out
    assert max(len(line) for line in out.splitlines()[:25]) <= 120


def test_misuse_ends_with_its_code_and_an_error_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--rows", "10", "--select", "11", "--format", "json")
    assert code == 3
    assert json.loads(out)["error"]["kind"] == "MisuseError"
    assert "select must be an integer from 1 to 10" in err


def test_the_papers_numbers_stand_beside_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PAPER_ROWS", 2**13)  # the rates' search over 2^20 rows takes seconds
    code, out, _ = run(capsys, *SMALL, "--paper", "--format", "json")
    assert code == 0
    paper = json.loads(out)["result"]["paper"]
    last = paper["table"][-1]
    assert last["printed_mib"] == 20.28
    assert last["formula_mib"] == pytest.approx(20.28, abs=0.005)
    assert last["ours_mib"]["semi-honest"] < last["ours_mib"]["verified"] < last["formula_mib"]
    assert [rate["printed"] for rate in paper["rates"]] == [0.078, 0.134, 0.531]
    assert [round(rate["formula"], 3) for rate in paper["rates"]] == [0.079, 0.132, 0.531]
    assert all(rate["ours"]["verified"] < rate["ours"]["semi-honest"] for rate in paper["rates"])
    _, text, _ = run(capsys, *SMALL, "--paper")
    assert "20.28" in text
    assert "53.1 %" in text


def test_speeds_measured_here_are_used_and_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "ROWS", 2**12)
    monkeypatch.setattr(calibration, "SELECT", 2**6)
    code, out, _ = run(capsys, *SMALL, "--calibrate", "--format", "json")
    assumptions = json.loads(out)["result"]["assumptions"]
    assert code == 0
    assert assumptions["measured"] is True
    assert all(speed > 0 for speed in assumptions["speeds"].values())
    assert assumptions["speeds"] != plan.asdict(TYPICAL)


def test_the_picture_is_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    monkeypatch.setattr(view, "POINTS", 5)
    code, _, _ = run(capsys, *SMALL, "--plot", str(tmp_path / "plan.svg"))
    assert code == 0
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    code, _, err = run(capsys, *SMALL, "--plot", str(tmp_path / "none" / "plan.svg"))
    assert code == 3
    assert "cannot be written" in err


def test_without_matplotlib_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run(capsys, *SMALL, "--plot", str(tmp_path / "plan.svg"))
    assert code == 3
    assert "extra `plot`" in err


def test_assumptions_come_in_everyday_units() -> None:
    assert typical(20, 100, 1000, 5, 2) == Assumptions(20e6, 100e6, 1e9, 0.005, 2, TYPICAL)
