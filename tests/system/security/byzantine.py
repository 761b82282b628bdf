"""One malicious server: ours with one step mutated, and what becomes of an honest one that meets it.

A mutant keeps to the protocol in everything but its one step, so that the honest server is led as far astray as that
step can lead it. `MUTATIONS` says of each how the honest server must end, what it must say, and whether its share may
be out by then.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import trio

from fsl_async import Dense, FslError, Ring, Sparse, Task
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, digest
from fsl_async.error_groups import leaves
from fsl_async.protocols import round as protocol
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.machine import Event
from fsl_async.wire.client_digests import pack_digests, unpack_digests
from fsl_async.wire.messages import (
    Abort,
    Commitment,
    Conclusion,
    Forward,
    Message,
    Proofs,
    RosterList,
    Share,
    TossCommitment,
    TossReveal,
)
from fsl_async.wire.public_part import Layout, Trees
from parties.client.client import Client
from parties.compute import InlineLane
from parties.identity.keys import Identity
from parties.outcome import ClientOutcome, RoundReport
from parties.server.actor import Actor
from parties.server.evidence import Evidence
from parties.server.peer.link import Fetch, PeerLink
from parties.server.round.assembly import RequestRefusedError
from parties.server.round.terms import Terms
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling
from parties.storage.store import Put
from transport import HandshakeSettings

__all__ = [
    "CLIENTS",
    "ERROR",
    "MODEL",
    "MUTATIONS",
    "TASK",
    "VICTIM",
    "Account",
    "Byzantine",
    "Ending",
    "Mutation",
    "meet",
    "run_server",
]

TASK = Task(
    name="table",
    blocks=(Sparse("items", rows=64, select=2, width=2), Dense("head", size=3)),
    ring=Ring(64),
    min_clients=2,
    max_clients=6,
)
MODEL = {"items": np.zeros((64, 2), dtype=np.int64), "head": np.zeros(3, dtype=np.int64)}
CLIENTS = ("anna", "ben", "carol", "dora", "emil")
VICTIM = "carol"
ERROR = 7
PATIENCE = 120.0
"""Seconds of virtual time after which whoever still waits waits for ever."""

Said = Iterable[tuple[Message, bytes]]


class Mouth(PeerLink):
    """Says to the peer what a byzantine server would rather say."""

    owner: Byzantine

    def post_stored(self, message: Message, fetch: Fetch) -> None:
        content = b"".join(bytes(part) for part in at_once(fetch()))
        said = list(self.owner.say(message, content))
        self.owner.fired |= said != [(message, content)]
        for changed, data in said:
            super().post_stored(changed, partial(_at_hand, data))


async def _at_hand(data: bytes) -> tuple[bytes]:
    return (data,)


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never waits: those of a store in memory."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a store in memory has waited")


class Ear(Actor):
    """Takes what a byzantine server would rather hear of its own."""

    owner: Byzantine

    async def take_own(self, round_id: bytes, event: Event) -> None:
        self.owner.overhear(event)
        changed = self.owner.hear(event)
        self.owner.fired |= changed != (event,)
        for other in changed:
            await super().take_own(round_id, other)


class Opener(RoundSequence):
    """Opens the rounds that a byzantine server would rather open."""

    owner: Byzantine

    async def terms(self, tossed: tossing.Tossed) -> Terms:
        terms = await super().terms(tossed)
        config = self.owner.open(terms.config)
        self.owner.fired |= config is not terms.config
        return replace(terms, config=config)


class Memory(Rounds):
    """Remembers the rounds that a byzantine server would rather have had."""

    owner: Byzantine

    async def settled_report(self, round_id: bytes) -> RoundReport:
        report = await super().settled_report(round_id)
        told = self.owner.remember(report)
        self.owner.fired |= told is not report
        return told


@dataclass(frozen=True)
class Hand(Identity):
    """Signs what a byzantine server would rather sign."""

    owner: Byzantine | None = field(default=None, repr=False, compare=False)

    def sign(self, domain: Domain, *parts: bytes) -> bytes:
        signature = super().sign(domain, *parts)
        written = self.owner.write(domain, signature)
        self.owner.fired |= written != signature
        return written


def become(part: Any, other: type, owner: Byzantine) -> None:
    """Give a part of a server to its byzantine owner."""
    part.__class__ = other
    part.owner = owner


class Byzantine(Server):
    """A server that may say something else than the protocol has it say.

    Attributes:
        fired: whether the mutated step was reached.
    """

    def __init__(self, setup: ServerSetup) -> None:
        own = setup.identity
        super().__init__(replace(setup, identity=Hand(own.name, own.channel_secret, own.statement_secret, self)))
        become(self.actor, Ear, self)
        become(self.actor.link, Mouth, self)
        become(self.actor.sequence, Opener, self)
        become(self.actor.rounds, Memory, self)
        self.fired = False

    def say(self, message: Message, bulk: bytes) -> Said:
        """What is said to the peer in place of a message."""
        yield message, bulk

    def hear(self, event: Event) -> tuple[Event, ...]:
        """What its own machine is told in place of an event of its own."""
        return (event,)

    def overhear(self, event: Event) -> None:
        """Take note of an event of its own before its machine does."""

    def open(self, config: RoundConfig) -> RoundConfig:
        """What it opens in place of a round."""
        return config

    def remember(self, report: RoundReport) -> RoundReport:
        """What clients are told in place of a round's account."""
        return report

    def write(self, domain: Domain, signature: bytes) -> bytes:
        """What it gives in place of its signature."""
        return signature


