"""The train function of Flower's PyTorch quickstart, as it stands there, with the mod around it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`, in an environment of its own: `make learn` makes it")
pytest.importorskip("torch", reason="needs the extra `torch`")

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fsl_async import Ring, Task
from fsl_async.learning import StateMapping, Table
from parties.flower import SubmodelMod, SubmodelStrategy
from tests.support.flower_nodes import NODES, InProcess, deployed

WORDS = 100


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(WORDS, 4, mode="mean")
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, texts):
        return self.head(self.norm(self.embedding(texts)))


def load_data(partition):
    made = torch.Generator().manual_seed(partition)
    texts = torch.randint(0, 8, (64, 5), generator=made) + 10 * partition
    return texts, (texts.sum(dim=1) % 2)


def train_fn(net, data, epochs, lr):
    texts, labels = data
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(texts), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
STATE = {name: tensor.numpy() for name, tensor in Net().state_dict().items()}
MAPPING = StateMapping.of(
    STATE, [Table("embedding.weight", select=8)], local=["norm.num_batches_tracked"], examples="examples"
)
TASK = Task(
    name="quickstart",
    blocks=list(MAPPING.blocks),
    ring=Ring(64, fraction_bits=24),
    apply="weighted-mean",
    weights="examples",
    min_clients=2,
    max_clients=NODES,
)

# ---- what follows is the quickstart's; only the mod is added

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    # Load the model and initialize it with the received weights
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())

    # Load the data
    partition_id = context.node_config["partition-id"]
    trainloader = load_data(partition_id)

    # Call the training function
    train_loss = train_fn(model, trainloader, 3, msg.content["config"]["lr"])

    # Construct and return reply Message
    model_record = ArrayRecord(model.state_dict())
    metrics = {"train_loss": train_loss, "num-examples": len(trainloader[0])}
    metric_record = MetricRecord(metrics)
    content = RecordDict({"arrays": model_record, "metrics": metric_record})
    return Message(content=content, reply_to=msg)


def test_it_trains_as_in_the_clear(tmp_path):
    from flwr.app import ConfigRecord

    with deployed(tmp_path, TASK, MAPPING.model(STATE)) as deployment:
        mod = SubmodelMod(
            MAPPING,
            STATE,
            rows=lambda message, context: {"embedding.weight": load_data(context.node_config["partition-id"])[0]},
            client=deployment.client,
            metrics={"train_loss"},
        )
        modded = ClientApp(mods=[mod])
        modded.train()(train)
        strategy = SubmodelStrategy(
            MAPPING,
            STATE,
            operator=f"http://{deployment.port}",
            token_file=deployment.token,
            client=deployment.folder / "coordinator.toml",
            nodes=NODES,
        )
        result = strategy.start(InProcess([modded] * NODES), num_rounds=2, train_config=ConfigRecord({"lr": 0.5}))

    clear = {name: tensor.copy() for name, tensor in STATE.items()}
    for _ in range(2):
        after = []
        for partition in range(NODES):
            net = Net()
            net.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in clear.items()})
            train_fn(net, load_data(partition), 3, 0.5)
            after.append({name: tensor.numpy().copy() for name, tensor in net.state_dict().items()})
        clear = {
            name: clear[name]
            if name in MAPPING.local
            else np.mean([each[name].astype(np.float64) for each in after], axis=0).astype(np.float32)
            for name in clear
        }
    for name, array in result.arrays.items():
        assert np.allclose(array.numpy(), clear[name], atol=1e-6), name
    assert dict(result.train_metrics_clientapp[2]).keys() == {"train_loss", "fsl-counted"}
    assert not np.allclose(result.arrays["embedding.weight"].numpy(), STATE["embedding.weight"])
