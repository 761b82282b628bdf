"""What a round costs all parties when a recommender is learnt through PyTorch: processor time, and bytes up.

The sizes are those of a Deep Interest Network on a shop's 197,372 goods: a table of width 18, of which a client selects
418 rows, and 64,327 weights that all clients share. It needs the extra `torch`.

    python -m examples.paper.adapter_cost
"""

import json
from time import process_time

import numpy as np
import torch
import trio
from torch import nn

from fsl_async import Ring, Task
from fsl_async.learning import Table
from fsl_async.learning.pytorch import hold, map_model, model_blocks
from parties import simulate

GOODS, WIDTH, SELECT = 197_372, 18, 418
DIGITS = 24
TABLE = [Table("goods.weight", select=SELECT, block="goods")]


class Recommender(nn.Module):
    """From what somebody bought, whether one thing more is bought as well."""

    def __init__(self):
        super().__init__()
        self.goods = nn.Embedding(GOODS, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(2 * WIDTH, 353), nn.ReLU(), nn.Linear(353, 144), nn.ReLU(), nn.Linear(144, 2)
        )

    def forward(self, bought, candidate):
        """For each of a batch, two logits."""
        return self.layers(torch.cat((self.goods(bought).mean(dim=1), self.goods(candidate)), dim=1))


def train(model, bought, candidate, answer):
    """One step of Adam: the user's own loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    nn.functional.cross_entropy(model(bought, candidate), answer).backward()
    optimizer.step()


def shopping(seed):
    """A batch of 32 baskets with 12 things each and one more, out of the 418 that this client deals with."""
    rng = np.random.default_rng(seed)
    own = rng.choice(GOODS, SELECT, replace=False)
    ids = np.concatenate([own, rng.choice(own, 32 * 14 - SELECT)])[: 32 * 13].reshape(32, 13)
    return own, torch.from_numpy(ids[:, :12]), torch.from_numpy(ids[:, 12]), torch.from_numpy(rng.integers(0, 2, 32))


def rounded(change):
    """To the binary digits behind the point that the ring keeps."""
    return np.rint(change * 2.0**DIGITS) / 2.0**DIGITS


async def measure(clients=8, seed=1):
    """Two rounds, of which the first compiles what is compiled; the second is measured, without the training in it.

    What the servers do once in a round (opening the sum, applying it, digests of the model) is shared by its clients.

    Returns:
        Processor seconds for each client, of all parties together and of the adapter alone; the bytes that one sends;
        the largest error of rounding an update; and whether the sum is that of the updates, to the last bit.
    """
    mapping = map_model(Recommender(), TABLE)
    ring = Ring(64, fraction_bits=DIGITS)
    task = Task(name="goods", blocks=mapping.blocks, ring=ring, min_clients=2, max_clients=1000)
    names = [f"client-{number}" for number in range(clients)]
    submodels = {name: (model := Recommender(), hold(model, mapping, task)) for name in names}
    async with simulate(task, model_blocks(Recommender(), mapping), seed=seed) as net:
        for number in range(2):
            total = {"goods": np.zeros((GOODS, WIDTH)), "rest": np.zeros(mapping.block("layers.0.bias").size)}
            began, training, adapting, rounding, sent = process_time(), 0.0, 0.0, 0.0, []
            for name in names:
                model, submodel = submodels[name]
                own, *batch = shopping([number, names.index(name)])
                async with net.client(name) as client:
                    wanted = submodel.wanted({"goods": own})
                    retrieved = await client.retrieve(wanted)
                    times = [process_time()]
                    submodel.load(wanted, retrieved)
                    times.append(process_time())
                    train(model, *batch)
                    times.append(process_time())
                    update = submodel.update()
                    times.append(process_time())
                    await client.submit(update)
                    sent.append(client.bytes_sent)
                training += times[2] - times[1]
                adapting += times[3] - times[2] + times[1] - times[0]
                rounding = max([rounding, *(fit.rounding for fit in submodel.fits(update).values())])
                rows, change = update["goods"]
                total["goods"][rows] += rounded(change)
                total["rest"] += rounded(update["rest"])
            outcome = await net.finish_round()
            spent = process_time() - began - training
    return {
        "processor_seconds": spent / clients,
        "of_the_adapter": adapting / clients,
        "bytes_up": max(sent),
        "rounding": rounding,
        "exact": all(np.array_equal(outcome.update[name], total[name]) for name in total),
    }


if __name__ == "__main__":
    print(json.dumps(trio.run(measure), indent=2))
