"""Simulated clients with a bound and noise: what they submit, what is opened, and what noise leaves of a sum."""

import numpy as np
import pytest

from examples.paper.accuracy.private import Data, _add_changes, _local_rows, _noised, _task, noised_words, utility
from examples.paper.accuracy.trec import CLASSES, FILES
from examples.paper.registry import EXPERIMENTS

SETTINGS = {
    "clients": 50, "questions": 2, "rounds": 2, "steps": 3, "client_rate": 1.0, "server_rate": 1.0,
    "server_epsilon": 1e-4, "bound": 0.5, "fraction_bits": 16, "noise": 2.18, "delta": 1e-6, "budget": 8.0,
    "held_out": 0, "seed": 1,
}  # fmt: skip


class Told:
    """A run that reports to nobody."""

    def __init__(self, parameters, data=None):
        self.parameters, self.data = parameters, data

    def progress(self, done, note=""):
        pass


def made_up():
    draw = np.random.default_rng(1)
    inputs = draw.integers(0, 30, (40, 20))
    inputs[:, 12:] = -1
    classes = draw.integers(0, len(CLASSES), 40)
    return Data(30, inputs, classes, inputs, classes)


def test_rows_of_a_client_are_distinct_and_each_word_finds_its_own():
    inputs = np.array([[[5, 2, -1], [2, 7, 5]], [[1, -1, -1], [1, -1, -1]]])
    rows, local = _local_rows(inputs)
    found = np.take_along_axis(rows, local.reshape(2, -1), axis=1).reshape(inputs.shape)
    assert np.array_equal(found, inputs)
    assert [sorted(line[line >= 0]) for line in rows] == [[2, 5, 7], [1]]


@pytest.mark.parametrize("client", range(10))
def test_no_client_submits_more_than_the_bound(client):
    data = made_up()
    task = _task(data, SETTINGS, bounded=True)
    sums = np.zeros((data.words, len(CLASSES)), dtype=np.int64)
    table = np.random.default_rng(2).normal(size=sums.shape)
    held = np.array([[client, client + 10]])
    clipped = _add_changes(sums, table, data, held, SETTINGS, task)
    norm = np.sqrt(float(np.square(sums).sum()))
    assert 0 < norm <= task.bound_integer
    assert clipped == 1


def test_training_on_one_question_is_gradient_descent_on_it():
    data = made_up()
    settings = SETTINGS | {"questions": 1}
    task = _task(data, settings, bounded=False)
    sums = np.zeros((data.words, len(CLASSES)), dtype=np.int64)
    _add_changes(sums, np.zeros(sums.shape), data, np.array([[3]]), settings, task)
    table = np.zeros(sums.shape)
    words = data.inputs[3][data.inputs[3] >= 0]
    for _ in range(settings["steps"]):
        scores = np.exp(sum(table[word] for word in words))
        slope = np.eye(len(CLASSES))[data.classes[3]] - scores / scores.sum()
        for word in words:
            table[word] += slope
    assert np.allclose(sums * 2.0**-16, table, atol=1e-4)


@pytest.mark.slow
def test_what_is_opened_has_both_servers_noise_and_no_rows_of_noise_alone():
    task = _task(made_up(), SETTINGS, bounded=True)
    nothing = np.zeros((20_000, len(CLASSES)), dtype=np.int64)
    opened = _noised(task, nothing, 1)
    assert 2 <= np.count_nonzero(np.any(opened, axis=1)) <= 60  # one row in a thousand
    large = np.full((2_000, len(CLASSES)), 2**40, dtype=np.int64)
    spread = np.std((_noised(task, large, 1) - large).astype(np.float64))
    assert abs(spread / (np.sqrt(2) * task.doses.values) - 1) < 0.05


def test_the_threshold_leaves_less_error_than_noise_on_all_rows():
    parameters = {
        "rows": 20_000, "select": 50, "width": 4, "clients": 1_000, "noise": 0.69, "fraction_bits": 16, "seed": 1
    }  # fmt: skip
    found = utility(Told(parameters))
    assert found["threshold"] < found["all_rows"] / 5
    assert found["rows_kept"] < 2_000


def test_settings_of_the_page_stay_within_their_budget(tmp_path, monkeypatch):
    (noise,) = [experiment for experiment in EXPERIMENTS if experiment.name == "noise"]
    cells = [cell for cell in noise.cells if cell.name.startswith("trec-noised")]
    for cell in cells:
        assert _task(made_up(), cell.parameters, bounded=True).privacy.rounds >= cell.parameters["rounds"]
    monkeypatch.setitem(FILES, "train", ("train_5500.label", 3))
    monkeypatch.setitem(FILES, "test", ("TREC_10.label", 1))
    (tmp_path / "trec").mkdir()
    text = "DESC:def What is it ?\nNUM:date When was Rome built ?\nHUM:ind Who is it ?\n"
    (tmp_path / "trec" / "train_5500.label").write_text(text)
    (tmp_path / "trec" / "TREC_10.label").write_text("NUM:date When was Troy built ?\n")
    found = noised_words(Told(dict(cells[0].parameters) | {"clients": 60}, tmp_path))
    assert found["plain"]["accuracy"] == 100
    assert found["epsilon"] <= 8
