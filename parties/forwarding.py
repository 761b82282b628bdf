"""A client's public part on its way from its carrier to the other server: what of it is right.

The carrier is not trusted: it forwards for its own clients alone, under the numbers that requests have, and exactly as
many bytes as the round implies. What the part says is compared with the client's own word (see `parties.desk`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.alignment import union_task
from fsl_async.codec import bulk_overhead
from fsl_async.config import RoundConfig
from fsl_async.messages import Forward
from fsl_async.protocols.client import RETRIEVALS_PER_ROUND
from fsl_async.public_part import Layout, Trees, share_bytes
from fsl_async.task import Task
from parties.outcome import ENTRY_BYTES

__all__ = ["Forwarded", "longest_peer_message", "objection"]


@dataclass(frozen=True)
class Forwarded:
    """A client's public part that the peer has carried, by its size and its digest."""

    message: Forward
    size: int
    part: bytes


def objection(config: RoundConfig, server: int, forwarded: Forwarded) -> str:
    """What is wrong with a public part that server `server` is sent by the other one; empty where nothing is."""
    message = forwarded.message
    if config.carrier(message.client) == server:
        return f"forwards for {message.client!r}, whose carrier it is not"
    if message.query not in (range(1, RETRIEVALS_PER_ROUND + 1) if message.purpose == "retrieve" else (0,)):
        return f"forwards a {message.purpose} numbered {message.query}"
    sizes = _part_sizes(config.shape, message.purpose)
    if forwarded.size not in sizes:
        return f"forwards a {message.purpose} of {forwarded.size} bytes, the round implies {sorted(sizes)}"
    return ""


def longest_peer_message(task: Task) -> int:
    """Bytes that a message between the servers has at most: aligned rounds are never larger than the task itself."""
    shapes = (task, union_task(task)) if task.alignment == "union" else (task,)
    parts = {size for shape in shapes for purpose in ("retrieve", "submit") for size in _part_sizes(shape, purpose)}
    shares = {share_bytes(shape) for shape in shapes}
    return bulk_overhead() + max(*parts, *shares, ENTRY_BYTES * task.max_clients)


def _part_sizes(task: Task, purpose: str) -> set[int]:
    if purpose == "retrieve":
        return {Layout.retrieval(task).size}
    return {Layout.submission(task, trees).size for trees in Trees}
