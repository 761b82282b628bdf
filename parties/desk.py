"""Where the two halves of a client's request meet on a server: its own message, and the public part from the carrier.

The desk knows digests; the parts themselves are in the store (see `parties.round_records`). Rules: a request waits for
its other half only as long as the round is open, and is told what it waited for; a half that contradicts what is known
is refused; whatever a client sends again is harmless.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import trio

from fsl_async.messages import Refused
from fsl_async.protocols import assembly
from fsl_async.protocols.machine import UnexpectedEvent
from parties.evidence import Kind

__all__ = ["ContradictionError", "Desk", "RequestKey", "RequestRefusedError"]


Purpose: TypeAlias = Literal["retrieve", "submit"]
Reason: TypeAlias = Literal["round-closed", "no-session", "conflict", "limit", "malformed", "aborted", "busy"]


class RequestKey(NamedTuple):
    """Which request: whose, for what, and which of several."""

    client: str
    purpose: Purpose
    query: int


class RequestRefusedError(Exception):
    """A client's request is not carried out; carries the message that tells it why."""

    def __init__(self, message: Refused) -> None:
        super().__init__(message.explanation)
        self.message = message

    @staticmethod
    def because(reason: Reason, explanation: str, retry_after: int = 0) -> RequestRefusedError:
        """Make one from its reason and an explanation, cut to what a message holds."""
        return RequestRefusedError(Refused(reason=reason, explanation=explanation[:240], retry_after=retry_after))


class ContradictionError(RequestRefusedError):
    """A client's request contradicts what is known, and goes into the evidence.

    Attributes:
        kind: as evidence has it.
        first: the digest known before.
        second: the one that contradicts it.
    """

    def __init__(self, reason: Reason, explanation: str, kind: Kind, first: bytes, second: bytes) -> None:
        super().__init__(Refused(reason=reason, explanation=explanation[:240]))
        self.kind: Kind = kind
        self.first = first
        self.second = second


class _Request:
    """One request in the making."""

    def __init__(self) -> None:
        self.state: assembly.Assembly = assembly.Expecting()
        self.changed = trio.Event()


class Desk:
    """All requests of one round."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._requests: dict[RequestKey, _Request] = {}
        self._closed = ""

    def direct(self, key: RequestKey, announced: bytes) -> None:
        """The client's own message has come, and announces its public part's digest.

        Raises:
            RequestRefusedError: the client announced another one before.
        """
        self._take(key, assembly.Direct(announced))

    def public(self, key: RequestKey, part: bytes) -> None:
        """The public part with that digest has come.

        Raises:
            RequestRefusedError: another one came before.
        """
        self._take(key, assembly.Public(part))

    def has_public(self, key: RequestKey, part: bytes) -> bool:
        """Whether the public part with that digest has come before."""
        match self._state(key):
            case assembly.PublicOnly(public_digest=known) | assembly.Assembled(public_digest=known):
                return known == part
            case assembly.Mismatched(received=known):
                return known == part
            case _:
                return False

    async def assembled(self, key: RequestKey) -> None:
        """Wait until both halves are here and agree.

        Raises:
            RequestRefusedError: the halves differ, or the round closed first.
        """
        request = self._requests[key]
        while True:
            match request.state:
                case assembly.Assembled():
                    return
                case assembly.Mismatched(announced=announced, received=received):
                    explanation = f"the public part that {self._peer} forwarded is not the one you announced"
                    raise ContradictionError("malformed", explanation, "two-parts", announced, received)
            if self._closed:
                raise RequestRefusedError.because(
                    "round-closed", f"{self._closed}, while waiting for {self._peer} to forward"
                )
            await request.changed.wait()

    def assembled_part(self, key: RequestKey) -> bytes:
        """The digest of an assembled request's public part; empty where there is no such request."""
        state = self._state(key)
        return state.public_digest if isinstance(state, assembly.Assembled) else b""

    def close(self, explanation: str) -> None:
        """End all waiting."""
        self._closed = explanation
        for request in self._requests.values():
            self._wake(request)

    def _state(self, key: RequestKey) -> assembly.Assembly:
        return self._requests[key].state if key in self._requests else assembly.Expecting()

    def _take(self, key: RequestKey, event: assembly.Direct | assembly.Public) -> None:
        request = self._requests.setdefault(key, _Request())
        try:
            request.state = assembly.step(request.state, event)
        except UnexpectedEvent as error:
            explanation = f"{key.purpose} {key.query}: other content came before; a repeat must be the same bytes"
            known = assembly.known_digest(request.state)
            raise ContradictionError("conflict", explanation, "two-contents", known, event.public_digest) from error
        self._wake(request)

    @staticmethod
    def _wake(request: _Request) -> None:
        request.changed.set()
        request.changed = trio.Event()