def flipped(data: bytes, place: int = 0) -> bytes:
    """The same bytes but for one bit."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


# ---- clients


class DropsAClient(Byzantine):
    def hear(self, event: Event) -> tuple[Event, ...]:
        dropped = isinstance(event, protocol.Submitted) and event.client == VICTIM
        return () if dropped else (event,)


class DropsAllButOne(Byzantine):
    def hear(self, event: Event) -> tuple[Event, ...]:
        dropped = isinstance(event, protocol.Submitted) and event.client != VICTIM
        return () if dropped else (event,)


class InsertsAClient(Byzantine):
    """Lists somebody who has submitted nothing, with a copy of what somebody else has."""

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, protocol.Submitted) and not self.fired:
            self._copy(event.client, "mallory")
            return event, protocol.Submitted("mallory", digest(Domain.SUBMISSION, b"nothing"))
        return (event,)

    def _copy(self, client: str, other: str) -> None:
        store = self.setup.store
        for key in at_once(store.keys("round-")):
            if f"/{client}" in key:
                at_once(store.commit(Put(key.replace(f"/{client}", f"/{other}"), at_once(store.blob(key)))))


class NamesAnotherSubmission(Byzantine):
    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, protocol.Submitted) and event.client == VICTIM:
            event = protocol.Submitted(VICTIM, flipped(event.digest))
        return (event,)


class SendsAnotherRoster(Byzantine):
    """Sends a longer list than it goes by itself."""

    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, RosterList):
            entries = unpack_digests(bulk, 10, "the test")
            bulk = pack_digests(entries | {"mallory": digest(Domain.SUBMISSION, b"nothing")})
        yield message, bulk


class ForwardsAnotherPart(Byzantine):
    """Changes a bit of the first submission it carries."""

    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Forward) and not self.fired:
            bulk = self.changed(bulk)
        yield message, bulk

    def changed(self, bulk: bytes) -> bytes:
        return flipped(bulk, len(bulk) // 2)


class AddsToAHint(ForwardsAnotherPart):
    """Adds δ to the hints of the first submission it carries: the sum of shares would show where they act."""

    def changed(self, bulk: bytes) -> bytes:
        part = bytearray(bulk)
        for piece in Layout.submission(self.setup.task, Trees.OWN).pieces:
            if piece.kind == "hint":
                stop = piece.stop - (piece.stop - piece.start) % 8
                changed = np.frombuffer(part[piece.start : stop], "<u8") + np.uint64(ERROR)
                part[piece.start : stop] = changed.tobytes()
        return bytes(part)


class ForwardsTwoParts(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, Forward):
            yield message, flipped(bulk)


class ForwardsForAnother(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Forward):
            config = self.running.config
            others = (name for name in CLIENTS if config.carrier(name) != self.setup.index)
            message = msgspec.structs.replace(message, client=next(others))
        yield message, bulk


class ForwardsTooLittle(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk[:-1] if isinstance(message, Forward) else bulk


# ---- rosters and proofs


class SendsTwoRosters(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, RosterList):
            entries = unpack_digests(bulk, 10, "the test")
            yield message, pack_digests({name: entries[name] for name in entries if name != VICTIM})


class ExcludesByAFalseProof(Byzantine):
    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, protocol.Evaluated):
            event = protocol.Evaluated(event.proofs | {VICTIM: flipped(event.proofs[VICTIM])})
        return (event,)


class ProvesForOthers(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Proofs):
            entries = unpack_digests(bulk, 10, "the test")
            bulk = pack_digests({name: entries[name] for name in entries if name != VICTIM})
        yield message, bulk


# ---- commitments and shares


class RevealsBeforeTheProofs(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, RosterList):
            yield Share(message.round_id, bytes(32)), bytes(64 * 2 * 8 + 3 * 8)


class RevealsWithoutCommitting(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Commitment):
            message, bulk = Share(message.round_id, bytes(32)), bytes(64 * 2 * 8 + 3 * 8)
        yield message, bulk


class NeverCommits(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if not isinstance(message, Commitment):
            yield message, bulk


class CommitsTwice(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, Commitment):
            yield msgspec.structs.replace(message, commitment=flipped(message.commitment)), bulk


class CommitsToSomethingElse(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Commitment):
            message = msgspec.structs.replace(message, commitment=flipped(message.commitment))
        yield message, bulk


class ChangesItsShare(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, flipped(bulk) if isinstance(message, Share) else bulk


class SendsTooShortAShare(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk[:-8] if isinstance(message, Share) else bulk


class AbortsInsteadOfCommitting(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Commitment):
            message = Abort(message.round_id, f"S{self.setup.index} gave up: no more")
        yield message, bulk


class AbortsWithoutAReason(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield Abort(message.round_id, "") if isinstance(message, Commitment) else message, bulk


class AbortsInsteadOfRevealing(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Share):
            message, bulk = Abort(message.round_id, f"S{self.setup.index} gave up: I have seen enough"), b""
        yield message, bulk


class ConcludesOtherwise(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Conclusion):
            message = msgspec.structs.replace(message, outcome=flipped(message.outcome))
        yield message, bulk


class AddsAnError(Byzantine):
    """Adds to its share before it commits: what nobody can see."""

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, protocol.Summed):
            records = self.running.records
            share = np.frombuffer(at_once(records.share(event.share)), "<u8") + np.uint64(ERROR)
            event = protocol.Summed(at_once(records.keep_share(share.tobytes())), event.nonce)
        return (event,)


# ---- the toss, and what the round is


class AnnouncesAnotherModel(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, TossCommitment):
            message = msgspec.structs.replace(message, model=flipped(message.model))
        yield message, bulk


class RevealsAnotherSeed(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, TossReveal):
            message = msgspec.structs.replace(message, seed=flipped(message.seed))
        yield message, bulk


class RevealsItsSeedFirst(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, TossCommitment):
            message = TossReveal(number=message.number, seed=bytes(32), nonce=bytes(32))
        yield message, bulk


class TossesTwice(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        yield message, bulk
        if isinstance(message, TossCommitment):
            yield msgspec.structs.replace(message, commitment=flipped(message.commitment)), bulk


class TossesAhead(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, TossCommitment | TossReveal):
            message = msgspec.structs.replace(message, number=message.number + 1)
        yield message, bulk


class OpensOnAnotherSeed(Byzantine):
    def open(self, config: RoundConfig) -> RoundConfig:
        return msgspec.structs.replace(config, hash_seed=flipped(config.hash_seed))


class OpensOnAnotherModel(Byzantine):
    def open(self, config: RoundConfig) -> RoundConfig:
        first, *rest = config.model
        return msgspec.structs.replace(
            config, model=(msgspec.structs.replace(first, digest=flipped(first.digest)), *rest)
        )


class OpensWithOtherKeys(Byzantine):
    def open(self, config: RoundConfig) -> RoundConfig:
        keys = list(config.servers)
        peer = keys[1 - self.setup.index]
        keys[1 - self.setup.index] = msgspec.structs.replace(peer, statement=flipped(peer.statement))
        return msgspec.structs.replace(config, servers=tuple(keys))


class LowersTheMinimum(Byzantine):
    """Runs a task with another minimum, and shows the honest one's digest in every handshake."""

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(replace(setup, task=msgspec.structs.replace(setup.task, min_clients=3)))
        self._honest_task = setup.task.digest()
        self.fired = True

    def handshake(self) -> HandshakeSettings:
        return replace(super().handshake(), payload=self._honest_task)

    def check_peer(self, payload: bytes) -> None:
        pass

    async def admit(self, key: bytes, payload: bytes):
        return b"peer" if key == self.setup.peer.channel else await super().admit(key, payload)


