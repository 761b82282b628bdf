"""Where the two halves of a client's request meet on a server: its own message, and the public part from the carrier.

Only digests are held here; the parts themselves are in the store (see `parties.server.round.records`). Rules:

- A request waits for its other half only as long as the round is open, and a refusal says what it waited for.
- A half that contradicts what is known is refused; a repeat of the same bytes is harmless.
- A part that the peer forwards is judged before it is stored: one part for each request, and only as many clients that
  have not sent anything themselves as the round has places. So the peer can fill a bounded amount of the store, and
  what is read back after a restart never contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable

from fsl_async.digests import same
from fsl_async.protocols import assembly
from fsl_async.protocols.machine import UnexpectedEvent
from parties.concurrency import RecurringEvent
from parties.server.replies import ContradictionError, RequestRefusedError
from parties.server.store_layout import KnownPart, RequestKey
from parties.storage.store import replaying

NOTHING_YET = assembly.Expecting()
"""The state of every request of which nothing has come."""


class RequestAssembly:
    """All requests of one round.

    Args:
        peer: the other server's name.
        places: how many clients that have not sent anything themselves yet the peer may forward for.
        carried: whether the other server carries a client's public parts, which the round decides.

    Attributes:
        turned_away: how many parts the peer forwarded for clients that have no place here.
    """

    def __init__(self, peer: str, places: int, carried: Callable[[str], bool]) -> None:
        self._peer = peer
        self._places = places
        self._carried = carried
        self._present: set[str] = set()
        self._expected: set[str] = set()
        self._requests: dict[RequestKey, assembly.Assembly] = {}
        self._awaited: dict[RequestKey, RecurringEvent] = {}
        self._coming: dict[RequestKey, bytes] = {}
        self._closed: str | None = None
        self.turned_away = 0

    def direct(self, key: RequestKey, announced: bytes) -> None:
        """The client's own message has come, and announces its public part's digest.

        Raises:
            RequestRefusedError: the client announced another one before.
        """
        self._note_present(key.client)
        self._take(key, assembly.Direct(announced))

    def check_direct(self, key: RequestKey, announced: bytes) -> None:
        """Check whether the client's own message can still come; nothing changes.

        Raises:
            RequestRefusedError: the client announced another part before.
        """
        self._stepped(self._state(key), key, assembly.Direct(announced))

    def public(self, key: RequestKey, part: bytes) -> None:
        """The public part with that digest has come.

        Raises:
            RequestRefusedError: another one came before.
        """
        self._take(key, assembly.Public(part))
        self._coming.pop(key, None)

    def has_public(self, key: RequestKey, part: bytes) -> bool:
        """Whether the public part with that digest has come before."""
        return _come(self._state(key)) == part

    def forwarded(self) -> list[KnownPart]:
        """The public parts of the other server's clients that have come, also those that were not announced."""
        came = {key: _come(state) for key, state in self._requests.items() if self._carried(key.client)}
        return [KnownPart(key, part) for key, part in came.items() if part is not None]

    def has_place(self, client: str) -> bool:
        """Whether there is a place for what the peer forwards for a client; it is held until the client comes."""
        if client not in self._present and len(self._expected) < self._places:
            self._expected.add(client)
        return client in self._present or client in self._expected

    def wants(self, key: RequestKey, part: bytes) -> bool:
        """Whether to store a public part that the peer forwards; if so, no other part of this request is wanted.

        A part that is here already, or that contradicts what is here, is not wanted; `public` tells the two apart.
        """
        match self._state(key):
            case assembly.Expecting():
                wanted = True
            case assembly.DirectOnly(public_digest=announced):
                wanted = same(announced, part)
            case _:
                wanted = False
        return wanted and self._coming.setdefault(key, part) == part

    def restore(self, key: RequestKey, event: assembly.Direct | assembly.Public, place: str) -> None:
        """Restore half of a request from before a restart.

        Args:
            key: the request.
            event: the half.
            place: where it was stored, for messages.

        Raises:
            StorageError: what is stored contradicts itself.
        """
        if isinstance(event, assembly.Direct) or not self._carried(key.client):
            self._note_present(key.client)
        elif key.client not in self._present:
            self._expected.add(key.client)
        with replaying(place):
            self._requests[key] = assembly.step(self._state(key), event)

    async def assembled(self, key: RequestKey) -> None:
        """Wait until both halves are here and agree.

        Raises:
            RequestRefusedError: the halves differ, or the round closed first.
        """
        while True:
            match self._state(key):
                case assembly.Assembled():
                    return
                case assembly.Mismatched(announced=announced, received=received):
                    raise self._mismatch(key, announced, received)
            if self._closed is not None:
                raise RequestRefusedError.because(
                    "round-closed", f"{self._closed}, while waiting for {self._peer} to forward"
                )
            await self._awaited.setdefault(key, RecurringEvent()).wait()

    def assembled_part(self, key: RequestKey) -> bytes | None:
        """The digest of an assembled request's public part; None if the request is not assembled."""
        state = self._state(key)
        return state.public_digest if isinstance(state, assembly.Assembled) else None

    def close(self, explanation: str) -> None:
        """End all waiting.

        Args:
            explanation: what each request that waits is told.
        """
        self._closed = explanation
        for key in list(self._awaited):
            self._awaited.pop(key).set()

    def _mismatch(self, key: RequestKey, announced: bytes, received: bytes) -> ContradictionError:
        """The part is not the one announced: the client's doing, unless the other server has carried the part."""
        if self._carried(key.client):
            explanation = f"the public part that {self._peer} forwarded is not the one you announced"
            return ContradictionError("malformed", explanation, "two-parts", announced, received, or_peer=True)
        explanation = "the public part that you sent does not have the digest that you announced"
        return ContradictionError("malformed", explanation, "false-digest", announced, received)

    def _note_present(self, client: str) -> None:
        """A client has sent something itself, so it needs no place any more."""
        self._present.add(client)
        self._expected.discard(client)

    def _state(self, key: RequestKey) -> assembly.Assembly:
        return self._requests.get(key, NOTHING_YET)

    def _take(self, key: RequestKey, event: assembly.Direct | assembly.Public) -> None:
        self._requests[key] = self._stepped(self._state(key), key, event)
        if key in self._awaited:
            self._awaited.pop(key).set()

    def _stepped(
        self, state: assembly.Assembly, key: RequestKey, event: assembly.Direct | assembly.Public
    ) -> assembly.Assembly:
        try:
            return assembly.step(state, event)
        except UnexpectedEvent as error:
            explanation = f"{key.purpose} {key.query}: other content came before; a repeat must be the same bytes"
            known = assembly.known_digest(state)
            raise ContradictionError("conflict", explanation, "two-contents", known, event.public_digest) from error


def _come(state: assembly.Assembly) -> bytes | None:
    """The digest of the public part that has come; None where none has."""
    match state:
        case (
            assembly.PublicOnly(public_digest=part)
            | assembly.Assembled(public_digest=part)
            | assembly.Mismatched(received=part)
        ):
            return part
    return None
