"""What the cells of the accuracy experiments compute, from their parameters alone.

A cell that is `secure` learns through both servers and in the clear, and fails where they differ; another learns in the
clear alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from examples.paper.accuracy import images, nets, trec
from examples.paper.accuracy.pictures import PictureTrainer
from examples.paper.accuracy.questions import TABLE, BagTrainer, CnnTrainer, Corpus
from examples.paper.accuracy.rounds import Course, Trainer, learn_clear, learn_securely
from examples.paper.cells import Run, Values
from fsl_async import Adam, Momentum, Sgd
from fsl_async.learning import MegaElements, Table

PICTURES = {"mnist": (images.load_mnist, 1, 28), "cifar10": (images.load_cifar10, 3, 32)}
"""By data set: how it is loaded, the channels of its images, and their height and width."""


def bag(run: Run) -> Values:
    """TREC with a bag of words."""
    return _learnt(run, partial(_bag_trainer, _corpus(run), run.parameters))


def bag_grid(run: Run) -> Values:
    """The same in the clear, with every server rule of a grid; measured on questions for training that are held out."""
    corpus, p = _corpus(run), run.parameters
    settings = [{"client_rate": rate, "rule": rule} for rate, rule in itertools.product(p["client_rates"], p["rules"])]
    found = []
    for number, setting in enumerate(settings):
        run.progress(number / len(settings), str(setting))
        trainer = _bag_trainer(corpus, {**p, **setting})
        course = learn_clear(
            trainer.task, trainer.model, trainer, p["rounds"], p["rounds"], lambda number, accuracy: None
        )
        found.append({**setting, "accuracy": course.accuracy})
    return {"settings": found, "best": max(found, key=lambda one: float(one["accuracy"]))}


def cnn(run: Run) -> Values:
    """TREC with Kim's CNN, and top-k."""
    corpus, p = _corpus(run), run.parameters

    def make() -> CnnTrainer:
        return CnnTrainer(
            corpus,
            width=p["width"],
            spread=p["spread"],
            windows=p["windows"],
            filters=p["filters"],
            dropout=p["dropout"],
            batch=p["batch"],
            epochs=p["epochs"],
            rate=p["client_rate"],
            groups=_groups(p, corpus),
            seed=p["seed"],
        )

    return _learnt(run, make)


def pictures(run: Run) -> Values:
    """MNIST or CIFAR-10 with a CNN, and top-k."""
    p = run.parameters
    load, channels, size = PICTURES[p["data"]]
    train, test = load(run.data / p["data"])

    def make() -> PictureTrainer:
        return PictureTrainer(
            train, test, partial(nets.picture_cnn, channels, size, *p["layers"]), clients=p["clients"],
            per_round=p["per_round"], batch=p["batch"], steps=p["steps"], rate=p["client_rate"],
            groups=_mega_elements(p), seed=p["seed"],
        )  # fmt: skip

    return _learnt(run, make)


def _corpus(run: Run) -> Corpus:
    p = run.parameters
    return Corpus.of(*trec.load(run.data / "trec"), clients=p["clients"], held_out=p["held_out"], seed=p["seed"])


def _bag_trainer(corpus: Corpus, p: Mapping[str, Any]) -> BagTrainer:
    return BagTrainer(
        corpus,
        width=p["width"],
        spread=p["spread"],
        per_round=p["per_round"],
        batch=p["batch"],
        steps=p["steps"],
        rate=p["client_rate"],
        epsilon=p.get("client_epsilon", 1e-8),
        select=p["select"],
        seed=p["seed"],
        optimizer=_optimizer(p["rule"]),
    )


def _optimizer(rule: Mapping[str, Any]) -> Sgd | Momentum | Adam | None:
    """A server's optimizer after its parameters: `{"type": "momentum", "rate": 1.0, "momentum": 0.9}`."""
    kinds: dict[str, type[Sgd] | type[Momentum] | type[Adam]] = {"sgd": Sgd, "momentum": Momentum, "adam": Adam}
    fields = {name: value for name, value in rule.items() if name != "type"}
    return None if rule["type"] == "none" else kinds[rule["type"]](**fields)


def _groups(p: Mapping[str, Any], corpus: Corpus) -> Sequence[Table | MegaElements]:
    """Rows of the words' table, or of all weights."""
    if p["sparse"] == "words":
        return [Table(TABLE, select=max(1, round(p["percent"] / 100 * corpus.rows)), block="words")]
    return _mega_elements(p)


def _mega_elements(p: Mapping[str, Any]) -> Sequence[MegaElements]:
    return [MegaElements("weights", width=p["row"], select=p["select"])] if p["sparse"] == "all" else []


def _learnt(run: Run, make: Any) -> Values:
    """Learn as the parameters say, and say what came of it."""
    p = run.parameters

    def report(number: int, accuracy: float) -> None:
        run.progress(number / p["rounds"], f"round {number}" + (f", {accuracy:.1f} %" if accuracy == accuracy else ""))

    trainer: Trainer = make()
    task, model = trainer.task, trainer.model
    if p["secure"]:
        course = learn_securely(task, model, (trainer, make()), p["rounds"], p["every"], report)
    else:
        course = learn_clear(task, model, trainer, p["rounds"], p["every"], report)
    return _values(course, sum(array.size for array in model.values()), task.blocks)


def _values(course: Course, weights: int, blocks: Sequence[Any]) -> Values:
    return {
        "accuracy": course.accuracy,
        "accuracies": {str(number): accuracy for number, accuracy in course.accuracies.items()},
        "equal_rounds": course.equal,
        "party_seconds": round(course.party_seconds, 2),
        "clear_seconds": round(course.clear_seconds, 2),
        "bytes_up": course.bytes_up,
        "bytes_down": course.bytes_down,
        "weights": weights,
        "blocks": [{name: getattr(block, name) for name in block.__struct_fields__} for block in blocks],
    }
