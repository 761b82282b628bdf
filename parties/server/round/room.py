"""How much room on its disk a server needs for a round.

A server that begins a round without room for all of it turns clients away later, when they have done their work.
"""

from __future__ import annotations

from fsl_async.task import Task
from fsl_async.wire.public_part import Layout, Trees, dense_bytes

__all__ = ["client_bytes", "round_bytes", "submission_bytes"]

IN_FLIGHT = 2
"""A commit lies in the store's log and in its file for a while."""


def submission_bytes(task: Task) -> int:
    """The most bytes that a client sends for one retrieval and its submission."""
    return Layout.retrieval(task).size + Layout.submission(task, Trees.OWN).size + dense_bytes(task)


def client_bytes(task: Task) -> int:
    """The most bytes that a server keeps of one client in a round: the trees of each retrieval, and its submission.

    No request has two public parts (see `parties.server.round.assembly`). Trees that a session keeps beyond the round
    are there twice when it is settled.
    """
    retrieval, submission = Layout.retrieval(task).size, Layout.submission(task, Trees.OWN).size
    outliving = max(retrieval, submission) if task.selection == "fixed" else 0
    return task.retrievals * retrieval + submission + dense_bytes(task) + outliving


def round_bytes(task: Task, clients: int) -> int:
    """The most bytes that a round of so many clients takes, while its last submission is on its way into the file.

    Clients that retrieve and do not submit come on top: where there is no room for them, they are told to come back.
    """
    return clients * client_bytes(task) + IN_FLIGHT * submission_bytes(task)
