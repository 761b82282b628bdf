"""TREC with a bound and noise, and what noise leaves of a sparse sum: simulated clients, the library's own mathematics.

Ten thousand clients would take hours of trees, whose sums are exact, as the other experiments show. So the sums here
are made in the clear, in ring integers; everything that changes them is the library's: the encoding, the bound, the
sampler of noise, drawn once for each server, the threshold of rows and the accounting.

The model is a table of six numbers for each word; a question's class is the largest sum of its words'. A client holds a
few of the questions, drawn with others' too, takes some steps of gradient descent, clips its change to the bound, and
submits the rows of its words. The servers step by Adam on the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.paper.accuracy.trec import CLASSES, Question, Vocabulary, labels, load
from examples.paper.cells import Run, Values
from fsl_async import Adam, Privacy, Ring, Sparse, Task
from fsl_async.privacy.doses import doses
from fsl_async.privacy.noise import noise_key, noised
from fsl_async.privacy.threshold import kept_rows
from fsl_async.randomness import SeededSource

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LENGTH = 20
"""Of a question's words, those that count."""

CHUNK = 2_000
"""Clients that train at once."""

ROUND_ID = bytes(32)


@dataclass(frozen=True)
class Data:
    """Questions as rows of words, -1 behind a question's end."""

    words: int
    inputs: Integers
    classes: Integers
    test_inputs: Integers
    test_classes: Integers

    @staticmethod
    def of(train: list[Question], test: list[Question], held_out: int) -> Data:
        """The test set, or so many questions for training in its place, with which settings are chosen."""
        if held_out:
            order = np.random.default_rng(1).permutation(len(train))
            test = [train[place] for place in order[:held_out]]
            train = [train[place] for place in order[held_out:]]
        vocabulary = Vocabulary.of(train)
        inputs, test_inputs = (_distinct(vocabulary, questions) for questions in (train, test))
        return Data(len(vocabulary), inputs, labels(train), test_inputs, labels(test))

    def accuracy(self, table: Floats) -> float:
        """Of a table, in percent."""
        scores = (table[self.test_inputs] * (self.test_inputs >= 0)[:, :, None]).sum(axis=1)
        return 100 * float(np.mean(scores.argmax(axis=1) == self.test_classes))


def _distinct(vocabulary: Vocabulary, questions: list[Question]) -> Integers:
    found = np.full((len(questions), LENGTH), -1, dtype=np.int64)
    for line, question in zip(found, questions, strict=True):
        known = list(dict.fromkeys(vocabulary.known(question)))[:LENGTH]
        line[: len(known)] = known
    return found


def noised_words(run: Run) -> Values:
    """The same clients' rounds plainly, with the bound alone, and with the bound and noise."""
    p = run.parameters
    data = Data.of(*load(run.data / "trec"), held_out=p["held_out"])
    kinds: dict[str, Callable[[Task, Integers, int], Integers]] = {
        "plain": lambda task, sums, number: sums,
        "bounded": lambda task, sums, number: sums,
        "noised": _noised,
    }
    values: Values = {}
    for done, (name, change) in enumerate(kinds.items()):
        run.progress(done / len(kinds), name)
        values[name] = _learn(data, p, _task(data, p, bounded=name != "plain"), change)
    privacy = Privacy(noise=p["noise"], delta=p["delta"], budget=p["budget"])
    return values | {"epsilon": privacy.epsilon(p["rounds"]), "words": data.words}


def _task(data: Data, p: Mapping[str, Any], *, bounded: bool) -> Task:
    """What the servers would be told: with the bound, the noise too."""
    privacy = Privacy(noise=p["noise"], delta=p["delta"], budget=p["budget"])
    return Task(
        name="trec-words",
        blocks=(Sparse("words", rows=data.words, select=min(data.words, p["questions"] * LENGTH), width=len(CLASSES)),),
        ring=Ring(64, p["fraction_bits"]),
        security="verified",
        apply="mean",
        max_clients=p["clients"],
        bound=p["bound"] if bounded else None,
        privacy=privacy if bounded else None,
    )


def _learn(
    data: Data, p: Mapping[str, Any], task: Task, change: Callable[[Task, Integers, int], Integers]
) -> dict[str, Any]:
    draw = np.random.default_rng(p["seed"])
    held = draw.integers(0, len(data.inputs), (p["clients"], p["questions"]))
    table, clipped, kept = np.zeros((data.words, len(CLASSES))), 0, 0
    optimizer = Adam(rate=p["server_rate"], epsilon=p["server_epsilon"])
    first, second = np.zeros_like(table), np.full_like(table, optimizer.epsilon**2)
    for number in range(1, p["rounds"] + 1):
        sums = np.zeros((data.words, len(CLASSES)), dtype=np.int64)
        for start in range(0, p["clients"], CHUNK):
            clipped += _add_changes(sums, table, data, held[start : start + CHUNK], p, task)
        opened = change(task, sums, number)
        kept += int(np.count_nonzero(np.any(opened, axis=1)))
        mean = np.ldexp(opened.astype(np.float64), -task.ring.fraction_bits) / p["clients"]
        first = optimizer.beta1 * first + (1 - optimizer.beta1) * mean
        second = optimizer.beta2 * second + (1 - optimizer.beta2) * mean * mean
        table += optimizer.rate * first / (np.sqrt(second) + optimizer.epsilon)
    changes = p["rounds"] * p["clients"]
    return {"accuracy": data.accuracy(table), "clipped": clipped / changes, "rows": round(kept / p["rounds"])}


