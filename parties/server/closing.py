"""Closing a round because its operator says so, before its time and before all clients have submitted.

Rules: a round that could not reach its sum is not closed, because that would abort it; the other server follows when it
hears this one's list, as it does at a deadline. What is answered is recorded: a server that is killed after its answer
has closed the round, and one that is asked again says the same of it.
"""

from __future__ import annotations

from fsl_async.errors import MisuseError
from fsl_async.protocols.ending import CloseRound
from parties.outcome import Aborted
from parties.server.inbox import Inbox
from parties.server.peer.link import PeerLink
from parties.server.round.run import RoundRun
from parties.server.rounds import Rounds

__all__ = ["close_now"]


async def close_now(name: str, rounds: Rounds, inbox: Inbox, link: PeerLink, number: int) -> int:
    """Close the open round, and wait until this server has recorded it; see `Server.close_now`.

    Raises:
        MisuseError: it cannot be closed.
    """
    run = rounds.running
    if run is not None and run.config.number == number and run.is_open:
        _check_closable(name, link, run)
        await inbox.post(run.round_id, CloseRound())
        await inbox.all_taken()
        if run.is_open:
            raise MisuseError(f"{name} ends before it has closed round {number}: ask again when it is back")
    return _submissions_of_closed(name, rounds, number)


def _check_closable(name: str, link: PeerLink, run: RoundRun) -> None:
    number, submissions, needed = run.config.number, run.status().submissions, run.config.task.quorum
    if submissions < needed:
        raise MisuseError(
            f"round {number} has {submissions} of the {needed} submissions that it needs at {name}: closed now, it "
            "would be aborted; wait for more, or abort it"
        )
    if not link.connected:
        raise MisuseError(
            f"{link.peer} is not connected to {name}: closed now, round {number} would wait for it and then be "
            f"aborted; close it when {link.peer} is back"
        )


def _submissions_of_closed(name: str, rounds: Rounds, number: int) -> int:
    """How many submissions a round has that is closed by now, by this call or before it.

    Raises:
        MisuseError: it was aborted, is too long ago to be known, or is yet to come.
    """
    run = rounds.running
    if run is not None and run.config.number == number:
        return run.status().submissions
    for past in rounds.past:
        match past.report.number, past.report.ending:
            case over, Aborted(explanation=explanation) if over == number:
                raise MisuseError(f"round {number} was aborted: {explanation}")
            case over, _ if over == number:
                return len(past.report.clients) + len(past.report.excluded)
    raise MisuseError(f"round {number} is not open; {name} is at: {rounds.state_name()}")
