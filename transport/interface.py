"""What every transport offers: `dial` an address, `listen` at one.

Parties take a `Transport` and never learn which. The handshake, the records and the limits are the same code for all;
a transport only says how bare streams come about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import trio

from transport.channel import SecureChannel
from transport.errors import HandshakeTimeoutError
from transport.handshake import CheckPayload, HandshakeSettings, accept_any_payload, initiate
from transport.listener import Service
from transport.needs_trio import NeedsTrio
from transport.wire import Wire

DIAL = NeedsTrio("Transport.dial")
LISTEN = NeedsTrio("Transport.listen")


class Transport(ABC):
    """Connects endpoints that know each other by address and static key.

    `SocketTransport` and `MemoryNetwork` are two; examples/own_transport.py has another, in thirty lines. A subclass
    opens bare streams in `connect`, and in `listen` gives a `Listener` the function that accepts them; `dial`, with the
    handshake and the deadline, is common to all. `transport.testing` tests it.
    """

    @abstractmethod
    async def connect(self, address: str) -> trio.abc.Stream:
        """Makes a bare connection.

        Raises:
            UnreachableError: nothing listens there.
        """

    @abstractmethod
    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address until cancelled; reports the address at which it can be dialled once it can be.

        Raises:
            UnreachableError: the address cannot be listened at.
        """

    async def dial(
        self,
        address: str,
        server_key: bytes,
        settings: HandshakeSettings,
        check: CheckPayload = accept_any_payload,
    ) -> SecureChannel:
        """Opens a channel to the server at `address` that holds `server_key`.

        Args:
            address: as `listen` reported it.
            server_key: the server's pinned static X25519 public key.
            settings: what this endpoint brings, the deadline for all of this among it.
            check: looks at the server's payload before the client says who it is; raises to break off.

        Raises:
            HandshakeError: no channel came about; the class says why.
            AuthenticationError: bytes were altered on the way.
            ConnectionLostError: the server left in the middle.
            MisuseError: no trio task runs here.
        """
        DIAL.require_trio()
        with trio.move_on_after(settings.deadline):
            stream = await self.connect(address)
            try:
                return await initiate(Wire(stream), server_key, settings, check)
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
        raise HandshakeTimeoutError(
            f"no channel with {address} within {settings.deadline:g} s: the server or the network is too slow, "
            "or what listens there is not fsl-async"
        )
