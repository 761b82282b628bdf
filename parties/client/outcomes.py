"""How a round ended, as a client learns it from both servers' signed statements, and what became of its submission.

Rules:

- Once a byte of a submission may have left, what a single server says decides nothing: not that the round has closed,
  not that the submission is refused. What both servers have signed decides; otherwise an error says that the submission
  may count (`FslError.in_doubt`).
- A round counts a client, and the digest of its submission: "counted" is said of the one that was asked about alone.
- A submission that was interrupted is settled before another round is entered. If it was counted, the caller is told
  so, because the next thing the caller would do is to send the same values again.

Why: a server that could make a client send the same values in two rounds would read them off the difference of the two
sums; it only has to leave the client out of one of them.

What a client has spent of its privacy budget is the rounds to which it has submitted. A round is charged by the commit
that stores a submission, before its first byte is sent, because from then on only both servers' signatures say that it
does not count; with these it is given back, unless something of the round's sum may have been opened. A submission
beyond the budget is refused before anything is sent. The client trusts nobody with this: servers have a ledger of their
own, which may say less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from typing import assert_never

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.digests import Domain
from fsl_async.errors import FslError, MisuseError, PeerViolationError
from fsl_async.foreign_text import printable
from fsl_async.protocols.entry import Leave
from fsl_async.protocols.ssa.client import Finish
from fsl_async.task import Task
from fsl_async.wire.messages import AskOutcome, Finished, Receipt
from parties.client.participation import Participation
from parties.client.requests import Requests
from parties.client.setup import ClientSetup
from parties.client.state import last_of
from parties.client.submission import Draft, LastSubmission
from parties.errors import (
    AlreadyCountedError,
    BudgetSpentError,
    OtherCountedError,
    OutcomesDifferError,
    OutcomeUnknownError,
    RequestDeniedError,
    RoundClosedError,
    ServerBusyError,
    SumRefusedError,
)
from parties.identity.keys import verify
from parties.outcome import BY_OUTCOME, Aborted, ClientOutcome, Done, PrivacySpent, SubmissionReceipt, SumRefused
from parties.statement import Statement


def privacy_spent(task: Task, charged: Set[bytes]) -> PrivacySpent | None:
    """What the charged rounds have spent; None in a task without noise."""
    if task.privacy is None:
        return None
    rounds = len(charged)
    return PrivacySpent(
        rounds=rounds,
        epsilon=task.privacy.epsilon(rounds),
        next_epsilon=task.privacy.epsilon(rounds + 1),
        budget=task.privacy.budget,
        delta=task.privacy.delta,
    )


def check_budget(task: Task, charged: Set[bytes]) -> None:
    """Check that the budget lasts for one more submission.

    Raises:
        BudgetSpentError: it does not.
    """
    spent = privacy_spent(task, charged)
    if spent is not None and task.privacy is not None and spent.rounds >= task.privacy.rounds:
        raise BudgetSpentError(spent)


def is_given_back(task: Task, outcome: ClientOutcome) -> bool:
    """Whether a round costs a client nothing, as both servers have signed: nothing of what it submitted was opened."""
    aborted = outcome.participants == 0
    counts_were_opened = task.min_contributors is not None and aborted
    return not outcome.counted and not outcome.opened and not counts_were_opened


async def learn_outcome(setup: ClientSetup, requests: Requests, last: LastSubmission) -> ClientOutcome:
    """Wait until a submission's round has ended, and tell whether it was counted.

    Both servers are asked, also when the first one denies the round: the error says what the other one has signed.

    Raises:
        OtherCountedError: another submission of this client is in the sum.
        OutcomeUnknownError: a server denies the round, or refuses to tell.
        OutcomesDifferError: the servers tell different outcomes.
        PeerViolationError: a signature is wrong.
    """
    config = last.config
    told = await requests.both(partial(_account, setup, requests, config))
    statements = {server: account for server, account in enumerate(told) if isinstance(account, Statement)}
    accounts = {server: _outcome(setup.task, statement) for server, statement in statements.items()}
    if len(accounts) < 2:
        denials = {server: account for server, account in enumerate(told) if not isinstance(account, Statement)}
        raise OutcomeUnknownError(_unknown(last, denials, accounts), config.number, accounts)
    if not _same_ending(statements[0], statements[1]):
        field_name, first, second = first_difference(statements[0], statements[1]) or ("", "", "")
        raise OutcomesDifferError(
            "S0 and S1",
            f"have signed different outcomes of round {config.number}: {field_name} is {first} and {second}",
        )
    if accounts[0].digest not in (b"", last.digest):
        raise OtherCountedError(accounts[0])
    return accounts[0]


def check_receipt(setup: ClientSetup, server: int, receipt: Receipt) -> bytes:
    """The signature of a receipt, checked; the round's machine compares the digest that it names.

    Raises:
        PeerViolationError: another key has signed.
    """
    if not verify(setup.servers[server].statement, receipt.signature, Domain.RECEIPT, receipt.digest):
        raise PeerViolationError(f"S{server}", "signed its receipt with another key than the pinned one")
    return bytes(receipt.signature)


async def _account(
    setup: ClientSetup, requests: Requests, config: RoundConfig, server: int
) -> Statement | RoundClosedError | RequestDeniedError:
    """A server's signed statement of a round, or its refusal to make one; "busy" is neither, and raised."""
    try:
        return await signed_statement(setup, requests, config.round_id(), server)
    except ServerBusyError:
        raise
    except (RoundClosedError, RequestDeniedError) as denial:
        return denial


