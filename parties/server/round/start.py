"""What a round begins with, and what its server provides for as long as the round runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import trio

from fsl_async.config import RoundConfig
from fsl_async.protocols.machine import Event
from fsl_async.randomness import Randomness
from fsl_async.server_rules import OwnRule
from parties.compute import ComputeLane
from parties.events import Observer
from parties.outcome import Model
from parties.server.evidence import EvidenceBook
from parties.server.ledger import Ledger
from parties.server.peer.forwards import Forwards
from parties.server.peer.link import PeerLink

if TYPE_CHECKING:
    from parties.server.round.engine import Engine


class Tools(msgspec.Struct, frozen=True):
    """What a round needs of its server.

    Attributes:
        nursery: where the round's tasks run.
        lane: where it computes.
        engine: makes its sum and its answers.
        evidence: takes what was seen against the protocol.
        ledger: what rounds have spent of the privacy budget.
        known: whether a client of that name is known here.
        randomness: for nonces.
        link: to the peer.
        forwards: the way that clients' parts take to it.
        report: takes a round's id and an event of ours to the server's own task.
        observe: takes what happens, for the operator.
        clock: seconds since 1970.
        rule: the task's own rule; None where it has none.
        grace: seconds to wait for submissions that only the peer holds in full.
        patience: seconds to wait for the peer before the round is aborted, if we have not committed yet.
    """

    nursery: trio.Nursery
    lane: ComputeLane
    engine: Engine
    evidence: EvidenceBook
    ledger: Ledger
    known: Callable[[str], bool]
    randomness: Randomness
    link: PeerLink
    forwards: Forwards
    report: Callable[[bytes, Event], Awaitable[None]]
    observe: Observer
    clock: Callable[[], float]
    rule: OwnRule | None
    grace: float
    patience: float


@dataclass(frozen=True)
class RoundStart:
    """What a round begins with.

    Attributes:
        config: the round.
        server: 0 or 1.
        proof_key: the key under which both servers hash proofs.
        model: the model before the round, equal on both servers.
        state: what the optimizer or the own rule has kept, before the round.
        union: by sparse block, the rows that the round is aligned on.
        opened_at: when it opened, in seconds since 1970.
        closes_at: when it closes, in seconds since 1970; infinity if only enough clients close it.
        enough: how many clients close it at once.
        drawn: who may take part; None where everybody may.
    """

    config: RoundConfig
    server: int
    proof_key: bytes = field(repr=False)
    model: Model
    state: Model
    union: Model
    opened_at: float
    closes_at: float
    enough: int
    drawn: frozenset[str] | None = None

    def is_drawn(self, client: str) -> bool:
        """Whether this client may take part: everybody may, unless the task draws who does."""
        return self.drawn is None or client in self.drawn
