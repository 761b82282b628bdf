"""How one round of a server follows another: toss, open, settle, next.

Only the actor (see `parties.server.actor`) moves the sequence on. A settled round is one commit, so that the model, the
round's account and the number of the next one never disagree. A server that is started again with the same store
continues where it was.
"""

from __future__ import annotations

from functools import partial

import msgspec
import trio

from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.ending import GaveUp
from fsl_async.protocols.reconciliation import known_at_rest, known_of_round, known_of_sampling, known_of_toss
from fsl_async.wire.messages import Abort, AskedList, Conclusion, Known, TossCommitment, TossReveal
from parties.events import ClientsDrawn, Resumed, RoundOpened, RoundSettled, Warned
from parties.outcome import Aborted
from parties.server.inbox import Gathered, Inbox
from parties.server.lasting_state import LastingState
from parties.server.peer.link import PeerLink
from parties.server.records import ServerRecords
from parties.server.replies import farewell
from parties.server.round.accumulation import InProcess
from parties.server.round.drawing import SampleRun
from parties.server.round.engine import RoundStart
from parties.server.round.own_rule import own_rule
from parties.server.round.records import RoundRecords, round_bytes
from parties.server.round.run import RoundRun
from parties.server.round.services import RoundServices
from parties.server.round.toss import TossRun
from parties.server.rounds import ROUNDS_REMEMBERED, Resting, Rounds, Running, Sampling, Tossing
from parties.server.setup import ServerSetup
from parties.server.store_layout import round_prefix
from parties.status import PastRound

REPAIRED_WITHIN = 300.0
"""Seconds for which the end of a round waits until what sessions keep of it is put back, where it is damaged."""


