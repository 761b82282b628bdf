"""What a node does. `train` is that of Flower's quickstart; the mod is what is new."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from parties.flower import SubmodelMod
from private_words.shared import MAPPING, STATE
from private_words.task import Net, load_data, test
from private_words.task import train as train_fn


def words_of(message: Message, context: Context):
    """The words of this node's texts: these rows are retrieved, and nobody learns which they are."""
    texts, _ = load_data(context.node_config["partition-id"])
    return {"embedding": texts}


app = ClientApp(mods=[SubmodelMod(MAPPING, STATE, rows=words_of, metrics={"train_loss", "accuracy"})])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on the data of this node."""
    net = Net()
    net.load_state_dict({name: array.numpy() for name, array in message.content["arrays"].items()})
    partition = context.node_config["partition-id"]
    if partition == context.run_config["failing"]:
        raise RuntimeError("this node fails, as it was told to")
    texts, labels = load_data(partition)
    loss = train_fn(net, texts, labels, context.run_config["local-epochs"])
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in net.state_dict().items()})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(texts)})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Say how well the servers' model does on the texts of this node, which has retrieved its own rows alone."""
    net = Net()
    net.load_state_dict({name: array.numpy() for name, array in message.content["arrays"].items()})
    accuracy = test(net, *load_data(context.node_config["partition-id"]))
    return Message(content=RecordDict({"metrics": MetricRecord({"accuracy": accuracy})}), reply_to=message)