def _add_changes(sums: Integers, table: Floats, data: Data, held: Integers, p: Mapping[str, Any], task: Task) -> int:
    """Train some clients, add what they submit, and return how many had to clip."""
    inputs, classes = data.inputs[held], data.classes[held]
    here = inputs >= 0
    rows, local = _local_rows(inputs)
    start = table[rows] * (rows >= 0)[:, :, None]
    weights, who = start.copy(), np.arange(len(held))[:, None, None]
    for _ in range(p["steps"]):
        scores = (weights[who, local] * here[..., None]).sum(axis=2)
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        slope = np.eye(len(CLASSES))[classes] - scores / scores.sum(axis=2, keepdims=True)
        np.add.at(weights, (who, local), p["client_rate"] / p["questions"] * slope[:, :, None, :] * here[..., None])
    change = (weights - start) * (rows >= 0)[:, :, None]
    norms = np.sqrt(np.sum(np.square(change), axis=(1, 2)))
    bound = task.bound or np.inf
    change *= np.minimum(1, 0.999 * bound / np.maximum(norms, 1e-12))[:, None, None]
    taken = rows >= 0
    np.add.at(sums, rows[taken], task.ring.encode(change[taken], largest=2**40).view(np.int64))
    return int(np.count_nonzero(norms > bound))


def _local_rows(inputs: Integers) -> tuple[Integers, Integers]:
    """Each client's distinct rows, -1 behind them, and where in them each of its words is."""
    flat = inputs.reshape(len(inputs), -1)
    ascending = np.sort(flat, axis=1)
    first = np.ones_like(ascending, dtype=bool)
    first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    rows = np.where(first, ascending, -1)
    order = np.argsort(flat, axis=1, kind="stable")
    place = np.maximum.accumulate(np.where(first, np.arange(flat.shape[1]), 0), axis=1)
    local = np.empty_like(flat)
    np.put_along_axis(local, order, place, axis=1)
    return rows, local.reshape(inputs.shape)


def _noised(task: Task, sums: Integers, number: int) -> Integers:
    """Both servers' noise on a sum, then the rows that are more than noise, as the servers open and keep them."""
    assert task.privacy is not None
    sigma = doses(task.privacy.noise, task.bound_integer).values
    noisy = _with_noise(task.ring, sums, sigma, SeededSource(number, "servers"))
    return noisy * kept_rows(noisy, sigma)[:, None]


def _with_noise(ring: Ring, sums: Integers, sigma: int, source: SeededSource) -> Integers:
    """The sum that is opened: each server's noise on its share is noise on it."""
    share = sums.tobytes()
    for _ in range(2):
        share = noised(ring, share, sigma, noise_key(source(32), ROUND_ID, b"", "values 0"))
    return np.frombuffer(share, dtype=np.int64).reshape(sums.shape)


# ---- what noise leaves of one sum


def utility(run: Run) -> Values:
    """The relative squared error of one noised sum, with noise on all rows and with those that are more than noise.

    A client's rows follow Zipf's law; half of the energy of each row's change is common to all clients.
    """
    p = run.parameters
    draw, ring = np.random.default_rng(p["seed"]), Ring(64, p["fraction_bits"])
    counts = draw.binomial(p["clients"], _inclusion(p["rows"], p["select"]))
    shape, length = (p["rows"], p["width"]), 1 / np.sqrt(p["select"])
    common = draw.normal(size=shape)
    common /= np.linalg.norm(common, axis=1, keepdims=True)
    own = draw.normal(size=shape) / np.sqrt(p["width"])
    exact = length * np.sqrt(0.5) * (counts[:, None] * common + np.sqrt(counts)[:, None] * own)
    sums = np.rint(np.ldexp(exact, ring.fraction_bits)).astype(np.int64)
    sigma = doses(p["noise"], 2**ring.fraction_bits).values
    noisy = _with_noise(ring, sums, sigma, SeededSource(p["seed"], "servers"))
    kept = kept_rows(noisy, sigma)
    return {
        "all_rows": _error(sums, noisy),
        "threshold": _error(sums, noisy * kept[:, None]),
        "rows_kept": int(np.count_nonzero(kept)),
        "contributors_for_signal": p["noise"] * float(np.sqrt(2 * p["width"] * p["select"])),
    }


def _inclusion(rows: int, select: int) -> Floats:
    """The probability of each row to be among those of a client, whose mean number is `select`."""
    share = 1 / np.arange(1, rows + 1)
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-middle * share).sum() < select else (low, middle)
    found: Floats = -np.expm1(-high * share)
    return found


def _error(exact: Integers, found: Integers) -> float:
    difference = (found - exact).astype(np.float64)
    return float(np.square(difference).sum() / np.square(exact.astype(np.float64)).sum())
