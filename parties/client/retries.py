"""How often and how long a client retries, and what it says when it stops.

Rules:

- A request is tried again after a failure that may pass: a server that is away, restarting, overloaded or too slow. A
  failure that will be the same next time (a wrong key, an unknown client, another version or task) is raised at once.
- The pauses between tries grow, with jitter, so that a thousand clients do not meet a restarted server all at once.
- Patience is counted from the first of several failures in a row, or from the beginning of a wait in which nothing
  came. A try that is under way is cancelled when patience is over, unless a message moves: an upload takes its time.
- A wait that the servers impose (for the next round, for an outcome) uses up no patience while the server gives signs
  of life, and does not say that the other server is away. The caller is told again and again what the client waits for.
- The error at the end is of the last failure's class, and says which server, what was attempted, how often and how
  long.
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

_log = logging.getLogger("parties.client")

PATIENCE = 60.0
"""Seconds, unless the caller says otherwise."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LEAST = 5.0
"""Seconds that each try has at least, the last one too."""

UNDER_WAY = 30.0
"""Seconds after which a failed try of a request without time limit counts as a wait: patience begins anew."""

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
    """The tries of one request, or of one connection.

    Args:
        attempted: what is asked of which server.
        patience: seconds to go on; 0 makes no second try and gives the first one `PATIENCE`, infinity never stops.
        randomness: for the jitter.
        stranger: whether this client has never met the server; then an address where nobody listens is taken for wrong.
    """

    def __init__(self, attempted: Attempted, patience: float, randomness: Randomness, *, stranger: bool) -> None:
        self._attempted = attempted
        self._patience = patience
        self._randomness = randomness
        self._stranger = stranger
        self._asked = self._begun = self._first_failure = trio.current_time()
        self._reminds_at = self._warned_at = float("-inf")
        self._failures: list[ChannelError | ServerBusyError] = []

    @property
    def until(self) -> float:
        """When patience with the try that begins now is over, on trio's clock."""
        if self._attempted.waits:
            return float("inf")
        counted_from = self._first_failure if self._failures else self._begun
        return max(counted_from + (self._patience or PATIENCE), self._begun + LEAST)

    def remind(self) -> None:
        """Tell the caller what it waits for: after a while, and whenever it has waited twice as long."""
        now = trio.current_time()
        if now < self._reminds_at:
            return
        self._reminds_at = now + (now - self._asked)
        left = self.until - now
        _log.warning(
            "%s: %s: no answer for %.0f s; waiting for %s",
            self._attempted.server,
            self._attempted.doing,
            now - self._asked,
            "as long as it is there" if left == float("inf") else f"{max(0.0, left):.0f} s more",
        )

    async def wait_or_raise(self, error: ChannelError | ServerBusyError) -> None:
        """Wait before another try, or raise the error if there is to be none.

        Raises:
            ChannelError, ServerBusyError: of the same class as the failure, with the whole story in its message.
        """
        self._count(error)
        if not self._may_pass(error):
            raise self._complete(error, _explanation(error)) from error
        if isinstance(error, UnansweredError):
            raise self._complete(error, self._history(error)) from error
        left = self._first_failure + self._patience - trio.current_time()
        asked = error.retry_after if isinstance(error, ServerBusyError) else 0
        if left <= 0 or asked > left:
            raise self._complete(error, self._history(error)) from error
        self._warn(error, left)
        await trio.sleep(min(asked + self._pause(), left))
        self._begun = trio.current_time()

    def _count(self, error: ChannelError | ServerBusyError) -> None:
        now = trio.current_time()
        if not self._failures or (self._attempted.waits and now - self._begun > UNDER_WAY):
            self._failures.clear()
            self._first_failure = self._begun if self._waited(error) else now
        self._failures.append(error)

    def _waited(self, error: ChannelError | ServerBusyError) -> bool:
        """Whether the failed try spent its time waiting for something that did not come."""
        return isinstance(error, UnansweredError) or (isinstance(error, _WAITED) and not self._attempted.waits)

    def _may_pass(self, error: ChannelError | ServerBusyError) -> bool:
        match error:
            case UnreachableError():
                return not self._stranger and not _is_no_name(error)
            case WrongServerKeyError():
                # A server that is killed at that point of the handshake looks the same, so it is asked once more.
                return sum(isinstance(failure, WrongServerKeyError) for failure in self._failures) == 1
            case _:
                return isinstance(error, _PASSING)

    def _pause(self) -> float:
        """Twice as long each time, up to a limit; of that, half to all."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(len(self._failures), 30))
        drawn: float = int.from_bytes(self._randomness(4), "little") / 2**32
        return longest * (1 + drawn) / 2

    def _history(self, error: ChannelError | ServerBusyError) -> str:
        tries = len(self._failures)
        seconds = trio.current_time() - self._first_failure
        how_often = f"tried {tries} times in {seconds:.0f} s" if tries > 1 else "tried once"
        if tries == 1 and seconds:
            how_often += f", for {seconds:.0f} s"
        return f"{self._attempted.doing}: {how_often}, last: {_explanation(error)}"

    def _complete(self, error: ChannelError | ServerBusyError, history: str) -> ChannelError | ServerBusyError:
        """An error of the same class that names the server and says more."""
        match error:
            case ServerBusyError():
                return ServerBusyError(error.server, history, error.retry_after)
            case RefusedError():
                return type(error)(f"{self._attempted.server}: {history}", error.reason)
            case MessageTooLongError():
                return error
            case _:
                return type(error)(f"{self._attempted.server}: {history}")

    def _warn(self, error: ChannelError | ServerBusyError, left: float) -> None:
        """Warn of a failure, but of one in `REMINDER` seconds; a single lost connection is not worth a warning."""
        lost = isinstance(error, _LOST) or ends_connection(error)
        now, unheeded = trio.current_time(), lost and len(self._failures) == 1
        warns = not unheeded and now - self._warned_at >= REMINDER
        if warns:
            self._warned_at = now
        _log.log(
            logging.WARNING if warns else logging.INFO,
            "%s: %s: %s; trying again for up to %.0f s",
            self._attempted.server,
            self._attempted.doing,
            _explanation(error),
            left,
        )


def ends_connection(error: Exception) -> bool:
    """Whether a server ends the connection: it was asked for nothing in a while, or a request came too slowly."""
    return isinstance(error, ServerBusyError) and not error.retry_after


def _explanation(error: ChannelError | ServerBusyError) -> str:
    """What happened, as a client sees it; what the transport said of it is the error's cause."""
    match error:
        case UnansweredError():
            return str(error)
        case SilentPeerError():
            return f"{error}: the server does not respond, or the network dropped the connection"
        case ChannelClosedError() | ConnectionLostError():
            return "the connection ended before the answer: the server was stopped or restarted, or the network failed"
        case UnreachableError() if _is_no_name(error):
            return f"no host of that name is known ({error.__cause__}); check the address"
        case _:
            return str(error)


def _is_no_name(error: UnreachableError) -> bool:
    """Whether the address's name is known not to exist; otherwise nobody listens there, or no name server answered."""
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
