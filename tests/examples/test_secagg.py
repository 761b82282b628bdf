"""The comparison with SecAgg+: our side on small sizes, and the page that is made of the figures."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from examples.secagg import ours
from examples.secagg.__main__ import main
from examples.secagg.cases import CLIPPED, Case, cells, errors
from examples.secagg.report import page
from examples.secagg.run import SIZES, ratio
from examples.secagg.side import Side, SideFailedError
from tests import ROOT

DOCS = ROOT / "docs"
STORED = json.loads((DOCS / "comparison-secagg.json").read_text(encoding="utf-8"))


# ---- what is compared


def test_the_cells_are_those_that_were_asked_for_and_a_dense_model():
    assert [(case.weights, case.share, case.width) for case in cells(2**18, 2**20)] == [
        (size, share, width)
        for size in (2**18, 2**20)
        for share, width in ((10, 1), (10, 16), (100, 1), (100, 16), (1000, 1))
    ]


def test_equal_calls_make_equal_changes_and_their_exact_mean():
    case = Case(2**10, 100, 16)
    whole = [case.full(client) for client in range(case.clients)]
    assert case.select == 7
    assert all(np.count_nonzero(each.any(axis=1)) == 7 for each in whole)
    assert np.array_equal(whole[0], case.full(0))
    assert errors(sum(each.astype(np.float64) for each in whole) / case.clients, case.mean())[0] < 1e-17


# ---- our side


@pytest.mark.parametrize("case", [Case(2**10, 100), Case(2**10, 100, 16), Case(2**10, 1000)])
def test_a_round_of_ours_is_the_mean_up_to_fixed_point(case):
    figures = ours.measure(case)
    assert figures.largest_error <= 2**-25
    assert min(figures.client, figures.server, figures.up, figures.down, figures.between) > 0


def test_a_client_that_leaves_does_not_count():
    case = Case(2**10, 100, clients=3, dropped=1)
    assert ours.measure(case).largest_error <= 2**-25


def test_ours_clips_nothing_and_says_what_does_not_fit():
    clipped = ours.clip()
    assert clipped["mean"] == [*CLIPPED]
    assert "does not fit; the largest is" in str(clipped["refusal"])


def test_a_side_answers_in_a_process_of_its_own():
    with Side("ours", Path(sys.executable), os.environ, "") as side:
        assert side.ask("setting") == ours.setting()
        assert side.measure(Case(2**10, 100)).up == ours.measure(Case(2**10, 100)).up


def test_without_flower_s_environment_the_command_says_how_to_make_it(tmp_path, capsys):
    assert main(["--flower", str(tmp_path / "python"), "--write", str(tmp_path)]) == 1
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("does not exist: `make secagg` installs flwr 1.41.0 there, and runs this")
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("flwr") is not None, reason="here flwr is installed")
def test_an_environment_without_flwr_is_named(capfd):
    side = Side("secaggplus", Path(sys.executable), os.environ, "make it")
    with side, pytest.raises(SideFailedError, match=r"failed, see above; make it$"):
        side.ask("setting")
    assert "No module named 'flwr'" in capfd.readouterr().err


# ---- the page


def test_the_page_and_the_chart_are_made_of_what_was_measured(tmp_path):
    (tmp_path / "comparison-secagg.json").write_text(json.dumps(STORED))
    assert main(["--page", "--write", str(tmp_path)]) == 0
    for name in ("comparison-secagg.md", "comparison-secagg.svg"):
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert written == (DOCS / name).read_text(encoding="utf-8"), "run `python -m examples.secagg --page`"
    ElementTree.parse(tmp_path / "comparison-secagg.svg")


def test_what_is_stored_is_the_whole_comparison_with_the_bytes_that_were_promised():
    table = {(cell["weights"], cell["share"], cell["width"]): cell for cell in STORED["cells"]}
    assert list(table) == [(case.weights, case.share, case.width) for case in cells(*SIZES)]
    assert ratio(table[2**20, 10, 1], "up") >= 4
    assert ratio(table[2**20, 10, 16], "up") >= 30
    assert STORED["settings"]["secaggplus"]["flwr"] == "1.41.0"


def test_the_cells_that_secagg_wins_are_named():
    text = page(STORED)
    lost = text.partition("### Where SecAgg+ takes less")[2].partition("###")[0]
    assert "- m = 2^20, 10 %: bytes up (" in lost
    assert "| SecAgg+ | 8, 8, -8 |" in text
    assert "| ours | 9, 100, -1000 |" in text
