"""The mod for a ClientApp: the model comes from the two servers, the update goes to them, and metrics go to Flower.

Rules:

- A train function gets the record `arrays` that it would get from Flower, and returns one; neither leaves the node.
- A node replies when it has the receipts of both servers, and does not wait for the round's outcome.
- Everything that can fail here is done before `submit`: after it there is only the reply.
- A node that has retrieved rows submits, zeros if need be, and replies as the others do: whatever fails because of what
  it retrieved is in its own log, and neither the two servers nor Flower hear of it.
- Asked a second time for a round that it has submitted to, a node finishes that submission, and says what it said.
- What leaves is allowed by name. That goes for errors, too: text of an exception may hold a word or a row, so it goes
  to the node's own log, and Flower hears the kind of the error; only errors about servers and rounds are told whole.

A client submits once to a round. If its process is killed after that and before Flower has its reply, or if Flower asks
twice, there is nothing left to train; so the metrics are on disk before the submission is (`KeptReply`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from logging import ERROR, WARNING
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.supercore import log

from fsl_async.errors import ChannelError, MisuseError, WrongAnswerError
from fsl_async.learning import StateMapping
from fsl_async.task import Task
from parties.client.blocking import BlockingClient
from parties.deployment.connecting import connect_blocking
from parties.errors import (
    AlreadyCountedError,
    OtherCountedError,
    OutcomeUnknownError,
    RequestDeniedError,
    RoundClosedError,
    SumRefusedError,
)
from parties.files.disk import InUseError, refused, replaced_by
from parties.flower.held_state import check_task, given_state, update_of, wanted_blocks
from parties.flower.orders import ARRAYS, Metrics, allowed_metrics, metrics_reply, ordered_round
from parties.identity.keys import Identity
from parties.settings.party_file import ClientFile
from parties.settings.task_file import Deployment


class KeptReply:
    """The metrics of one client's last submission.

    Args:
        client: the client's own file; the reply is kept beside it, as `alice.reply.json` beside `alice.toml`. None: a
            simulated node's, of which nothing is kept.
    """

    def __init__(self, client: Path | None) -> None:
        self._path = client and client.with_suffix(".reply.json")

    def keep(self, number: int, metrics: dict[str, int | float]) -> None:
        """Keep the metrics of a round, instead of the last one's.

        Raises:
            StorageError: they cannot be written.
        """
        if self._path is None:
            return
        try:
            with replaced_by(self._path) as file:
                file.write(json.dumps({"round": number, "metrics": metrics}).encode())
        except OSError as error:
            raise refused(self._path, error) from error

    def of(self, number: int) -> dict[str, int | float]:
        """The metrics of a round; none where they are not known."""
        if self._path is None:
            return {}
        try:
            kept = json.loads(self._path.read_bytes())
            if kept["round"] != number:
                return {}
            return {
                str(name): value
                for name, value in kept["metrics"].items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}


Rows = Callable[[Message, Context], Mapping[str, npt.ArrayLike]]
"""By tensor, the ids that a node's training uses, of any shape."""

Train = Callable[[Mapping[str, npt.NDArray[Any]]], RecordDict]
"""Trains on a state, and returns what the app's function did."""

CLIENT, SIMULATED = "fsl-client", "fsl-task"
PARTITION = "{partition-id}"
TELLABLE = (ChannelError, RequestDeniedError, RoundClosedError, InUseError, WrongAnswerError)
"""Errors whose text names servers, rounds and files, and nothing of a client's data."""


class NodeError(Exception):
    """What Flower hears of an error at a node."""


def client_file(context: Context) -> Path:
    """The file of a node's client: `fsl-client` of the node's configuration, else of the run's.

    `{partition-id}` in it stands for the node's partition.

    Raises:
        MisuseError: neither names one.
    """
    named = context.node_config.get(CLIENT, context.run_config.get(CLIENT))
    partition = context.node_config.get("partition-id")
    if not isinstance(named, str) or (PARTITION in named and partition is None):
        raise MisuseError(
            "this node does not say which client of the servers it is: start it with --node-config "
            f'\'{CLIENT}="/home/alice/alice.toml"\', or with a partition-id and {CLIENT} = "…/client-{PARTITION}.toml" '
            "under [tool.flwr.app.config]"
        )
    return Path(named.replace(PARTITION, str(partition)))


