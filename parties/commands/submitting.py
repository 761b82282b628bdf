"""`submit`, `unite`, `resume` and `outcome`: what a client adds to a round, and what became of it.

A command may be killed at any point. The same command again brings to its end what the first one began, with the same
bytes, and its result is that submission's: nothing is submitted twice because nobody was told of the first time. So
each of these commands notes in the client's state that it has told its caller, after it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_async.errors import FslError
from parties.commands.client_options import (
    AS_ITS_FILE_SAYS,
    ClientFlag,
    Connecting,
    WaitNextFlag,
    rows_from,
    told_what_it_waits_for,
    updates_from,
)
from parties.commands.report import Report, reported

if TYPE_CHECKING:
    from parties.client.client import Client
    from parties.outcome import ClientOutcome, SubmissionReceipt


AT_ONCE_SECONDS = 2.0
"""A server that knows how a round ended says so at once."""

ROWS_SHOWN = 20
"""Of a union, in a text for people."""


@reported("submit")
async def submit(
    report: Report,
    config: ClientFlag,
    *,
    update: Path,
    wait: bool = False,
    wait_next: WaitNextFlag = False,
    again: bool = False,
    connecting: Connecting = AS_ITS_FILE_SAYS,
) -> None:
    """Add an update to the open round's sum.

    If an earlier `submit` of the same update was killed before it reported a result, this one finishes that submission
    and reports on it; it submits nothing twice.

    Parameters
    ----------
    update:
        An .npz file, with the arrays NAME.rows and NAME.values for a sparse block, and NAME for a dense block. Integers
        are numbers like floats; values that are already elements of the ring go into NAME.elements instead. A file
        without arrays submits zeros, which the servers cannot tell from another update. Submit that if the retrieved
        rows are implausible, because not submitting at all would reveal something about those rows.
    wait:
        Wait until the round has ended, and report whether the update was counted.
    again:
        Submit the update although an earlier one with exactly its values may be in a sum (exit code 8). The difference
        of the two sums may show them.
    """
    from parties.files.models import load_model

    arrays = load_model(update)
    async with connecting.client(config) as client:
        updates = updates_from(client.task, arrays)
        submission = partial(client.submit, updates, wait=wait_next, again=again)
        await _submit_once(report, client, client.mark(updates), submission, wait=wait)


@reported("unite")
async def unite(
    report: Report,
    config: ClientFlag,
    *,
    block: str,
    rows: str,
    wait: bool = False,
    wait_next: WaitNextFlag = False,
    connecting: Connecting = AS_ITS_FILE_SAYS,
) -> None:
    """Take part in finding the union of all clients' rows, in a task with protocol = "psu" or alignment = "union".

    Parameters
    ----------
    block:
        The name of the sparse block.
    rows:
        The rows, such as 3,17,99; or @FILE with a JSON list of them.
    wait:
        Wait until the round has ended, report whether the rows were counted, and print the union: in the text its first
        rows, with --format json all of them.
    """
    chosen = {block: rows_from(rows)}
    async with connecting.client(config) as client:
        await _submit_once(
            report,
            client,
            client.mark_of_rows(chosen),
            partial(client.unite, chosen, wait=wait_next),
            wait=wait,
            completed=partial(_with_union, report, client),
        )


@reported("resume")
async def resume(report: Report, config: ClientFlag, *, connecting: Connecting = AS_ITS_FILE_SAYS) -> None:
    """Finish the submission that an earlier command began, with the same bytes, and report on it."""
    from fsl_async.errors import MisuseError

    async with connecting.client(config) as client:
        if client.unreported is None:
            raise MisuseError("no submission is pending: there is nothing to resume")
        async with told_what_it_waits_for(report), _told_ends(report, client):
            end = await _finished(client, wait=False)
        end.tell(report, resumed=True)
        await client.mark_reported()


@reported("outcome")
async def outcome(report: Report, config: ClientFlag, *, connecting: Connecting = AS_ITS_FILE_SAYS) -> None:
    """Wait until the round of the last submission has ended, and report whether it was counted."""
    async with connecting.client(config) as client:
        async with told_what_it_waits_for(report):
            ended = await client.outcome()
        text, result = _counted(ended)
        report.result(f"round {ended.number}: {text}", {"round": ended.number, **result})
        await client.mark_reported()


@dataclass(frozen=True)
class _End:
    """What is known of a submission when its command ends.

    Attributes:
        number: its round.
        digest: what receipts call it.
        bytes_sent: for it, now.
        ended: how its round ended, where that is known.
        left_out: by block, the rows that it could not carry; see `SubmissionReceipt`.
        union: by block, the union that the round has found, where it was asked for.
    """

    number: int
    digest: bytes
    bytes_sent: int
    ended: ClientOutcome | None
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict)
    union: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def tell(self, report: Report, *, resumed: bool, **more: Any) -> None:
        """The command's result."""
        report.result(
            self.text(resumed=resumed),
            {
                "round": self.number,
                "digest": self.digest.hex(),
                "bytes_sent": self.bytes_sent,
                "resumed": resumed,
                "left_out": {block: list(rows) for block, rows in self.left_out.items()},
                **(_counted(self.ended)[1] if self.ended else {}),
                **({"union": {block: list(rows) for block, rows in self.union.items()}} if self.union else {}),
                **more,
            },
        )

    def text(self, *, resumed: bool) -> str:
        """The same for people."""
        name = f"submission {self.digest.hex()[:16]}…"
        before = ", which an earlier command began" if resumed else ""
        before += f"; left out of it: {dict(self.left_out)}" if self.left_out else ""
        if self.ended is None:
            return f"round {self.number}: both servers hold {name}{before}"
        found = "".join(f"\n{block}: {_listed(rows)}" for block, rows in self.union.items())
        return f"round {self.number}: {name}{before}; {_counted(self.ended)[0]}{found}"