class RunsAnotherTask(Byzantine):
    """The same, and does not hide it."""

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(replace(setup, task=msgspec.structs.replace(setup.task, min_clients=3)))
        self.fired = True

    def check_peer(self, payload: bytes) -> None:
        pass

    async def admit(self, key: bytes, payload: bytes):
        return b"peer" if key == self.setup.peer.channel else await super().admit(key, payload)


# ---- what clients are told


class SignsNothing(Byzantine):
    def write(self, domain: Domain, signature: bytes) -> bytes:
        return flipped(signature)


class SignsOutcomesWrongly(Byzantine):
    def write(self, domain: Domain, signature: bytes) -> bytes:
        return flipped(signature) if domain is Domain.OUTCOME else signature


class TellsAnotherOutcome(Byzantine):
    def remember(self, report: RoundReport) -> RoundReport:
        return msgspec.structs.replace(report, clients=report.clients[1:])


class ForgetsRounds(Byzantine):
    """Knows of no round that is over."""

    def remember(self, report: RoundReport) -> RoundReport:
        self.fired = True
        raise RequestRefusedError.because("round-closed", "that round is unknown here")


# ---- the catalogue


class Ending(enum.Enum):
    """How an honest server must end."""

    HALTS = enum.auto()
    """With a `PeerViolationError` that names the other server."""
    ABORTS = enum.auto()
    """The round, with a reason."""
    WAITS = enum.auto()
    """For ever: it has said all it may say."""
    GOES_ON = enum.auto()
    """With the exact sum over the clients that are left, and says who is not."""
    CLIENTS_REFUSE = enum.auto()
    """Has nothing to end: no client submits."""
    NOTICES_NOTHING = enum.auto()
    """And the sum is wrong: what docs/security.md says cannot be seen."""


