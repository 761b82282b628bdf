"""What a party runs on: its network, its store, its clock, its randomness. An actor touches nothing else.

So the same actor runs over TCP, in memory and in a laboratory (`parties.testing`), where all of it is simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from fsl_async.randomness import Randomness
from parties.compute import ComputeLane, ThreadLane
from parties.storage.store import Store
from parties.watch import Note
from transport import HandshakeSettings, KeyPair, Kind, Role, Transport


def _unseen(note: Note) -> None:
    pass


@dataclass(frozen=True)
class Host:
    """What one party runs on, in one life of its process.

        host = Host.deployed("ann", TcpTransport(), store)

    Attributes:
        name: the party's name.
        transport: how it reaches others, and listens.
        store: what survives its process.
        clock: the time in seconds since 1970; for waiting there is `trio.sleep`.
        randomness: returns as many fresh bytes as it is asked for.
        lane: where heavy computation runs.
        kind: where the randomness comes from; said in every handshake.
        tell: called with what the party has to say to people: a result, a warning.
        watch: called with every message that it sends; `MessageChannel` does that.
    """

    name: str
    transport: Transport
    store: Store
    clock: Callable[[], float]
    randomness: Randomness = field(repr=False)
    lane: ComputeLane
    kind: Kind
    tell: Callable[[object], None]
    watch: Callable[[Note], None] = _unseen

    @staticmethod
    def deployed(name: str, transport: Transport, store: Store, tell: Callable[[object], None] = print) -> Host:
        """A real host: the operating system's clock and randomness, and threads for computation."""
        return Host(name, transport, store, time.time, os.urandom, ThreadLane(), Kind.LIVE, tell)

    def handshake(self, keys: KeyPair, role: Role, payload: bytes = b"") -> HandshakeSettings:
        """What the party brings to its handshakes.

        Args:
            keys: its static keys.
            role: `Role.CLIENT` if it dials, `Role.SERVER_0` if it listens.
            payload: what it tells the other side, encrypted.
        """
        return HandshakeSettings(keys.private, role, self.kind, self.randomness, payload)


Actor: TypeAlias = Callable[[Host], Awaitable[None]]
"""What a party does in one life of its process: an async function, or an object with such a `__call__`."""
