"""What a malicious server tells the honest one, or has its own machine believe, and how the honest one must end.

`MUTATIONS` says of each how the honest server must end, what it must say, and whether its share may be out by then.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from fsl_async.bin_count import planned
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, digest
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import (
    Abort,
    AskPieces,
    Commitment,
    Conclusion,
    Forward,
    Message,
    Proofs,
    RosterList,
    Share,
    SharePiece,
    TossCommitment,
    TossReveal,
)
from fsl_async.wire.peer_lists import pack_digests, unpack_digests
from fsl_async.wire.public_part import Layout, Trees
from parties.outcome import RoundReport
from parties.server.round.assembly import RequestRefusedError
from parties.server.round.reading import StoredSubmission
from parties.server.setup import ServerSetup
from parties.storage.store import Put
from transport import HandshakeSettings

from .byzantine import CLIENTS, VICTIM, Byzantine, Said, at_once, flipped, with_error

ERROR = 7

# ---- what is said, and heard of oneself


def in_place_of(kind: Any, said: Callable[[Any, bytes], Iterable[tuple[Message, bytes]]]) -> type[Byzantine]:
    """A server that says something else in place of each message of a kind."""

    class SaysAnother(Byzantine):
        def say(self, message: Message, bulk: bytes) -> Said:
            yield from said(message, bulk) if isinstance(message, kind) else [(message, bulk)]

    return SaysAnother


def after(kind: Any, said: Callable[[Any, bytes], Iterable[tuple[Message, bytes]]]) -> type[Byzantine]:
    """A server that says something more after each message of a kind."""
    return in_place_of(kind, lambda message, bulk: [(message, bulk), *said(message, bulk)])


def with_bulk(kind: type[Message], changed: Callable[[bytes], bytes]) -> type[Byzantine]:
    """A server that changes the bulk of each message of a kind."""
    return in_place_of(kind, lambda message, bulk: [(message, changed(bulk))])


def with_flipped(kind: type[Message], field: str) -> type[Byzantine]:
    """A server that changes a bit of a field of each message of a kind."""
    return in_place_of(kind, lambda message, bulk: [(flipped_in(message, field), bulk)])


def hearing(kind: Any, heard: Callable[[Any, Any], Event | None]) -> type[Byzantine]:
    """A server whose own machine is told something else, or nothing, in place of each event of a kind."""

    class HearsAnother(Byzantine):
        def hear(self, event: Event) -> tuple[Event, ...]:
            changed = heard(self, event) if isinstance(event, kind) else event
            return () if changed is None else (changed,)

    return HearsAnother


def flipped_in(message: Message, field: str) -> Message:
    return msgspec.structs.replace(message, **{field: flipped(getattr(message, field))})


def listing_mallory(bulk: bytes) -> bytes:
    return pack_digests(unpack_digests(bulk, 10, "the test") | {"mallory": digest(Domain.SUBMISSION, b"nothing")})


def without_victim(bulk: bytes) -> bytes:
    entries = unpack_digests(bulk, 10, "the test")
    return pack_digests({name: entries[name] for name in entries if name != VICTIM})


def shorter(bulk: bytes) -> bytes:
    return bulk[:-8]


def a_share(message: Commitment | RosterList, bulk: bytes) -> list[tuple[Message, bytes]]:
    return [(Share(message.round_id, bytes(32)), bytes(2 * 32))]


def next_piece(piece: SharePiece, bulk: bytes) -> list[tuple[Message, bytes]]:
    return [(msgspec.structs.replace(piece, place=2), bulk)] if piece.place == 1 else []


def in_the_next_round(message: TossCommitment | TossReveal, bulk: bytes) -> list[tuple[Message, bytes]]:
    return [(msgspec.structs.replace(message, number=message.number + 1), bulk)]


SendsAnotherRoster = with_bulk(RosterList, listing_mallory)  # and goes by the shorter one itself
ForwardsTwoParts = after(Forward, lambda message, bulk: [(message, flipped(bulk))])
ForwardsTooLittle = with_bulk(Forward, lambda bulk: bulk[:-1])
SendsTwoRosters = after(RosterList, lambda message, bulk: [(message, without_victim(bulk))])
ProvesForOthers = with_bulk(Proofs, without_victim)
RevealsBeforeTheProofs = after(RosterList, a_share)
RevealsWithoutCommitting = in_place_of(Commitment, a_share)
NeverCommits = in_place_of(Commitment, lambda message, bulk: [])
CommitsTwice = after(Commitment, lambda message, bulk: [(flipped_in(message, "commitment"), bulk)])
CommitsToSomethingElse = with_flipped(Commitment, "commitment")
ChangesItsShare = with_bulk(Share, flipped)
SendsTooShortAShare = with_bulk(Share, shorter)
ChangesAPiece = with_bulk(SharePiece, flipped)
SendsTooShortAPiece = with_bulk(SharePiece, shorter)
LeavesOutAPiece = in_place_of(SharePiece, lambda piece, bulk: [(piece, bulk)] if piece.place > 0 else [])
SendsAPieceTwice = after(SharePiece, lambda piece, bulk: [(piece, bulk)] if piece.place == 0 else [])
SendsOnePieceMore = after(SharePiece, next_piece)
SendsAPieceUnasked = after(Commitment, lambda message, bulk: [(SharePiece(message.round_id, 0), bytes(64 * 2 * 8))])
AsksTwice = after(AskPieces, lambda message, bulk: [(message, bulk)])
AsksTooEarly = after(RosterList, lambda message, bulk: [(AskPieces(message.round_id, 0), b"")])
AbortsWithoutAReason = in_place_of(Commitment, lambda message, bulk: [(Abort(message.round_id, ""), bulk)])
ConcludesOtherwise = with_flipped(Conclusion, "outcome")
AnnouncesAnotherModel = with_flipped(TossCommitment, "model")
RevealsAnotherSeed = with_flipped(TossReveal, "seed")
RevealsItsSeedFirst = in_place_of(
    TossCommitment, lambda message, bulk: [(TossReveal(number=message.number, seed=bytes(32), nonce=bytes(32)), bulk)]
)
TossesTwice = after(TossCommitment, lambda message, bulk: [(flipped_in(message, "commitment"), bulk)])
TossesAhead = in_place_of(TossCommitment | TossReveal, in_the_next_round)


# ---- clients


DropsAClient = hearing(ssa.Submitted, lambda server, event: event if event.client != VICTIM else None)
DropsAllButOne = hearing(ssa.Submitted, lambda server, event: event if event.client == VICTIM else None)
NamesAnotherSubmission = hearing(
    ssa.Submitted,
    lambda server, event: event if event.client != VICTIM else ssa.Submitted(VICTIM, flipped(event.digest)),
)


class InsertsAClient(Byzantine):
    """Lists somebody who has submitted nothing, with a copy of what somebody else has."""

    def hear(self, event: Event) -> tuple[Event, ...]:
        if isinstance(event, ssa.Submitted) and not self.fired:
            self._copy(event.client, "mallory")
            return event, ssa.Submitted("mallory", digest(Domain.SUBMISSION, b"nothing"))
        return (event,)

    def _copy(self, client: str, other: str) -> None:
        store = self.setup.store
        for key in at_once(store.keys("round-")):
            if f"/{client}" in key:
                content = at_once(store.blob(key))
                if "/submissions/" in key:
                    stored = msgspec.msgpack.decode(content, type=StoredSubmission)
                    content = msgspec.msgpack.encode(msgspec.structs.replace(stored, client=other))
                at_once(store.commit(Put(key.replace(f"/{client}", f"/{other}"), content)))


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
        for piece in Layout.submission(planned(self.setup.task), Trees.OWN).pieces:
            if piece.kind == "hint":
                stop = piece.stop - (piece.stop - piece.start) % 8
                changed = np.frombuffer(part[piece.start : stop], "<u8") + np.uint64(ERROR)
                part[piece.start : stop] = changed.tobytes()
        return bytes(part)


class ForwardsForAnother(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Forward):
            config = self.running.config
            others = (name for name in CLIENTS if config.carrier(name) != self.setup.index)
            message = msgspec.structs.replace(message, client=next(others))
        yield message, bulk


# ---- proofs, commitments and shares


def with_proof(spoil: Callable[[bytes], bytes]) -> type[Byzantine]:
    """A server that has another proof of the victim, and abides by it."""
    return hearing(
        ssa.Evaluated, lambda server, event: ssa.Evaluated(event.proofs | {VICTIM: spoil(event.proofs[VICTIM])})
    )


ExcludesByAFalseProof = with_proof(flipped)


class AbortsInsteadOfCommitting(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Commitment):
            message = Abort(message.round_id, f"S{self.setup.index} gave up: no more")
        yield message, bulk


class AbortsInsteadOfRevealing(Byzantine):
    def say(self, message: Message, bulk: bytes) -> Said:
        if isinstance(message, Share):
            message, bulk = Abort(message.round_id, f"S{self.setup.index} gave up: I have seen enough"), b""
        yield message, bulk


def adding(error: int, places: slice = slice(None)) -> type[Byzantine]:
    """A server that adds an error to its share before it commits: what nobody can see."""
    return hearing(ssa.Summed, lambda server, event: with_error(server, event, places, error))


AddsAnError = adding(ERROR)


# ---- the toss, and what the round is


class OpensOnAnotherSeed(Byzantine):
    def open(self, config: RoundConfig) -> RoundConfig:
        return msgspec.structs.replace(config, hash_seed=flipped(config.hash_seed))


class OpensWithMoreBins(Byzantine):
    def open(self, config: RoundConfig) -> RoundConfig:
        return msgspec.structs.replace(config, bins=tuple(bins + 1 for bins in config.bins))


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


class RunsAnotherTask(Byzantine):
    """Runs a task with another minimum."""

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(replace(setup, task=msgspec.structs.replace(setup.task, min_clients=3)))
        self.honest_task = setup.task.digest()
        self.fired = True

    def check_peer(self, payload: bytes) -> None:
        pass

    async def admit(self, key: bytes, payload: bytes):
        if key == self.setup.peer.channel:
            return b"peer"
        return await super().admit(key, payload)


class LowersTheMinimum(RunsAnotherTask):
    """The same, and shows the honest one's digest in every handshake."""

    def handshake(self) -> HandshakeSettings:
        return replace(super().handshake(), payload=self.honest_task)