@dataclass(frozen=True)
class SubmodelMod:
    """A mod that gives a train function the rows that its node needs, and submits what it changes.

        mod = SubmodelMod(MAPPING, STATE, rows=lambda message, context: {"embedding.weight": my_words(context)})
        app = ClientApp(mods=[mod])

    Attributes:
        mapping: which tensors are in which block.
        state: a state of the model: its tensors' order, and the values of those that stay with each client.
        rows: the ids that a node uses of each table. A table that it does not name is downloaded whole.
        client: the file of the node's client; see `client_file`. Where the run's configuration names a task file as
            `fsl-task`, nodes are simulated, and have no file: see docs/flower.md.
        metrics: the names of metrics that Flower's server may hear; none unless named.
        examples: the metric that counts a node's examples, where the mapping has a block for them. It is used here, and
            leaves only if `metrics` names it as well.
        patience: seconds to wait for a server that is away, or for a round to open.
    """

    mapping: StateMapping
    state: Mapping[str, npt.NDArray[Any]] = field(repr=False)
    rows: Rows
    client: Callable[[Context], Path | str] = client_file
    metrics: Collection[str] = ()
    examples: str = "num-examples"
    patience: float = 60.0

    def __post_init__(self) -> None:
        """Refuse one string: each part of it would be a name that may leave."""
        if isinstance(self.metrics, str):
            raise MisuseError(f"metrics: a set of names expected, got {self.metrics!r}; write {{{self.metrics!r}}}")

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Handle one message of Flower's."""
        try:
            return metrics_reply(message, self._metrics_of(message, context, call_next))
        except TELLABLE as error:
            log(ERROR, "fsl-async: this node does not take part", exc_info=error)
            raise NodeError(str(error)) from None
        except (Exception, SystemExit) as error:  # after `sys.exit` Flower would hear nothing, and wait
            log(ERROR, "fsl-async: this node does not take part", exc_info=error)
            raise NodeError(f"{type(error).__name__}; what it says is in this node's log, and stays there") from None

    def _metrics_of(self, message: Message, context: Context, call_next: ClientAppCallable) -> Metrics:
        category = message.metadata.message_type.split(".")[0]
        if category == MessageType.QUERY:
            return allowed_metrics(_content(call_next(message, context)), self.metrics)
        keys: Identity | str = ""
        if simulated := context.run_config.get(SIMULATED):
            path = task_file = Path(str(simulated))
            # New for each message: servers of simulated nodes admit anybody.
            keys = Identity.generate(f"node-{context.node_config.get('partition-id')}-{os.urandom(8).hex()}")
        else:
            path = Path(self.client(context))
            task_file = ClientFile.load(path).task
        task = Deployment.load(task_file).task
        check_task(task, self.mapping)
        number = ordered_round(message, task.digest())
        wanted = wanted_blocks(self.mapping, self.rows(message, context))
        with connect_blocking(path, keys, patience=self.patience) as client:
            node = _Node(self, client, task, KeptReply(None if keys else path), number)
            if category == MessageType.TRAIN and node.finished():
                return node.reply.of(number)
            found = node.retrieved(wanted)
            if category == MessageType.TRAIN:
                return node.trained(wanted, found, partial(_called, call_next, message, context))
            return allowed_metrics(_called(call_next, message, context, node.given(wanted, found)), self.metrics)


@dataclass(frozen=True)
class _Node:
    """A client of the servers, in the round that Flower's server named."""

    mod: SubmodelMod
    client: BlockingClient
    task: Task
    reply: KeptReply
    number: int

    def finished(self) -> bool:
        """Whether this client has submitted to the round before; a submission that is under way is finished."""
        submitted, pending = self.client.unreported, self.client.pending
        try:
            if pending:
                self.client.resume(timeout=self.mod.patience)
        except AlreadyCountedError:
            pass
        except (RoundClosedError, OtherCountedError, SumRefusedError, OutcomeUnknownError) as error:
            if pending == self.number:
                raise
            log(WARNING, "fsl-async: this node's submission of round %d, which is over: %s", pending, error)
        return submitted is not None and submitted.config.number == self.number

    def retrieved(self, wanted: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """What was asked for, as the servers have it in this round.

        Raises:
            RoundClosedError: another round is open.
        """
        try:
            found = self.client.retrieve(wanted, wait=True, timeout=self.mod.patience)
        except TimeoutError:
            raise RoundClosedError(
                f"the servers opened no round {self.number} within {self.mod.patience:g} seconds: ask their "
                "operators, who see why with `fsl-async status`"
            ) from None
        if self.client.round_number != self.number:
            raise RoundClosedError(
                f"round {self.number} is over: the servers are at round {self.client.round_number}, and this message "
                "came too late"
            )
        return found

    def given(self, wanted: Mapping[str, Any], found: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The state to train on.

        Raises:
            MisuseError: rows found no place.
        """
        deferred = {name: rows.tolist() for name, rows in self.client.deferred.items() if len(rows)}
        if deferred:
            raise MisuseError(f"the retrieval found no place for rows {deferred}; the next round's will")
        return given_state(self.mod.mapping, wanted, found, self.mod.state)

    def trained(self, wanted: Mapping[str, Any], found: Mapping[str, npt.NDArray[Any]], train: Train) -> Metrics:
        """Train and submit; returns the metrics that may leave, kept first; none where zeros are submitted."""
        metrics: Metrics = {}
        self.reply.keep(self.number, metrics)
        with self.client.taking_part():
            before = self.given(wanted, found)
            content = train(before)
            update = update_of(self.mod.mapping, wanted, before, _arrays(content), self._examples(content))
            self.mod.mapping.fits(update, self.task)
            metrics |= allowed_metrics(content, self.mod.metrics)
            self.reply.keep(self.number, metrics)
            self.client.submit(update)
        return metrics

    def _examples(self, content: RecordDict) -> float | None:
        if self.mod.mapping.examples is None:
            return None
        for record in content.metric_records.values():
            if isinstance(count := record.get(self.mod.examples), int | float):
                return count
        raise MisuseError(
            f"the train function returned no metric {self.mod.examples!r}, and the task's mean is weighted by examples"
        )


def _called(
    call_next: ClientAppCallable, message: Message, context: Context, state: Mapping[str, npt.NDArray[Any]]
) -> RecordDict:
    """What the app makes of a state."""
    message.content[ARRAYS] = _record(state)
    try:
        return _content(call_next(message, context))
    except SystemExit as stop:  # no more than another error: after it Flower would hear nothing
        raise MisuseError("the app has ended this process") from stop


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise MisuseError(f"the app replied with an error: {reply.error.reason}")
    return reply.content


def _record(state: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(tensor)) for name, tensor in state.items()})


def _arrays(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """The one record of arrays that a train function returned."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MisuseError(f"the train function returned {len(records)} records of arrays, one expected: the model's")
    return {name: array.numpy() for name, array in records[0].items()}
