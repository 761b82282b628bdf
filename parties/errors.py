"""The errors that a client's calls raise, and that servers and commands raise or read too.

    FslError
    ├── RoundClosedError            the round closed first and nothing of this client is in it; call again
    ├── NotDrawnError               the round is only for clients that were drawn, and this one was not
    ├── AlreadyCountedError         an earlier submission was counted; this call sent nothing
    ├── OtherCountedError           an earlier submission of this client was counted in place of this one
    ├── SumRefusedError             the sum that a submission is in was opened and refused
    ├── ClientEndedError            an earlier call met a lost store or a defect, and the client has ended
    ├── OutcomeUnknownError         a server denies a submission's round; whether it was counted cannot be learnt
    ├── RequestDeniedError          a server refused a request; the message says which server and why
    │   └── ServerBusyError         it has no room for the request now, and says when to ask again
    ├── MisuseError
    │   ├── StillInDoubtError       an equal update may be in a sum already; nothing was sent
    │   ├── NoUnionError            no union has been found yet
    │   ├── BudgetSpentError        one more submission would exceed the privacy budget; nothing was sent
    │   └── BeganAnewError          neither server knows a round that this client took part in
    └── PeerViolationError
        └── OutcomesDifferError     the servers have signed different outcomes of one round

The other errors are those of `fsl_async.errors` and of the transport. A single server's refusal proves nothing about a
submission: every error that leaves open whether one was counted has `FslError.in_doubt` set.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsl_async.errors import FslError, MisuseError, PeerViolationError
from parties.outcome import ClientOutcome, PrivacySpent, SubmissionReceipt


class RoundClosedError(FslError):
    """The round closed before the request was carried out; the next call enters the next round.

    When a call of `Client.submit`, `unite` or `resume` raises it, either nothing was sent, or both servers have signed
    that the submission was not counted. So the same values may be submitted again.
    """


class NotDrawnError(FslError):
    """The round is only for clients that were drawn of those that asked, and this client is not one of them.

    Nothing was computed and nothing sent but the question. The next call asks again, for the next round; so does the
    same call with `wait=True`, until this client is drawn.

    Attributes:
        number: the round.
        asked: how many clients asked for it in time.
        drawn: how many of them were drawn.
    """

    def __init__(self, number: int, asked: int, drawn: int) -> None:
        super().__init__(
            f"round {number} is for the {drawn} clients that were drawn of {asked} that asked, and this client is not "
            "one of them: nothing was computed or sent. The next call asks again for the next round, and the same call "
            "with wait=True waits until this client is drawn"
        )
        self.number = number
        self.asked = asked
        self.drawn = drawn


class AlreadyCountedError(FslError):
    """The pending submission was counted. This call has sent nothing; the next one enters the next round.

    Do not submit the same values again: they are in the sum.

    Attributes:
        receipt: of the earlier submission.
        outcome: how its round ended, as both servers have signed.
    """

    def __init__(self, receipt: SubmissionReceipt, outcome: ClientOutcome) -> None:
        super().__init__(
            f"both servers have signed that they counted the pending submission to round {receipt.number}; nothing was "
            "sent now: do not submit its values again, and repeat the call for new values"
        )
        self.receipt = receipt
        self.outcome = outcome


class OtherCountedError(FslError):
    """Both servers have signed that a round counted another submission of this client instead of this one.

    An earlier process with this client's keys made it, whose state is lost or elsewhere. This one is in no
    sum. Its values may be those of the other one all the same, so only a caller that knows that they are not may
    submit them in another round.

    Attributes:
        outcome: how the round ended for the submission that is in the sum; `outcome.digest` names it.
        in_doubt: the round's number, so that code which checks `in_doubt` does not send the values again.
    """

    def __init__(self, outcome: ClientOutcome) -> None:
        self.outcome = outcome
        self.in_doubt = outcome.number
        super().__init__(
            f"round {outcome.number} counted another submission of this client, {outcome.digest.hex()[:16]}…, instead "
            "of this one: an earlier process with the same keys made it, and its state is lost or elsewhere. Submit "
            "these values again only if they differ from the other submission's; keep the state file, and run one "
            "process for each client"
        )

    def __str__(self) -> str:
        return Exception.__str__(self)


class SumRefusedError(FslError):
    """A round's sum was opened and not applied; the message says why, and the model is as it was.

    It is more than its clients can have contributed, so that a client or a server has falsified it; or a block's dtype
    cannot hold what it would give; or what the task does with a sum could not be done. Both servers know the sum, so
    the values in it must not be submitted again in another round: a server that leaves one client out of one of the two
    sums reads that client's values from their difference. Train anew before submitting.

    Attributes:
        number: the round.
        in_doubt: the same number, so that code which checks `in_doubt` does not send the values again.
    """

    def __init__(self, number: int, why: str) -> None:
        self.number = self.in_doubt = number
        super().__init__(
            f"the sum of round {number} was opened and refused: {why}. The model is as it was, and both servers know "
            "the sum: do not submit the same values again, train anew"
        )

    def __str__(self) -> str:
        return Exception.__str__(self)


class ClientEndedError(FslError):
    """The client has ended, because an earlier call met what nobody can go on from: a lost store, or a defect.

    The caller of that call got the error itself, whose class and message are in this one. A client that is made anew
    resumes from what was stored.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this client has ended, because an earlier call failed ({why}); make a new client, which resumes from the "
            "stored state"
        )


