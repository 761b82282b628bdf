"""The cells of the accuracy experiments, on made data; and the published files, where they are."""

import json
import pickle

import numpy as np
import pytest

from examples.paper.accuracy import images, trec
from examples.paper.accuracy.experiments import CHOSEN, EXPERIMENTS
from examples.paper.cells import Results, Run
from examples.paper.clock import Clock
from examples.paper.results import ResultFolder
from examples.paper.surroundings import default_data, missing
from tests import ROOT

CELLS = {cell.name: cell for experiment in EXPERIMENTS for cell in experiment.cells}


def computed(name, data, **changes):
    """A cell's values with a few parameters changed, after they have been JSON, as a file has them."""
    pytest.importorskip("torch", reason="torch is not installed; `make learn` installs it and runs this")
    cell = CELLS[name]
    parameters = json.loads(json.dumps({**cell.parameters, **changes}))
    run = Run(type(cell)(name, cell.compute, parameters), data, data / "checkpoint", Clock(), lambda done, note: None)
    return json.loads(json.dumps(cell.compute(run)))


@pytest.fixture
def made(tmp_path):
    """A made CIFAR-10, and questions in TREC's form."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "cifar10"
    folder.mkdir()
    patterns = rng.integers(0, 200, (10, 3072))
    for name in (*images.CIFAR_BATCHES, images.CIFAR_TEST):
        labels = rng.integers(0, 10, 40)
        pixels = (patterns[labels] + rng.integers(0, 50, (40, 3072))).astype(np.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": labels.tolist()}, protocol=2))
    return tmp_path


@pytest.fixture
def questions(tmp_path, monkeypatch):
    """A TREC of 90 and 30 made questions."""
    monkeypatch.setattr(trec, "FILES", {"train": ("train_5500.label", 90), "test": ("TREC_10.label", 30)})
    (tmp_path / "trec").mkdir()
    rng = np.random.default_rng(1)
    for name, count in trec.FILES.values():
        labels = [trec.CLASSES[label] for label in rng.integers(0, 6, count)]
        lines = (f"{label}:any which {label} is word{rng.integers(20)} ?\n" for label in labels)
        (tmp_path / "trec" / name).write_bytes("".join(lines).encode("latin-1"))
    return tmp_path


def test_cifar10_is_learnt_through_both_servers_from_a_made_set(made):
    small = {"clients": 4, "per_round": 2, "rounds": 2, "every": 1, "steps": 2, "layers": [4, 4, 8], "select": 10}
    values = computed("cifar10-top-5", made, **small)
    assert values["equal_rounds"] == 2
    assert list(values["accuracies"]) == ["1", "2"]


@pytest.mark.parametrize("name", ["trec-bag-1", "trec-100-fedadam-1", "trec-mega-0.0125-1", "trec-top-5"])
def test_a_cell_on_made_questions(questions, name):
    small = {"clients": 4, "per_round": 4, "rounds": 2, "every": 2, "select": 20, "batch": 8, "width": 8, "filters": 4}
    values = computed(name, questions, **small)
    assert values["equal_rounds"] == (0 if name == "trec-top-5" else 2)
    assert 0 <= values["accuracy"] <= 100


def test_a_grid_has_every_setting_in_its_result(questions):
    small = {"clients": 3, "per_round": 3, "rounds": 2, "held_out": 20, "client_rates": [0.01, 0.1], "select": 20}
    values = computed("trec-grid-fedadam", questions, **small)
    assert len(values["settings"]) == 2 * 3
    assert values["best"] in values["settings"]


@pytest.mark.parametrize("rule", CHOSEN)
def test_the_settings_of_each_rule_are_the_best_of_its_grid(rule):
    found = ResultFolder(ROOT / "docs" / "paper").read(CELLS[f"trec-grid-{rule}"])
    assert found is not None
    best = found.values["best"]
    assert CHOSEN[rule] == {name: best[name] for name in ("client_rate", "rule")}
    assert best["accuracy"] == max(setting["accuracy"] for setting in found.values["settings"])


def test_settings_are_chosen_on_held_out_questions_alone():
    for name, cell in CELLS.items():
        assert cell.parameters.get("held_out", 0) == (500 if "grid" in name else 0)


def test_every_section_can_be_shown_before_anything_was_computed():
    for experiment in EXPERIMENTS:
        text = experiment.section(Results({})).text
        assert "–" in text
        assert max(map(len, text.split("\n\n"))) > 100


def published(folder):
    absent = missing(f"data/{folder}", default_data())
    return pytest.mark.skipif(bool(absent), reason=absent or "it is there")


@published("trec")
def test_the_published_questions():
    train, test = trec.load(default_data() / "trec")
    assert (len(train), len(test)) == (5_452, 500)
    assert [sum(question.label == label for question in test) for label in range(6)] == [9, 138, 94, 65, 81, 113]


@published("mnist")
def test_the_published_digits():
    train, test = images.load_mnist(default_data() / "mnist")
    assert (train.pixels.shape, test.pixels.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
