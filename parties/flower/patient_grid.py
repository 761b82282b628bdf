"""A grid that does not wait for ever for nodes that have gone: what Flower does until a message's time to live is over.

The servers' round needs no reply of Flower's: whose receipts are signed is counted, whether its node's reply has come
or not. So the replies say when to close, and a node that has gone must not hold the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import WARNING

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.run import Run

__all__ = ["PatientGrid"]

PAUSE = 0.3


class PatientGrid(Grid):
    """Another grid, with an end to waiting for the last replies.

    Args:
        grid: which sends and receives.
        stragglers: seconds without a reply, counted from the last one, after which the others are not waited for.
    """

    def __init__(self, grid: Grid, stragglers: float) -> None:
        self._grid = grid
        self._stragglers = stragglers

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages, and return the replies that came: all, or those before the time was over."""
        waiting = set(self._grid.push_messages(messages))
        begun = latest = time.monotonic()
        replies: list[Message] = []
        while waiting:
            came = list(self._grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in came}
            replies += came
            now = time.monotonic()
            latest = now if came else latest
            if (replies and now - latest > self._stragglers) or (timeout is not None and now - begun > timeout):
                break
            if waiting:
                time.sleep(PAUSE)
        if waiting:
            log(WARNING, "fsl-async: %s nodes have not replied in time; the round goes on without them", len(waiting))
        return replies

    def set_run(self, run: Run) -> None:
        """As the other grid does."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The other grid's."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As the other grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The other grid's."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The other grid's."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the other grid does."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the other grid does."""
        return self._grid.pull_messages(message_ids)
