"""The costs of a round that runs one protocol alone, and of doing without it.

A retrieval alone moves trees up and rows down; its trivial protocol is to download the sparse blocks whole. A union
alone moves trees and 64-bit hints up, and the packed union down; its trivial protocol is plain two-server sharing of a
64-bit number for every row.

Source: paper §"Basic Protocols" (PSR) and §"Optimisations" (PSU); design §7.
"""

from __future__ import annotations

from msgspec.structs import replace as replaced

from fsl_async.costs import message_sizes as costs
from fsl_async.costs.message_sizes import Setting, Traffic
from fsl_async.costs.variants import RoundCosts, union_bytes
from fsl_async.ring import Ring
from fsl_async.task import Dense, Task
from fsl_async.union import UnionBlock
from fsl_async.wire.messages import Closing, Conclusion
from fsl_async.wire.public_part import Trees

STEPS_OF_RETRIEVALS = 5
"""Messages of the servers that wait for each other: two of the toss, one forwarded, two that end the round."""


def retrieval_round(task: Task, setting: Setting) -> RoundCosts:
    """A round in which every client retrieves once, dense blocks included; more retrievals repeat that phase."""
    config = costs.specimen_config(task, setting)
    ends = (costs.message_bytes(Closing(costs.DIGEST)), costs.message_bytes(Conclusion(costs.DIGEST, costs.DIGEST)))
    return RoundCosts(
        phases={
            "enter": costs.entering(config, known=False),
            "retrieve": costs.fetching(config.shape, setting),
        },
        link=costs.toss_messages(setting.number) + ends * 2,
        work=costs.tree_work(config.shape) + costs.retrieval_work(config.shape, setting),
        folded=0,
        laid_out=costs.laid_out_rows(config.shape),
        steps=STEPS_OF_RETRIEVALS,
    )


def union_round(task: Task, setting: Setting, found: tuple[UnionBlock, ...]) -> RoundCosts:
    """A round that finds the union, and each client reads it."""
    config = costs.specimen_config(task, setting)
    shape = config.shape
    lists = (
        costs.download(block.name, union_bytes(block.rows, entry.size), union=True)
        for (_, block), entry in zip(task.sparse_blocks(), found, strict=True)
    )
    return RoundCosts(
        phases={
            "enter": costs.entering(config, known=setting.number > 1),
            "unite": costs.submission(shape, Trees.OWN, setting),
            "outcome": costs.outcome(setting, union=found),
            "union": sum(lists, Traffic()),
        },
        link=costs.opening_messages(shape, setting) + costs.round_messages(shape, setting),
        work=costs.tree_work(shape) + costs.submission_work(shape, Trees.OWN),
        folded=costs.folded_bytes(shape),
        laid_out=0,
    )


def union_trivially(task: Task, setting: Setting) -> Traffic:
    """A number for every row of every block is shared between the two servers."""
    blocks = tuple(Dense(block.name, size=block.rows) for _, block in task.sparse_blocks())
    return costs.submission(replaced(task, protocol="ssa", ring=Ring(64), blocks=blocks), Trees.OWN, setting)
