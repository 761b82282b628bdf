"""The strategy for a ServerApp: Flower's rounds drive those of the two servers, which aggregate.

A round: nodes are asked, and told the number of the round that is open at the servers; when their replies are in, that
round is closed; when it has ended, the model is downloaded, evaluated and reported.

Rules:

- Nothing is asked of nodes before the servers have answered.
- Who is counted is what the servers say, not who replied.
- A round's model is on disk before the round is in the account: what the account names can be read.
- A ServerApp that is started again begins with the servers' model and their open round; nodes that have submitted to it
  say what they said.

The servers' round needs no reply of Flower's: whose receipts are signed is counted, whether its node's reply has come
or not. So the replies say when to close, and a node that has gone must not hold the others (`PatientGrid`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import sample_nodes
from flwr.supercore import log
from flwr.supercore.run import Run

from fsl_async.learning import StateMapping
from parties.files.disk import refused, sync_folder
from parties.files.models import checkpoint
from parties.flower.held_state import check_task
from parties.flower.orders import order
from parties.flower.servers import Servers
from parties.status import RoundSummary

PAUSE = 0.3


class PatientGrid(Grid):
    """Another grid, with an end to waiting for the last replies.

    Args:
        grid: which sends and receives.
        stragglers: seconds without a reply, counted from the last one, after which the others are not waited for.
    """

    def __init__(self, grid: Grid, stragglers: float) -> None:
        self._grid = grid
        self._stragglers = stragglers

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and return the replies that came: all, or those before the time was over."""
        waiting = set(self._grid.push_messages(messages))
        begun = latest = time.monotonic()
        replies: list[Message] = []
        while waiting:
            came = list(self._grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            replies += came
            now = time.monotonic()
            latest = now if came else latest
            if (replies and now - latest > self._stragglers) or (timeout is not None and now - begun > timeout):
                break
            if waiting:
                time.sleep(PAUSE)
        if waiting:
            log(WARNING, "fsl-async: %s nodes have not replied in time; the round goes on without them", len(waiting))
        return replies

    def set_run(self, run: Run) -> None:
        """As the other grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The other grid's."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As the other grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The other grid's."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The other grid's."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the other grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the other grid does."""
        return self._grid.pull_messages(message_ids)


ACCOUNT = "rounds.jsonl"
COUNTED = "fsl-counted"


class SubmodelStrategy(Strategy):
    """Drives the rounds of two servers with Flower's nodes.

        strategy = SubmodelStrategy(MAPPING, STATE, operator="s0.toml", client="coordinator.toml", nodes=4)
        result = strategy.start(grid=grid, num_rounds=4, evaluate_fn=accuracy)

    `evaluate_fn` gets the model after each round, whole, as any strategy's does. Metrics that nodes report are
    averaged, each node's with the same weight, because how many examples it has may be nobody's business.

    Args:
        mapping: which tensors are in which block; the mod's.
        state: a state of the model: its tensors' order, and the values of those that stay with clients.
        operator: the file of one of the two servers, or the address of its operator's port as http://host:port.
        client: the file of a client that downloads the model. It submits nothing.
        token_file: the file of the operator's token, where `operator` is an address.
        nodes: how many nodes take part in a round; as many are waited for.
        evaluating: how many nodes evaluate after a round; none unless given.
        checkpoints: a folder for the model after each round, and for the account of the rounds (`rounds.jsonl`).
        stragglers: seconds without a further reply after which the nodes that have not replied are not waited for.
        patience: seconds to wait for a server, or for a step of a round that needs no node.

    Raises:
        MisuseError: a file is missing or wrong, or the task's blocks are others than the mapping's.
    """

    def __init__(
        self,
        mapping: StateMapping,
        state: Mapping[str, npt.NDArray[Any]],
        *,
        operator: str | Path,
        client: str | Path,
        token_file: Path | None = None,
        nodes: int = 2,
        evaluating: int = 0,
        checkpoints: Path | None = None,
        stragglers: float = 20.0,
        patience: float = 60.0,
    ) -> None:
        self._mapping = mapping
        self._state = state
        self._servers = Servers.of(str(operator), Path(client), token_file, patience)
        check_task(self._servers.task, mapping)
        self._nodes = nodes
        self._evaluating = evaluating
        self._checkpoints = checkpoints
        self._stragglers = stragglers
        self._asked = 0

    @property
    def rounds_done(self) -> int:
        """How many rounds `checkpoints` accounts for, of earlier runs too: `num_rounds=10 - strategy.rounds_done`."""
        account = self._checkpoints and self._checkpoints / ACCOUNT
        return account.read_bytes().count(b"\n") if account and account.exists() else 0

    def arrays(self) -> ArrayRecord:
        """The servers' model, whole.

        Raises:
            FslError: it cannot be downloaded.
        """
        return self._record(self._servers.model())

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run rounds; see `flwr.serverapp.strategy.Strategy.start`.

        Args:
            grid: Flower's.
            initial_arrays: left out, because the servers have the model; what is given is only evaluated.
            num_rounds: how many.
            timeout: seconds to wait for the replies of a round, however late the first one is.
            train_config: sent to the nodes with each round.
            evaluate_config: sent to the nodes that evaluate.
            evaluate_fn: is given the model before the first round and after each one.

        Raises:
            ChannelError: the servers are not there; no node has been asked then.
            FslError: a round does not end.
        """
        self._servers.check_there()
        return super().start(
            PatientGrid(grid, self._stragglers),
            initial_arrays if initial_arrays is not None else self.arrays(),
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )

    def summary(self) -> None:
        """Log what is learnt."""
        task = self._servers.task
        log(INFO, "\t├──> fsl-async: task %r, fingerprint %s", task.name, task.digest().hex()[:16])
        log(INFO, "\t└──> Nodes: train (%d) | evaluate (%d)", self._nodes, self._evaluating)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nodes to train in the round that is open at the servers."""
        self._asked = self._servers.open_round()
        return self._messages(MessageType.TRAIN, self._nodes, self._asked, config, server_round, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close the round, wait for its outcome, and download the model."""
        said = _said(replies)
        self._servers.close(self._asked)
        ended = self._servers.outcome(self._asked)
        if ended.ended != "done":
            log(WARNING, "fsl-async: round %d changed nothing: %s", self._asked, ended.explanation)
        model = self._servers.model()
        metrics = _mean(said) | {COUNTED: ended.counted if ended.ended == "done" else 0}
        self._file(server_round, ended, model, metrics)
        return self._record(model), MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nodes to evaluate the model; each retrieves its own rows of it."""
        if not self._evaluating:
            return []
        number = self._servers.open_round()
        return self._messages(MessageType.EVALUATE, self._evaluating, number, config, server_round, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of what nodes found."""
        mean = _mean(_said(replies))
        return MetricRecord(mean) if mean else None

    def _messages(
        self, kind: str, nodes: int, number: int, config: ConfigRecord, server_round: int, grid: Grid
    ) -> list[Message]:
        chosen, _ = sample_nodes(grid, nodes, nodes)
        log(INFO, "fsl-async: %d nodes are asked for round %d of the servers", len(chosen), number)
        content = order(ConfigRecord({**config, "server-round": server_round}), number, self._servers.task.digest())
        return [Message(content=content, message_type=kind, dst_node_id=node) for node in chosen]

    def _file(
        self, server_round: int, ended: RoundSummary, model: Mapping[str, npt.NDArray[Any]], metrics: Mapping[str, Any]
    ) -> None:
        """Save the model, and then account for the round."""
        if self._checkpoints is None:
            return
        account = self._checkpoints / ACCOUNT
        try:
            self._checkpoints.mkdir(parents=True, exist_ok=True)
            checkpoint(self._checkpoints, ended.number, model)
            line = {**metrics, "round": ended.number, "server-round": server_round, "ended": ended.ended}
            append_line(account, json.dumps(line))
        except OSError as error:
            raise refused(account, error) from error

    def _record(self, model: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
        state = self._mapping.state(model, self._state)
        return ArrayRecord({name: Array(np.ascontiguousarray(state[name])) for name in self._state})


def append_line(account: Path, line: str) -> None:
    """Append a line, on disk when this returns; what a killed process left of its last line is taken away first.

    Raises:
        OSError: it cannot be written.
    """
    with account.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(account)


def _said(replies: Iterable[Message]) -> list[dict[str, int | float]]:
    """The metrics of each node that took part; what the others say of themselves is logged."""
    said = []
    for reply in replies:
        if reply.has_error():
            log(WARNING, "fsl-async: node %d does not take part: %s", reply.metadata.src_node_id, reply.error.reason)
            continue
        said.append(
            {
                name: value
                for record in reply.content.metric_records.values()
                for name, value in record.items()
                if isinstance(value, int | float)
            }
        )
    return said


def _mean(said: list[dict[str, int | float]]) -> dict[str, int | float]:
    """The mean of each metric over the nodes that reported it."""
    names = sorted({name for each in said for name in each})
    return {name: float(np.mean([each[name] for each in said if name in each])) for name in names}
