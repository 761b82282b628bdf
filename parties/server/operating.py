"""A server as the program that runs it sees it, and its operator: its status, and when its rounds are drawn and end.

Rules: a round that could not reach its sum is not closed before its time, because that would abort it; the other server
follows when it hears this one's list, as it does at a deadline. What is answered is recorded: a server that is killed
after its answer has closed the round, and one that is asked again says the same of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import assert_never

import trio

from fsl_async.errors import FslError, MisuseError
from fsl_async.foreign_text import printable
from fsl_async.protocols.ending import CloseRound, GaveUp
from fsl_async.protocols.sampling import Gathering
from parties.errors import SumRefusedError
from parties.outcome import Aborted, Done, Model, RoundOutcome, RoundReport, SumRefused
from parties.server.admission import Enrolment
from parties.server.evidence import EvidenceBook
from parties.server.history import SumOf
from parties.server.inbox import Inbox
from parties.server.message_tap import MessageTap
from parties.server.peer.forwarding import longest_peer_message
from parties.server.peer.link import PeerLink
from parties.server.peer.listening import PeerInbox
from parties.server.peer.meeting import PeerAgreement
from parties.server.records import ServerRecords
from parties.server.round.drawing import SampleRun
from parties.server.round.run import RoundRun
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds, Running, Sampling
from parties.server.setup import ServerSetup
from parties.status import Fingerprints, PastRound, ServerStatus


class OperatedServer:
    """What a server is made of, and what its operator asks of it.

    Args:
        setup: what it is made of.
        tap: hears of every message to and from the other server.

    Attributes:
        records: what it keeps beyond a round.
        inbox: takes what is to change a round.
        rounds: its rounds.
        peer_inbox: brings what the other server says to the inbox.
        link: the connection to the other server.
        agreement: what it makes of the other server while they are connected.
        sequence: moves its rounds on.
        visitors: how many clients are connected.
        tap: hears of every message, and counts bytes.
    """

    def __init__(self, setup: ServerSetup, tap: MessageTap) -> None:
        self.setup = setup
        self.records, self.inbox = ServerRecords(setup), Inbox()
        self.rounds = Rounds(setup.peer_name, self.records.past)
        self.peer_inbox = PeerInbox(setup, self.inbox, self.rounds, self.enrolment)
        self.link = PeerLink(setup.peer_name, longest_peer_message(setup.task), self.peer_inbox, tap)
        self.agreement = PeerAgreement(setup.name, self.link, setup.observe)
        self.sequence = RoundSequence(setup, self.records, self.rounds, self.link, self.inbox)
        self.visitors = 0
        self.tap = tap

    # ---- what it is

    @property
    def model(self) -> Model:
        """The model as it stands."""
        return self.sequence.lasting.arrays.model

    @property
    def rule_state(self) -> Model:
        """What the task's optimizer or own rule keeps beside the model; empty where that is nothing."""
        return self.sequence.lasting.arrays.state

    @property
    def last_sum(self) -> tuple[SumOf, Model] | None:
        """The sum of the last round that was done, and whose it is; None without one, or if the setup keeps none."""
        whose = self.sequence.lasting.progress.sum_of
        return None if whose is None else (whose, self.sequence.lasting.arrays.update)

    @property
    def enrolment(self) -> Enrolment:
        """The clients that it knows."""
        return self.records.enrolment

    @property
    def evidence(self) -> EvidenceBook:
        """What it saw against the protocol."""
        return self.records.evidence

    # ---- its rounds

    @property
    def running(self) -> RoundRun | None:
        """The round that is on; none between rounds."""
        return self.rounds.running

    async def next_round(self, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`."""
        return await self.rounds.next_round(after)

    async def close_round(self) -> RoundOutcome:
        """Close the open round now and wait for its sum.

        Raises:
            FslError: the round was aborted, or its sum refused; the message says why.
        """
        run = await self.next_round(0)
        await self.inbox.post(run.round_id, CloseRound())
        return await self.settled_outcome(run)

    def draw(self) -> None:
        """In a task with a sample: gather no longer, and draw of those that have asked, as soon as they are enough.

        Raises:
            MisuseError: nobody is to be drawn now.
        """
        self._drawing().hurry()

    def asked_clients(self) -> frozenset[str]:
        """Who has asked to take part in the round that is to be drawn.

        Raises:
            MisuseError: nobody is to be drawn now.
        """
        return self.rounds.waiting.of(self._drawing().number)

    def has_enough_asked(self) -> bool:
        """Whether so many have asked that a sample of them can be summed; raises as `asked_clients`."""
        return self._drawing().terms.are_enough(len(self.asked_clients()))

    def check_drawable(self) -> int:
        """How many clients have asked, if that is enough and they are not listed yet.

        Raises:
            MisuseError: it is not, or nobody is to be drawn now.
        """
        name, sample = self.setup.name, self._drawing()
        asked, terms = len(self.asked_clients()), sample.terms
        if not isinstance(sample.state, Gathering):
            raise MisuseError(f"nobody is to be drawn now at {name}: {self.rounds.state_name()}")
        if not terms.are_enough(asked):
            raise MisuseError(
                f"too few clients have asked {name} to take part in round {sample.number}: a sample={terms.sample!r} "
                f"of {asked} has fewer than the {terms.minimum} needed"
            )
        return asked

    def _drawing(self) -> SampleRun:
        """The draw that is on.

        Raises:
            MisuseError: nobody is to be drawn now.
        """
        match self.rounds.stage:
            case Sampling(sample=sample):
                return sample
            case Running(sample=None):
                why = "everybody takes part in this task"
            case _:
                why = self.rounds.state_name()
        raise MisuseError(f"nobody is to be drawn now at {self.setup.name}: {why}")

    def draw_round(self, number: int) -> int:
        """End the gathering for a round, and draw of those that have asked; the other server follows.

        Returns:
            How many clients have asked this server.

        Raises:
            MisuseError: nobody is to be drawn for a round of that number now, or too few have asked.
        """
        if number != self.rounds.number:
            raise MisuseError(
                f"nobody is to be drawn for round {number} now; {self.setup.name} is at: {self.state_name()}"
            )
        asked = self.check_drawable()
        self.draw()
        return asked

    async def close_now(self, number: int) -> int:
        """Close the open round with those who have submitted; the other server follows. Nothing waits for its sum.

        Returns:
            How many submissions this server has; those that the other one has as well can count.

        Raises:
            MisuseError: no round of that number is open or has been closed, too few have submitted, or the other server
                is not connected.
        """
        run = self.running
        if run is not None and run.config.number == number and run.is_open:
            self._check_closable(run)
            await self.inbox.post(run.round_id, CloseRound())
            await self.inbox.all_taken()
            if run.is_open:
                name = self.setup.name
                raise MisuseError(f"{name} ends before it has closed round {number}: ask again when it is back")
        return self._submissions_of_closed(number)

    def _check_closable(self, run: RoundRun) -> None:
        number, submissions, needed = run.config.number, run.status().submissions, run.config.task.quorum
        if submissions < needed:
            raise MisuseError(
                f"round {number} has {submissions} of the {needed} submissions that it needs at {self.setup.name}: "
                "closed now, it would be aborted; wait for more, or abort it"
            )
        if not self.link.connected:
            raise MisuseError(
                f"{self.link.peer} is not connected to {self.setup.name}: closed now, round {number} would "
                f"wait for it and then be aborted; close it when {self.link.peer} is back"
            )

    def _submissions_of_closed(self, number: int) -> int:
        """How many submissions a round has that is closed by now, by this call or before it.

        Raises:
            MisuseError: it was aborted, is too long ago to be known, or is yet to come.
        """
        run = self.running
        if run is not None and run.config.number == number:
            return run.status().submissions
        for past in self.rounds.past:
            match past.report.number, past.report.ending:
                case over, Aborted(explanation=explanation) if over == number:
                    raise MisuseError(f"round {number} was aborted: {explanation}")
                case over, _ if over == number:
                    return len(past.report.clients) + len(past.report.excluded)
        raise MisuseError(f"round {number} is not open; {self.setup.name} is at: {self.state_name()}")

    async def settled_outcome(self, run: RoundRun) -> RoundOutcome:
        """Wait for a round's sum.

        Raises:
            SumRefusedError: its sum was opened, and not applied.
            FslError: the round was aborted; the message says why.
        """
        report = await self.rounds.until_settled(run)
        match report.ending:
            case Done():
                return run.driver.outcome()
            case Aborted(explanation=explanation):
                raise FslError(f"round {report.number} was aborted: {explanation}")
            case SumRefused(explanation=explanation):
                raise SumRefusedError(report.number, explanation)
            case _:
                assert_never(report.ending)

    async def settlements(self, after: int | None = None) -> AsyncGenerator[RoundReport, None]:
        """The report of each round settled since this server was started; ends with the schedule's last.

        Args:
            after: of each later than this instead, as far as this server remembers.
        """
        rounds, number = self.rounds, self.sequence.settled_before if after is None else after
        while not (self.setup.schedule.rounds and number >= self.setup.schedule.rounds):
            fresh = [past.report for past in rounds.past if past.report.number > number]
            if not fresh:
                await rounds.settled.wait()
                continue
            number = fresh[0].number
            yield fresh[0]

    async def abort_round(self, number: int, explanation: str) -> RoundReport:
        """Abort the running round, and wait until it is over.

        Raises:
            MisuseError: no round of that number is running, or it cannot be aborted any more.
        """
        run = self.running
        if run is None or run.config.number != number:
            raise MisuseError(f"round {number} is not running; {self.setup.name} is at: {self.state_name()}")
        if not run.accepts(GaveUp):
            bound = (
                "both servers have closed it"
                if run.config.protocol == "psr"
                else "both servers may have committed to their shares, and a server that has committed cannot abandon "
                "the round"
            )
            raise MisuseError(
                f"round {number} is in state {type(run.state).__name__}: {bound}; it ends when both are connected"
            )
        await self.inbox.post(run.round_id, GaveUp(printable(explanation)))
        return await self.rounds.until_settled(run)

    async def wind_up(self, seconds: float) -> str:
        """Open no further round, and wait at most so many seconds for the one that is on its way to its sum.

        A round that still waits for clients, or is not over by then, is parked: it resumes when the server is started
        again with the same store. The other server hears that this one stops.

        Returns:
            What the server was doing at the end, for people.
        """
        self.sequence.wind_up()
        run = self.running
        if run is not None and not run.is_open:
            with trio.move_on_after(seconds):
                await self.rounds.until_settled(run)
        await self.link.flush()
        return self.state_name()

    def state_name(self) -> str:
        """What the server is doing, for people."""
        held_up = self.records.standstill.what
        return self.rounds.state_name() + (f"; held up by {held_up}" if held_up else "")

    def _waiting_for(self) -> str:
        state, since = self.state_name(), self.peer_inbox.stops_since
        moment = "" if since is None else datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        return f"{state}; {self.link.peer} stops as planned, since {moment}" if moment else state

    def status(self) -> ServerStatus:
        """How the server stands, for people."""
        run, progress, standstill = self.running, self.sequence.lasting.progress, self.records.standstill
        return ServerStatus(
            server=self.setup.name,
            task=self.setup.task.name,
            fingerprints=self._fingerprints(),
            peer_connected=self.link.connected,
            peer_release=printable(self.agreement.peer_release),
            peer_away_since=self.peer_inbox.away_since,
            peer_stops_since=self.peer_inbox.stops_since,
            held_up=standstill.what,
            held_up_since=self.setup.clock() - standstill.present_seconds if standstill.what else None,
            clients_connected=self.visitors,
            clients_known=len(self.enrolment.names()),
            stage=self.rounds.stage.name,
            asked=len(self.rounds.waiting.of(self.rounds.number)),
            number=self.rounds.number,
            last=self.rounds.past[-1].summary() if self.rounds.past else None,
            round=None if run is None else run.status(),
            waiting_for=self._waiting_for(),
            rounds_done=progress.done,
            rounds_aborted=progress.aborted,
            notes=self.records.ledger.notes(),
            blobs=None if self.setup.blobs is None else self.records.blobs.status(),
            engine=self.sequence.engine.status(),
        )

    def _fingerprints(self) -> Fingerprints:
        own, peer = self.setup.identity.public.statement, self.setup.peer.statement
        keys = (own, peer) if self.setup.index == 0 else (peer, own)
        return Fingerprints.of(self.setup.task.digest(), self.sequence.lasting.model_digest, keys)

    def known_clients(self) -> tuple[str, ...]:
        """The names of the clients that may take part, sorted."""
        return self.enrolment.names()

    def submitted_clients(self) -> frozenset[str]:
        """The clients whose submission is on the running round's list; nobody where no round runs."""
        return frozenset() if self.running is None else self.running.driver.submitters()

    def drawn_clients(self) -> frozenset[str] | None:
        """The clients that were drawn for the running round; None where everybody may take part, or no round runs."""
        return None if self.running is None else self.running.start.drawn

    async def past_rounds(self, most: int = 200, before: int | None = None) -> list[PastRound]:
        """The last rounds that are over, in order.

        Args:
            most: at most so many.
            before: only rounds with a smaller number than this, if it is given.
        """
        settled = self.sequence.lasting.settled
        return await self.records.past.last(settled if before is None else min(settled, before - 1), most)
