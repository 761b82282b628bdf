"""A round of SecAgg+ as flwr implements it: its workflow on the server, its mod in the clients, in one process.

What stands between the two is a grid of our own. It does with every message what flwr's HTTP grid and its SuperNode do:
objects are named by their digests, deflated by the sender and inflated by the receiver, and travel in flwr's own
protobuf requests, whose lengths are the bytes that are counted. HTTP, TLS and the SuperLink's database are left out:
what is reported is the least that a deployment takes.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from importlib.metadata import version
from operator import xor
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import PullObjectResponse, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.serverapp.grid import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from examples.secagg.cases import CLIPPED, SEED, Array, Case, Figures, errors

NUM_SHARES, THRESHOLD = 3, 2
"""Those of Flower's own example, which has five clients too; there are no defaults, and fewer shares are refused."""

COLLECTING = 2
"""The stage, counted from 0, in which clients send their masked vectors."""
RUN = 1


def setting() -> dict[str, object]:
    """What was chosen and what flwr chooses, for the result."""
    workflow = SecAggPlusWorkflow(NUM_SHARES, THRESHOLD)
    return {
        "flwr": version("flwr"),
        "num_shares": workflow.num_shares,
        "reconstruction_threshold": workflow.reconstruction_threshold,
        "max_weight": workflow.max_weight,
        "clipping_range": workflow.clipping_range,
        "quantization_range": workflow.quantization_range,
        "modulus_range": workflow.modulus_range,
        "num_examples": int(workflow.max_weight),
    }


def measure(case: Case, num_shares: int | float = NUM_SHARES, threshold: int | float = THRESHOLD) -> Figures:
    """One round, in which each client receives the model and sends its changes."""
    random.seed(SEED)  # who is whose neighbour
    np.random.seed(SEED)  # stochastic rounding; keys are the operating system's
    exact = case.mean()
    grid = MeasuringGrid([Changes(case.full(number)) for number in range(case.clients)], case.dropped)
    mean = _run(grid, np.zeros((case.rows, case.width), np.float32), num_shares, threshold)
    stayed = grid.parties[: case.counted]
    largest, typical = errors(mean, exact)
    return Figures(
        client=float(np.mean([party.seconds for party in stayed])),
        server=grid.server_seconds / case.counted,
        up=max(party.up for party in stayed),
        down=max(party.down for party in stayed),
        largest_error=largest,
        typical_error=typical,
    )


def clip() -> dict[str, object]:
    """What the mean of the example comes to."""
    values = np.array(CLIPPED, np.float32)
    grid = MeasuringGrid([Changes(values) for _ in range(Case.clients)], 0)
    mean = _run(grid, np.zeros_like(values), NUM_SHARES, THRESHOLD)
    return {"sent": list(CLIPPED), "mean": mean.tolist()}


def masks_follow_32_bits() -> bool:
    """Whether a mask depends on no more than the XOR of the 32-bit words of its seed."""
    seed = np.random.default_rng(SEED).bytes(32)
    words = [int.from_bytes(seed[place : place + 4], "little") for place in range(0, 32, 4)]
    other = bytes(28) + reduce(xor, words).to_bytes(4, "little")
    first, second = (pseudo_rand_gen(each, 2**32, [(64,)])[0] for each in (seed, other))
    return bool(np.array_equal(first, second))


class Changes(NumPyClient):
    """A client that has its changes already: what training takes is not what is measured."""

    def __init__(self, changes: Array) -> None:
        self._changes = changes

    def fit(self, parameters: list[Array], config: dict[str, Any]) -> tuple[list[Array], int, dict[str, Any]]:
        """As many examples as the greatest weight, which is what keeps most of SecAgg+'s precision."""
        return [self._changes], int(SecAggPlusWorkflow(NUM_SHARES, THRESHOLD).max_weight), {}


@dataclass
class Party:
    """One client: its app, what it remembers between the stages, and what it took."""

    app: ClientApp
    context: Context
    seconds: float = 0.0
    up: int = 0
    down: int = 0


