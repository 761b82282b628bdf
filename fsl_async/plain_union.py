"""When the rows of a union are moved plainly: all of them, shared between the two servers like a dense block.

The rows of a union are public, so trees hide nothing in moving all of them: a client downloads them whole, and splits
its updates, zeros where it has none, into two shares. The cost of that grows with the union, the cost of trees with a
client's selection. Which way a block takes is a function of the round's public configuration, so that servers and
clients decide alike, and what a client sends says nothing about its rows.

A block moves plainly

- if its union has no more rows than the block has trees. Every tree takes a hint as long as a row, so trees would send
  more. A client changes at most one row with each tree, so plainly it can change no more rows than with verified trees;
- in a semi-honest task with new trees in every round, also if retrieval and update together send fewer bytes plainly,
  and send and receive fewer.

Rule: moving a block plainly never lets a client of a verified task change more rows than trees would (docs/adr/0012).
"""

from __future__ import annotations

from fsl_async.geometry import geometry_of
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import Layout, Trees


def moves_plainly(task: Task, block: Sparse, rows: int, weight_bytes: int) -> bool:
    """Whether a block is moved plainly in a round that is aligned on a union.

    Args:
        task: what is learnt.
        block: the block as this round would move it with trees.
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
    alone = task.carrying(block)
    trees = Trees.RETRIEVAL if task.updates == "retrieved" else Trees.OWN
    return Layout.retrieval(alone).size + Layout.submission(alone, trees).size
