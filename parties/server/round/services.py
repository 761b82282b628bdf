"""What a server provides for a round, as long as the round runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import trio

from fsl_async.protocols.machine import Event
from fsl_async.server_rules import OwnRule
from parties.server.peer.link import PeerLink
from parties.server.records import ServerRecords
from parties.server.round.engine import Engine
from parties.server.setup import ServerSetup


class RoundServices(msgspec.Struct, frozen=True):
    """What a round needs of its server.

    Attributes:
        setup: what the server is made of.
        kept: what it keeps beyond a round.
        nursery: where the round's tasks run.
        engine: makes its sum and its answers.
        link: to the peer.
        report: takes a round's id and an event of ours to the server's own task.
        rule: the task's own rule; None where it has none.
    """

    setup: ServerSetup
    kept: ServerRecords
    nursery: trio.Nursery
    engine: Engine
    link: PeerLink
    report: Callable[[bytes, Event], Awaitable[None]]
    rule: OwnRule | None
