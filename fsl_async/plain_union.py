"""When a block of a union moves plainly: all of its rows, shared between the two servers like a dense block.

The rows of a union are known to everybody, so nothing is hidden by moving all of them, and no tree is needed: a client
downloads them whole, and splits its updates, zeros where it has none, into two shares. That costs as much as the union
is large, and trees as much as a client selects. Which of the two a block takes is a function of the round's public
configuration, so that servers and clients come to the same, and what a client sends tells nothing about its rows.

A block moves plainly

- where its union has no more rows than the block has trees: every tree takes a hint as long as a row, so trees send
  more; and whoever plants trees changes at most one row with each, so a client that shares the rows plainly can change
  no more of them than its trees would let it, not even where trees are verified;
- in a task that is semi-honest and plants new trees in every round, also where retrieval and update together send
  fewer bytes plainly, and send and receive fewer.

Rule: a block that everybody could see anyway is never shared in a way that lets a client of a verified task change more
rows than before (docs/adr/0012).
"""

from __future__ import annotations

import msgspec

from fsl_async.geometry import geometry_of
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import Layout, Trees


def moves_plainly(task: Task, block: Sparse, rows: int, weight_bytes: int) -> bool:
    """Whether a block is moved plainly in a round that is aligned on a union.

    Args:
        task: what is learnt.
        block: as trees would stand over it in this round.
        rows: of the union, at least one.
        weight_bytes: of one of the model's weights.
    """
    trees = geometry_of(task, block).trees
    if rows <= trees:
        return True
    if task.verified or task.selection == "fixed":
        return False
    shared = rows * block.width * task.ring.element_bytes
    planted = _planted_bytes(task, block)
    more_rows_than_answers = rows - 2 * trees
    return shared <= planted and shared + more_rows_than_answers * block.width * weight_bytes <= planted


def _planted_bytes(task: Task, block: Sparse) -> int:
    """What a client sends for a block that it retrieves and updates with trees of this round."""
    alone = msgspec.structs.replace(task, blocks=(block,))
    trees = Trees.RETRIEVAL if task.updates == "retrieved" else Trees.OWN
    return Layout.retrieval(alone).size + Layout.submission(alone, trees).size
