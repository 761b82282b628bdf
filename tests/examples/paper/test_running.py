"""A run that was killed goes on where it was; what is damaged or of other parameters is not taken for a result."""

import json
import re

import numpy as np
import pytest

from examples.paper.__main__ import main
from examples.paper.cells import Cell, Experiment, Picture, Results, Run, Section
from examples.paper.page import draw, text
from examples.paper.registry import EXPERIMENTS, cells_of, chosen
from fsl_async.errors import MisuseError


class Cells:
    """Three cells that say when they are computed; one of them kills the run, until it is told not to."""

    def __init__(self) -> None:
        self.computed: list[str] = []
        self.killed: set[str] = set()

    def make(self, name: str, value: int = 1, needs: tuple[str, ...] = ()) -> Cell:
        def compute(run: Run) -> dict[str, int]:
            if name in self.killed:
                raise KeyboardInterrupt
            self.computed.append(name)
            run.progress(1, "[not markup]")
            return {"value": run.parameters["value"]}

        return Cell(name, compute, {"value": value}, needs=needs)

    def experiment(self, value: int = 1) -> Experiment:
        cells = (self.make("first"), self.make("second", value), self.make("third", needs=("data/nowhere",)))
        return Experiment("all", "All of them", cells, lambda results: Section(f"{results.of('second')}"))


@pytest.fixture
def cells() -> Cells:
    return Cells()


@pytest.fixture
def run(cells, tmp_path, capsys):
    def run(*arguments: str, value: int = 1) -> tuple[int, str]:
        code = main([*arguments, "--write", str(tmp_path), "--data", str(tmp_path)], [cells.experiment(value)])
        return code, "".join(capsys.readouterr())

    return run


def test_a_killed_run_goes_on_at_the_cell_that_it_was_in(run, cells, tmp_path):
    cells.killed = {"second"}
    code, said = run()
    assert code == 130
    assert "the same command goes on where it was" in said
    assert not (tmp_path / "paper-results.md").exists()

    cells.killed = set()
    code, said = run()
    assert code == 0
    assert cells.computed == ["first", "second"]
    assert "skipped third: there is no" in said
    page = (tmp_path / "paper-results.md").read_text(encoding="utf-8")
    assert "Not computed yet: `third`" in page


def test_other_parameters_are_computed_anew_and_the_same_are_not(run, cells):
    run()
    run()
    assert cells.computed == ["first", "second"]
    run(value=2)
    assert cells.computed == ["first", "second", "second"]


def test_again_computes_only_what_it_names(run, cells):
    run()
    run("--again", "first")
    assert cells.computed == ["first", "second", "first"]


def test_only_computes_what_it_names(run, cells):
    code, _ = run("--only", "second")
    assert code == 0
    assert cells.computed == ["second"]


def test_a_name_that_is_none_is_refused_with_those_there_are(run):
    code, said = run("--only", "tabel-3")
    assert code == 2
    assert "there is no 'tabel-3': expected a cell (see --list), or one of all" in said


@pytest.mark.parametrize("damage", ["", "{", '{"cell": "first"}', "\xff"])
def test_a_damaged_result_is_refused_by_its_file(run, cells, tmp_path, damage):
    run()
    (tmp_path / "paper" / "first.json").write_bytes(damage.encode("latin-1"))
    code, said = run()
    assert code == 2
    assert "first.json is damaged" in said.replace("\n", "")
    assert cells.computed == ["first", "second"]

    assert run("--again", "first")[0] == 0
    assert cells.computed == ["first", "second", "first"]


def test_another_cells_result_is_refused(run, tmp_path):
    run()
    folder = tmp_path / "paper"
    (folder / "first.json").write_bytes((folder / "second.json").read_bytes())
    assert "is the result of second, not of first" in run()[1]


def test_a_cell_that_fails_keeps_no_other_from_running(tmp_path, capsys):
    def fail(run: Run) -> dict[str, int]:
        raise ValueError("no such luck")

    whole = Cells()
    cells = (Cell("failing", fail, {}), whole.make("other"))
    code = main(["--write", str(tmp_path)], [Experiment("one", "One", cells, lambda results: Section(""))])
    assert code == 1
    assert "no such luck" in "".join(capsys.readouterr())
    assert whole.computed == ["other"]


def test_a_long_cell_goes_on_at_its_checkpoint(tmp_path, capsys):
    steps: list[int] = []

    def count(run: Run) -> dict[str, int]:
        done = int(run.saved().get("done", np.array(0)))
        for step in range(done, 4):
            steps.append(step)
            run.save({"done": np.array(step + 1)})
            if steps == [0, 1]:
                raise KeyboardInterrupt
        return {"steps": 4}

    experiment = Experiment("one", "One", (Cell("long-of-the-tests", count, {}),), lambda results: Section(""))
    codes = [main(["--write", str(tmp_path)], [experiment]) for _ in range(2)]
    assert codes == [130, 0]
    assert steps == [0, 1, 2, 3]


def test_two_cells_of_one_name_are_refused(cells):
    both = [
        Experiment(name, name, (cells.make("same", n),), lambda results: Section("")) for n, name in enumerate("ab")
    ]
    with pytest.raises(MisuseError, match="two different cells have the name 'same'"):
        cells_of(both)


def test_a_name_of_a_cell_is_the_name_of_a_file():
    with pytest.raises(MisuseError, match="small letters"):
        Cell("../up", lambda run: {}, {})


def test_equal_results_make_equal_pictures(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    picture = Picture("line", "A line.", lambda figure: figure.subplots().plot([1, 2], label="ours"))
    paths = [tmp_path / "one" / "line.svg", tmp_path / "two" / "line.svg"]
    for path in paths:
        draw(picture, path)
    first, second = (path.read_text(encoding="utf-8") for path in paths)
    assert first == second
    assert not re.search(r"\d{4}-\d{2}-\d{2}T", first)


def test_the_page_of_no_results_says_so():
    page = text(EXPERIMENTS, Results({}))
    for experiment in EXPERIMENTS:
        assert f"## {experiment.title}\n" in page
    assert "Nothing was computed yet." in page


def test_every_experiment_can_be_asked_for():
    for experiment in EXPERIMENTS:
        names = {cell.name for cell in chosen(EXPERIMENTS, [experiment.name])}
        assert names == {cell.name for cell in experiment.cells}
    for cell in cells_of(EXPERIMENTS):
        assert json.dumps(dict(cell.parameters))
