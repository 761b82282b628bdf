"""The page of the committed results is the committed page."""

import pytest

from examples.paper.page import PICTURES, draw, text
from examples.paper.registry import EXPERIMENTS, cells_of
from examples.paper.results import ResultFolder
from tests import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results():
    return ResultFolder(DOCS / PICTURES).read_all(cells_of(EXPERIMENTS))


def test_the_page_follows_from_the_results(results):
    assert (DOCS / "paper-results.md").read_text(encoding="utf-8") == text(EXPERIMENTS, results), (
        "python -m examples.paper --page writes it again"
    )


def test_every_result_belongs_to_a_cell_and_its_parameters(results):
    files = {path.stem for path in (DOCS / PICTURES).glob("*.json")}
    assert files == set(results.by_cell), "a result of no cell, or of other parameters: remove it, or make paper"


def test_every_picture_is_there_and_can_be_drawn(results, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    pictures = [picture for experiment in EXPERIMENTS for picture in experiment.section(results).pictures]
    assert {path.stem for path in (DOCS / PICTURES).glob("*.svg")} == {picture.name for picture in pictures}
    for picture in pictures:
        path = tmp_path / f"{picture.name}.svg"
        draw(picture, path)
        assert "</svg>" in path.read_text(encoding="utf-8")