@dataclass(frozen=True)
class Mutation:
    """A step mutated.

    Attributes:
        name: which, for people.
        mutant: the server.
        ending: how the honest one ends.
        says: a pattern for what it (or a client) must say.
        reveals: whether its share may be out by then.
    """

    name: str
    mutant: type[Byzantine]
    ending: Ending
    says: str
    reveals: bool = False


HALTS, ABORTS, WAITS, GOES_ON = Ending.HALTS, Ending.ABORTS, Ending.WAITS, Ending.GOES_ON
REFUSE = Ending.CLIENTS_REFUSE
EARLY = "revealed its share in state .*, before both commitments were exchanged"

MUTATIONS = (
    Mutation("drops a client", DropsAClient, GOES_ON, "'carol': 'only_s", reveals=True),
    Mutation("drops all clients but one", DropsAllButOne, ABORTS, "1 clients are in with both servers, at least 2"),
    Mutation("inserts a client", InsertsAClient, GOES_ON, "'mallory': 'only_s", reveals=True),
    Mutation("names another submission", NamesAnotherSubmission, GOES_ON, "'carol': 'mismatch'", reveals=True),
    Mutation("sends a roster it does not go by", SendsAnotherRoster, HALTS, "at another outcome", reveals=True),
    Mutation("forwards a changed part", ForwardsAnotherPart, GOES_ON, "': 'only_s", reveals=True),
    Mutation("adds δ to hints that it forwards", AddsToAHint, GOES_ON, "': 'only_s", reveals=True),
    Mutation("forwards two parts of one client", ForwardsTwoParts, HALTS, "forwards twice for"),
    Mutation("forwards in the other carrier's place", ForwardsForAnother, HALTS, "whose carrier it is not"),
    Mutation("forwards too little", ForwardsTooLittle, HALTS, "forwards a submit of [0-9]+ bytes, the round implies"),
    Mutation("sends two rosters", SendsTwoRosters, HALTS, "sent two different rosters for one round"),
    Mutation("excludes a client by a false proof", ExcludesByAFalseProof, GOES_ON, "'carol': 'proof'", reveals=True),
    Mutation("proves for other clients", ProvesForOthers, HALTS, "sent proofs for other clients"),
    Mutation("reveals before the proofs", RevealsBeforeTheProofs, HALTS, EARLY),
    Mutation("reveals and does not commit", RevealsWithoutCommitting, HALTS, EARLY),
    Mutation("never commits", NeverCommits, WAITS, "Committed"),
    Mutation("commits twice", CommitsTwice, HALTS, "sent two different commitments", reveals=True),
    Mutation("commits to something else", CommitsToSomethingElse, HALTS, "does not match its commit", reveals=True),
    Mutation("changes its share after committing", ChangesItsShare, HALTS, "does not match its commit", reveals=True),
    Mutation("sends too short a share", SendsTooShortAShare, HALTS, "sent a share of 1040 bytes", reveals=True),
    Mutation("aborts in place of committing", AbortsInsteadOfCommitting, ABORTS, "gave up: no more"),
    Mutation("aborts without a reason", AbortsWithoutAReason, HALTS, "gave the round up and does not say why"),
    Mutation("aborts in place of revealing", AbortsInsteadOfRevealing, HALTS, "PeerAbort in state Rev", reveals=True),
    Mutation("concludes otherwise", ConcludesOtherwise, HALTS, "arrived at another outcome", reveals=True),
    Mutation("announces another model", AnnouncesAnotherModel, HALTS, "holds another model"),
    Mutation("reveals another seed", RevealsAnotherSeed, HALTS, "revealed a seed that it had not committed to"),
    Mutation("reveals its seed first", RevealsItsSeedFirst, HALTS, "tosses out of turn: PeerTossReveal in state Comm"),
    Mutation("tosses twice", TossesTwice, HALTS, "sent two different toss commitments"),
    Mutation("tosses ahead", TossesAhead, HALTS, "tosses for round 2 while round 1 is not settled"),
    Mutation("opens on another seed", OpensOnAnotherSeed, REFUSE, "announce different rounds: hash_seed is"),
    Mutation(
        "opens on another seed, and closes", OpensOnAnotherSeed, HALTS, "speaks of a round .* that is unknown here"
    ),
    Mutation("opens on another model", OpensOnAnotherModel, REFUSE, r"announce different rounds: model\[0\].digest is"),
    Mutation("opens with other keys", OpensWithOtherKeys, REFUSE, "with other server keys than the pinned ones"),
    Mutation("hides another minimum", LowersTheMinimum, REFUSE, "runs another task: min_clients is 3 there, 2"),
    Mutation("runs another task", RunsAnotherTask, REFUSE, "runs another task: min_clients is 3 there, 2 here"),
    Mutation("runs another task, and is not met", RunsAnotherTask, WAITS, "round 1: Committing"),
    Mutation("signs receipts wrongly", SignsNothing, REFUSE, "signed its receipt with another key", reveals=True),
    Mutation("signs outcomes wrongly", SignsOutcomesWrongly, REFUSE, "signed the outcome with another", reveals=True),
    Mutation(
        "tells another outcome",
        TellsAnotherOutcome,
        REFUSE,
        r"signed different outcomes of round 1: clients\[\d\] is",
        reveals=True,
    ),
    Mutation("forgets its rounds", ForgetsRounds, REFUSE, "cannot be learnt any more", reveals=True),
    Mutation("adds an error to its share", AddsAnError, Ending.NOTICES_NOTHING, "", reveals=True),
)