async def _as_it_is(end: _End) -> _End:
    return end


async def _with_union(report: Report, client: Client, end: _End) -> _End:
    """The end of a submission, with the union that its round has found, if that is known."""
    if end.ended is None or not end.ended.counted:
        return end
    try:
        found = await client.union()
    except FslError as error:
        report.progress(f"fsl-async {report.command}: the rows are counted, but the union cannot be read: {error}")
        return end
    return replace(end, union={block: rows.tolist() for block, rows in found.items()})


def _listed(rows: Sequence[int]) -> str:
    """A union for people: how many rows, and the first of them."""
    first = ", ".join(str(row) for row in rows[:ROWS_SHOWN])
    return f"{len(rows):,} rows: {first}{', …' if len(rows) > ROWS_SHOWN else ''}"


async def _submit_once(
    report: Report,
    client: Client,
    mark: bytes,
    submission: Callable[[], Awaitable[SubmissionReceipt]],
    *,
    wait: bool,
    completed: Callable[[_End], Awaitable[_End]] = _as_it_is,
) -> None:
    """Submit, unless an earlier command has submitted the same and could not tell; then tell in its place."""
    async with told_what_it_waits_for(report), _told_ends(report, client):
        unreported = client.unreported
        more: dict[str, Any] = {}
        if unreported is not None and unreported.mark != mark:
            more = {"earlier": await _tell_of_another(report, client)}
        resumed = unreported is not None and unreported.mark == mark
        if resumed:
            end = await _finished(client, wait=wait)
        else:
            receipt = await (_in_some_round(report, submission) if wait else submission())
            ended = await client.outcome() if wait else None
            end = _End(receipt.number, receipt.digest, receipt.bytes_sent, ended, receipt.left_out)
        end = await completed(end)
    if (spent := client.privacy_spent) is not None:
        next_one = {"next_epsilon": spent.next_epsilon, "budget": spent.budget, "delta": spent.delta}
        more["privacy"] = {"rounds": spent.rounds, "epsilon": spent.epsilon, **next_one}
        report.progress(
            f"fsl-async {report.command}: {spent.rounds} rounds have spent ε = {spent.epsilon:.4g} of this client's "
            f"privacy budget of {spent.budget:g}; the next submission would make it {spent.next_epsilon:.4g}"
        )
    end.tell(report, resumed=resumed, **more)
    await client.mark_reported()


@asynccontextmanager
async def _told_ends(report: Report, client: Client) -> AsyncIterator[None]:
    """Note an end that is an error as told, after it was; what may be another error next time is asked for again."""
    from parties.errors import (
        OtherCountedError,
        OutcomesDifferError,
        OutcomeUnknownError,
        RoundClosedError,
        SumRefusedError,
    )

    try:
        yield
    except (OtherCountedError, OutcomeUnknownError, OutcomesDifferError, RoundClosedError, SumRefusedError) as error:
        report.failure(error)
        await client.mark_reported()
        raise


async def _tell_of_another(report: Report, client: Client) -> dict[str, Any]:
    """Before another update is submitted: finish the one that an earlier command began, and tell of it."""
    last = client.unreported
    assert last is not None  # noqa: S101 - the caller has looked
    told: dict[str, Any] = {"round": last.config.number, "digest": last.digest.hex()}
    try:
        end = await _finished(client, wait=False)
        text = end.text(resumed=True)
        told |= _counted(end.ended)[1] if end.ended else {}
    except FslError as error:
        if client.pending:
            raise
        text = str(error)
        told |= {"error": text}
    report.progress(f"fsl-async {report.command}: an earlier update was submitted first: {text}")
    await client.mark_reported()
    return told


async def _in_some_round(report: Report, submission: Callable[[], Awaitable[SubmissionReceipt]]) -> SubmissionReceipt:
    """Submit, in the next round where one closes first: nothing of the update counts in that one, then."""
    from parties.errors import RoundClosedError

    while True:
        try:
            return await submission()
        except RoundClosedError as closed:
            report.progress(f"fsl-async {report.command}: {closed}; going on with the next round")


async def _finished(client: Client, *, wait: bool) -> _End:
    """Finish the submission of an earlier command: both receipts, or how its round ended.

    Raises:
        FslError: it cannot be finished now, or what became of it cannot be learnt.
    """
    from parties.errors import RoundClosedError

    last, before = client.unreported, client.bytes_sent
    assert last is not None  # noqa: S101 - the caller has looked
    left_out: Mapping[str, Sequence[int]] = {}
    if client.pending:
        with suppress(RoundClosedError):  # its outcome, which both servers have signed, says so too
            left_out = (await client.resume()).left_out
    ended = await (client.outcome() if wait else _outcome_so_far(client))
    return _End(last.config.number, last.digest, client.bytes_sent - before, ended, left_out)


async def _outcome_so_far(client: Client) -> ClientOutcome | None:
    """How the last submission's round ended; None where it has not."""
    import trio

    with trio.move_on_after(AT_ONCE_SECONDS):
        return await client.outcome()
    return None


def _counted(ended: ClientOutcome) -> tuple[str, dict[str, Any]]:
    text = "counted" if ended.counted else f"not counted: {ended.reason}"
    named = {"names": list(ended.names)} if ended.names else {}
    opened = (
        {"opened_rows": {name: rows.tolist() for name, rows in ended.opened_rows.items()}} if ended.opened_rows else {}
    )
    return text, {"counted": ended.counted, "reason": ended.reason, "participants": ended.participants} | named | opened