@dataclass
class Parcel:
    """A message on its way, as flwr makes it: a request about it, and one for every object in it."""

    message_id: str
    proto: Any
    tree: Any
    contents: dict[str, bytes] = field(repr=False)

    @staticmethod
    def of(message: Message) -> Parcel:
        """Deflate a message."""
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects = get_all_nested_objects(message)
            tree = get_object_tree(message)
            contents = {name: each.deflate() for name, each in objects.items()}
            return Parcel(message.object_id, message_to_proto(remove_content_from_message(message)), tree, contents)

    def open(self) -> Message:
        """Inflate it again."""
        message = inflate_object_from_contents(self.message_id, dict(self.contents))
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = self.message_id
        return message

    def bytes_up(self, node: Node) -> int:
        """Of the requests by which a client pushes it."""
        about = PushMessagesRequest(node=node, messages_list=[self.proto], message_object_trees=[self.tree])
        pushed = (
            PushObjectRequest(node=node, run_id=RUN, object_id=name, object_content=content)
            for name, content in self.contents.items()
        )
        return int(about.ByteSize() + sum(each.ByteSize() for each in pushed))

    def bytes_down(self) -> int:
        """Of the responses by which a client pulls it."""
        about = PullMessagesResponse(messages_list=[self.proto], message_object_trees=[self.tree])
        pulled = (
            PullObjectResponse(object_found=True, object_available=True, object_content=content)
            for content in self.contents.values()
        )
        return int(about.ByteSize() + sum(each.ByteSize() for each in pulled))


class MeasuringGrid(Grid):
    """Carries messages between the workflow and the clients, one after the other, and notes what each takes.

    Args:
        clients: what they train.
        dropped: how many of the last never answer from the stage on in which vectors are collected.
    """

    def __init__(self, clients: list[NumPyClient], dropped: int) -> None:
        self.parties = [
            Party(
                ClientApp(client_fn=_factory(client), mods=[secaggplus_mod]),
                Context(RUN, _node(number), {}, RecordDict(), {}),
            )
            for number, client in enumerate(clients)
        ]
        self._gone = {_node(number) for number in range(len(clients) - dropped, len(clients))}
        self._stage = 0
        self._others = 0.0
        self._started = time.process_time()

    @property
    def server_seconds(self) -> float:
        """Processor seconds since the grid was made, but for the clients' and for counting bytes."""
        return time.process_time() - self._started - self._others

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Let every client do a stage, and return what those answer that are still there."""
        replies = [reply for message in messages if (reply := self._exchange(Parcel.of(message)))]
        self._stage += 1
        return [reply.open() for reply in replies]

    def _exchange(self, parcel: Parcel) -> Parcel | None:
        begun = time.process_time()
        number = parcel.proto.metadata.dst_node_id
        party, node = self.parties[number - _node(0)], Node(node_id=number)
        if self._stage >= COLLECTING and number in self._gone:
            return None
        party.down += parcel.bytes_down()
        started = time.process_time()
        TaskIdentity.node_id = number
        reply = Parcel.of(party.app(parcel.open(), party.context))
        TaskIdentity.node_id = 0
        party.seconds += time.process_time() - started
        party.up += reply.bytes_up(node)
        self._others += time.process_time() - begun
        return reply

    # ---- what the workflow never asks for

    def set_run(self, run: Any) -> None:
        """There is one run."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """There is one run."""
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Deprecated in flwr."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All clients."""
        return [party.context.node_id for party in self.parties]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """See `send_and_receive`."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See `send_and_receive`."""
        raise NotImplementedError


def _node(number: int) -> int:
    """A client's number at the SuperLink; 0 is the server here."""
    return number + 1


def _factory(client: NumPyClient) -> Any:
    def client_fn(context: Context) -> Any:
        return client.to_client()

    return client_fn


def _run(grid: MeasuringGrid, model: Array, num_shares: int | float, threshold: int | float) -> Array:
    """One round of flwr's workflow; returns the mean."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, 0, 0
    strategy = FedAvg(fraction_evaluate=0.0, min_fit_clients=2, min_available_clients=2, inplace=False)
    context = LegacyContext(Context(RUN, 0, {}, RecordDict(), {}), strategy=strategy)
    for node in grid.get_node_ids():
        context.client_manager.register(GridClientProxy(node, grid, RUN))
    context.state.config_records["config"] = ConfigRecord({"current_round": 1})
    context.state.array_records["parameters"] = sent = ArrayRecord([model])
    SecAggPlusWorkflow(num_shares, threshold)(grid, context)
    received = context.state.array_records["parameters"]
    if received is sent:
        raise RuntimeError("SecAgg+ halted: too few clients were left")
    return received.to_numpy_ndarrays()[0]
