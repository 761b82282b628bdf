"""One round on one server: the machine of `fsl_async.protocols.round`, fed, recorded and obeyed.

Rules: an event is recorded before the new state is adopted, and the state adopted before its effects are performed; a
peer's message that is ahead of us waits its turn; computation happens in tasks of the server's nursery and comes back
as events, so only the server's own task changes the state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import trio

from fsl_async.aggregation import Aggregate, Submission, split_share
from fsl_async.alignment import UnionBlock, describe_union, union_rows
from fsl_async.config import RoundConfig, describe_model
from fsl_async.digests import DIGEST_BYTES, Buffer, Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.messages import Abort, Commitment, Conclusion, Forward, Proofs, RosterList, Share
from fsl_async.protocols import round as protocol
from fsl_async.protocols.machine import Event, UnexpectedEvent, accepted_later
from fsl_async.public_part import share_bytes
from fsl_async.randomness import Randomness
from fsl_async.retrieval import Query, Shelves
from fsl_async.task import Sparse
from parties.allowance import Allowance
from parties.compute import ComputeLane
from parties.desk import ContradictionError, Desk, RequestKey, RequestRefusedError
from parties.evidence import Evidence, EvidenceBook, Kind
from parties.outcome import RoundOutcome, RoundReport
from parties.store import Store

__all__ = ["Held", "Model", "Post", "RoundRun", "SettledRound", "Tools"]

Model: TypeAlias = dict[str, npt.NDArray[Any]]
Post: TypeAlias = Callable[..., None]

QUERIES_PER_PASS = 16


class Tools(msgspec.Struct, frozen=True):
    """What a round needs of its server.

    Attributes:
        nursery: where computation runs.
        lane: how it runs.
        store: what must not be forgotten.
        evidence: what was seen against the protocol.
        randomness: for nonces.
        post: sends a message to the peer.
        report: takes an event of ours to the server's own task.
        grace: seconds to wait for submissions that only the peer holds in full.
    """

    nursery: trio.Nursery
    lane: ComputeLane
    store: Store
    evidence: EvidenceBook
    randomness: Randomness
    post: Post
    report: Callable[[bytes, Event], Awaitable[None]]
    grace: float


@dataclass(frozen=True)
class Held:
    """What the servers hold when a round opens: the model, and by sparse block the union it is aligned on."""

    model: Model
    union: Model


@dataclass(frozen=True)
class SettledRound:
    """A round that is over: its account, and the last words that a peer may have missed. All else is let go."""

    config: RoundConfig
    report: RoundReport
    last_words: protocol.Send


class RoundRun:
    """A round from open to settled.

    Attributes:
        config: the round.
        round_id: its name in every message.
        desk: the clients' requests.
        allowance: how many each of them has made.
        settled: set when the round is done or aborted.
    """

    def __init__(self, config: RoundConfig, server: int, proof_key: bytes, held: Held, tools: Tools) -> None:
        self.config = config
        self.round_id = config.round_id()
        self.terms = protocol.Terms(self.round_id, server, config.task.min_clients, config.task.verified)
        self.desk = Desk(self.terms.peer)
        self.allowance = Allowance()
        self.settled = trio.Event()
        self.model = held.model
        self._union = held.union
        self.forwards: dict[RequestKey, memoryview] = {}
        self._tools = tools
        self._state: protocol.Round = protocol.Open()
        self._early: list[Event] = []
        self._claims: dict[str, bytes] = {}
        self._entered: set[str] = set()
        self._shares: dict[bytes, Buffer] = {}
        self._adder = _Adder(config, partial(Aggregate, config, server, proof_key, held.union), tools.lane)
        self._answerer = _Answerer(config, server, self.table(), tools.lane)
        self._outcome: RoundOutcome | None = None
        self._changed = trio.Event()
        tools.nursery.start_soon(self._adder.work)
        tools.nursery.start_soon(self._answerer.work)

    def table(self) -> Model:
        """The model as this round retrieves it: where rows are renamed, those of the union alone."""
        if not self.config.renamed:
            return self.model
        return {name: _restricted(array, self._union.get(name)) for name, array in self.model.items()}

    @property
    def union(self) -> Model:
        """By sparse block, the union: the one this round found, or the one it is aligned on."""
        return self._union

    @property
    def state(self) -> protocol.Round:
        """The machine's state."""
        return self._state

    @property
    def name(self) -> str:
        """What the store calls this round."""
        return f"round-{self.config.number:08}"

    def admits(self, client: str) -> bool:
        """Whether a submission of this client can still come in."""
        match self._state:
            case protocol.Open():
                return True
            case protocol.Closing(theirs=theirs):
                return client in theirs
            case _:
                return False

    def outcome(self) -> RoundOutcome:
        """The sum of a round that is done."""
        if self._outcome is None:
            raise PeerViolationError(self.terms.peer, f"round {self.config.number} has no sum: it was aborted")
        return self._outcome

    def counted(self) -> list[Submission]:
        """The submissions that were counted; none where the round was aborted."""
        return self._adder.added(self._outcome.clients) if self._outcome is not None else []

    def report(self) -> RoundReport:
        """The public account of a settled round."""
        match self._state:
            case protocol.Aborted(explanation=explanation):
                return RoundReport(
                    round_id=self.round_id,
                    number=self.config.number,
                    aborted=explanation,
                    clients=(),
                    excluded={},
                    model=self.config.model,
                )
            case protocol.Done():
                return self._account()
        raise UnexpectedEvent(self._state, protocol.CloseRound(), protocol.ACCEPTS)

    def settle(self) -> SettledRound:
        """What is kept of a settled round."""
        last_words = [
            effect for effect in protocol.effects(self._state, self.terms) if isinstance(effect, protocol.Send)
        ]
        return SettledRound(self.config, self.report(), last_words[-1])

    def _account(self) -> RoundReport:
        outcome = self.outcome()
        return RoundReport(
            round_id=self.round_id,
            number=self.config.number,
            aborted="",
            clients=outcome.clients,
            excluded=outcome.excluded,
            model=describe_model(self.config.task, self.model),
            union=self.found_union(),
        )

    # ---- what clients cause

    def forward(self, key: RequestKey, part: memoryview) -> None:
        """Send a client's public part to the peer, now and each time the servers meet again."""
        self.forwards[key] = part
        self._post_forward(key)

    def claim(self, client: str, submission: bytes) -> bool:
        """Reserve the client's one place in the round; False if it holds it already, with the same submission.

        Raises:
            RequestRefusedError: its place is taken by another submission of its own, or the round is full.
        """
        known = self._claims.get(client, submission)
        if known != submission:
            explanation = "another submission of yours is in for this round"
            raise ContradictionError("conflict", explanation, "two-contents", known, submission)
        if client in self._claims:
            return False
        if len(self._claims) >= self.config.task.max_clients:
            raise RequestRefusedError.because("limit", f"the round has all of its {len(self._claims)} clients")
        self._claims[client] = submission
        return True

    def add(self, submission: Submission) -> None:
        """Start adding a stored submission to the sum."""
        self._adder.put(submission)

    async def answer(self, query: Query) -> memoryview:
        """Answer a retrieval, together with others that wait at the same time."""
        return await self._answerer.answer(query)

    async def entered(self, client: str) -> bool:
        """Wait until a submission is in the round's list; False if the round closed before."""
        while client not in self._entered:
            if not self.admits(client):
                return False
            await self._changed.wait()
        return True

    # ---- what the server's own task does

    async def take(self, event: Event) -> None:
        """Record an event, adopt the new state, perform what is new in its effects; then whatever had come early.

        Raises:
            PeerViolationError: the peer broke the protocol.
        """
        if type(event) not in protocol.ACCEPTS[type(self._state)] and accepted_later(
            protocol.ACCEPTS, self._state, event
        ):
            self._early.append(event)
            return
        before = self._state
        after = protocol.step(before, event, self.terms)
        if after == before:
            return
        await self._tools.store.record(f"{self.name}/events", msgspec.msgpack.encode(event))
        for seen in _seen_by(before, event, self.config.number):
            await self._tools.evidence.keep(seen)
        self._state = after
        if isinstance(event, protocol.Submitted):
            self._entered.add(event.client)
        done = protocol.effects(before, self.terms)
        for effect in protocol.effects(after, self.terms):
            if effect not in done:
                self._perform(effect)
        self._tell()
        early, self._early = self._early, []
        for waiting in early:
            await self.take(waiting)

    async def take_message(self, message: Any, bulk: memoryview) -> None:
        """Take a message of the peer's that belongs to this round.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes where no honest server sends it.
        """
        try:
            await self._take_said(message, bulk)
        except UnexpectedEvent as error:
            raise PeerViolationError(self.terms.peer, f"speaks out of turn: {error}") from error

    async def _take_said(self, message: Any, bulk: memoryview) -> None:
        match message:
            case RosterList():
                entries = protocol.unpack_entries(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(protocol.PeerRoster(entries))
            case Proofs():
                proofs = protocol.unpack_entries(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(protocol.PeerProofs(proofs))
            case Commitment(commitment=commitment):
                await self.take(protocol.PeerCommitment(commitment))
            case Share() if isinstance(self._state, protocol.BEFORE_REVEALED):
                state = type(self._state).__name__
                raise PeerViolationError(
                    self.terms.peer, f"revealed its share in state {state}, before both commitments were exchanged"
                )
            case Share(nonce=nonce):
                await self.take(protocol.PeerShare(self._keep_share(bulk), nonce))
            case Conclusion(outcome=outcome):
                await self.take(protocol.PeerConclusion(outcome))
            case Abort(explanation=explanation):
                await self.take(protocol.PeerAbort(explanation))

    def resend(self) -> None:
        """Perform again what the state says the peer may lack: after the servers have met anew."""
        for key in self.forwards:
            self._post_forward(key)
        for effect in protocol.effects(self._state, self.terms):
            if isinstance(effect, protocol.Send | protocol.SendShare):
                self._perform(effect)

    def _perform(self, effect: protocol.Effect) -> None:
        match effect:
            case protocol.Send(message=message, bulk=bulk):
                self._tools.post(message, bulk)
            case protocol.SendShare(message=message, share=share):
                self._tools.post(message, self._shares[share])
            case protocol.AwaitGrace():
                self._tools.nursery.start_soon(self._wait_for_grace)
            case protocol.Evaluate(roster=roster):
                self._tools.nursery.start_soon(self._evaluate, frozenset(roster))
            case protocol.Sum(counted=counted):
                self._tools.nursery.start_soon(self._sum, frozenset(counted))
            case protocol.Apply():
                self._tools.nursery.start_soon(self._apply, effect)

    def _tell(self) -> None:
        """Wake whoever waits for this round."""
        self._changed.set()
        self._changed = trio.Event()
        if not isinstance(self._state, protocol.Open | protocol.Closing):
            self.desk.close(f"round {self.config.number} has closed")
        if isinstance(self._state, protocol.Done | protocol.Aborted):
            self._adder.stop()
            self._answerer.stop()
            self.settled.set()

    async def _wait_for_grace(self) -> None:
        await trio.sleep(self._tools.grace)
        await self._tools.report(self.round_id, protocol.GraceOver())

    # ---- computation

    async def _evaluate(self, roster: frozenset[str]) -> None:
        proofs = await self._adder.proofs(roster)
        await self._tools.report(self.round_id, protocol.Evaluated(proofs))

    async def _sum(self, counted: frozenset[str]) -> None:
        share = await self._adder.share(counted)
        nonce = self._tools.randomness(DIGEST_BYTES)
        await self._tools.report(self.round_id, protocol.Summed(self._keep_share(share), nonce))

    async def _apply(self, effect: protocol.Apply) -> None:
        combine = partial(_combine, self.config, self._shares[effect.share], self._shares[effect.peer_share])
        update, elements = await self._tools.lane.run(combine)
        if self.config.phase == "union":
            self._union = {name: union_rows(sums) for name, sums in elements.items()}
            update, elements = {}, {}
        elif self.config.renamed:
            blocks = {block.name: block for _, block in self.config.task.sparse_blocks()}
            update, elements = (
                {name: _spread(rows, self._union.get(name), blocks.get(name)) for name, rows in arrays.items()}
                for arrays in (update, elements)
            )
        self.model = await self._tools.lane.run(partial(_updated, self.config, self.model, update, elements))
        self._outcome = RoundOutcome(
            number=self.config.number,
            clients=tuple(effect.counted),
            excluded=dict(effect.excluded),
            update=update,
            elements=elements,
            union=dict(self._union),
        )
        await self._tools.report(self.round_id, protocol.Applied(self._account().digest()))

    def found_union(self) -> tuple[UnionBlock, ...]:
        """The union this round found, as configurations and outcomes describe it; empty in a main round."""
        if self.config.phase == "main":
            return ()
        return tuple(
            describe_union(block.name, self._union[block.name], block.rows)
            for _, block in self.config.task.sparse_blocks()
        )

    def _keep_share(self, share: Buffer) -> bytes:
        expected = share_bytes(self.config.shape)
        if len(share) != expected:
            raise PeerViolationError(
                self.terms.peer, f"sent a share of {len(share)} bytes, the task implies {expected}"
            )
        name = digest(Domain.SHARE, share)
        self._shares[name] = share
        return name

    def _post_forward(self, key: RequestKey) -> None:
        message = Forward(round_id=self.round_id, client=key.client, purpose=key.purpose, query=key.query)
        self._tools.post(message, self.forwards[key])


class _Adder:
    """Adds submissions to the sum one after the other, each with all threads."""

    def __init__(self, config: RoundConfig, make: Callable[[], Aggregate], lane: ComputeLane) -> None:
        self._make = make
        self._lane = lane
        self._send, self._receive = trio.open_memory_channel[Submission](config.task.max_clients)
        self._added: dict[str, Submission] = {}
        self._proofs: dict[str, bytes] = {}
        self._aggregate: Aggregate | None = None
        self._progress = trio.Event()
        self._busy = trio.Lock()

    def put(self, submission: Submission) -> None:
        with suppress(trio.ClosedResourceError):  # the round was settled without it, while it was being stored
            self._send.send_nowait(submission)

    def stop(self) -> None:
        self._send.close()

    def added(self, clients: Iterable[str]) -> list[Submission]:
        return [self._added[client] for client in clients]

    async def work(self) -> None:
        async for submission in self._receive:
            async with self._busy:
                aggregate = await self._sum()
                self._proofs[submission.client] = await self._add(aggregate, submission)
                self._added[submission.client] = submission
            self._progress.set()
            self._progress = trio.Event()

    async def proofs(self, roster: frozenset[str]) -> dict[str, bytes]:
        """Wait until everyone on the roster is added, and return their proof digests."""
        while not roster <= self._added.keys():
            await self._progress.wait()
        return {client: self._proofs[client] for client in sorted(roster)}

    async def share(self, counted: frozenset[str]) -> bytes:
        """Take out whoever does not count, and return our share."""
        async with self._busy:
            aggregate = await self._sum()
            unwanted = [self._added[client] for client in sorted(self._added.keys() - counted)]
            if unwanted:
                await self._lane.run(aggregate.negate)
                for submission in unwanted:
                    await self._add(aggregate, submission)
                await self._lane.run(aggregate.negate)
            return await self._lane.run(aggregate.share)

    async def _sum(self) -> Aggregate:
        if self._aggregate is None:
            self._aggregate = await self._lane.run(self._make)
        return self._aggregate

    async def _add(self, aggregate: Aggregate, submission: Submission) -> bytes:
        jobs, finish = await self._lane.run(partial(aggregate.jobs, submission, self._lane.threads))
        await self._lane.run_all(jobs)
        return await self._lane.run(finish)


class _Answerer:
    """Answers retrievals; those that wait at the same time share a pass over the model."""

    def __init__(self, config: RoundConfig, server: int, model: Model, lane: ComputeLane) -> None:
        self._make = partial(Shelves, config, server, model)
        self._lane = lane
        self._send, self._receive = trio.open_memory_channel[tuple[Query, list[memoryview], trio.Event]](1024)
        self._shelves: Shelves | None = None

    async def answer(self, query: Query) -> memoryview:
        answer: list[memoryview] = []
        done = trio.Event()
        try:
            await self._send.send((query, answer, done))
        except trio.ClosedResourceError as error:
            raise RequestRefusedError.because("round-closed", "the round ended before the retrieval was in") from error
        await done.wait()
        return answer[0]

    def stop(self) -> None:
        self._send.close()

    async def work(self) -> None:
        async for first in self._receive:
            if self._shelves is None:
                self._shelves = await self._lane.run(self._make)
            waiting = [first, *self._waiting()]
            answers = await self._pass(self._shelves, [query for query, _, _ in waiting])
            for (_, answer, done), data in zip(waiting, answers, strict=True):
                answer.append(data)
                done.set()

    def _waiting(self) -> list[tuple[Query, list[memoryview], trio.Event]]:
        waiting: list[tuple[Query, list[memoryview], trio.Event]] = []
        while len(waiting) < QUERIES_PER_PASS - 1:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return waiting

    async def _pass(self, shelves: Shelves, queries: list[Query]) -> list[memoryview]:
        expanded = []
        for query in queries:
            jobs, bits = await self._lane.run(partial(shelves.selection_jobs, query, self._lane.threads))
            await self._lane.run_all(jobs)
            expanded.append(bits)
        jobs, answers = await self._lane.run(partial(shelves.answer_jobs, expanded, self._lane.threads))
        await self._lane.run_all(jobs)
        return [np.ascontiguousarray(row).data.cast("B") for row in answers]


_TWO_DIGESTS = "the two servers hold different submissions"


def _seen_by(state: protocol.Round, event: Event, number: int) -> Iterator[Evidence]:
    """What the peer's roster and its proofs, as they come, show about clients."""
    match state, event:
        case protocol.Open() | protocol.Closed(), protocol.PeerRoster(entries=theirs):
            yield from _differing(state.entries, theirs, number, "two-digests", _TWO_DIGESTS)
        case protocol.Closing(theirs=theirs), protocol.Submitted(client=client, digest=submission):
            yield from _differing({client: submission}, theirs, number, "two-digests", _TWO_DIGESTS)
        case protocol.Proved(proofs=proofs), protocol.PeerProofs(proofs=theirs):
            yield from _differing(proofs, theirs, number, "proof", "the two servers' proof digests differ")


def _differing(
    ours: dict[str, bytes], theirs: dict[str, bytes], number: int, kind: Kind, words: str
) -> Iterator[Evidence]:
    for client in sorted(ours.keys() & theirs.keys()):
        if ours[client] != theirs[client]:
            yield Evidence(
                number=number, about=client, kind=kind, first=ours[client], second=theirs[client], words=words
            )


def _combine(config: RoundConfig, ours: Buffer, theirs: Buffer) -> tuple[Model, Model]:
    ring = config.shape.ring
    mine, other = split_share(config.shape, ours), split_share(config.shape, theirs)
    total = {name: ring.add(mine[name], other[name]) for name in mine}
    return (
        {name: ring.decode(elements) for name, elements in total.items()},
        {name: ring.to_integers(elements) for name, elements in total.items()},
    )


def _updated(config: RoundConfig, model: Model, update: Model, elements: Model) -> Model:
    """The model after the sum is added: floats in double precision, then rounded once to their own dtype.

    Integer blocks take the sum rounded to whole numbers, modulo what their dtype holds, as integers in numpy do.
    """
    updated = dict(model)
    for name in update:
        array = model[name]
        if array.dtype.kind == "f":
            updated[name] = (array.astype(np.float64) + update[name].reshape(array.shape)).astype(array.dtype)
        else:
            whole: npt.NDArray[Any] = elements[name] if config.shape.ring.fraction_bits == 0 else _whole(update[name])
            low = whole % 2**64 if whole.dtype.kind == "O" else whole
            updated[name] = array + low.astype(np.uint64).astype(array.dtype).reshape(array.shape)
    return updated


def _whole(numbers: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Rounded to Python integers: modulo 2**64, a negative number is beyond what a float can hold."""
    return np.array([int(number) for number in np.rint(numbers).flat], dtype=object).reshape(numbers.shape)


def _restricted(array: npt.NDArray[Any], union: npt.NDArray[np.uint32] | None) -> npt.NDArray[Any]:
    """The rows of the union in order; one row of zeros where it is empty."""
    if union is None:
        return array
    return array[union] if len(union) else np.zeros_like(array[:1])


def _spread(rows: npt.NDArray[Any], union: npt.NDArray[np.uint32] | None, block: Sparse | None) -> npt.NDArray[Any]:
    """Rows by rank put back in their places among all rows."""
    if union is None or block is None:
        return rows
    everywhere = np.zeros((block.rows, block.width), dtype=rows.dtype)
    everywhere[union] = rows[: len(union)]
    return everywhere
