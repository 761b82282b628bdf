"""How long a client goes on trying when a server is not there, and what it says when it gives up.

Rules:

- Another try is made after what passes by itself: a server that is away, restarting, overloaded or too slow. What will
  be the same next time (a wrong key, an unknown client, another version or task) is told at once.
- Tries come ever more slowly, with jitter, so that a thousand clients do not meet a restarted server all at once.
- Patience is counted from the first of several failures in a row, or from the beginning of a wait in which nothing
  came. A try that is under way is cut when it is over, unless a message moves: an upload takes its time.
- A wait that the servers impose (for the next round, for an outcome) takes none, as long as the server gives signs of
  life. Whatever is waited for, the caller is told after a while.
- The error at the end is of the last failure's class, and names the server, the errand, how often and how long.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass

import trio

from fsl_async.errors import ChannelError
from fsl_async.randomness import Randomness
from parties.errors import ServerBusyError
from transport import (
    BusyError,
    ChannelClosedError,
    ConnectionLostError,
    HandshakeTimeoutError,
    MessageTooLongError,
    RefusedError,
    SilentPeerError,
    TooSlowError,
    TurnedAwayError,
    UnansweredError,
    UnreachableError,
    WrongServerKeyError,
)
from transport.channel import REMINDER

__all__ = ["LONGEST_PAUSE", "PATIENCE", "Attempted", "Retries"]

_log = logging.getLogger("parties.client")

PATIENCE = 60.0
"""Seconds, unless the caller says otherwise."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LEAST = 5.0
"""Seconds that a try has at least: the last one too is more than a gesture."""

UNDER_WAY = 30.0
"""Seconds after which a try of a request that may wait for ever was more than an attempt to connect."""

_LOST = (ChannelClosedError, ConnectionLostError)
_WAITED = (SilentPeerError, HandshakeTimeoutError, TooSlowError)
"""Failures that took all the time of their try."""
_PASSING = (*_LOST, *_WAITED, BusyError, TurnedAwayError, UnreachableError, ServerBusyError)


@dataclass(frozen=True)
class Attempted:
    """What is asked of a server.

    Attributes:
        server: which, for people: its name and address.
        doing: what, for people.
        waits: whether the answer may take as long as it likes.
    """

    server: str
    doing: str
    waits: bool = False


class Retries:
    """The failures of one errand.

    Args:
        errand: what is asked of whom.
        patience: seconds to go on; 0 makes no second try and gives the first one `PATIENCE`, infinity goes on for ever.
        randomness: for the jitter.
        stranger: whether this client has never met the server; then an address where nobody listens is taken as wrong.
    """

    def __init__(self, errand: Attempted, patience: float, randomness: Randomness, *, stranger: bool) -> None:
        self._errand = errand
        self._patience = patience
        self._randomness = randomness
        self._stranger = stranger
        self._begun = self._first_failure = trio.current_time()
        self._failures: list[ChannelError | ServerBusyError] = []

    @property
    def until(self) -> float:
        """When patience with the try that begins now is over, on trio's clock."""
        if self._errand.waits:
            return float("inf")
        counted_from = self._first_failure if self._failures else self._begun
        return max(counted_from + (self._patience or PATIENCE), self._begun + LEAST)

    def remind(self) -> None:
        """Tell the caller what it waits for."""
        left = self.until - trio.current_time()
        _log.warning(
            "%s: %s: no answer for %.0f s; waiting for %s",
            self._errand.server,
            self._errand.doing,
            REMINDER,
            "as long as it is there" if left == float("inf") else f"{max(0.0, left):.0f} s more",
        )

    async def wait_or_raise(self, error: ChannelError | ServerBusyError) -> None:
        """Wait before another try; or raise the error, where there is none.

        Raises:
            ChannelError, ServerBusyError: of the same class as the failure, with a message that tells everything.
        """
        self._count(error)
        if not self._may_pass(error):
            raise self._told(error, _in_our_words(error)) from error
        if isinstance(error, UnansweredError):
            raise self._told(error, self._account(error)) from error
        left = self._first_failure + self._patience - trio.current_time()
        asked = error.retry_after if isinstance(error, ServerBusyError) else 0
        if left <= 0 or asked > left:
            raise self._told(error, self._account(error)) from error
        self._tell(error, left)
        await trio.sleep(min(asked + self._pause(), left))
        self._begun = trio.current_time()

    def _count(self, error: ChannelError | ServerBusyError) -> None:
        now = trio.current_time()
        if not self._failures or (self._errand.waits and now - self._begun > UNDER_WAY):
            self._failures.clear()
            self._first_failure = self._begun if self._waited(error) else now
        self._failures.append(error)

    def _waited(self, error: ChannelError | ServerBusyError) -> bool:
        """Whether the time of the try that failed was spent in waiting for nothing."""
        return isinstance(error, UnansweredError) or (isinstance(error, _WAITED) and not self._errand.waits)

    def _may_pass(self, error: ChannelError | ServerBusyError) -> bool:
        match error:
            case UnreachableError():
                return not self._stranger and not _is_no_name(error)
            case WrongServerKeyError():
                # A server that is killed at that point of the handshake looks the same: it is asked once more.
                return sum(isinstance(failure, WrongServerKeyError) for failure in self._failures) == 1
            case _:
                return isinstance(error, _PASSING)

    def _pause(self) -> float:
        """Twice as long each time, up to a limit; of that, half to all."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(len(self._failures), 30))
        drawn: float = int.from_bytes(self._randomness(4), "little") / 2**32
        return longest * (1 + drawn) / 2

    def _account(self, error: ChannelError | ServerBusyError) -> str:
        tries = len(self._failures)
        seconds = trio.current_time() - self._first_failure
        how_often = f"tried {tries} times in {seconds:.0f} s" if tries > 1 else "tried once"
        if tries == 1 and seconds:
            how_often += f", for {seconds:.0f} s"
        return f"{self._errand.doing}: {how_often}, last: {_in_our_words(error)}"

    def _told(self, error: ChannelError | ServerBusyError, account: str) -> ChannelError | ServerBusyError:
        """An error of the same class that names the server and says more."""
        match error:
            case ServerBusyError():
                return ServerBusyError(error.server, account, error.retry_after)
            case RefusedError():
                return type(error)(f"{self._errand.server}: {account}", error.reason)
            case MessageTooLongError():
                return error
            case _:
                return type(error)(f"{self._errand.server}: {account}")

    def _tell(self, error: ChannelError | ServerBusyError, left: float) -> None:
        """Say at first what is wrong; one lost connection is nothing to speak of."""
        first = len(self._failures) == (2 if isinstance(self._failures[0], _LOST) else 1)
        _log.log(
            logging.WARNING if first else logging.INFO,
            "%s: %s: %s; trying again for up to %.0f s",
            self._errand.server,
            self._errand.doing,
            _in_our_words(error),
            left,
        )


def _in_our_words(error: ChannelError | ServerBusyError) -> str:
    """What happened, as a client sees it; what the transport said of it is the error's cause."""
    match error:
        case UnansweredError():
            return str(error)
        case SilentPeerError():
            return f"{error}: the server stands still, or the network has forgotten the connection"
        case ChannelClosedError() | ConnectionLostError():
            return "the connection ended before the answer: the server was stopped or restarted, or the network failed"
        case UnreachableError() if _is_no_name(error):
            return f"no host of that name is known ({error.__cause__}); check the address"
        case _:
            return str(error)


def _is_no_name(error: UnreachableError) -> bool:
    """Whether the address's name is known not to exist, rather than nobody listening or nobody to ask."""
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