class RoundSequence:
    """The rounds of one server.

    Args:
        setup: what the server is made of.
        records: what the server keeps beyond a round.
        rounds: where the server's tasks see what it is doing.
        link: the connection to the peer.
        inbox: brings a round's own events to the actor, and that who has asked for it is to be listed.

    Attributes:
        lasting: what the server holds from round to round.
        settled_before: the last round that was settled when the server was started.
        engine: computes the rounds' sums and answers.
    """

    def __init__(
        self,
        setup: ServerSetup,
        records: ServerRecords,
        rounds: Rounds,
        link: PeerLink,
        inbox: Inbox,
    ) -> None:
        self.lasting = LastingState(setup)
        self._rule = own_rule(setup.task, setup.apply)
        self.settled_before = 0
        self._setup = setup
        self._records = records
        self._rounds = rounds
        self._link = link
        self._inbox = inbox
        self.engine = InProcess(setup.lane) if setup.engine is None else setup.engine
        self._last_toss: TossRun | None = None
        self._last_sample: SampleRun | None = None
        self._is_winding_up = False

    @property
    def number(self) -> int:
        """The round that is on, that is tossed for, or that comes next."""
        return self.lasting.settled + 1

    async def restore(self) -> None:
        """Read back how far the server has got.

        Raises:
            StorageError: it cannot be read, or is another server's or another task's.
        """
        past = self._records.past
        await self.lasting.restore(self._records.store)
        self.settled_before = self.lasting.settled
        if await past.is_restored(self.settled_before):
            await self._records.ledger.charge_forgotten(self.number)
        await past.sweep(self.lasting.settled, self._setup.schedule.retention)
        await self._sweep_bulk(self.lasting.settled)
        self._rounds.remember(*await past.last(self.lasting.settled, ROUNDS_REMEMBERED))
        self._rounds.found = self.lasting.found_union(None)

    async def begin(self, nursery: trio.Nursery) -> None:
        """Continue where the store has it; rounds run in a nursery that ends with the server."""
        self._nursery = nursery
        setup, store = self._setup, self._records.store
        self._last_toss = await TossRun.last(store, self._link)
        self._last_sample = await SampleRun.last(setup.task, setup.index, store, self._link)
        await self._begin_next()
        await self.move_on()

    def wind_up(self) -> None:
        """Open no further round, and let the other server not miss this one for a while."""
        self._is_winding_up = True
        self._link.post(farewell("busy", self._link.peer, f"{self._setup.name} stops, as its operator wants"))

    async def move_on(self) -> None:
        """When a round is settled, begin the next."""
        while isinstance(stage := self._rounds.stage, Running) and stage.run.settled.is_set():
            await self._settle(stage)
            await self._begin_next()

    async def take_toss(self, message: TossCommitment | TossReveal) -> None:
        """Take what the peer says in a toss.

        Raises:
            PeerViolationError: it is of a round that is neither the present one nor the last.
        """
        number, peer = self.number, self._setup.peer_name
        if isinstance(message, TossReveal) and message.past and message.number < number:
            return  # we know how that round ended, and the peer will hear it from us
        if message.number < number - 1:
            raise PeerViolationError(
                peer,
                f"tosses for round {message.number} while round {number} is on: it has lost its store, or was given an "
                "older copy; no two servers can go on from there",
            )
        if message.number > number:
            raise PeerViolationError(
                peer,
                f"tosses for round {message.number} while round {number} is not settled here; unless it is ahead for "
                f"no reason, the store of {self._setup.name} itself is lost or an older copy: look at that first",
            )
        for toss in (self._last_toss, self._toss):
            if toss is not None and toss.number == message.number:  # the last one's: a repeat, or a contradiction
                await toss.take(message)
        if isinstance(self._rounds.stage, Tossing):
            await self._open_if_tossed(self._rounds.stage.toss)

    async def take_asked(self, message: AskedList, bulk: memoryview) -> None:
        """Take who has asked the peer to take part in a round.

        Raises:
            PeerViolationError: the round is neither the present one nor the last, or is not tossed for.
        """
        if message.past and message.number < self.number:
            return  # as in a toss
        for sample in (self._last_sample, self._sample):
            if sample is not None and sample.number == message.number:
                await sample.take(message, bulk)
                break
        else:
            raise PeerViolationError(
                self._setup.peer_name,
                f"says who asked for round {message.number}, while {self._rounds.state_name()} here",
            )
        await self._open_if_drawn()

    async def freeze(self, number: int) -> None:
        """List who has asked for a round, if it is still to be drawn."""
        if isinstance(stage := self._rounds.stage, Sampling) and stage.sample.number == number:
            await stage.sample.freeze(frozenset() if await self._gives_up() else self._rounds.waiting.of(number))
            await self._open_if_drawn()

    def check_known(self, round_id: bytes) -> None:
        """Check that a round that is not on is a past one: the peer's configurations are ours, byte for byte.

        Raises:
            PeerViolationError: it is unknown here.
        """
        if not self._rounds.is_past(round_id):
            raise PeerViolationError(
                self._setup.peer_name,
                f"speaks of a round {round_id.hex()[:16]} that is unknown here while round {self.number} is on: "
                "its configuration is not ours; compare both servers' task files and models, and ask whether one of "
                "them has lost its store",
            )

    def resend(self) -> None:
        """Say again what the peer may lack: that the last round was tossed and how it ended, and all of the present."""
        if self._last_toss is not None:
            self._last_toss.resend_past()
        if self._last_sample is not None:
            self._last_sample.resend_past()
        for past in self._rounds.past[-1:]:
            self._link.post(_last_words(past))
        if self._toss is not None:
            self._toss.resend()
        if self._sample is not None:
            self._sample.resend()
        if self._rounds.running is not None:
            self._rounds.running.meet()
        if self._is_winding_up:
            self.wind_up()

    def known(self) -> Known:
        """What this server knows, for when the servers meet."""
        toss, draw, run = self._toss, self._sample, self._rounds.running
        if toss is None:
            found = known_at_rest()
        else:
            found = known_of_toss(toss.state) if draw is None else known_of_sampling(toss.state, draw.state)
            found = found if run is None else known_of_round(found, run.state, run.round_id)
        for past in self._rounds.past[-1:]:
            aborted = isinstance(past.report.ending, Aborted)
            found = msgspec.structs.replace(found, last=past.report.round_id, aborted=aborted)
        return msgspec.structs.replace(found, settled=self.lasting.settled, release=self._setup.release)

    # ---- toss

    @property
    def _toss(self) -> TossRun | None:
        """Of the present round."""
        return None if isinstance(self._rounds.stage, Resting) else self._rounds.stage.toss

    @property
    def _sample(self) -> SampleRun | None:
        """Of the present round."""
        return self._rounds.stage.sample if isinstance(self._rounds.stage, Sampling | Running) else None

    async def _begin_next(self) -> None:
        """Toss for the round after the last settled one, or continue with it."""
        setup, last = self._setup, self._setup.schedule.rounds
        if self._is_winding_up or (last and self.number > last):
            self._rounds.stage = Resting(self.lasting.settled)
            return
        if (spent := self._records.ledger.refusal(self.number)) and not await self._records.past.has_begun(self.number):
            self._rounds.stage = Resting(self.lasting.settled, spent)
            setup.observe(Warned(about="privacy", explanation=spent))
            return
        toss = await TossRun.begin(
            setup.index, self.number, self.lasting.model_digest, setup.randomness, self._records.store, self._link
        )
        self._rounds.stage = Tossing(toss)
        await self._open_if_tossed(toss)

    # ---- open

    async def _open_if_tossed(self, toss: TossRun) -> None:
        match toss.state:
            case tossing.Tossed() as tossed if self._setup.task.sample is None:
                await self._open(toss, tossed, None)
            case tossing.Tossed() as tossed:
                sample = await SampleRun.begin(self._setup.task, tossed, self._records.store, self._link)
                self._rounds.stage = Sampling(toss, sample)
                self._nursery.start_soon(self._gather, sample)
                await self._open_if_drawn()

    async def _gather(self, sample: SampleRun) -> None:
        """Wait until who has asked is to be listed; a list that the peer has sent meanwhile is answered."""
        waiting, enrolment = self._rounds.waiting, self._records.enrolment
        schedule = self._setup.schedule
        if await self._gives_up() or await sample.wait_ready(waiting, lambda: enrolment.everybody, schedule):
            await self._inbox.put(Gathered(sample.number))

    async def _open_if_drawn(self) -> None:
        """Open the round, once it is known who takes part."""
        match self._rounds.stage:
            case Sampling(toss=TossRun(state=tossing.Tossed() as tossed) as toss, sample=sample) if sample.draw():
                await self._open(toss, tossed, sample)

    async def _open(self, toss: TossRun, tossed: tossing.Tossed, sample: SampleRun | None) -> None:
        start = await self.start_of(tossed, sample)
        run: RoundRun = await self._nursery.start(self._live, start)
        self._rounds.stage = Running(toss, sample, run)
        if sample is not None and (too_few := sample.explanation()):  # it opens for nobody, and nobody is told
            await self._give_up_restored(run)
            if run.accepts(GaveUp):
                await run.take(GaveUp(too_few))
            return
        await self._warn_without_room(run)
        if run.config.sample is not None:
            drawn = run.config.sample
            self._setup.observe(ClientsDrawn(number=toss.number, asked=drawn.asked, drawn=drawn.size))
        self._setup.observe(
            RoundOpened(
                number=toss.number, round_id=run.round_id, protocol=run.config.protocol, closes_at=start.closes_at
            )
        )
        await self._give_up_restored(run)
        if not run.is_open or run.status().submissions:
            self._setup.observe(Resumed(number=toss.number, state=type(run.state).__name__))
        self._rounds.opened.set()

    async def start_of(self, tossed: tossing.Tossed, sample: SampleRun | None) -> RoundStart:
        """What the round begins with that this toss opens, with those that were drawn for it."""
        setup, arrays = self._setup, self.lasting.arrays
        config = self.lasting.configuration(tossed, None if sample is None else sample.draw())
        drawn = None if sample is None else sample.drawn()
        opened_at = await self._records.past.opened_at(config.number, setup.clock())
        return RoundStart(
            config=config,
            server=setup.index,
            proof_key=tossed.proof_key,
            model=arrays.model,
            state=arrays.state,
            union=arrays.union,
            opened_at=opened_at,
            closes_at=opened_at + setup.schedule.seconds,
            enough=setup.schedule.enough(drawn),
            drawn=drawn,
        )

    async def _live(self, start: RoundStart, *, task_status: trio.TaskStatus[RoundRun]) -> None:
        """A round's nursery, from its beginning (or a restart) until it is settled."""
        setup, records = self._setup, self._records
        async with trio.open_nursery() as nursery:
            services = RoundServices(
                nursery=nursery,
                lane=setup.lane,
                engine=self.engine,
                evidence=records.evidence,
                ledger=records.ledger,
                known=records.enrolment.__contains__,
                identity=setup.identity,
                randomness=setup.randomness,
                link=self._link,
                report=self._inbox.post,
                observe=setup.observe,
                standstill=records.standstill,
                clock=setup.clock,
                rule=self._rule,
                grace=setup.schedule.grace,
                patience=setup.schedule.patience,
            )
            session_trees = partial(records.sessions.of, start.config)
            of_round = RoundRecords(
                setup.store,
                start.config,
                session_trees,
                own=records.store,
                blobs=records.blobs,
                lane=setup.lane,
                carries=lambda client: start.config.carrier(client) == setup.index,
                observe=setup.observe,
                recent=records.recent,
                loans=0 if self.engine.reads_blobs else setup.loans,
            )
            run = RoundRun(start, of_round, services)
            await run.begin()
            task_status.started(run)
            await run.settled.wait()
            nursery.cancel_scope.cancel()
        run.release()

    async def _warn_without_room(self, run: RoundRun) -> None:
        """Tell the operator in time that a round's submissions may not all be stored."""
        clients = min(run.status().maximum, self._setup.task.max_clients)
        try:
            await self._setup.bulk.check_room(round_bytes(run.config.shape, clients))
            await self._setup.store.check_room(0)
        except StorageError as error:
            what = "clients' retrievals" if run.config.protocol == "psr" else "submissions"
            explanation = f"round {run.config.number} opens without room for {clients} {what}: {error}"
            self._setup.observe(Warned(about="store", explanation=explanation))

    async def _give_up_restored(self, run: RoundRun) -> None:
        """Abort a round that had begun in the copy that became our store: another sum of it may have been opened."""
        if run.accepts(GaveUp) and await self._gives_up():
            await run.take(GaveUp("its store was made of a copy, which does not say what was said since"))

    async def _gives_up(self) -> bool:
        return await self._records.past.gives_up(self.lasting.settled)

    # ---- settle

    async def _settle(self, stage: Running) -> None:
        """Make a round's end last, in one commit."""
        run, setup, records = stage.run, self._setup, self._records
        past = run.past()
        progress, arrays, settling = self.lasting.settling(past, run.driver.opened)
        changes = []
        if setup.task.selection == "fixed":
            deadline = trio.current_time() + REPAIRED_WITHIN
            fetch = partial(run.records.repaired_submission, gives_up=lambda: trio.current_time() >= deadline)
            changes = await records.sessions.settle(run.config.epoch, run.config.protocol, past.report.counted, fetch)
        remembered = [await begun.remembered() for begun in (stage.toss, stage.sample) if begun is not None]
        await records.store.commit(*changes, *settling, *remembered)
        await self._forget_bulk(past.report.number)
        self.lasting.adopt(progress, arrays, past.report)
        self._last_toss, self._last_sample = stage.toss, stage.sample
        self._rounds.remember(past)
        self._rounds.found = self.lasting.found_union(self._rounds.found)
        setup.observe(RoundSettled(past=past))
        self._rounds.settled.set()

    async def _forget_bulk(self, number: int) -> None:
        """Erase the bulk of the round whose records the end of this one has erased, and what was put late before it."""
        forgotten = number - self._setup.schedule.retention
        if self._setup.blobs is not None:  # else it is gone with the records
            for each in range(max(1, forgotten - 1), forgotten + 1):
                await self._records.blobs.erase(f"{round_prefix(each)}/")

    async def _sweep_bulk(self, settled: int) -> None:
        """Erase bulk that no record refers to: of forgotten rounds, and of such as this store knows nothing of."""
        if self._setup.blobs is None:
            return
        kept = {round_prefix(number) for number in range(settled - self._setup.schedule.retention + 1, settled + 1)}
        if await self._records.past.has_begun(settled + 1):
            kept.add(round_prefix(settled + 1))
        for group in await self._records.blobs.groups():
            if group.startswith("round-") and group not in kept:
                await self._records.blobs.erase(f"{group}/")


def _last_words(past: PastRound) -> Conclusion | Abort:
    """What a peer may have missed of a round that is over here."""
    if isinstance(past.report.ending, Aborted):
        return Abort(past.report.round_id, past.report.ending.explanation)
    return Conclusion(past.report.round_id, past.concluded)