# ---- the meeting


@dataclass
class Account:
    """What came of a meeting.

    Attributes:
        honest: the honest server.
        mutant: the other one.
        halts: with what each server ended, by its number.
        clients: what each client learnt, or what it failed with.
        report: the honest server's account of round 1, if it was settled.
        sums: the ring elements it arrived at, by block; empty without an outcome.
        revealed: whether the honest server sent its share.
        evidence: what it kept.
    """

    honest: Server
    mutant: Byzantine
    halts: dict[int, list[BaseException]] = field(default_factory=dict)
    clients: dict[str, ClientOutcome | BaseException] = field(default_factory=dict)
    report: list[RoundReport] = field(default_factory=list)
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    revealed: bool = False
    evidence: list[Evidence] = field(default_factory=list)


async def meet(mutation: Mutation, index: int, seed: int) -> Account:
    """Let a mutant be server `index` in a round with five clients; needs a clock that jumps."""
    async with _opened(mutation.mutant, index, seed) as (network, account):
        async with trio.open_nursery() as nursery:
            for place, name in enumerate(CLIENTS):
                nursery.start_soon(_take_part, network.client(name), place + 1, account)
            await trio.sleep(PATIENCE)
            runs = [(server, server.running) for server in (account.honest, account.mutant) if server.running]
            for server, run in runs:
                await server.actor.post_event(run.round_id, protocol.CloseRound())
            await trio.sleep(PATIENCE)
            nursery.cancel_scope.cancel()
        account.report = [over.report for over in account.honest.actor.rounds.past if over.report.number == 1]
        for server, run in runs:
            if server is account.honest and account.report and account.report[0].ended == "done":
                account.sums = run.outcome().elements
        name = f"S{1 - index}"
        account.revealed = any(isinstance(n.message, Share) for n in network.transcript if n.sender == name)
        account.evidence = await account.honest.evidence.entries()
    return account


