"""How much memory a server's process needs: what it holds when two shares become a sum, and the sum the next model.

Counted from what is held at that moment, for each weight of a block, and compared with the peaks of real servers (the
figures are in `tests/parties/deployment/test_memory_need.py`). The sum's cells and the tables for retrieval have three
places for each row, one for each hash function.

| held | of a sparse block | of a dense block |
|---|---|---|
| the sum as it grows | 3 elements | 1 element |
| tables for retrieval | 3 weights | |
| models: of the start, of the round, the next one | 3 weights | 3 weights |
| shares, ours and the peer's, and their sum | 3 elements | 3 elements |
| the last round's update and this one's, as numbers and as integers | 2 × (8 + integer) | 2 × (8 + integer) |
| the addition | 8 + a weight | 8 + a weight |
| an optimizer's arrays, before and after, and its computing | 16 × arrays + 24 | 16 × arrays + 24 |

While submissions are added, a batch of them and the next one (see `fsl_async.server.batch`) are held beside the
sum, the tables and two models; a server needs the larger one of both.

`Momentum` has one array, `Adam` two. An average alone computes with 16 bytes for each weight. What a task's own
rule holds is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fsl_async.bin_count import planned
from fsl_async.bounds import verifier_bytes
from fsl_async.geometry import SEGMENTS
from fsl_async.server.batch import held_bytes
from fsl_async.server_rules import optimizer_arrays
from fsl_async.task import Sparse, Task
from fsl_async.union import union_task
from parties.schedule import ConversationLimits
from parties.server.clients.retrievals import longest_answer
from parties.server.round.records import submission_bytes

PROCESS_BYTES = 170 << 20
"""Of the interpreter, the libraries and the compiled kernels, at the start; less later."""

NUMBER_BYTES = 8
LISTS_OF_ANSWERS = 5
"""Of answers about the bounds of all clients: ours and as it is sent, the peer's as it came and as it is read, and one
on its way into the store."""

LONG_INTEGER_BYTES = 56
"""An integer that numpy has no type for: an object, and the place that points to it."""


def message_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]], given: int) -> int:
    """The memory that clients' messages may take.

    Args:
        task: the task.
        model: its blocks, whose dtypes count.
        given: what the server's file says; 0: nothing.
    """
    return sum(ConversationLimits(memory_bytes=given).memory(submission_bytes(task), longest_answer(task, model)))


def server_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]], messages: int) -> int:
    """The most bytes that a server of a task holds at a time.

    Args:
        task: the task.
        model: its blocks, whose dtypes count.
        messages: the memory that clients' messages may take; see `message_bytes`.
    """
    if task.protocol == "psr":
        return PROCESS_BYTES + _retrieved_bytes(task, model) + messages
    task = planned(task)
    if task.protocol == "psu":
        task = union_task(task)
    element = task.ring.element_bytes
    integer = NUMBER_BYTES if task.ring.bits <= 64 else LONG_INTEGER_BYTES
    held, adding = 0, held_bytes(task)
    for block in task.blocks:
        weight = model[block.name].dtype.itemsize if block.name in model else 0
        places = SEGMENTS if isinstance(block, Sparse) else 1
        tables = SEGMENTS * weight if isinstance(block, Sparse) else 0
        outcomes = 2 * (NUMBER_BYTES + integer)
        each = places * element + tables + 3 * weight + 3 * element + outcomes + NUMBER_BYTES + weight
        each += rule_bytes(task)
        held += each * block.weights
        adding += (places * element + tables + 2 * weight) * block.weights
    answers = LISTS_OF_ANSWERS * task.max_clients * verifier_bytes(task)
    return PROCESS_BYTES + max(held, adding) + answers + messages


def _retrieved_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> int:
    """Of a model that never changes, and of its tables."""
    return sum(
        block.weights * model[block.name].dtype.itemsize * (1 + SEGMENTS * isinstance(block, Sparse))
        for block in task.blocks
    )


def rule_bytes(task: Task) -> int:
    """For each weight, what an average or an optimizer takes beyond the addition of a sum."""
    if task.adds or task.rule == "own":
        return 0
    computing = 3 if task.optimizer is not None else 2
    return NUMBER_BYTES * (2 * optimizer_arrays(task.optimizer) + computing)
