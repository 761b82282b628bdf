"""Events in any order for every protocol machine, and what must hold of it after each of them.

Random walks draw from them (`tests/fsl_async/protocols/test_transitions.py`), and a fuzzer's bytes choose among them
(`tests/system/fuzzing/machines.py`).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeAlias, Union

import msgspec

from fsl_async import FslError, Ring, Sparse, Task
from fsl_async.protocols import assembly, entry, epochs, partials, psr, psu, sampling, ssa, toss
from fsl_async.protocols.machine import Event, State
from fsl_async.protocols.psr import client as psr_client
from fsl_async.protocols.psu import client as psu_client
from fsl_async.protocols.ssa import client as ssa_client
from fsl_async.union import UnionBlock
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import RowCounts, Share
from tests.support.machine_scenes import ALLOWED, config_of, key, sampling_terms

A, B, C, D = (key(number) for number in range(4))

Step: TypeAlias = Callable[[Any, Event], Any]
Watch: TypeAlias = Callable[[Any, Any, Any], None]
"""Looks at a state, an event and the state after it, which is another one."""


def nothing(before: State, event: Event, after: State) -> None:
    """Nothing is to be watched but the table."""


@dataclass(frozen=True)
class Walk:
    """Where a walk begins, how it goes on, the events it draws from, and what watches it from its beginning."""

    start: State
    step: Step
    events: Sequence[Event]
    watch: Callable[[], Watch] = lambda: nothing


# ---- what must hold


RANK = {kind: place for place, kind in enumerate(ssa.ACCEPTS)}
RECORDED: Any = Union[tuple(dict.fromkeys(event for _, event in ssa.TRANSITIONS))]  # noqa: UP007 - from a table


@dataclass
class RoundWitness:
    """What one server lets the other see of a round, what it may never see, and that a restart comes here again."""

    terms: ssa.Terms
    sent: dict[str, bytes] = field(default_factory=dict)
    replayed: ssa.Round = field(default_factory=ssa.Open)

    def __call__(self, before: ssa.Round, event: Event, after: ssa.Round) -> None:
        assert RANK[type(after)] >= RANK[type(before)] or isinstance(before, ssa.Closing)
        recorded = msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=RECORDED)
        self.replayed = ssa.step(self.replayed, recorded, self.terms)
        assert self.replayed == after
        if isinstance(after, ssa.Aborted):
            assert not isinstance(before, ssa.Revealed | ssa.Combined | ssa.Concluded | ssa.Done)
        if isinstance(after, ssa.Revealed | ssa.Combined):
            assert len(after.counted) >= self.terms.minimum
        for effect in ssa.effects(after, self.terms):
            match effect:
                case ssa.Send(message=message, bulk=bytes(bulk)):
                    self._once(b"".join(encode(message, bulk)), type(message).__name__)
                case ssa.Send(message=RowCounts(), bulk=ssa.Stored(name=counts)):
                    assert not isinstance(after, ssa.BEFORE_VERIFIED)
                    self._once(counts, "share of the counts")
                case ssa.Sum(counts=counts):
                    assert len(counts) == 2 * self.terms.contributors
                case ssa.Send(message=Share() as message, bulk=ssa.Stored(name=share)):
                    assert not isinstance(after, ssa.BEFORE_REVEALED)
                    self._once(message.nonce + share, "share")
                case _:
                    pass

    def _once(self, said: bytes, kind: str) -> None:
        assert self.sent.setdefault(kind, said) == said, f"two different {kind}s"


def watch_toss(before: toss.Toss, event: Event, after: toss.Toss) -> None:
    said = toss.effects(after)
    assert len(said) in (1, 2)
    assert not isinstance(after, toss.Committing) or not any(hasattr(message, "seed") for message in said)


@dataclass(frozen=True)
class DrawWitness:
    """As many are drawn as may be, of those who have asked both servers."""

    terms: sampling.DrawTerms

    def __call__(self, before: sampling.Sampling, event: Event, after: sampling.Sampling) -> None:
        assert len(sampling.effects(after, self.terms)) == bool(sampling.sent_in(after))
        if isinstance(after, sampling.Drawn):
            assert self.terms.minimum <= len(after.drawn) <= after.asked <= len(after.ours)
            assert set(after.drawn) <= set(after.ours)


def watch_assembly(before: assembly.Assembly, event: Event, after: assembly.Assembly) -> None:
    assert (assembly.known_digest(after) == b"") == isinstance(after, assembly.Expecting)


def watch_session(before: epochs.Session, event: Event, after: epochs.Session) -> None:
    """Epochs rise, and each has one hint."""
    ours, theirs = _epoch(before), _epoch(after)
    assert None in (ours, theirs) or theirs >= ours  # type: ignore[operator]
    if ours == theirs is not None:
        assert getattr(after, "hint", None) == getattr(before, "hint", None), "two hints for one epoch"


def _epoch(state: epochs.Session) -> int | None:
    return state.epoch if isinstance(state, epochs.Planted | epochs.Established) else None


# ---- events, by machine


def toss_walks() -> Iterator[Walk]:
    for server in (0, 1):
        ours = toss.Committing(toss.Half(server, 3, A, B, C))
        theirs = toss.Committing(toss.Half(1 - server, 3, A, C, D))
        commitment = theirs.half.commitment()
        yield Walk(
            ours,
            lambda state, event: toss.step(state, event, "the peer"),
            [
                toss.PeerTossCommitment(commitment, A),
                toss.PeerTossCommitment(commitment, B),
                toss.PeerTossCommitment(D, A),
                toss.PeerTossReveal(C, D),
                toss.PeerTossReveal(C, A),
            ],
            lambda: watch_toss,
        )


def sampling_walks() -> Iterator[Walk]:
    lists = [("alice", "bob", "carol"), ("alice", "bob"), ("alice",), ("bob", "carol", "dora"), ()]
    for sample in (2, 3, 0.5, 1.0):
        terms = sampling_terms(1, sample=sample)
        yield Walk(
            sampling.Gathering(),
            lambda state, event, terms=terms: sampling.step(state, event, terms),
            [kind(asked) for kind in (sampling.Frozen, sampling.PeerAsked) for asked in lists],
            partial(DrawWitness, terms),
        )


def assembly_walks() -> Iterator[Walk]:
    yield Walk(
        assembly.Expecting(),
        assembly.step,
        [kind(part) for kind in (assembly.Direct, assembly.Public) for part in (A, B)],
        lambda: watch_assembly,
    )


def ssa_walks() -> Iterator[Walk]:
    proofs = {"alice": A, "bob": B, "carol": C}
    rosters = [
        {"alice": A, "bob": B},
        {"alice": A, "bob": C},
        {"alice": A},
        {"alice": A, "bob": B, "carol": C},
        {"alice": A, "bob": D, "carol": D},
    ]
    for verified, own_rule in ((True, False), (False, False), (True, True)):
        terms = ssa.Terms(round_id=D, server=1, minimum=2, verified=verified, own_rule=own_rule)
        frequent = [
            *(ssa.Submitted(name, digest) for name, digest in proofs.items()),
            ssa.Submitted("bob", D),
            ssa.CloseRound(),
            ssa.GraceOver(),
            *(ssa.PeerRoster(roster) for roster in rosters),
            *[ssa.Evaluated({name: proofs[name] for name in rosters[0]})] * 2,
            *(ssa.PeerProofs({name: proofs[name] for name in roster}) for roster in rosters),
            ssa.PeerProofs({"alice": A, "bob": D}),
            ssa.Summed(A, B),
            *[ssa.PeerCommitment(ssa.share_commitment(terms, 0, rosters[0], C, D))] * 3,
            *[ssa.PeerShare(C, D)] * 2,
            ssa.PeerShare(C, A),
            ssa.Applied(A),
            ssa.PeerConclusion(A),
            ssa.PeerConclusion(B),
        ]
        yield Walk(
            ssa.Open(),
            lambda state, event, terms=terms: ssa.step(state, event, terms),
            [*frequent * 6, ssa.GaveUp("tired"), ssa.PeerAbort("S0 gave up: tired")],
            partial(RoundWitness, terms),
        )
    yield counting_walk({"alice": A, "bob": B})


def counting_walk(roster: dict[str, bytes]) -> Walk:
    """A round that counts contributors, with the events alone that lead there, and on."""
    terms = ssa.Terms(round_id=D, server=1, minimum=2, verified=True, contributors=True)
    frequent = [
        *(ssa.Submitted(name, digest) for name, digest in roster.items()),
        *(ssa.CloseRound(), ssa.GraceOver(), ssa.PeerRoster(roster), ssa.Evaluated(roster), ssa.PeerProofs(roster)),
        *(ssa.RowsCounted(A), ssa.PeerCounts(C), ssa.PeerCounts(D), ssa.Summed(A, B)),
        ssa.PeerCommitment(ssa.share_commitment(terms, 0, roster, C, D, (C, A))),
    ]
    return Walk(
        ssa.Open(),
        lambda state, event: ssa.step(state, event, terms),
        [*frequent * 6, ssa.GaveUp("tired"), ssa.PeerAbort("S0 gave up: tired")],
        partial(RoundWitness, terms),
    )


def psr_walks() -> Iterator[Walk]:
    for server in (0, 1):
        terms = psr.Terms(round_id=D, server=server, outcome=A)
        events = [psr.CloseRound(), psr.PeerClosed(), psr.PeerConclusion(A), psr.PeerConclusion(B)]
        yield Walk(
            psr.Open(),
            lambda state, event, terms=terms: psr.step(state, event, terms),
            [*events * 2, psr.GaveUp("tired"), psr.PeerAbort("S0 gave up: tired"), psr.PeerAbort("")],
        )


def partials_walks() -> Iterator[Walk]:
    lists = [frozenset(some) for some in ({"1"}, {"2"}, {"1", "2"}, {"1", "2", "3"})]
    events = [
        *(partials.Put(tuple(sorted(some))) for some in lists),
        *(event for name in ("a", "b") for event in (partials.Joined(name, 2), partials.Lost(name))),
        *(partials.Doubted("a"), partials.Leaving("b"), partials.Wanted(lists[2]), partials.Wanted(lists[0])),
        *(partials.Added(name, order, ("1", "2"), 2) for name in ("a", "b") for order in range(2, 8, 2)),
        *(partials.Sealed(name, number, 1, some) for name in ("a", "b") for number in (1, 3) for some in lists),
        *(partials.Sealed("a", number, -1, lists[1]) for number in (3, 5, 7)),
    ]
    yield Walk(partials.begin(seal=2), partials.step, events)


def entry_walks() -> Iterator[Walk]:
    configs = [config_of(4), config_of(5), config_of(5, hash_seed=D)]
    yield Walk(
        entry.Outside(3),
        entry.step,
        [
            *(
                entry.Announced(server, config, drawn)
                for server in (0, 1)
                for config in configs
                for drawn in (True, False)
            ),
            *(entry.RoundGone(), entry.Leave()),
        ],
    )


def psr_client_walks() -> Iterator[Walk]:
    c = psr_client
    yield Walk(
        c.Away(),
        c.step,
        [
            *(c.Answered(server, query) for server in (0, 1) for query in (c.OfSession(), 1, 2)),
            *(c.Entered(ALLOWED), c.Ask(), c.Recollect(), c.Interrupt(), c.End()),
        ],
    )


def ssa_client_walks() -> Iterator[Walk]:
    c = ssa_client
    yield Walk(
        c.Away(),
        c.step,
        [
            *(c.Receipted(server, digest) for server in (0, 1) for digest in (A, B)),
            *(c.Entered(), c.Submit(A), c.Finish(), entry.RoundGone(), entry.Leave()),
        ],
    )


def psu_client_walks() -> Iterator[Walk]:
    c = psu_client
    unions = [(UnionBlock("a", 3, A), UnionBlock("b", 0, B)), (UnionBlock("a", 2, C), UnionBlock("b", 0, B))]
    yield Walk(
        c.Unknown(),
        c.step,
        [
            *(c.Described((first, second)) for first in unions for second in unions),
            *(c.Downloaded(0, name, digest) for name in ("a", "b") for digest in (A, B, C)),
        ],
    )


def epochs_walks() -> Iterator[Walk]:
    numbers = range(1, 8)
    yield Walk(
        epochs.Absent(),
        lambda state, event: epochs.step(state, event, "alice"),
        [
            *(kind(epoch, hint) for kind in (epochs.Brought, epochs.Hinted) for epoch in numbers for hint in (A, B)),
            *(kind(epoch) for kind in (epochs.Counted, epochs.Dropped) for epoch in numbers),
        ],
        lambda: watch_session,
    )


def psu_walks() -> Iterator[Walk]:
    union = (UnionBlock("a", 3, A),)
    for rows in ("all", "union"):
        task = Task(name="t", blocks=(Sparse("a", rows=8, select=2),), ring=Ring(64), alignment=rows)
        found = [psu.UnionFound(union, stays) for stays in (True, False)]
        others = [psu.UnionPublished(A), psu.UnionLost(), psu.MainSettled()]
        yield Walk(psu.begin(task), psu.step, [*found, *others])


WALKS: dict[ModuleType, Callable[[], Iterator[Walk]]] = {
    toss: toss_walks,
    sampling: sampling_walks,
    assembly: assembly_walks,
    ssa: ssa_walks,
    entry: entry_walks,
    psr_client: psr_client_walks,
    ssa_client: ssa_client_walks,
    psu_client: psu_client_walks,
    epochs: epochs_walks,
    partials: partials_walks,
    psr: psr_walks,
    psu: psu_walks,
}


# ---- random walks

Triple: TypeAlias = tuple[type[State], type[Event], type[State]]


def declared(machine: ModuleType) -> set[Triple]:
    return {(state, event, after) for (state, event), targets in machine.TRANSITIONS.items() for after in targets}


def check(machine: ModuleType, before: State, event: Event, after: State) -> Triple | None:
    """The transition that a step was, if it was one; fails where it is not declared."""
    triple = (type(before), type(event), type(after))
    if triple[:2] in machine.TRANSITIONS:
        assert triple in declared(machine), triple
        return triple
    assert after == before, triple
    return None


@dataclass
class Met:
    """What random walks of one machine have met.

    Attributes:
        states: by its kind, the first of each, and how it goes on.
        events: by its kind, one of each.
        steps: by the kinds of both, the first state and event that were a transition, and how the state goes on.
        taken: all transitions.
        harmless: pairs outside the table that changed nothing, as a resend.
    """

    states: dict[type[State], tuple[State, Step]] = field(default_factory=dict)
    events: dict[type[Event], Event] = field(default_factory=dict)
    steps: dict[tuple[type[State], type[Event]], tuple[State, Event, Step]] = field(default_factory=dict)
    taken: set[Triple] = field(default_factory=set)
    harmless: set[tuple[type[State], type[Event]]] = field(default_factory=set)

    def note(self, machine: ModuleType, walk: Walk, state: State, event: Event, after: State) -> None:
        pair = type(state), type(event)
        if (triple := check(machine, state, event, after)) is None:
            self.harmless.add(pair)
            return
        self.taken.add(triple)
        self.steps.setdefault(pair, (state, event, walk.step))
        self.states.setdefault(type(after), (after, walk.step))


@cache
def walked(machine: ModuleType, walks: int = 100) -> Met:
    """Walk so often, always the same ways; fails where a rule is broken."""
    rng, met = random.Random(1), Met()
    for walk in WALKS[machine]():
        met.states.setdefault(type(walk.start), (walk.start, walk.step))
        met.events |= {type(event): event for event in walk.events}
        for _ in range(walks * 8 if machine is ssa else walks):  # some of its transitions are seldom reached
            state, watch = walk.start, walk.watch()
            for event in rng.choices(walk.events, k=200):
                try:
                    after = walk.step(state, event)
                except FslError:
                    continue  # refused: the state is as it was, for states are immutable
                met.note(machine, walk, state, event, after)
                if after != state:
                    watch(state, event, after)
                state = after
    return met
