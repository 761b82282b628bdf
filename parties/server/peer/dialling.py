"""How S1 dials S0 for a task: what lasts is told to the operator, a task that S0 does not serve yet is waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fsl_async.errors import ChannelError, MisuseError
from parties.identity.link_proofs import is_link_proof, link_payload, link_proof, shown_proof
from parties.identity.served import are_marks
from parties.server.peer.reconciliation import Meeting
from parties.server.setup import ServerSetup
from transport import (
    Channel,
    CheckPayload,
    ForeignPeerError,
    HandshakeSettings,
    KindMismatchError,
    Refusal,
    RefusedError,
    RoleMismatchError,
    SecureChannel,
    VersionMismatchError,
    WrongServerKeyError,
)

__all__ = ["PeerDialling", "admit_link", "other_task"]

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
        said = self._handshake()
        said = replace(said, payload=link_payload(setup.identity, setup.peer, said.payload))
        try:
            channel = await setup.transport.dial(setup.peer_address, setup.peer.channel, said, self._check)
        except LASTING as error:
            self._meeting.cannot_meet(f"{setup.peer_name} cannot be met: {error}")
            raise
        await self._check_proof(channel)
        return channel

    async def _check_proof(self, channel: SecureChannel) -> None:
        """Leave whoever holds the other server's channel key alone.

        Raises:
            ChannelError: the other side has not proved that it is the server.
        """
        setup, proof = self._setup, channel.introduction.welcome
        if is_link_proof(proof, setup.peer, setup.identity.public, setup.task.digest()):
            return
        await channel.aclose()
        explanation = unproved(setup.peer_name)
        self._meeting.cannot_meet(explanation)
        raise ChannelError(explanation)

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


def admit_link(setup: ServerSetup, payload: bytes) -> bytes | Refusal:
    """Decide about the holder of the other server's channel key that links for this task: that key is not enough."""
    task = setup.task.digest()
    if not is_link_proof(shown_proof(payload), setup.peer, setup.identity.public, task):
        return Refusal(unproved(setup.peer_name))
    return link_proof(setup.identity, setup.peer, task)


def unproved(peer: str) -> str:
    """What to say of a link whose other side holds the other server's channel key, and has not signed for it."""
    return (
        f"whoever links holds the channel key of {peer}, and has not signed as {peer}: it is a door, its key has been "
        f"stolen, or {peer} runs another release"
    )


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
