"""Learning images with top-k: each client trains the whole CNN, and submits the weights that changed most.

Where rows are wider than one weight, those that lie together move as one mega-element, and one tree serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from examples.paper.accuracy import nets
from examples.paper.accuracy.images import Images
from examples.paper.accuracy.rounds import Arrays, Update, Wanted
from examples.paper.accuracy.topk import TopK, drawn
from fsl_async.learning import MegaElements


class PictureTrainer:
    """Clients with equally many images, drawn at random.

    Args:
        train: their images.
        test: those on which the accuracy is measured.
        make: the CNN.
        clients: how many there are.
        per_round: how many take part in a round, drawn by the seed.
        batch: images of a local step.
        steps: local steps.
        rate: of the clients' SGD.
        groups: how the weights lie in rows, and how many of them a client submits; without, it submits them all.
        seed: of first weights, clients and batches.
    """

    def __init__(
        self,
        train: Images,
        test: Images,
        make: Callable[[], nn.Module],
        *,
        clients: int,
        per_round: int,
        batch: int,
        steps: int,
        rate: float,
        groups: Sequence[MegaElements],
        seed: int,
    ) -> None:
        self._train, self._test, self._seed = train, test, seed
        self._per_round, self._batch, self._steps, self._rate = per_round, batch, steps, rate
        order = np.random.default_rng(seed).permutation(len(train))
        self._parts = np.array_split(order, clients)
        self._net = nets.fresh(make, seed)
        self._topk = TopK("pictures", nets.state_of(self._net), groups)
        self.model, self.task = self._topk.model, self._topk.task

    def clients(self, number: int) -> Sequence[int]:
        """So many, drawn for the round."""
        return drawn(len(self._parts), self._per_round, self._seed, number)

    def wanted(self, client: int, number: int) -> Wanted:
        """Everything."""
        return self._topk.wanted()

    def update(self, client: int, number: int, found: Arrays) -> Update:
        """Local steps of SGD; then what changed most."""
        before = self._topk.state(found)
        nets.load_state(self._net, before)
        draw = np.random.default_rng([self._seed, number, client])
        batches = nets.batches_of(self._parts[client], self._batch, self._steps, draw)
        sgd = torch.optim.SGD(self._net.parameters(), lr=self._rate)
        nets.train(self._net, sgd, torch.from_numpy(self._train.pixels), torch.from_numpy(self._train.labels), batches)
        return self._topk.update(client, before, nets.state_of(self._net))

    def accuracy(self, model: Mapping[str, npt.NDArray[Any]]) -> float:
        """On the images that are measured."""
        nets.load_state(self._net, self._topk.state(model))
        return nets.accuracy(self._net, torch.from_numpy(self._test.pixels), torch.from_numpy(self._test.labels))
