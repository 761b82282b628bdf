"""How S1 dials S0 for a task: what lasts is told to the operator, a task that S0 does not serve yet is waited for."""

from __future__ import annotations

from collections.abc import Callable

from fsl_async.errors import ChannelError, MisuseError
from parties.identity.served import are_marks
from parties.server.peer.reconciliation import Meeting
from parties.server.setup import ServerSetup
from transport import (
    Channel,
    CheckPayload,
    ForeignPeerError,
    HandshakeSettings,
    KindMismatchError,
    RefusedError,
    RoleMismatchError,
    VersionMismatchError,
    WrongServerKeyError,
)

__all__ = ["PeerDialling", "other_task"]

LASTING = (VersionMismatchError, KindMismatchError, RoleMismatchError, WrongServerKeyError, ForeignPeerError)
"""Why servers do not meet, where waiting does not help: an operator has to do something."""


class PeerDialling:
    """Dials the other server.

    Args:
        setup: what this server is made of.
        meeting: tells the operator why the two do not meet.
        handshake: says what this server brings to a handshake.
        check: judges what the other one says of itself.
    """

    def __init__(
        self,
        setup: ServerSetup,
        meeting: Meeting,
        handshake: Callable[[], HandshakeSettings],
        check: CheckPayload,
    ) -> None:
        self._setup = setup
        self._meeting = meeting
        self._handshake = handshake
        self._check = check

    async def dial(self) -> Channel:
        """Dial a peer that serves this task.

        Raises:
            MisuseError: it serves another task.
            ChannelError: no channel came about.
        """
        setup = self._setup
        try:
            return await setup.transport.dial(setup.peer_address, setup.peer.channel, self._handshake(), self._check)
        except LASTING as error:
            self._meeting.cannot_meet(f"{setup.peer_name} cannot be met: {error}")
            raise

    async def dial_patiently(self) -> Channel:
        """Dial a peer that may begin to serve this task later.

        Raises:
            ChannelError: no channel came about, or the peer does not serve this task now.
        """
        try:
            return await self.dial()
        except MisuseError as error:
            self._meeting.cannot_meet(f"{error}; {self._setup.name} waits until it does")
            raise ChannelError(str(error)) from error
        except RefusedError as error:
            self._meeting.cannot_meet(f"{self._setup.peer_name} refuses the link: {error.reason}")
            raise


def other_task(setup: ServerSetup, payload: bytes) -> str:
    """What to say of a peer that shows this payload, and does not serve this server's task."""
    ours = setup.task.digest().hex()[:16]
    if are_marks(payload):
        return (
            f"{setup.peer_name} does not serve task {setup.task.name!r}, whose digest is {ours}…, among its tasks; "
            "give both servers the same task file"
        )
    return (
        f"{setup.peer_name} serves another task: its digest is {payload.hex()[:16]}…, ours is {ours}…; give both "
        "servers the same task file"
    )
