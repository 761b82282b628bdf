"""What a server's refusal becomes at a client, and what its user can do about it.

FslError
├── RoundClosedError         the round closed first; the request counts for nothing, the next call enters the next
├── OutcomeUnknownError      the servers do not know a submission's round any more
└── RequestDeniedError       a server refused a request; the message says which and why
└── ServerBusyError            it has no room for the request now, and says when to ask again
"""

from __future__ import annotations

from fsl_async.errors import FslError
from fsl_async.messages import Refused

__all__ = ["OutcomeUnknownError", "RequestDeniedError", "RoundClosedError", "ServerBusyError", "refusal"]


class RoundClosedError(FslError):
    """The round closed before the request was carried out; the next call enters the next round.

    A submission that ends with it is certain not to be in any sum.

    Attributes:
        unanswered: how many tries of the same request had gone out before, and were not answered.
    """

    def __init__(self, message: str, unanswered: int = 0) -> None:
        super().__init__(message)
        self.unanswered = unanswered


class OutcomeUnknownError(FslError):
    """Whether a submission was counted cannot be learnt: a server denies its round, as none does that has its store."""


class RequestDeniedError(FslError):
    """A server refused a request; the message says which and why.

    Attributes:
        server: 0 or 1.
        reason: one of the reasons of `messages.Refused`.
    """

    def __init__(self, server: int, reason: str, explanation: str) -> None:
        super().__init__(f"S{server} refused ({reason}): {explanation}")
        self.server = server
        self.reason = reason


class ServerBusyError(RequestDeniedError):
    """A server has no room for a request now.

    Attributes:
        retry_after: seconds after which it wants to be asked again.
    """

    def __init__(self, server: int, explanation: str, retry_after: float) -> None:
        super().__init__(server, "busy", explanation)
        self.retry_after = retry_after


def refusal(server: int, message: Refused) -> RoundClosedError | RequestDeniedError:
    """The error that a server's refusal stands for."""
    match message:
        case Refused(reason="round-closed"):
            return RoundClosedError(f"S{server}: {message.explanation}")
        case Refused(reason="busy"):
            after = message.retry_after
            return ServerBusyError(server, f"{message.explanation}; it wants to be asked again after {after} s", after)
        case _:
            return RequestDeniedError(server, message.reason, message.explanation)