async def signed_statement(setup: ClientSetup, requests: Requests, round_id: bytes, server: int) -> Statement:
    """What a server has signed for this client of a round that is over, or will be.

    Raises:
        RoundClosedError: it does not know the round.
        PeerViolationError: it is signed with another key, or is of another round.
    """
    finished = await requests.ask(server, AskOutcome(round_id), (), Finished)
    key = setup.servers[server].statement
    if not verify(key, finished.message.signature, Domain.STATEMENT, bytes(finished.bulk)):
        raise PeerViolationError(f"S{server}", "signed the outcome with another key than the pinned one")
    statement = Statement.parse(finished.bulk, setup.task, setup.identity.name, f"S{server}")
    if statement.round_id != round_id:
        raise PeerViolationError(f"S{server}", "answered with another round's outcome")
    return statement


_EXPLAINED = {
    "bound": "bound: the servers found no proof that the update is within the task's bound; make it smaller with "
    "fsl_async.learning.clipped, and submit it in the next round",
}


def _outcome(task: Task, statement: Statement) -> ClientOutcome:
    """What a statement tells its client."""
    excluded = _EXPLAINED.get(statement.excluded, statement.excluded)
    reason = "" if statement.included else excluded or "not submitted in time"
    match statement.ending:
        case Done():
            pass
        case Aborted(explanation=explanation):
            reason = explanation
        case SumRefused(explanation=explanation):
            reason = reason or explanation
        case _:
            assert_never(statement.ending)
    return ClientOutcome(
        number=statement.number,
        counted=statement.counted,
        reason=printable(reason),
        participants=statement.participants,
        digest=statement.seat.digest if statement.seat else b"",
        opened=statement.opened,
        names=statement.names,
        root=statement.root,
        opened_rows=statement.rows(task, "a server"),
    )


def _unknown(last: LastSubmission, denials: Mapping[int, FslError], accounts: Mapping[int, ClientOutcome]) -> str:
    """Why an outcome cannot be learnt, and what is known nevertheless."""
    parts = [str(denial) for denial in denials.values()]
    for server, outcome in accounts.items():
        match outcome.digest:
            case last.digest:
                told = "it was counted"
            case b"":
                told = f"it was not counted ({outcome.reason})"
            case other:
                told = f"another submission of this client was counted ({other.hex()[:16]}…)"
        parts.append(f"S{server} alone has signed that {told}")
    number = last.config.number
    return f"no server can say any more whether the submission to round {number} was counted: {'; '.join(parts)}"


def _same_ending(first: Statement, second: Statement) -> bool:
    """Whether two servers give the same account of a round; the explanations of an abort may differ."""
    if isinstance(first.ending, Aborted) and isinstance(second.ending, Aborted):
        return first == msgspec.structs.replace(second, ending=first.ending)
    return first == second


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
        return self.receipt_of(draft)

    async def refuse_counted(self, draft: Draft) -> None:
        """Settle a pending submission whose round is gone, before another round is entered.

        Raises:
            AlreadyCountedError: it was counted.
            FslError: as `learn`.
        """
        outcome = await self.learn()
        if outcome.counted:
            raise AlreadyCountedError(self.receipt_of(draft), outcome)

    def receipt_of(self, draft: Draft) -> SubmissionReceipt:
        """The receipt of a submission that both servers have acknowledged, or signed to have counted."""
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
