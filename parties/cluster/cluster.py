"""The interface of a cluster: workers that are there, and calls to one of them.

Rules: bulk does not go through whatever stands between the server and its workers; calls are small, and what a worker
returns comes straight from it. A call names its worker, and no other one takes it. A worker's name is another one in
each of its lives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

Members: TypeAlias = Mapping[str, str]
"""The workers that are there: by name, the host where each runs."""


class WorkerLostError(Exception):
    """The worker of a call is gone, or the call has come to nothing; what it held is lost."""


class ClusterAwayError(Exception):
    """The cluster cannot be reached now; the message says why."""


@dataclass(frozen=True)
class Reply:
    """What a worker returns.

    Attributes:
        report: an encoded struct of `parties.cluster.orders`.
        arrays: bulk, if any.
    """

    report: bytes
    arrays: Sequence[npt.NDArray[Any]] = field(default=(), repr=False)


class Cluster(ABC):
    """Workers of one operator's.

    Attributes:
        kind: what it is, in settings and for people.
        where: the address at which it is reached.
    """

    kind: str
    where: str

    @abstractmethod
    async def stay_connected(self, changed: Callable[[Members], None]) -> None:
        """Connect, and tell who is there whenever that changes, until cancelled.

        Raises:
            ClusterAwayError: it cannot be reached, or not any more; all workers count as lost.
            MisuseError: it refuses this server, or a setting is wrong.
        """

    @abstractmethod
    async def call(self, worker: str, action: str, order: bytes) -> Reply:
        """Have a worker do something, and return what it returns.

        Args:
            worker: its name.
            action: hello, read, add, seal, drop or answer; see `parties.cluster.worker_service`.
            order: an encoded struct of `parties.cluster.orders`, sealed to the worker where it has secrets.

        Raises:
            WorkerLostError: the worker is gone, or has failed.
        """
