"""When the servers meet, each first says what it knows, so that neither continues beside a store that was put back.

Rules: a server whose own store is behind, as the other one states, ends, and says so and on whose word; the other one
keeps running, tells its operator whose store it is, and does not listen to that server. Whose store is behind is
decided in `protocols.reconciliation`. When S1 dials S0 for a task, what lasts is told to the operator, and a task that
S0 does not serve yet is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsl_async.errors import ChannelError, MisuseError
from fsl_async.foreign_text import printable
from fsl_async.protocols.reconciliation import Agreed, Apart, Behind, PeerBehind, compare
from fsl_async.wire.messages import Known
from parties.events import Observer, Warned
from parties.identity.handshake import are_marks
from parties.server.peer.link import PeerLink
from parties.server.replies import farewell
from parties.server.setup import ServerSetup
from parties.storage.store import StoreLostError
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


class PeerAgreement:
    """What this server makes of the other one while they are connected.

    Args:
        name: this server's name.
        link: the connection to the other one.
        observe: hears when the other one's store is behind: once, until that has changed.

    Attributes:
        listens: whether what the other server says is taken.
        peer_release: the release that the other server says it runs; empty if it has not said so.
    """

    def __init__(self, name: str, link: PeerLink, observe: Observer) -> None:
        self.listens = False
        self.peer_release = ""
        self._name = name
        self._link = link
        self._observe = observe
        self._told: str | None = None

    def begin(self, known: Known) -> None:
        """Say what this server knows: the servers are connected (again)."""
        self.listens = True
        self._link.greet()
        self._link.post(known)

    async def take(self, ours: Known, theirs: Known) -> None:
        """Take what the other server knows.

        Raises:
            StoreLostError: this server's store is behind.
        """
        peer = self._link.peer
        self._note_release(ours.release, printable(theirs.release))
        match compare(ours, theirs):
            case Agreed():
                self._told = None
            case Behind(why=why):
                await self._link.flush()  # so that the peer hears whose store it is
                raise StoreLostError(
                    f"{peer} states that the store of {self._name} is older than what {self._name} has said: {why}. "
                    f"{self._name} cannot check that. The mark beside the store does not say so: a store that is older "
                    "than its mark is not opened. If a copy or a new store was put in its place here, put the newest "
                    f"one back. If nothing was, do not begin anew on {peer}'s word alone: talk to its operator, and "
                    "compare what `fsl-async rounds list` says on both. If you begin anew in the end, clients train "
                    "anew, as docs/operations.md says"
                )
            case PeerBehind(why=why):
                await self._refuse(
                    f"by what {peer} states, the store of {peer} is older than what {peer} has said: {why}. Its "
                    f"operator has to put the newest store back; {self._name} waits until then. Begin anew on both "
                    "servers only if there is none; clients then train anew, as docs/operations.md says"
                )
            case Apart():
                await self._refuse(
                    f"the stores of {self._name} and {peer} are not of the same rounds: each has settled "
                    f"{ours.settled}, and not the same ones; one of them is of another time or another test. Compare "
                    "what `fsl-async rounds list` says on both, and put the right one back"
                )

    def _note_release(self, ours: str, theirs: str) -> None:
        """Warn, once for each, of another release: what both put on the wire has one version, so they work together."""
        if theirs not in {ours, self.peer_release}:
            explanation = (
                f"{self._link.peer} runs release {theirs!r}, and {self._name} {ours!r}: install the same on both"
            )
            self._observe(Warned(about="peer", explanation=explanation))
        self.peer_release = theirs

    def cannot_meet(self, explanation: str) -> None:
        """Tell the operator that the other server cannot be met, where waiting does not help."""
        if explanation != self._told:
            self._observe(Warned(about="peer", explanation=explanation))
        self._told = explanation

    async def _refuse(self, explanation: str) -> None:
        self.listens = False
        self.cannot_meet(explanation)
        self._link.post(farewell("conflict", self._link.peer, explanation))
        await self._link.flush()
        self._link.refuse()


LASTING = (VersionMismatchError, KindMismatchError, RoleMismatchError, WrongServerKeyError, ForeignPeerError)
"""Why servers do not meet, where waiting does not help: an operator has to do something."""


@dataclass(eq=False, repr=False)
class PeerDialling:
    """Dials the other server.

    Args:
        setup: what this server is made of.
        agreement: tells the operator why the two do not meet.
        handshake: says what this server brings to a handshake.
        check: judges what the other one says of itself.
    """

    _setup: ServerSetup
    _agreement: PeerAgreement
    _handshake: Callable[[], HandshakeSettings]
    _check: CheckPayload

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
            self._agreement.cannot_meet(f"{setup.peer_name} cannot be met: {error}")
            raise
        except RefusedError as error:
            self._agreement.cannot_meet(f"{setup.peer_name} refuses the link: {error.reason}")
            raise

    async def dial_patiently(self) -> Channel:
        """Dial a peer that may begin to serve this task later.

        Raises:
            ChannelError: no channel came about, or the peer does not serve this task now.
        """
        try:
            return await self.dial()
        except MisuseError as error:
            self._agreement.cannot_meet(f"{error}; {self._setup.name} waits until it does")
            raise ChannelError(str(error)) from error


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
