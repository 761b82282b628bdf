"""The planner: what it recommends, what it prints, and how the command ends."""

import json
import math
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from fsl_async import Adam, Momentum, Ring, Sparse, Task
from fsl_async.costs.variants import Name, build
from fsl_async.errors import MisuseError
from parties.commands.application import app
from parties.commands.plan import calibration, plan, view
from parties.commands.plan.calibration import TYPICAL
from parties.commands.plan.figures import Assumptions, size
from parties.commands.plan.plan import Crossover, Plan, crossover, figures, question_about, question_of, typical

HOME = typical(upload=20, download=100, link=1000, latency=5, cores=2)
make_plan = cache(plan.make_plan)  # a search, and several tests read the same plan


@pytest.fixture
def without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for crossovers takes most of a plan's time, and many tests do not read what it finds."""
    monkeypatch.setattr(plan, "crossover", lambda *_: Crossover(0.5, 0.5))


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
    return " ".join((plan.verdict, *plan.why))


def test_few_rows_of_a_large_model_are_worth_trees() -> None:
    made = make_plan(question(), HOME)
    assert made.use is Name.BASIC
    assert made.costed[Name.BASIC].total.up < made.costed[Name.TRIVIAL].total.up
    assert made.verdict.startswith("Worth it: in a round a client sends ")
    assert made.verdict.endswith("; nothing has to change.")
    assert 'Block "rows" has select=100 of rows=20,000 (0.5 %)' in said(made)


def test_too_many_rows_are_not_and_groups_of_weights_are_suggested() -> None:
    made = make_plan(question(select=6000), HOME)
    assert made.use is Name.TRIVIAL
    assert made.verdict.startswith("Not worth it: ")
    most = round(made.crossovers[Name.BASIC].transfer * 20_000)
    assert f'; select at most {most:,} rows of block "rows"' in made.verdict
    assert make_plan(question(select=most), HOME).worth
    assert "(width=16)" in said(made)
    assert made.crossovers[Name.BASIC].transfer < 0.3


def test_wide_rows_are_moved_as_mega_elements() -> None:
    made = make_plan(question(rows=5_000, select=500, width=18), HOME)
    assert made.use is Name.MEGA
    assert made.crossovers[Name.MEGA].upload > 5 * made.crossovers[Name.BASIC].upload
    assert made.costed[Name.MEGA].total.up < made.costed[Name.BASIC].total.up / 5


@pytest.mark.usefixtures("without_search")
def test_epochs_are_recommended_only_for_several_rounds() -> None:
    assert 'selection="fixed"' not in said(plan.make_plan(question(), HOME))
    assert 'selection="fixed"' in said(plan.make_plan(question(rounds=5), HOME))


@pytest.mark.usefixtures("without_search")
def test_a_small_union_is_recommended_where_the_servers_limit_a_round() -> None:
    wide = question(rows=20_000, select=60, width=64, union=400, clients=8)
    slow_link = replace(HOME, link=1e7)
    assert 'alignment="union" saves time, not upload, with a union of 400 rows' in said(plan.make_plan(wide, slow_link))
    assert 'alignment="union" does not pay with a union of 20,000 rows' in said(
        plan.make_plan(question(union=20_000), HOME)
    )


@pytest.mark.usefixtures("without_search")
def test_a_small_union_saves_upload_and_the_sentence_says_so() -> None:
    made = plan.make_plan(question(rows=100_000, select=10, width=64, union=10, clients=10), HOME)
    alone, union = (made.costed[name].total.up for name in (Name.MEGA, Name.UNION))
    assert union < alone / 2
    expected = (
        'alignment="union" saves upload and time with a union of 10 rows that move plainly, if it may be known to'
    )
    assert f"{expected} all: a client sends {size(union)} instead of {size(alone)}" in said(made)
    assert made.verdict.endswith(", if the union may be known to all.")


