"""What the strategy's messages and the nodes' replies carry: the round, and metrics that are allowed by name."""

from __future__ import annotations

from collections.abc import Collection
from logging import INFO

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore import log

from fsl_async.errors import MisuseError

CONFIG, METRICS, ARRAYS = "config", "metrics", "arrays"
ROUND, TASK = "fsl-round", "fsl-task"
Metrics = dict[str, int | float]


def order(config: ConfigRecord, number: int, task: bytes) -> RecordDict:
    """What a node is asked: the user's configuration, the round of the servers, and the digest of their task."""
    return RecordDict({CONFIG: ConfigRecord({**config, ROUND: number, TASK: task.hex()})})


def ordered_round(message: Message, task: bytes) -> int:
    """The round of the servers that a message is about.

    Raises:
        MisuseError: it names none, or is about another task.
    """
    config = message.content.config_records.get(CONFIG, {})
    number, named = config.get(ROUND), config.get(TASK)
    if type(number) is not int or number < 1:
        raise MisuseError(
            "this message names no round of the servers: the ServerApp must use parties.flower.SubmodelStrategy"
        )
    if named != task.hex():
        raise MisuseError(
            f"Flower's server works on the task {str(named)[:16]}…, and this client's task file says {task.hex()[:16]}…"
        )
    return number


def allowed_metrics(content: RecordDict, allowed: Collection[str]) -> Metrics:
    """The metrics of a reply that may leave: single numbers, under names that are allowed."""
    kept: Metrics = {}
    for record in content.metric_records.values():
        for name, value in record.items():
            if name in allowed and isinstance(value, int | float):
                kept[name] = value
            else:
                log(INFO, "fsl-async: the metric %r stays here; `metrics` does not allow it, or it is a list", name)
    return kept


def metrics_reply(message: Message, metrics: Metrics) -> Message:
    """A reply with metrics and nothing else."""
    return Message(content=RecordDict({METRICS: MetricRecord(dict(metrics))}), reply_to=message)
