"""Learning to tell the classes of TREC's questions: clients with a bag of words, and clients with Kim's CNN.

The bag's clients retrieve the rows of their round's words, and submit those rows: nobody learns which words they have.
The CNN's clients download the whole table, train as the paper's clients do, and submit the words that changed most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from examples.paper.accuracy import nets
from examples.paper.accuracy.rounds import Arrays, Update, Wanted
from examples.paper.accuracy.topk import LARGEST, RING, TopK, drawn
from examples.paper.accuracy.trec import Question, Vocabulary, labels
from fsl_async import Adam, Momentum, Sgd, Task
from fsl_async.learning import MegaElements, StateMapping, Table

LENGTH = 20
"""Words of a question that are read: all of 98 % of TREC's questions."""

TABLE = "words.weight"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Questions as numbers, and whose they are.

    Attributes:
        rows: of the words' table.
        inputs: int64 (n, LENGTH), rows of the table; 0 is no word.
        labels: int64 (n,).
        parts: by client, the places of its questions.
        test_inputs: of the questions on which the accuracy is measured, as `inputs`.
        test_labels: as `labels`.
    """

    rows: int
    inputs: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    parts: list[npt.NDArray[np.int64]]
    test_inputs: npt.NDArray[np.int64]
    test_labels: npt.NDArray[np.int64]

    @staticmethod
    def of(questions: Sequence[Question], test: Sequence[Question], clients: int, held_out: int, seed: int) -> Corpus:
        """Deal questions out evenly, in an order that the seed decides.

        Args:
            questions: for training.
            test: for measuring, where `held_out` is 0.
            clients: how many.
            held_out: so many questions for training are kept back, the same for every seed, and measured in place of
                the test's: for choosing settings.
            seed: of the order.
        """
        kept = np.random.default_rng(0).permutation(len(questions))
        training = [questions[place] for place in np.sort(kept[held_out:])]
        measured = [questions[place] for place in np.sort(kept[:held_out])] if held_out else test
        words = Vocabulary.of(training)
        order = np.random.default_rng(seed).permutation(len(training))
        parts = [np.sort(part) for part in np.array_split(order, clients)]
        padded = words.padded(training, LENGTH), words.padded(measured, LENGTH)
        return Corpus(len(words), padded[0], labels(training), parts, padded[1], labels(measured))


class BagTrainer:
    """Clients that retrieve the rows of their words, and none else.

    Args:
        corpus: their questions.
        width: of a word's row.
        spread: its weights begin between -spread and spread.
        per_round: how many clients take part; drawn by the seed where that is not all.
        batch: questions of a local step.
        steps: local steps, at most.
        rate: of Adam in a client.
        epsilon: of Adam in a client; gradients well below it move little.
        select: the most rows that a client retrieves; questions that would need more wait for another round.
        seed: of first weights, clients and batches.
        optimizer: the servers'; they step by the clients' mean.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        width: int,
        spread: float,
        per_round: int,
        batch: int,
        steps: int,
        rate: float,
        epsilon: float,
        select: int,
        seed: int,
        optimizer: Sgd | Momentum | Adam | None = None,
    ) -> None:
        self._corpus, self._per_round, self._seed = corpus, per_round, seed
        self._batch, self._steps, self._select = batch, steps, select
        self._rate, self._epsilon = rate, epsilon
        self._net = nets.fresh(lambda: nets.Bag(corpus.rows, width, spread), seed)
        state = nets.state_of(self._net)
        self._mapping = StateMapping.of(state, [Table(TABLE, select=select, block="words")])
        self.model = self._mapping.model(state)
        self.task = Task(
            name="trec-bag",
            blocks=self._mapping.blocks,
            ring=RING,
            min_clients=2,
            largest=LARGEST,
            apply="mean",
            optimizer=optimizer,
        )

    def clients(self, number: int) -> Sequence[int]:
        """Everybody, or so many drawn for the round."""
        return drawn(len(self._corpus.parts), self._per_round, self._seed, number)

    def wanted(self, client: int, number: int) -> Wanted:
        """The rows of the round's words, and the rest of the model."""
        return {"words": self._rows(self._questions(client, number)), "rest": ...}

    def update(self, client: int, number: int, found: Arrays) -> Update:
        """A few steps of Adam on the rows that were retrieved."""
        batches = self._questions(client, number)
        rows = self._rows(batches)
        table = np.vstack([np.zeros_like(found["words"][:1]), found["words"]])
        net = nets.Bag(len(rows) + 1, found["words"].shape[1], 0.0)
        nets.load_state(net, self._mapping.unpack("rest", found["rest"]) | {TABLE: table})
        local = np.zeros(self._corpus.rows, dtype=np.int64)
        local[rows] = np.arange(1, len(rows) + 1)
        inputs = torch.from_numpy(local[self._corpus.inputs])
        adam = torch.optim.Adam(net.parameters(), lr=self._rate, eps=self._epsilon)
        nets.train(net, adam, inputs, torch.from_numpy(self._corpus.labels), batches)
        after = nets.state_of(net)
        words = after.pop(TABLE)[1:]
        rest = self._mapping.pack("rest", after)
        return {"words": (rows, change(words, found["words"])), "rest": change(rest, found["rest"])}

    def accuracy(self, model: Mapping[str, npt.NDArray[Any]]) -> float:
        """On the questions that are measured."""
        nets.load_state(self._net, self._mapping.state(model))
        known = np.where(self._corpus.test_inputs > 1, self._corpus.test_inputs, 0)
        return nets.accuracy(self._net, torch.from_numpy(known), torch.from_numpy(self._corpus.test_labels))

    def _questions(self, client: int, number: int) -> list[npt.NDArray[np.int64]]:
        """The round's batches, as far as their words are no more than `select`."""
        draw = np.random.default_rng([self._seed, number, client])
        batches = nets.batches_of(self._corpus.parts[client], self._batch, self._steps, draw)
        while len(self._rows(batches)) > self._select:
            batches = [*batches[:-1], batches[-1][:-1]] if len(batches[-1]) > 1 else batches[:-1]
        return batches

    def _rows(self, batches: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        rows = np.unique(self._corpus.inputs[np.concatenate(batches)])
        return rows[rows > 1]


class CnnTrainer:
    """The paper's clients: the whole model, Adam, and of what is sparse the rows that changed most.

    Args:
        corpus: their questions.
        width: of a word's row.
        spread: its weights begin between -spread and spread.
        windows: how many words each of the CNN's convolutions sees.
        filters: of each window.
        dropout: before its last layer.
        batch: questions of a local step.
        epochs: local passes over a client's questions.
        rate: of Adam in a client.
        groups: what of the model is sparse, and how many rows of it a client submits.
        seed: of first weights, batches and dropout.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        width: int,
        spread: float,
        windows: Sequence[int],
        filters: int,
        dropout: float,
        batch: int,
        epochs: int,
        rate: float,
        groups: Sequence[Table | MegaElements],
        seed: int,
    ) -> None:
        self._corpus, self._seed = corpus, seed
        self._batch, self._epochs, self._rate = batch, epochs, rate
        self._form = (width, spread, windows, filters, dropout)
        self._net = nets.fresh(lambda: nets.TextCnn(corpus.rows, *self._form), seed)
        self._topk = TopK("trec-cnn", nets.state_of(self._net), groups)
        self.model, self.task = self._topk.model, self._topk.task

    def clients(self, number: int) -> Sequence[int]:
        """Everybody."""
        return range(len(self._corpus.parts))

    def wanted(self, client: int, number: int) -> Wanted:
        """Everything."""
        return self._topk.wanted()

    def update(self, client: int, number: int, found: Arrays) -> Update:
        """Local passes over all of a client's questions; then what changed most."""
        part = self._corpus.parts[client]
        before = self._topk.state(found)
        rows = np.union1d([0], self._corpus.inputs[part])  # none but the client's own words change
        net = nets.TextCnn(len(rows), *self._form)
        nets.load_state(net, before | {TABLE: before[TABLE][rows]})
        inputs = torch.from_numpy(np.searchsorted(rows, self._corpus.inputs[part]))
        draw = np.random.default_rng([self._seed, number, client])
        steps = self._epochs * -(-len(part) // self._batch)
        batches = nets.batches_of(np.arange(len(part)), self._batch, steps, draw)
        torch.manual_seed(int(draw.integers(2**31)))
        adam = torch.optim.Adam(net.parameters(), lr=self._rate)
        nets.train(net, adam, inputs, torch.from_numpy(self._corpus.labels[part]), batches)
        after = nets.state_of(net)
        table = before[TABLE].copy()
        table[rows] = after[TABLE]
        return self._topk.update(client, before, after | {TABLE: table})

    def accuracy(self, model: Mapping[str, npt.NDArray[Any]]) -> float:
        """On the questions that are measured."""
        nets.load_state(self._net, self._topk.state(model))
        return nets.accuracy(
            self._net, torch.from_numpy(self._corpus.test_inputs), torch.from_numpy(self._corpus.test_labels)
        )


def change(after: npt.NDArray[Any], before: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What training changed, exactly."""
    return after.astype(np.float64) - before.astype(np.float64)
