"""How a round ended, as a client learns it: both servers' signed accounts, which must be the same."""

from __future__ import annotations

from functools import partial

import msgspec

from fsl_async.config import RoundConfig, first_difference
from fsl_async.digests import Domain
from fsl_async.errors import PeerViolationError
from fsl_async.messages import AskOutcome, Finished, Receipt
from parties.client_setup import ClientSetup
from parties.drafts import Draft
from parties.identity import verify
from parties.outcome import ClientOutcome, RoundReport
from parties.requests import Requests

__all__ = ["check_receipt", "learn_outcome"]


async def learn_outcome(setup: ClientSetup, requests: Requests, config: RoundConfig) -> ClientOutcome:
    """Wait until a round has ended, and tell whether this client was counted.

    Raises:
        RoundClosedError: a server does not know the round any more.
        PeerViolationError: the servers tell different outcomes, or a signature is wrong.
    """
    reports = await requests.both(partial(_report, setup, requests, config))
    if not _same_ending(*reports):
        field_name, first, second = first_difference(*reports) or ("", "", "")
        raise PeerViolationError("S0 and S1", f"tell different outcomes: {field_name} is {first!r} and {second!r}")
    report, name = reports[0], setup.identity.name
    counted = not report.aborted and name in report.clients
    reason = report.aborted or report.excluded.get(name, "") or ("" if counted else "not submitted in time")
    return ClientOutcome(number=report.number, counted=counted, reason=reason, clients=report.clients)


def check_receipt(setup: ClientSetup, server: int, draft: Draft, receipt: Receipt) -> bytes:
    """The signature of a receipt, which is the server's own; whose digest it names, the round's machine compares.

    Raises:
        PeerViolationError: another key has signed.
    """
    parts = (draft.config.round_id(), draft.client.encode(), receipt.digest)
    if not verify(setup.servers[server].statement, receipt.signature, Domain.RECEIPT, *parts):
        raise PeerViolationError(f"S{server}", "signed its receipt with another key than the pinned one")
    return bytes(receipt.signature)


async def _report(setup: ClientSetup, requests: Requests, config: RoundConfig, server: int) -> RoundReport:
    finished = await requests.ask(server, AskOutcome(config.round_id()), (), Finished)
    key = setup.servers[server].statement
    if not verify(key, finished.message.signature, Domain.OUTCOME, bytes(finished.bulk)):
        raise PeerViolationError(f"S{server}", "signed the outcome with another key than the pinned one")
    report = RoundReport.parse(finished.bulk, setup.task.max_clients, f"S{server}")
    if report.round_id != config.round_id():
        raise PeerViolationError(f"S{server}", "answered with another round's outcome")
    return report


def _same_ending(first: RoundReport, second: RoundReport) -> bool:
    """Whether two servers tell the same of a round; why it was aborted, each tells in its own words."""
    if first.aborted and second.aborted:
        return first == msgspec.structs.replace(second, aborted=first.aborted)
    return first == second
