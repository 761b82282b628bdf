"""What a server is made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fsl_async.randomness import Randomness
from fsl_async.server_rules import OwnRule
from fsl_async.task import Task
from parties.compute import ComputeLane
from parties.events import Observer, unobserved
from parties.identity.keys import Identity, PublicIdentity
from parties.identity.registry import Registry
from parties.outcome import Model
from parties.schedule import ConversationLimits, Schedule
from parties.server.admission import ListOnly, Policy
from parties.server.round.engine import Engine
from parties.server.storage import HELD_BYTES
from parties.storage.blobs.blobs import Blobs
from parties.storage.blobs.memory import StoreBlobs
from parties.storage.store import Store
from parties.watch import Watch, silent
from transport import Kind, Limits, Transport


@dataclass(frozen=True)
class ServerSetup:
    """All that a server is made of; `server_setup` reads one from a file, examples/setups_by_hand.py makes one by hand.

    Attributes:
        task: what is learnt.
        index: 0 or 1.
        identity: its own keys.
        peer: the other server's public keys.
        peer_address: where S0 listens; used by S1 alone.
        registry: the clients that it admits from the start.
        policy: who else may enrol.
        model: the model it starts from, where its store holds none.
        state: what the task's optimizer or own rule keeps with that model; empty: it begins anew.
        apply: the task's own rule, where it has one; None: it is imported by the name that the task gives.
        keeps_update: whether the store keeps the last round's sum, for a program that writes it into a file.
        address: where it listens.
        transport: how it listens, and dials the other server.
        store: where it keeps what a restart needs.
        blobs: where it keeps clients' bulk; None: in the store.
        engine: computes its rounds' sums and answers; None: `lane` does.
        lane: where it computes.
        recent: bytes of clients' bulk that it may hold in memory until it is forwarded and added, beside the blobs.
        loans: bytes of what the other server has stored that it may hold in memory alone.
        randomness: the operating system's; in a simulation, a seed's.
        kind: simulation or live, announced in every handshake.
        schedule: when rounds close.
        limits: what strangers are allowed.
        conversations: what admitted clients are allowed.
        watch: sees every message that it sends.
        observe: takes its events.
        clock: gives the seconds since 1970.
        release: the release of the software, as the other server's operator is told; empty: not told.
    """

    task: Task
    index: int
    identity: Identity
    peer: PublicIdentity
    peer_address: str
    registry: Registry
    model: Model = field(repr=False)
    address: str
    transport: Transport
    store: Store
    lane: ComputeLane
    randomness: Randomness = field(repr=False)
    kind: Kind
    schedule: Schedule
    limits: Limits = field(default_factory=Limits)
    conversations: ConversationLimits = field(default_factory=ConversationLimits)
    policy: Policy = field(default_factory=ListOnly)
    watch: Watch = silent
    observe: Observer = unobserved
    clock: Callable[[], float] = time.time
    state: Model = field(default_factory=dict, repr=False)
    apply: OwnRule | None = None
    keeps_update: bool = False
    release: str = ""
    blobs: Blobs | None = None
    engine: Engine | None = None
    recent: int = HELD_BYTES
    loans: int = HELD_BYTES

    @property
    def bulk(self) -> Blobs:
        """Where clients' bulk is kept."""
        return StoreBlobs(self.store) if self.blobs is None else self.blobs

    @property
    def name(self) -> str:
        """S0 or S1."""
        return f"S{self.index}"

    @property
    def peer_name(self) -> str:
        """The other server's name."""
        return f"S{1 - self.index}"
