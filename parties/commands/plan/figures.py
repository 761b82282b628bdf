"""The values of a plan: assumptions, figures of rounds, limits, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.errors import MisuseError
from parties.commands.plan.calibration import Speeds


@dataclass(frozen=True)
class Assumptions:
    """The bandwidths and speeds from which seconds are computed.

    Attributes:
        upload: a client's upload in bits per second.
        download: a client's download in bits per second.
        link: the link between the servers in bits per second, each way.
        latency: the one-way latency of that link in seconds.
        cores: the number of cores on which each server computes.
        speeds: the speeds of one core, the same for clients and servers.
    """

    upload: float
    download: float
    link: float
    latency: float
    cores: int
    speeds: Speeds

    def __post_init__(self) -> None:
        rates = (self.upload, self.download, self.link, self.cores)
        if not (all(rate > 0 for rate in rates) and self.latency >= 0):
            raise MisuseError("plan: bandwidths and cores must be positive, the latency not negative")


@dataclass(frozen=True)
class Figures:
    """The costs of one round, or of several.

    Attributes:
        up: bytes that one client sends.
        down: bytes that one client receives.
        link: bytes that both servers send each other, for all clients together.
        client_blocks: AES blocks that one client computes.
        server_blocks: AES blocks that each server computes for one client.
        transfer_seconds: seconds of one client's transfers.
        client_seconds: seconds of one client's computation.
        server_seconds: seconds of a server's computation for all clients.
        link_seconds: seconds of transfers and waiting between the servers.
    """

    up: int
    down: int
    link: int
    client_blocks: int
    server_blocks: int
    transfer_seconds: float
    client_seconds: float
    server_seconds: float
    link_seconds: float

    @property
    def seconds(self) -> float:
        """The sum of all seconds, without overlap."""
        return self.transfer_seconds + self.client_seconds + self.server_seconds + self.link_seconds


@dataclass(frozen=True)
class Transfer:
    """What one client sends and receives in a round in order to have values and to update some.

    Attributes:
        up: bytes that it sends.
        down: bytes that it receives.
        seconds: of both.
    """

    up: int
    down: int
    seconds: float


@dataclass(frozen=True)
class Crossover:
    """The largest k/m at which a variant costs a client no more than the trivial one, over all rounds; 0 if none does.

    Attributes:
        upload: compared by the bytes that the client sends.
        transfer: compared by the seconds of its transfers in both directions.
    """

    upload: float
    transfer: float


def percent(fraction: float) -> str:
    """A share as text, with three digits."""
    return f"{100 * fraction:.3g} %"


def size(count: float) -> str:
    """A number of bytes as text."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"
