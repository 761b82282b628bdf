"""All that a client is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from fsl_async.errors import MisuseError
from fsl_async.randomness import Randomness
from fsl_async.task import Task
from parties.client.retries import PATIENCE
from parties.compute import ComputeLane
from parties.identity.keys import Identity, PublicIdentity
from parties.storage.store import MemoryStore, Store
from parties.watch import Watch, silent
from transport import Kind, Transport


async def never() -> str:
    """Outside simulations nobody can tell whether a wait has an end."""
    return await trio.sleep_forever()


@dataclass(frozen=True)
class ClientSetup:
    """All that a client is made of; `connect` reads one from files, examples/setups_by_hand.py makes one by hand.

    Attributes:
        task: what is learnt.
        identity: its own keys.
        servers: S0's and S1's public keys.
        addresses: where they listen.
        transport: how to reach them.
        lane: where it computes.
        randomness: the operating system's, but in simulation.
        kind: which of the two, announced in every handshake.
        watch: hears of every message it sends.
        token: to enrol with, where the servers ask for one; else empty.
        store: what it must not forget; belongs to the caller, who closes it.
        patience: seconds to go on trying when a server does not answer; see `parties.client.retries`.
        stuck: in a simulation, returns once nobody can end a wait for the servers any more, with what to say of it.
    """

    task: Task
    identity: Identity
    servers: tuple[PublicIdentity, PublicIdentity]
    addresses: tuple[str, str]
    transport: Transport
    lane: ComputeLane
    randomness: Randomness = field(repr=False)
    kind: Kind
    watch: Watch = silent
    token: bytes = field(default=b"", repr=False)
    store: Store = field(default_factory=MemoryStore, repr=False)
    patience: float = PATIENCE
    stuck: Callable[[], Awaitable[str]] = never

    def __post_init__(self) -> None:
        if not self.patience >= 0:
            raise MisuseError(f"patience is a number of seconds, 0 or more, or infinity; not {self.patience}")
