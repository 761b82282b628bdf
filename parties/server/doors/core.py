"""Where a server's core listens for its own doors, and which are connected.

Rules: a door holds the server's own channel key, and comes in the role of a door, which is part of the handshake: at
this address nobody else gets in, and nobody gets in elsewhere by what a door says. A door of another release or task is
refused by name. Of two doors of one name the newer one stays: the older has died, and nobody has noticed yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from fsl_async.error_groups import leaves
from fsl_async.errors import FslError, PeerViolationError
from fsl_async.foreign_text import printable
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_messages import MOST_DOORS, CoreHello, DoorHello, Leaving
from parties.events import ConnectionFailed, DoorLost, DoorMet
from parties.server.doors.desk import CoreDesk
from parties.server.doors.session import DoorSession
from parties.server.server import Server
from parties.status import DoorStatus
from transport import HandshakeSettings, Limits, Refusal, Role, SecureChannel, Service, Transport

__all__ = ["PASSING", "DoorServer"]

LEAVING_PATIENCE = 2.0
"""Seconds that doors have to take the last that they are told."""

PASSING = "preflight-"
"""How the names of doors begin that only look whether they would be taken, and leave: nobody is told of them."""


@dataclass(eq=False)
class _Connected:
    """A door that is connected.

    Attributes:
        session: its calls.
        scope: cancelled when another one of its name comes.
        ended: set once nothing of it is left.
    """

    session: DoorSession
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class DoorServer:
    """Takes a server's doors.

        doors = DoorServer(server, SocketTransport(), "unix:/run/fsl/core")
        address = await nursery.start(doors.listen)

    From when it is made, the server's clients are its doors': what they carry is forwarded by them.

    Args:
        server: the server.
        transport: how it listens for doors.
        address: where.
    """

    def __init__(self, server: Server, transport: Transport, address: str) -> None:
        self._server = server
        self._transport = transport
        self._address = address
        self._desk = CoreDesk(server)
        self._key = server.setup.identity.public.channel
        self._sessions: dict[str, _Connected] = {}
        server.doors = self.status
        server.forwards_by(self._desk.orders)

    async def listen(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Take doors until cancelled; reports the address once they can connect.

        Raises:
            UnreachableError: the address cannot be listened at.
        """
        setup = self._server.setup
        settings = HandshakeSettings(
            private_key=setup.identity.channel_secret,
            role=Role.CORE_0 if setup.index == 0 else Role.CORE_1,
            kind=setup.kind,
            randomness=setup.randomness,
            payload=setup.task.digest(),
        )
        limits = Limits(connections=1, per_key=1, per_key_exceptions={self._key: MOST_DOORS})
        service = Service(settings, self._admit, self._serve, limits, self._tell_failure)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dismiss)
            await self._transport.listen(self._address, service, task_status=task_status)

    def status(self) -> tuple[DoorStatus, ...]:
        """The doors that are connected, by name."""
        return tuple(self._sessions[name].session.status() for name in sorted(self._sessions))

    async def leave(self, explanation: str) -> None:
        """Have all doors take nobody in any more, and say why; returns once they are told, or hang."""
        sessions = [connected.session for connected in self._sessions.values()]
        told = [(session, session.post(Leaving(explanation[:256]))) for session in sessions]
        with trio.move_on_after(LEAVING_PATIENCE):
            for session, number in told:
                await session.sent(number)

    # ---- what the listener asks

    async def _admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        await trio.lowlevel.checkpoint()
        setup = self._server.setup
        if key != self._key:
            return Refusal(f"this is where {setup.name} takes its own doors, which hold its channel key; you do not")
        try:
            hello = decode(payload, DoorHello, "a door").message
        except PeerViolationError:
            return Refusal(f"no door of this release says that; {setup.name} runs release {setup.release!r}")
        if hello.release != setup.release:
            return Refusal(
                f"{setup.name} runs release {setup.release!r}, this door {printable(hello.release)!r}: install the "
                "same on both"
            )
        if hello.task != setup.task.digest():
            return Refusal(
                f"{setup.name} serves task {setup.task.name!r}, whose digest is {setup.task.digest().hex()[:16]}…, and "
                f"this door a task of digest {hello.task.hex()[:16]}…: give both the same task file"
            )
        said = CoreHello(longest_answer=self._desk.requests.longest_answer, connections=setup.limits.per_key)
        return b"".join(map(bytes, encode(said)))

    async def _serve(self, channel: SecureChannel) -> None:
        hello = decode(channel.introduction.peer_payload, DoorHello, "a door").message
        while hello.door in self._sessions:
            older = self._sessions[hello.door]
            older.scope.cancel()
            await older.ended.wait()
        connected = self._sessions[hello.door] = _Connected(DoorSession(self._desk, channel, hello))
        try:
            await self._use(connected)
        finally:
            del self._sessions[hello.door]
            connected.ended.set()

    async def _use(self, connected: _Connected) -> None:
        session, observe = connected.session, self._server.setup.observe
        door, explanation = printable(session.hello.door), "the connection has ended"
        is_told = not door.startswith(PASSING)
        if is_told:
            observe(DoorMet(door=door, host=printable(session.hello.host), process=session.hello.process))
        try:
            with connected.scope, self._server.in_sight():
                await session.run()
        except* FslError as errors:
            explanation = str(leaves(errors)[0])
        finally:
            if is_told:
                observe(DoorLost(door=door, clients=session.had, explanation=explanation))

    def _tell_failure(self, origin: str, error: FslError) -> None:
        self._server.setup.observe(ConnectionFailed(origin=origin, kind=type(error).__name__, explanation=str(error)))

    # ---- what doors are told from time to time

    async def _dismiss(self) -> None:
        """Have clients' connections end that are not known any more, whenever the list is replaced."""
        while True:
            await self._server.enrolment.reloaded.wait()
            for connected in self._sessions.values():
                connected.session.dismiss()
