"""How much memory a server's process needs, at the moment at which it holds the most.

Counted from what is held then, for each weight of a block, and compared with the peaks of real servers (the figures are
in `tests/parties/deployment/test_memory_need.py`). The sum's cells and the tables for retrieval have three places for
each row, one for each hash function; a cell is a multiple of 16 bytes.

| always held, once some rounds are over | of a sparse block | of a dense block |
|---|---|---|
| tables for retrieval | 3 weights | |
| models: of the start, of the round, and of the round before or the next one | 3 weights | 3 weights |
| the sum of the round before | an element | an element |
| an optimizer's arrays, as often as the round's models | 24 × arrays | 24 × arrays |

Beside that there is the largest of three: while submissions are added, the cells, a batch of them and the next one
(see `fsl_async.server.batch`), and clients' messages; while the share is made, the cells and some pieces of it; and
while the shares are combined and applied, cells that are kept for the next round, the last clients' dense shares,
pieces, the sum, and, for an average or an optimizer, its numbers.

`Momentum` has one array, `Adam` two. What a task's own rule holds is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fsl_async.bin_count import planned
from fsl_async.bounds import verifier_bytes
from fsl_async.geometry import SEGMENTS
from fsl_async.server.batch import cell_bytes, held_bytes
from fsl_async.server_rules import optimizer_arrays
from fsl_async.task import Sparse, Task
from fsl_async.union import union_task
from fsl_async.wire.pieces import LONGEST_PIECE
from fsl_async.wire.public_part import dense_bytes, share_bytes
from parties.schedule import ConversationLimits
from parties.server.clients.retrievals import longest_answer
from parties.server.round.accumulation import SPARE_BYTES
from parties.server.round.records import submission_bytes

PROCESS_BYTES = 200 << 20
"""Of the interpreter, the libraries and the compiled kernels."""

NUMBER_BYTES = 8
PIECES = 6
"""Of a share, each up to `LONGEST_PIECE`: formed, hashed, stored, sent, received and added one after the other."""

LAST_SHARES = 4
"""Of clients' dense blocks: the last two are still there, as they came and as they were read back."""

MODELS = 3
LISTS_OF_ANSWERS = 5
"""Of answers about the bounds of all clients: ours and as it is sent, the peer's as it came and as it is read, and one
on its way into the store."""

LONG_INTEGER_BYTES = 56
"""An integer that numpy has no type for: an object, and what points to it; three for each weight of a piece."""


def message_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]], given: int) -> int:
    """The memory that clients' messages may take; no more than one submission and one answer of each client.

    Args:
        task: the task.
        model: its blocks, whose dtypes count.
        given: what the server's file says, which is taken as it is; 0: nothing.
    """
    submission, answer = submission_bytes(task), longest_answer(task, model)
    lent = sum(ConversationLimits(memory_bytes=given).memory(submission, answer))
    return lent if given else min(lent, task.max_clients * (submission + answer))


def server_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]], messages: int) -> int:
    """The most bytes that a server of a task holds at a time.

    Args:
        task: the task.
        model: its blocks, whose dtypes count.
        messages: the memory that clients' messages may take; see `message_bytes`.
    """
    if task.protocol == "psr":
        return PROCESS_BYTES + _model_bytes(task, model, 1) + messages
    task = planned(task)
    if task.protocol == "psu":
        task = union_task(task)
    share, cells, dense = share_bytes(task), cell_bytes(task), dense_bytes(task)
    piece = min(share, LONGEST_PIECE)
    pieces = PIECES * piece
    if task.ring.bits > 64:
        pieces += 3 * LONG_INTEGER_BYTES * piece // task.ring.element_bytes
    came, kept = held_bytes(task) + messages, cells if cells <= SPARE_BYTES else 0
    adding = cells + dense + max(came, pieces) + state_bytes(task)
    opening = kept + min(came, LAST_SHARES * dense) + pieces + share + rule_bytes(task)
    answers = LISTS_OF_ANSWERS * task.max_clients * verifier_bytes(task)
    return PROCESS_BYTES + share + _model_bytes(task, model, MODELS) + max(adding, opening) + answers


def _model_bytes(task: Task, model: Mapping[str, npt.NDArray[Any]], models: int) -> int:
    """Of so many models that are held, and of the tables; one that serves retrievals alone never changes."""
    return sum(
        block.weights * model[block.name].dtype.itemsize * (models + SEGMENTS * isinstance(block, Sparse))
        for block in task.blocks
        if block.name in model
    )


def rule_bytes(task: Task) -> int:
    """What an average or an optimizer takes while a sum is applied: its numbers, twice as they are made, and arrays."""
    return 0 if task.adds else NUMBER_BYTES * _weights(task) * 2 + state_bytes(task)


def state_bytes(task: Task) -> int:
    """What an optimizer keeps beside the models that are held."""
    return MODELS * NUMBER_BYTES * optimizer_arrays(task.optimizer) * _weights(task)


def _weights(task: Task) -> int:
    return sum(block.weights for block in task.blocks)