@asynccontextmanager
async def _opened(mutant: type[Byzantine], index: int, seed: int) -> AsyncIterator[tuple[Network, Account]]:
    network = Network(TASK, MODEL, seed, InlineLane())
    servers = list(network.servers)
    servers[index] = mutant(servers[index].setup)
    network.servers = tuple(servers)
    account = Account(servers[1 - index], servers[index])
    with seeded_scheduling(seed):
        async with trio.open_nursery() as nursery:
            for number, server in enumerate(servers):
                await nursery.start(run_server, server, number, account.halts)
            yield network, account
            nursery.cancel_scope.cancel()


async def run_server(
    server: Server,
    number: int,
    halts: dict[int, list[BaseException]],
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a server, and note with what it ended."""
    try:
        await server.run(task_status=task_status)
    except* FslError as group:
        halts[number] = leaves(group)


async def _take_part(client: Client, value: int, account: Account) -> None:
    """One client's round: rows 1 and its own, the same value everywhere."""
    try:
        async with client:
            await client.submit({"items": ([0, value], np.full((2, 2), value)), "head": np.full(3, value)})
            account.clients[client.name] = await client.outcome()
    except FslError as error:
        account.clients[client.name] = error
    except BaseExceptionGroup as group:
        account.clients[client.name] = leaves(group)[0]
