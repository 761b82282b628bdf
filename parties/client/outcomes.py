"""What became of a client's submission, once its round has ended.

Rules:

- Once a byte of a submission may have left, what a single server says decides nothing: not that the round has closed,
  not that the submission is refused. What both servers have signed decides; otherwise an error says that the submission
  may count (`FslError.in_doubt`).
- A round counts a client, and the digest of its submission: "counted" is said of the one that was asked about alone.
- A submission that was interrupted is settled before another round is entered. If it was counted, the caller is told
  so, because the next thing the caller would do is to send the same values again.

Why: a server that could make a client send the same values in two rounds would read them off the difference of the two
sums; it only has to leave the client out of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fsl_async.config import RoundConfig
from fsl_async.errors import FslError, MisuseError
from fsl_async.protocols.entry import Leave
from fsl_async.protocols.ssa.client import Finish
from parties.client.ledger import is_given_back, privacy_spent
from parties.client.participation import Participation
from parties.client.requests import Requests
from parties.client.setup import ClientSetup
from parties.client.state import last_of
from parties.client.statements import learn_outcome
from parties.client.submission import Draft
from parties.errors import (
    AlreadyCountedError,
    OtherCountedError,
    OutcomesDifferError,
    OutcomeUnknownError,
    RoundClosedError,
    SumRefusedError,
)
from parties.outcome import BY_OUTCOME, ClientOutcome, SubmissionReceipt


class Outcomes:
    """How the rounds of one client's submissions ended."""

    def __init__(self, setup: ClientSetup, requests: Requests, participation: Participation) -> None:
        self._setup = setup
        self._requests = requests
        self._participation = participation

    async def learn(self) -> ClientOutcome:
        """Wait until the last submission's round has ended, and settle it.

        Raises:
            MisuseError: nothing was submitted.
            SumRefusedError: it is in a sum that was opened and refused.
            OtherCountedError: another submission of this client is in the sum.
            OutcomeUnknownError: a server denies the round.
            OutcomesDifferError: the servers tell different outcomes.
            PeerViolationError: a signature is wrong.
            ChannelError: a connection was lost, and patience is over.
            StorageError: what was learnt could not be stored; the next call learns it again.
        """
        last = last_of(self._participation.submission)
        if last is None:
            raise MisuseError("nothing has been submitted yet")
        with in_doubt(last.config):
            try:
                outcome = await learn_outcome(self._setup, self._requests, last)
            except (OtherCountedError, OutcomeUnknownError, OutcomesDifferError):
                await self._participation.settle(last, Leave(), counted=False, doubtful=True)
                raise
            await self._participation.settle(
                last,
                Finish(),
                counted=outcome.counted,
                costs_nothing=is_given_back(self._setup.task, outcome),
                doubtful=outcome.opened,
            )
        if outcome.opened:  # "not counted" would invite the caller to submit the same values again
            raise SumRefusedError(outcome.number, outcome.reason)
        return outcome

    async def receipt(self, draft: Draft, closed: RoundClosedError) -> SubmissionReceipt:
        """The receipt of a submission whose round closed before both receipts were here, as the outcome says.

        Raises:
            SumRefusedError: both servers have signed that it is in a sum that was opened and refused.
            RoundClosedError: both servers have signed that it was not counted.
        """
        outcome = await self.learn()
        if not outcome.counted:
            raise RoundClosedError(
                f"round {outcome.number} has ended without this submission ({outcome.reason}), and both servers have "
                "signed that: it counts nowhere, and may be sent again"
            ) from closed
        return self._receipt_of(draft)

    async def refuse_counted(self, draft: Draft) -> None:
        """Settle a pending submission whose round is gone, before another round is entered.

        Raises:
            AlreadyCountedError: it was counted.
            FslError: as `learn`.
        """
        outcome = await self.learn()
        if outcome.counted:
            raise AlreadyCountedError(self._receipt_of(draft), outcome)

    def _receipt_of(self, draft: Draft) -> SubmissionReceipt:
        """The receipt of a submission that both servers have signed to have counted."""
        first, second = (draft.receipts.get(server, BY_OUTCOME) for server in (0, 1))
        spent = privacy_spent(self._setup.task, self._participation.charged)
        return SubmissionReceipt(draft.config.number, draft.digest, (first, second), 0, draft.left_out, spent)


@contextmanager
def in_doubt(config: RoundConfig) -> Iterator[None]:
    """Mark every error within as leaving open whether a submission to that round counts.

    A `RoundClosedError` does not leave it open: it says that the submission was not counted.
    """
    try:
        yield
    except RoundClosedError:
        raise
    except FslError as error:
        error.in_doubt = config.number
        raise
