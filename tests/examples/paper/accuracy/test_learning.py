"""Learning through both servers equals learning in the clear, on made questions and pictures."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; `make learn` installs it and runs this")

from examples.paper.accuracy import nets  # noqa: E402
from examples.paper.accuracy.images import Images  # noqa: E402
from examples.paper.accuracy.pictures import PictureTrainer  # noqa: E402
from examples.paper.accuracy.questions import TABLE, BagTrainer, CnnTrainer, Corpus  # noqa: E402
from examples.paper.accuracy.rounds import UnequalError, learn_clear, learn_securely  # noqa: E402
from examples.paper.accuracy.trec import Question  # noqa: E402
from fsl_async import Adam, Momentum, Sgd  # noqa: E402
from fsl_async.learning import MegaElements, Table  # noqa: E402
from parties.simulation.ways import Clear  # noqa: E402


def nobody(number, accuracy):
    """Is told of each round."""


def questions(count, seed):
    """Each has two words that tell its class, and three that tell nothing."""
    rng = np.random.default_rng(seed)
    for label in rng.integers(0, 6, count).tolist():
        telling = [f"class{label}-{number}" for number in rng.integers(0, 4, 2)]
        yield Question((*telling, *(f"any{number}" for number in rng.integers(0, 30, 3))), label)


def corpus(clients=4, held_out=0):
    return Corpus.of(list(questions(160, 1)), list(questions(60, 2)), clients, held_out, seed=1)


def bag(optimizer=None, clients=4, per_round=4, select=40, steps=6):
    return BagTrainer(
        corpus(clients), width=8, spread=0.1, per_round=per_round, batch=8, steps=steps, rate=0.05, epsilon=1e-8,
        select=select,
        seed=1, optimizer=optimizer,
    )  # fmt: skip


def cnn(groups):
    return CnnTrainer(
        corpus(), width=8, spread=0.5, windows=(1, 2), filters=8, dropout=0.5, batch=16, epochs=1, rate=0.02,
        groups=groups, seed=1,
    )  # fmt: skip


def pictures(groups):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 10, 120)
    patterns = rng.normal(size=(10, 1, 8, 8))
    images = Images((patterns[labels] + 0.2 * rng.normal(size=(120, 1, 8, 8))).astype(np.float32), labels)
    return PictureTrainer(
        images, images, lambda: nets.picture_cnn(1, 8, 4, 4, 16), clients=6, per_round=3, batch=10, steps=4, rate=0.2,
        groups=groups, seed=1,
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", [None, Sgd(2.0), Momentum(0.5), Adam(0.05)])
def test_private_rows_under_each_rule_of_servers_equal_the_clear(optimizer):
    trainer = bag(optimizer)
    course = learn_securely(trainer.task, trainer.model, (trainer, bag(optimizer)), 3, 3, nobody)
    assert course.equal == 3
    assert course.bytes_up > 0
    alone = bag(optimizer)
    assert learn_clear(alone.task, alone.model, alone, 3, 3, nobody).accuracies == course.accuracies


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: cnn([Table(TABLE, select=3, block="words")]), id="rows of the table"),
        pytest.param(lambda: cnn([MegaElements("weights", width=1, select=40)]), id="single weights"),
        pytest.param(lambda: pictures([MegaElements("weights", width=16, select=10)]), id="rows of sixteen"),
        pytest.param(lambda: pictures([]), id="everything"),
    ],
)
def test_whole_downloads_and_top_k_equal_the_clear(make):
    trainer = make()
    course = learn_securely(trainer.task, trainer.model, (trainer, make()), 2, 1, nobody)
    assert course.equal == 2
    assert list(course.accuracies) == [1, 2]


def test_the_bag_learns_and_learns_the_same_twice():
    first, second = (learn_clear(one.task, one.model, one, 12, 4, nobody) for one in (bag(), bag()))
    assert first.accuracy > 90
    assert first.accuracies == second.accuracies


def test_what_top_k_defers_comes_in_a_later_round():
    """With a sixth of the weights and error feedback, most of what is learnt with everything is learnt."""
    whole, few = pictures([]), pictures([MegaElements("weights", width=16, select=10)])
    whole_course = learn_clear(whole.task, whole.model, whole, 30, 30, nobody)
    few_course = learn_clear(few.task, few.model, few, 30, 30, nobody)
    assert whole_course.accuracy > 90
    assert few_course.accuracy > 60


def test_a_client_retrieves_no_more_rows_than_the_task_allows():
    trainer = bag(select=9)
    for client in trainer.clients(1):
        rows = trainer.wanted(client, 1)["words"]
        assert 1 <= len(rows) <= 9
        assert rows.min() > 1  # neither of the rows that are no words


def test_so_many_clients_are_drawn_for_a_round_and_others_for_the_next():
    trainer = bag(clients=20, per_round=5, steps=1)
    first, second = trainer.clients(1), trainer.clients(2)
    assert len(first) == len(set(first)) == 5
    assert first != second
    assert first == trainer.clients(1)


def test_held_out_questions_are_those_for_training_and_never_trained_on():
    kept = corpus(held_out=40)
    assert sum(map(len, kept.parts)) == len(kept.inputs) == 120
    assert len(kept.test_inputs) == 40
    assert np.array_equal(kept.test_inputs, corpus(clients=7, held_out=40).test_inputs)


def test_a_server_that_differs_is_found_out(monkeypatch):
    right = Clear._after

    def other(way):
        after = right(way)
        return replace(after, model={name: np.nextafter(array, np.float32(9)) for name, array in after.model.items()})

    monkeypatch.setattr(Clear, "_after", other)
    trainer = bag()
    with pytest.raises(UnequalError, match="round 1: the servers hold another model than the clear run"):
        learn_securely(trainer.task, trainer.model, (trainer, bag()), 1, 1, nobody)
