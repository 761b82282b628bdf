"""The models, and what all local training shares.

Rules: a model is float32; its first layer's words are one sparse block where it has words, and all else is one flat
array; torch runs in one thread, and whatever is drawn, is drawn from a seed, so equal runs give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from examples.paper.accuracy.trec import CLASSES


class Bag(nn.Module):
    """The sum of a question's word vectors, divided by the root of their number, and a linear layer."""

    def __init__(self, rows: int, width: int, spread: float) -> None:
        super().__init__()
        self.words = _words(rows, width, spread)
        self.classes = nn.Linear(width, len(CLASSES))

    def forward(self, questions: Tensor) -> Tensor:
        """Scores (n, 6) of questions (n, length); row 0 of the table is no word."""
        count = (questions != 0).sum(1, keepdim=True).clamp(min=1)
        scores: Tensor = self.classes(self.words(questions).sum(1) / count**0.5)
        return scores


class TextCnn(nn.Module):
    """Kim's convolutions over a few words each, the largest of each over the question, and a linear layer."""

    def __init__(
        self, rows: int, width: int, spread: float, windows: Sequence[int], filters: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = _words(rows, width, spread)
        self.windows = nn.ModuleList(nn.Conv1d(width, filters, size) for size in windows)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(len(windows) * filters, len(CLASSES))

    def forward(self, questions: Tensor) -> Tensor:
        """Scores (n, 6) of questions (n, length), padded with row 0 to the largest window at least."""
        vectors = self.words(questions).transpose(1, 2)
        found = [window(vectors).amax(2).relu() for window in self.windows]
        scores: Tensor = self.classes(self.dropout(torch.cat(found, dim=1)))
        return scores


def _words(rows: int, width: int, spread: float) -> nn.Embedding:
    """Weights between -spread and spread, but 0 in the first two rows: of no word, and of unknown words."""
    words = nn.Embedding(rows, width, padding_idx=0)
    nn.init.uniform_(words.weight, -spread, spread)
    with torch.no_grad():
        words.weight[:2] = 0
    return words


def picture_cnn(channels: int, size: int, first: int, second: int, hidden: int) -> nn.Sequential:
    """Two convolutions of 5 × 5, each with a pool of 2 × 2, a hidden layer and a linear layer for ten classes.

    With 32, 64 and 512 it is the CNN of McMahan et al., 1,663,370 weights for MNIST; with 8, 16 and 64 it has 54,314.
    """
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (size // 4) ** 2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def state_of(net: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """A copy of a model's tensors, by name."""
    return {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}


def load_state(net: nn.Module, state: Mapping[str, npt.NDArray[Any]]) -> None:
    """Give a model its tensors."""
    net.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})


def fresh(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model whose first weights a seed decides; torch computes in one thread from here on."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return make()


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    labels: Tensor,
    batches: Iterable[npt.NDArray[np.int64]],
) -> None:
    """One step on each batch, given by the places of its examples."""
    net.train()
    for places in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs[places]), labels[places]).backward()
        optimizer.step()


def accuracy(net: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """In percent."""
    net.eval()
    with torch.no_grad():
        right = sum(
            int((net(some).argmax(1) == wanted).sum())
            for some, wanted in zip(inputs.split(1000), labels.split(1000), strict=True)
        )
    return 100 * right / len(labels)


def batches_of(
    places: npt.NDArray[np.int64], size: int, steps: int, draw: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """So many batches of a client's examples: each pass over them in an order of its own."""
    passes = -(-steps // max(1, -(-len(places) // size)))
    return [batch for _ in range(passes) for batch in _one_pass(draw.permutation(places), size)][:steps]


def _one_pass(places: npt.NDArray[np.int64], size: int) -> list[npt.NDArray[np.int64]]:
    return [places[start : start + size] for start in range(0, len(places), size)]
