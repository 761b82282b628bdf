"""Workers of a cluster, as the scaling model knows them: how many, how fast, how often they send what they added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fsl_async.errors import MisuseError

MOST_WORKERS: Final = 10_000

SEALED: Final = 256
"""Clients in a partial sum that a worker sends (`parties.cluster.partial_sum.MOST_SEALED`, as a test checks)."""


@dataclass(frozen=True)
class Workers:
    """Workers of a cluster, each on a host of its own.

    Attributes:
        count: how many.
        threads: processors of each of their hosts.
        network: bits that each of them, and the server, receives or sends in a second: blobs, and partial sums.

    Raises:
        MisuseError: a number is out of range.
    """

    count: int
    threads: int
    network: float = 10e9

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_WORKERS:
            raise MisuseError(f"workers: a number from 1 to {MOST_WORKERS} expected, got {self.count}")
        if not 1 <= self.threads <= 1_024:
            raise MisuseError(f"workers: from 1 to 1024 threads of each expected, got {self.threads}")
        if not self.network > 0:
            raise MisuseError("workers: a network of bits per second above 0 expected")