@pytest.mark.usefixtures("without_search")
@pytest.mark.parametrize(("selection", "rounds"), [("adaptive", 1), ("fixed", 6)])
@pytest.mark.parametrize("union", [5, 150, 5_000])
def test_sentences_about_unions_are_true(union: int, rounds: int, selection: str) -> None:
    asked = question(rows=5_000, select=5, width=8, union=union, rounds=rounds, clients=4_000, selection=selection)
    made = plan.make_plan(asked, HOME)
    pair = (Name.EPOCHS, Name.BOTH) if selection == "fixed" else (Name.MEGA, Name.UNION)
    alone, with_union = (made.costed[name].total for name in pair)
    (sentence,) = [words for words in made.why if words.startswith("alignment=")]
    assert ("saves upload" in sentence) == (with_union.up < alone.up)
    assert f"a client sends {size(with_union.up)} instead of {size(alone.up)}" in sentence
    assert ("time" in sentence.split(" with ")[0]) == (with_union.seconds < alone.seconds)
    assert ("that move plainly" in sentence) == (union <= made.costed[Name.EPOCHS].variant.shapes[0].bins)


@pytest.mark.usefixtures("without_search")
def test_a_union_that_costs_more_than_it_saves_is_advised_against() -> None:
    made = plan.make_plan(question(alignment="union", union=20_000), HOME)
    assert made.asked is Name.UNION
    assert '; alignment="all" would make that ' in made.verdict


@pytest.mark.usefixtures("without_search")
def test_a_task_is_judged_with_its_own_settings() -> None:
    settings = {"selection": "fixed", "alignment": "union"}
    made = plan.make_plan(question(rows=20_000, select=60, width=8, union=120, rounds=9, **settings), HOME)
    assert (made.asked, made.use, made.worth) == (Name.BOTH, Name.BOTH, True)
    assert size(made.costed[Name.BOTH].total.up) in made.verdict
    assert made.question.asked.selection == "fixed"
    for changes, name in (({"selection": "fixed"}, Name.EPOCHS), ({"alignment": "union"}, Name.UNION)):
        assert plan.make_plan(question(**changes), HOME).asked is name
    anything = plan.make_plan(question(updates="any"), HOME).costed[Name.BASIC].total
    assert anything.up > plan.make_plan(question(), HOME).costed[Name.BASIC].total.up


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


@pytest.mark.usefixtures("without_search")
def test_totals_are_the_first_round_and_the_later_ones() -> None:
    for costed in plan.make_plan(question(rounds=7), HOME).costed.values():
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


@pytest.mark.usefixtures("without_search")
def test_messages_beyond_what_the_codec_can_carry_are_marked() -> None:
    result = plan.result_of(plan.make_plan(question(rows=2**29, select=2, width=4, clients=2), HOME))
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


@pytest.mark.usefixtures("without_search")
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
    assert next(iter(result)) == "recommendation"
    assert result["recommendation"]["use"] == "mega-element"
    assert result["recommendation"]["worth"] is True
    assert result["recommendation"]["verdict"].startswith("Worth it: in 3 rounds ")
    assert result["variants"][1]["settings"] == {"selection": "adaptive", "alignment": "all"}
    assert result["question"]["union"] == 400
    assert set(result["crossovers"]) == {"basic", "mega-element", "union", "epochs", "union, epochs"}


@pytest.mark.usefixtures("without_search")
def test_a_failure_that_cannot_happen_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--rows", "50", "--select", "50", "--format", "json")
    variants = {variant["name"]: variant for variant in json.loads(out)["result"]["variants"]}
    assert variants["basic"]["trees"][0]["log2_failure"] is None
    assert variants["trivial"]["trees"] == []


def test_text_shows_the_same_figures_and_the_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL)
    made = make_plan(question(rows=4000, select=40, clients=10), HOME)
    assert code == 0
    assert out.startswith(made.verdict)
    assert " ".join(made.why) in out.replace("\n", " ")
    assert size(made.costed[Name.BASIC].first.up) in out
    assert "typical speeds" in out
    assert max(len(line) for line in out.splitlines()[1:25]) <= 120


def test_misuse_ends_with_its_code_and_an_error_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--rows", "10", "--select", "11", "--format", "json")
    assert code == 3
    assert json.loads(out)["error"]["kind"] == "MisuseError"
    assert "select must be an integer from 1 to 10" in err


@pytest.mark.usefixtures("without_search")
def test_the_papers_numbers_stand_beside_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "PAPER_ROWS", 2**13)  # the rates' search over 2^20 rows takes seconds
    monkeypatch.setattr(view, "crossover", cache(view.crossover))  # both formats ask for the same ones
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


@pytest.mark.usefixtures("without_search")
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


# ---- a task file

