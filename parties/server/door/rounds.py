"""What a door knows of its server's rounds: those that are open, or were a moment ago, as the core has said."""

from __future__ import annotations

from fsl_async.config import RoundConfig
from fsl_async.errors import ChannelError
from fsl_async.task import Dense, Task
from fsl_async.union import union_task
from fsl_async.wire.block_parts import LONGEST_PART
from parties.concurrency import RecurringEvent
from parties.server.clients.deposits import bulk_sizes

__all__ = ["DoorRounds", "StrangeRoundError"]

ROUNDS_AT_HAND = 4
"""Clients of the round before may be late."""


class StrangeRoundError(ChannelError):
    """A round is spoken of that the core has not told this door about."""


class DoorRounds:
    """The rounds of a door's server.

    Args:
        task: the task.

    Attributes:
        opened: occurs whenever a round has opened.
        settled: occurs whenever a round is over.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._configs: dict[bytes, RoundConfig] = {}
        self._sizes = {b"": bulk_sizes(union_task(task) if task.finds_unions else task)}
        self.opened = RecurringEvent()
        self.settled = RecurringEvent()

    def open(self, config: RoundConfig) -> None:
        """Take note of a round that is open."""
        name = config.round_id()
        self._configs[name] = config
        if self._task.finds_unions:
            self._sizes[name] = bulk_sizes(config.shape)
        for forgotten in list(self._configs)[:-ROUNDS_AT_HAND]:
            del self._configs[forgotten]
            self._sizes.pop(forgotten, None)
        self.opened.set()

    def settle(self) -> None:
        """Take note that a round is over."""
        self.settled.set()

    def find(self, round_id: bytes) -> RoundConfig:
        """The round of that name.

        Raises:
            StrangeRoundError: the core has not spoken of it.
        """
        config = self._configs.get(round_id)
        if config is None:
            raise StrangeRoundError("the core spoke of a round that it has not told this door about")
        return config

    def bulk_sizes(self) -> frozenset[int]:
        """The exact sizes in bytes that a request's bulk can have now, if it has any."""
        return frozenset().union(*self._sizes.values())

    def block_bytes(self, round_id: bytes, name: str) -> int:
        """The most bytes that a download of a part of a block has; 0 where the round or the block is unknown."""
        config = self._configs.get(round_id)
        if config is None:
            return 0
        widths = {entry.name: entry.weight_bytes for entry in config.model}
        sizes = {
            block.name: block.size if isinstance(block, Dense) else block.rows * block.width
            for block in config.task.blocks
        }
        return min(sizes.get(name, 0) * widths.get(name, 1), LONGEST_PART)
