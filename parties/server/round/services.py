"""What a server provides for a round, as long as the round runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from fsl_async.protocols.machine import Event
from fsl_async.randomness import Randomness
from fsl_async.server_rules import OwnRule
from parties.compute import ComputeLane
from parties.events import Observer
from parties.identity.keys import Identity
from parties.server.evidence import EvidenceBook
from parties.server.ledger import PrivacyLedger
from parties.server.peer.link import PeerLink
from parties.server.round.engine import Engine
from parties.server.storage import Standstill


class RoundServices(msgspec.Struct, frozen=True):
    """What a round needs of its server.

    Attributes:
        nursery: where the round's tasks run.
        lane: where it computes.
        engine: makes its sum and its answers.
        evidence: takes what was seen against the protocol.
        ledger: what rounds have spent of the privacy budget.
        known: whether a client of that name is known here.
        identity: its own keys, of which the noise has one.
        randomness: for nonces.
        link: to the peer.
        report: takes a round's id and an event of ours to the server's own task.
        observe: takes what happens, for the operator.
        standstill: what of the server's own store or blobs waits, and how long it has.
        clock: seconds since 1970.
        rule: the task's own rule; None where it has none.
        grace: seconds to wait for submissions that only the peer holds in full.
        patience: seconds to wait for the peer before the round is aborted, if we have not committed yet.
    """

    nursery: trio.Nursery
    lane: ComputeLane
    engine: Engine
    evidence: EvidenceBook
    ledger: PrivacyLedger
    known: Callable[[str], bool]
    identity: Identity
    randomness: Randomness
    link: PeerLink
    report: Callable[[bytes, Event], Awaitable[None]]
    observe: Observer
    standstill: Standstill
    clock: Callable[[], float]
    rule: OwnRule | None
    grace: float
    patience: float