class OutcomeUnknownError(FslError):
    """Whether a submission was counted cannot be learnt, because a server denies the round.

    A server that still has its store never does that. The values may be in a sum that a server knows, so they must not
    be submitted again in another round, whatever the other server has signed alone; train anew, on the next model.

    Attributes:
        number: the round.
        accounts: by server, what it has signed about this client; a server that denies the round is not in it.
    """

    def __init__(self, message: str, number: int, accounts: Mapping[int, ClientOutcome]) -> None:
        super().__init__(message)
        self.number = number
        self.accounts = dict(accounts)


class RequestDeniedError(FslError):
    """A server refused a request; the message says which server and why.

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
        retry_after: seconds to wait before the next try.
    """

    def __init__(self, server: int, explanation: str, retry_after: float) -> None:
        super().__init__(server, "busy", explanation)
        self.retry_after = retry_after


class BeganAnewError(MisuseError):
    """Neither server knows the last round in which this client took part.

    Both servers began anew or were restored from a copy; nothing was sent. `Client.forget_rounds`, or another state
    file, lets the client take part again.
    """

    def __init__(self, number: int) -> None:
        super().__init__(
            f"neither server knows round {number}, in which this client took part: both have begun anew, or were put "
            "back from a copy. Nothing was sent. `forget_rounds`, or another state file, lets this "
            "client take part again; train anew first, because a server may know a sum with this client's last values"
        )


class StillInDoubtError(MisuseError):
    """An update with the same values may be in a sum that a server knows, as an earlier error said; nothing was sent.

    The difference of two sums would show them. Train anew, on the next model. Where it is certain that the values give
    nothing away, `submit(updates, again=True)` sends them.

    Attributes:
        number: the round of the earlier one.
        in_doubt: the same number.
    """

    def __init__(self, number: int) -> None:
        self.number = self.in_doubt = number
        super().__init__(
            f"the same values were submitted to round {number}, and may be in a sum that a server knows: nothing was "
            "sent. Train anew, on the next model; `submit(updates, again=True)` sends "
            "them all the same, and the difference of the two sums may show them"
        )

    def __str__(self) -> str:
        return Exception.__str__(self)


class BudgetSpentError(MisuseError):
    """One more submission would exceed the privacy budget of this client; nothing was sent.

    Attributes:
        spent: what its own ledger has.
    """

    def __init__(self, spent: PrivacySpent) -> None:
        super().__init__(
            f"this client's {spent.rounds} submissions have spent ε = {spent.epsilon:.4g} of its privacy budget of "
            f"{spent.budget:g}, and one more would make it {spent.next_epsilon:.4g}: nothing was sent. It can still "
            "retrieve; to submit again it needs another task, and the ε of both tasks add up"
        )
        self.spent = spent


class NoUnionError(MisuseError):
    """No union has been found yet, or none since this client was started.

    Attributes:
        number: the round that is open, and finds one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(
            f"round {number} is finding a union, and this client knows of none before it: take part with `unite`, wait "
            "for the round's end with `outcome`, and ask again"
        )
        self.number = number


class OutcomesDifferError(PeerViolationError):
    """The servers have signed two different outcomes of one round.

    Asking again does not change that; the message names the first field that differs, and what each server says of it.
    """
