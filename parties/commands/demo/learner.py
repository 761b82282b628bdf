"""The demo's model, which names the chapter of an excerpt: a row of weights per word, and one weight per chapter.

It is multinomial logistic regression on the words of an excerpt. A word's row, which is found by hashing the word so
that the clients need not agree on a vocabulary, has the word's weight for each chapter; the dense block has the prior
of each chapter. The rows that a client needs are the words that it has, which is exactly what must stay private.

Rules:

- Everything is a function of the client's excerpts and the round: no clock, no randomness. Products are `numpy.einsum`
  and never BLAS, whose order of summation may depend on threads: runs on one machine agree bit for bit.
- The plain sum of all clients' deltas is the update, so each client divides its deltas by the number of clients. No
  delta exceeds `LARGEST_DELTA`.
- A word whose row could not be retrieved (it was deferred) is ignored in training.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.task import Dense, Sparse
from parties.commands.demo.corpus import CHAPTERS, Corpus, Excerpt

Rows = npt.NDArray[np.uint32]
Weights = npt.NDArray[np.float32]
Deltas = npt.NDArray[np.float64]
Model = Mapping[str, Weights]

WORDS = Sparse(name="words", rows=2**15, width=len(CHAPTERS), select=512)
PRIORS = Dense(name="chapters", size=len(CHAPTERS))
BLOCKS = (WORDS, PRIORS)

STEPS = 10  # of gradient descent on a client, each over all excerpts of the round
WORDS_RATE = 2.0
PRIORS_RATE = 0.3
MOST_MISSING = 6.0  # a rare word is assumed to be held by so many times fewer clients
LARGEST_DELTA = 4.0  # the most by which one client changes one weight


@dataclass(frozen=True, slots=True)
class Batch:
    """The excerpts of one round and the distinct rows of their words, sorted, at most `WORDS.select`."""

    excerpts: tuple[Excerpt, ...]
    rows: Rows


class Learner:
    """One client's learning: its excerpts are divided into batches, which the rounds use in turn.

    Args:
        excerpts: the client's text; if it is empty, the client wants no rows and contributes zeros.
        clients: the number of clients.
    """

    def __init__(self, excerpts: Sequence[Excerpt], clients: int) -> None:
        if clients < 1:
            raise MisuseError(f"expected at least one client, got {clients}")
        self._batches = tuple(_batches(excerpts))
        self._clients = clients

    def wanted_rows(self, round_number: int) -> Rows:
        """The rows of this round's words: uint32, sorted, distinct, at most `WORDS.select`."""
        return self._batch(round_number).rows

    def train(self, round_number: int, rows: Rows, values: Weights, priors: Weights) -> tuple[Deltas, Deltas]:
        """Learn from this round's excerpts, starting from the retrieved weights.

        Args:
            round_number: as for `wanted_rows`.
            rows: the retrieved rows, sorted: the wanted ones, or fewer if some were deferred.
            values: (len(rows), width) their weights.
            priors: (chapters,) the dense block.

        Returns:
            The deltas of the rows, (len(rows), width), and of the priors, both already divided among the clients.
        """
        excerpts = self._batch(round_number).excerpts
        if not excerpts:
            return np.zeros(values.shape), np.zeros(priors.shape)
        features = _features(excerpts, rows)
        truth = np.eye(len(CHAPTERS))[[excerpt.chapter for excerpt in excerpts]]
        holders = np.maximum(np.count_nonzero(features, axis=0), 1)[:, np.newaxis]
        words, prior = values.astype(np.float64), priors.astype(np.float64)
        for _ in range(STEPS):
            error = _softmax(np.einsum("er,rc->ec", features, words) + prior) - truth
            # Mean gradient over the excerpts that hold the word, or the common words would outrun the rare ones.
            words -= WORDS_RATE * np.einsum("er,ec->rc", features, error) / holders
            prior -= PRIORS_RATE * error.mean(axis=0)
        # All clients hold the common words, few a rare one. How few is private, so its share here has to tell.
        missing = np.minimum(len(excerpts) / holders, MOST_MISSING)
        return self._share(words - values, missing), self._share(prior - priors, 1.0)

    def plausible(self, round_number: int, *retrieved: Weights) -> bool:
        """Whether this number of rounds can have led to these weights, because servers do not prove their answers."""
        most = LARGEST_DELTA * self._clients * round_number
        return all(bool((np.abs(weights) <= most).all()) for weights in retrieved)

    def _batch(self, round_number: int) -> Batch:
        return self._batches[round_number % len(self._batches)]

    def _share(self, moved: Deltas, missing: Deltas | float) -> Deltas:
        """Divide among the clients that are taken to move the same weights: all / missing, at least 1."""
        return np.clip(moved, -LARGEST_DELTA, LARGEST_DELTA) * np.minimum(missing / self._clients, 1.0)


