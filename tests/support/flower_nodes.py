"""Two servers as processes, and Flower's side in this one: a grid that gives messages to apps at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fsl_async import Ring, Task
from fsl_async.learning import StateMapping, Table
from parties.flower.__main__ import SERVERS, lay_out
from parties.outcome import Model
from tests.support.serving import processes

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # as Flower's runtime sets them
STATE = {"embedding.weight": np.arange(100, dtype=np.float32).reshape(50, 2), "head.bias": np.ones(3, np.float32)}
MAPPING = StateMapping.of(STATE, [Table("embedding.weight", select=4, block="words")])
TASK = Task(
    name="trial",
    blocks=list(MAPPING.blocks),
    ring=Ring(64, fraction_bits=24),
    apply="mean",
    min_clients=2,
    max_clients=4,
)
NODES = 4


@dataclass
class Deployment:
    """Where the parties' files are."""

    folder: Path
    port: str

    def client(self, context: Context) -> Path:
        return self.folder / f"client-{context.node_config['partition-id']}.toml"

    @property
    def token(self) -> Path:
        return self.folder / "s0.sqlite.operator-token"


def laid_out(folder: Path, task: Task = TASK, model: Model | None = None) -> Deployment:
    clients = ["coordinator", *(f"client-{number}" for number in range(NODES))]
    return Deployment(folder, lay_out(folder, task, model or MAPPING.model(STATE), clients, "open"))


@contextmanager
def deployed(folder: Path, task: Task = TASK, model: Model | None = None) -> Iterator[Deployment]:
    """Both servers, for as long as the block lasts."""
    made = laid_out(folder, task, model)
    with processes() as start:
        for name in SERVERS:
            start(folder, "serve", f"{name}.toml")
        until_ready(made.port)
        yield made


def until_ready(port: str) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            with urlopen(f"http://{port}/readyz", timeout=5):
                return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


@dataclass
class InProcess(Grid):
    """A grid whose nodes answer within `push_messages`; a node whose app is None has gone."""

    apps: list[ClientApp | None]
    config: dict[str, int] = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)
    replies: dict[str, Message] = field(default_factory=dict)

    def get_node_ids(self) -> Iterable[int]:
        return range(1, len(self.apps) + 1)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in sorted(messages, key=lambda each: each.metadata.dst_node_id):
            ids.append(identified(message))
            self.asked.append(message)
            app = self.apps[message.metadata.dst_node_id - 1]
            if app is not None:
                self.replies[ids[-1]] = answered(app, message, message.metadata.dst_node_id - 1)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(each) for each in list(message_ids) if each in self.replies]

    def set_run(self, run) -> None: ...

    run = property(lambda self: None)

    def create_message(self, *words, **named) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None) -> Iterable[Message]:
        raise NotImplementedError


def identified(message: Message) -> str:
    if not message.metadata.message_id:
        message.metadata.__dict__["_message_id"] = os.urandom(8).hex()
    return message.metadata.message_id


def answered(app: ClientApp, message: Message, partition: int, run_config: dict[str, str] | None = None) -> Message:
    """As Flower's runtime does it: what the app raises becomes an error's reason."""
    node = {"partition-id": partition}
    context = Context(
        run_id=1, node_id=partition + 1, node_config=node, state=RecordDict(), run_config=run_config or {}
    )
    try:
        return app(copied(message), context)
    except Exception as error:
        return Message(Error(code=2, reason=f"{type(error)}:<'{error}'>"), reply_to=message)


def copied(message: Message) -> Message:
    made = Message(
        RecordDict(dict(message.content)),
        message_type=message.metadata.message_type,
        dst_node_id=message.metadata.dst_node_id,
    )
    made.metadata.__dict__["_message_id"] = message.metadata.message_id
    return made


Train = Callable[[dict[str, np.ndarray], int], dict[str, float]]
"""Changes a state, knowing its partition, and returns metrics."""


def app_of(mod, train: Train) -> ClientApp:
    app = ClientApp(mods=[mod])

    @app.train()
    def _(message: Message, context: Context) -> Message:
        state = {name: array.numpy().copy() for name, array in message.content["arrays"].items()}
        metrics = train(state, context.node_config["partition-id"])
        arrays = ArrayRecord({name: Array(tensor) for name, tensor in state.items()})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)

    @app.evaluate()
    def _(message: Message, context: Context) -> Message:
        bias = message.content["arrays"]["head.bias"].numpy()
        return Message(RecordDict({"metrics": MetricRecord({"bias": float(bias[0])})}), reply_to=message)

    return app


def message_for(number: int, task: Task = TASK) -> Message:
    config = ConfigRecord({"fsl-round": number, "fsl-task": task.digest().hex()})
    message = Message(RecordDict({"config": config}), message_type="train", dst_node_id=1)
    identified(message)
    return message