TASK_FILE = """
[task]
name = "goods"
selection = "fixed"
alignment = "union"
max_clients = 40

[task.ring]
bits = 64
fraction_bits = 24

[[task.blocks]]
type = "sparse"
name = "words"
rows = 500
select = 20

[[task.blocks]]
type = "dense"
name = "head"
size = 3000

[[task.blocks]]
type = "sparse"
name = "items"
rows = 9000
width = 6
select = 40
stash = 1

[[servers]]
address = ""
"""


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    path = tmp_path / "task.toml"
    path.write_text(TASK_FILE)
    return path


@pytest.mark.usefixtures("without_search")
@pytest.mark.parametrize("flag", [(), ("--task",)])
def test_a_task_file_is_planned_with_all_of_its_blocks(
    flag: tuple[str, ...], task_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *flag, str(task_file), "--union", "90", "--rounds", "4", "--format", "json")
    assert code == 0
    result = json.loads(out)["result"]
    assert (result["question"]["block"], result["question"]["rows"], result["question"]["clients"]) == (
        "items",
        9000,
        40,
    )
    assert [block["name"] for block in result["task"]["blocks"]] == ["words", "head", "items"]
    assert result["recommendation"]["asked"] == "union, epochs"
    variants = {variant["name"]: variant for variant in result["variants"]}
    assert set(variants) == {"mega-element", "union", "epochs", "union, epochs", "trivial"}
    assert len(variants["epochs"]["trees"]) == 2
    assert variants["union"]["plain"] == ["items"]
    # the dense block and the plain one are in what a client submits, and every weight is in the trivial protocol's
    bulk = variants["union, epochs"]["phases"]["later_rounds"]["submit"]["up"]
    assert bulk > 8 * (3000 + 90 * 6)
    assert 0 < variants["trivial"]["phases"]["later_rounds"]["submit"]["up"] - 8 * (500 + 3000 + 9000 * 6) < 1200
    code, text, _ = run(capsys, str(task_file))
    assert 'block "items" rows=9,000, select=40 (0.444 %), width=6' in text
    assert 'block "head" dense, size=3,000' in text
    assert 'selection="fixed", updates="retrieved", alignment="union", security="verified"' in text


@pytest.mark.usefixtures("without_search")
def test_options_go_before_a_task_file_s_settings_but_not_its_blocks(
    task_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, str(task_file), "--selection", "adaptive", "--alignment", "all", "--format", "json")
    assert code == 0
    assert json.loads(out)["result"]["recommendation"]["asked"] == "mega-element"
    code, _, err = run(capsys, str(task_file), "--select", "5")
    assert code == 3
    assert "leave out --select, or change it in the file" in err
    code, _, err = run(capsys, str(task_file), "--clients", "41")
    assert code == 3
    assert "at most max_clients=40" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "is no task file"),
        ("[task", "is not TOML"),
        (
            '[task]\nname="t"\n[task.ring]\nbits=64\n[[task.blocks]]\ntype="dense"\nname="d"\nsize=5',
            "only dense blocks",
        ),
        ('[task]\nname="t"\n[task.ring]\nbits=64\n[[task.blocks]]\ntype="plain"\nname="d"\nsize=5', "plain"),
    ],
)
def test_what_is_no_task_to_plan_is_refused(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.toml").write_text(text)
    code, _, err = run(capsys, str(tmp_path / "task.toml"))
    assert code == 3
    assert expected in err
    code, _, err = run(capsys, str(tmp_path / "none.toml"))
    assert code == 3
    assert "cannot be read" in err


@pytest.mark.usefixtures("without_search")
def test_what_an_optimizer_keeps_is_said_and_where_a_round_has_no_slack() -> None:
    block, ring = Sparse("items", rows=10_000, width=8, select=50), Ring(64, fraction_bits=24)
    crowd = Task(name="t", blocks=[block], ring=ring, apply="mean", max_clients=16)
    for optimizer, words in (
        (Adam(0.1), "Adam keeps 2 float64 for each weight: on each server 1.221 MiB in the store"),
        (Momentum(1.0), "Momentum keeps 1 float64 for each weight: on each server 625 KiB in the store"),
        (None, ""),
    ):
        made = msgspec.structs.replace(crowd, optimizer=optimizer, max_clients=16 + bool(optimizer))
        why = plan.make_plan(question_about(made, clients=0, rounds=1, union=0, dtype="f4"), HOME).why
        assert [words in sentence for sentence in why if "optimizer" in sentence] == [True] * bool(optimizer)
        assert any("Leave slack" in sentence for sentence in why) == (optimizer is None)
