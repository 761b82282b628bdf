"""What a server's refusal becomes at a client, and what its user can do about it.

FslError
├── RoundClosedError         the round closed first, and nothing of this client is in it; the next call enters the next
├── AlreadyCountedError      an earlier submission was counted; this call sent nothing, the next one goes on
├── SumRefusedError          the sum with a submission was opened, and was more than its clients can have contributed
├── BeganAnewError           neither server knows a round that this client took part in; a MisuseError
├── OutcomeUnknownError      a server denies a submission's round; what the other one has signed does not decide
└── RequestDeniedError       a server refused a request; the message says which and why
└── ServerBusyError            it has no room for the request now, and says when to ask again

Of a submission a refusal proves nothing: `FslError.in_doubt` is set on each error that leaves its end open.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsl_async.errors import FslError, MisuseError
from fsl_async.foreign_text import printable
from fsl_async.wire.messages import Refused
from parties.outcome import ClientOutcome, SubmissionReceipt

__all__ = [
    "AlreadyCountedError",
    "BeganAnewError",
    "OutcomeUnknownError",
    "RequestDeniedError",
    "RoundClosedError",
    "ServerBusyError",
    "SumRefusedError",
    "refusal",
]


class RoundClosedError(FslError):
    """The round closed before the request was carried out; the next call enters the next round.

    A call of `Client.submit`, `unite` or `resume` that ends with it has either sent nothing, or both servers have
    signed that the submission was not counted. So the same values may be submitted again.
    """


class AlreadyCountedError(FslError):
    """The submission that was pending was counted. This call has sent nothing; the next one enters the next round.

    Whoever means to submit the same values again need not: they are in the sum.

    Attributes:
        receipt: of the earlier submission.
        outcome: how its round ended, as both servers have signed.
    """

    def __init__(self, receipt: SubmissionReceipt, outcome: ClientOutcome) -> None:
        super().__init__(
            f"the pending submission to round {receipt.number} was counted after all, as both servers have signed; "
            "nothing was sent now: do not submit its values again, and call again for what is new"
        )
        self.receipt = receipt
        self.outcome = outcome


class SumRefusedError(FslError):
    """A round's sum was opened and not applied, for it is more than its clients can have contributed.

    One of them, or a server, has spoiled it; the model is as it was. Both servers know the sum. So the values in it
    must not be submitted again in another round: from the difference of two sums, a server that leaves somebody out of
    one of them reads that one's values. Train anew before submitting.

    Attributes:
        number: the round.
        in_doubt: the same: whoever asks errors whether values may be sent again is told that they may not.
    """

    def __init__(self, number: int, why: str) -> None:
        self.number = self.in_doubt = number
        super().__init__(
            f"the sum of round {number} was opened and refused: {why}. The model is as it was, and both servers know "
            "the sum: do not submit the same values again, train anew"
        )

    def __str__(self) -> str:
        return Exception.__str__(self)


class BeganAnewError(MisuseError):
    """Neither server knows the last round in which this client took part: both began anew, or were put back."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"neither server knows round {number}, in which this client took part: both have begun anew, or were put "
            "back from a copy. Nothing was sent. `forget_rounds`, or another state file (--state FILE), lets this "
            "client take part again; train anew first, for a server may know a sum with this client's last values"
        )


class OutcomeUnknownError(FslError):
    """Whether a submission was counted cannot be learnt: a server denies its round, as none does that has its store.

    Its values may be in a sum that a server knows. So they must not be submitted again in another round, whatever the
    other server has signed alone; train anew, on the next model.

    Attributes:
        number: the round.
        accounts: by server, what it has signed of this client; a server that denies the round is not in it.
    """

    def __init__(self, message: str, number: int, accounts: Mapping[int, ClientOutcome]) -> None:
        super().__init__(message)
        self.number = number
        self.accounts = dict(accounts)


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
    """The error that a server's refusal stands for; its words are the server's, and are shown on a terminal."""
    explanation = printable(message.explanation)
    match message:
        case Refused(reason="round-closed"):
            return RoundClosedError(f"S{server}: {explanation}")
        case Refused(reason="busy"):
            after = message.retry_after
            return ServerBusyError(server, f"{explanation}; it wants to be asked again after {after} s", after)
        case _:
            return RequestDeniedError(server, message.reason, explanation)