def initial_model() -> dict[str, Weights]:
    """The untrained model, all zeros: the problem is convex, so no random start is needed."""
    return {
        WORDS.name: np.zeros((WORDS.rows, WORDS.width), dtype=np.float32),
        PRIORS.name: np.zeros(PRIORS.size, dtype=np.float32),
    }


def accuracy(model: Model, excerpts: Sequence[Excerpt]) -> float:
    """The share of the excerpts whose chapter the model names; an untrained model always names the first chapter."""
    right = 0
    for excerpt in excerpts:
        words = model[WORDS.name][_rows_of(excerpt.words)].astype(np.float64)
        scores = words.sum(axis=0) / np.sqrt(len(words)) + model[PRIORS.name]
        right += int(scores.argmax()) == excerpt.chapter
    return right / len(excerpts)


def majority(corpus: Corpus) -> float:
    """The accuracy of always naming the chapter of which the clients have most excerpts, for comparison."""
    held = Counter(excerpt.chapter for shard in corpus.shards for excerpt in shard)
    [(commonest, _)] = held.most_common(1)
    return sum(excerpt.chapter == commonest for excerpt in corpus.held_out) / len(corpus.held_out)


def telling_words(model: Model, corpus: Corpus, count: int) -> dict[str, list[str]]:
    """For each chapter, the `count` words of the clients' text whose weight for it exceeds their mean weight most."""
    vocabulary = sorted({word for shard in corpus.shards for excerpt in shard for word in excerpt.words})
    weights = model[WORDS.name][[_row_of(word) for word in vocabulary]]
    advantage = weights - weights.mean(axis=1, keepdims=True)
    best = np.argsort(-advantage, axis=0, kind="stable")[:count]
    return {chapter: [vocabulary[i] for i in best[:, column]] for column, chapter in enumerate(CHAPTERS)}


def _batches(excerpts: Sequence[Excerpt]) -> Iterator[Batch]:
    """Cut into batches, each as long as its words fit `WORDS.select` rows; one empty batch if there is no text."""
    gathered: list[Excerpt] = []
    rows: Rows = _rows_of(())
    for excerpt in excerpts:
        more = np.union1d(rows, _rows_of(excerpt.words))
        if len(more) > WORDS.select:
            yield Batch(tuple(gathered), rows)
            gathered, more = [], _rows_of(excerpt.words)
        gathered.append(excerpt)
        rows = more
    yield Batch(tuple(gathered), rows)


def _row_of(word: str) -> int:
    return zlib.crc32(word.encode()) % WORDS.rows


@cache
def _rows_of(words: tuple[str, ...]) -> Rows:
    """The distinct rows of these words, sorted; not to be written to."""
    return np.unique(np.fromiter(map(_row_of, words), dtype=np.uint32))


def _features(excerpts: Sequence[Excerpt], rows: Rows) -> Deltas:
    """(excerpts, rows): 1 / √(the excerpt's distinct rows) where it holds the row's word, else 0."""
    features = np.zeros((len(excerpts), len(rows)))
    for feature, excerpt in zip(features, excerpts, strict=True):
        own = _rows_of(excerpt.words)
        feature[np.isin(rows, own, assume_unique=True)] = 1 / np.sqrt(len(own))
    return features


def _softmax(scores: Deltas) -> Deltas:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Deltas = powers / powers.sum(axis=1, keepdims=True)
    return shares
