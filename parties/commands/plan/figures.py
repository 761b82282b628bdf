"""What a plan is made of: what turns counts into seconds, the figures of rounds, and how people read them."""

from __future__ import annotations

from dataclasses import dataclass

from fsl_async.errors import MisuseError
from parties.commands.plan.calibration import Speeds

__all__ = ["Assumptions", "Crossover", "Figures", "percent", "size"]


@dataclass(frozen=True)
class Assumptions:
    """What turns counts into seconds.

    Attributes:
        upload: a client's, in bits per second.
        download: likewise.
        link: between the servers, each way.
        latency: of that link, one way, in seconds.
        cores: that each server computes on.
        speeds: of one core, client's and server's alike.
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
    """What one round costs, or several.

    Attributes:
        up: bytes that one client sends.
        down: bytes that it receives.
        link: bytes that both servers send each other, for all clients together.
        client_blocks: AES blocks by one client.
        server_blocks: AES blocks by each server for one client.
        transfer_seconds: one client's transfers.
        client_seconds: one client's computation.
        server_seconds: a server's computation for all clients.
        link_seconds: transfers and waiting between the servers.
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
        """All of it, one after the other."""
        return self.transfer_seconds + self.client_seconds + self.server_seconds + self.link_seconds


@dataclass(frozen=True)
class Crossover:
    """Up to which k/m a variant costs a client no more than the trivial one, over all rounds; 0 where it never does.

    Attributes:
        upload: counting bytes sent.
        transfer: counting the seconds that its transfers take, both ways.
    """

    upload: float
    transfer: float


def percent(fraction: float) -> str:
    """A share, to three digits."""
    return f"{100 * fraction:.3g} %"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"
