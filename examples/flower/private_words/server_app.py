"""What Flower's server does: it drives the rounds, and evaluates the model that the two servers publish."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from parties.flower import SubmodelStrategy
from private_words.shared import MAPPING, STATE
from private_words.task import Net, load_data, test

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The accuracy of the whole model."""
    net = Net()
    net.load_state_dict({name: array.numpy() for name, array in arrays.items()})
    accuracy = test(net, *load_data(-1))
    print(f"round {server_round}: accuracy {accuracy:.4f}", flush=True)
    return MetricRecord({"accuracy": accuracy})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    strategy = SubmodelStrategy(
        MAPPING,
        STATE,
        operator=config["operator"],
        token_file=Path(config["token-file"]) if config["token-file"] else None,
        client=config["coordinator"],
        nodes=config["nodes"],
        evaluating=config["evaluating-nodes"],
        stragglers=config["stragglers"],
        checkpoints=Path(config["checkpoints"]) if config["checkpoints"] else None,
    )
    result = strategy.start(
        grid=grid, num_rounds=config["num-server-rounds"] - strategy.rounds_done, evaluate_fn=evaluate
    )
    for number, metrics in result.train_metrics_clientapp.items():
        print(f"round {number}: {metrics['fsl-counted']} nodes counted", flush=True)
    for number, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {number}: accuracy {metrics['accuracy']:.4f} at the nodes", flush=True)