# ---- what clients are told


class SignsNothing(Byzantine):
    def write(self, domain: Domain, signature: bytes) -> bytes:
        return flipped(signature)


class SignsOutcomesWrongly(Byzantine):
    def write(self, domain: Domain, signature: bytes) -> bytes:
        return flipped(signature) if domain is Domain.STATEMENT else signature


class TellsAnotherOutcome(Byzantine):
    def remember(self, report: RoundReport) -> RoundReport:
        return msgspec.structs.replace(report, clients=dict(list(report.clients.items())[1:]))


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

ABOUT_PIECES = (
    Mutation("changes a piece of its share", ChangesAPiece, HALTS, "sent another piece 0 of its share", reveals=True),
    Mutation("sends too short a piece", SendsTooShortAPiece, HALTS, "sent 1016 bytes as piece 0 of its", reveals=True),
    Mutation("leaves out a piece", LeavesOutAPiece, HALTS, "sent piece 1 .*, and piece 0 of 2 is due", reveals=True),
    Mutation("sends a piece twice", SendsAPieceTwice, HALTS, "sent piece 0 .*, and piece 1 of 2 is due", reveals=True),
    Mutation("sends one piece more", SendsOnePieceMore, HALTS, "sent piece 2 .*, which was not asked", reveals=True),
    Mutation("sends a piece unasked", SendsAPieceUnasked, HALTS, "sent piece 0 .*, which was not asked", reveals=True),
    Mutation("asks twice for pieces", AsksTwice, HALTS, "asks twice for the pieces of our share", reveals=True),
    Mutation("asks too early for pieces", AsksTooEarly, HALTS, "asks for pieces of our share in state"),
)
"""Of the pieces in which a share is sent."""

MUTATIONS = (
    Mutation("drops a client", DropsAClient, GOES_ON, "'carol': 'only_s", reveals=True),
    Mutation("drops all clients but one", DropsAllButOne, ABORTS, "1 client is in with both servers, at least 2"),
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
    Mutation(
        "sends too short a share", SendsTooShortAShare, HALTS, "sent a list of 56 bytes for its share", reveals=True
    ),
    Mutation("aborts in place of committing", AbortsInsteadOfCommitting, ABORTS, "gave up: no more"),
    Mutation("aborts without a reason", AbortsWithoutAReason, HALTS, "aborted the round and does not say why"),
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
    Mutation("opens with more bins", OpensWithMoreBins, REFUSE, r"announce different rounds: bins\[0\] is"),
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
        r"signed different outcomes of round 1: participants is [45] and [45]",
        reveals=True,
    ),
    Mutation("forgets its rounds", ForgetsRounds, REFUSE, "no server can say any more whether", reveals=True),
    Mutation("adds an error to its share", AddsAnError, Ending.NOTICES_NOTHING, "", reveals=True),
    *ABOUT_PIECES,
)
