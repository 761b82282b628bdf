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

__all__ = ["Forwarded", "layout_of", "longest_peer_message", "objection"]

PURPOSES = ("retrieve", "submit")


@dataclass(frozen=True)
class Forwarded:
    """A client's public part that the peer has carried, by its size and its digest; empty if it was not looked at."""

    message: Forward
    size: int
    part: bytes


def objection(config: RoundConfig, server: int, message: Forward, size: int) -> str:
    """What is wrong with a public part that server `server` is sent by the other one; empty where nothing is."""
    if config.carrier(message.client) == server:
        return f"forwards for {message.client!r}, whose carrier it is not"
    if message.query not in (range(1, RETRIEVALS_PER_ROUND + 1) if message.purpose == "retrieve" else (0,)):
        return f"forwards a {message.purpose} numbered {message.query}"
    sizes = {layout.size for layout in _layouts(config.shape, message.purpose)}
    if size not in sizes:
        return f"forwards a {message.purpose} of {size} bytes, the round implies {sorted(sizes)}"
    return ""


def layout_of(config: RoundConfig, message: Forward, size: int) -> Layout:
    """How a public part lies to which there is no objection; parts of one size lie alike, as far as digests go."""
    return next(layout for layout in _layouts(config.shape, message.purpose) if layout.size == size)


def longest_peer_message(task: Task) -> int:
    """Bytes that a message between the servers has at most: aligned rounds are never larger than the task itself."""
    shapes = (task, union_task(task)) if task.alignment == "union" else (task,)
    parts = {layout.size for shape in shapes for purpose in PURPOSES for layout in _layouts(shape, purpose)}
    shares = {share_bytes(shape) for shape in shapes}
    return bulk_overhead() + max(*parts, *shares, ENTRY_BYTES * task.max_clients)


def _layouts(task: Task, purpose: str) -> list[Layout]:
    if purpose == "retrieve":
        return [Layout.retrieval(task)]
    return [Layout.submission(task, trees) for trees in Trees]
