"""The declared transitions of the protocol machines are the real ones: all that are taken, and no others.

Random walks take every event that a machine knows, welcome or not, in any order; whole rounds between parties take the
events that really come. What is refused or repeated changes nothing; everything else must be declared.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fsl_async import FslError, Ring, Sparse, Task
from fsl_async.protocols import assembly, entry, epochs, partials, psr, psu, sampling, ssa, toss
from fsl_async.protocols.machine import Event, State
from fsl_async.protocols.psr import client as psr_client
from fsl_async.protocols.psu import client as psu_client
from fsl_async.protocols.ssa import client as ssa_client
from fsl_async.union import UnionBlock
from parties import simulate
from parties.testing.machines import machines
from tests.support.cases import MANY
from tests.support.machine_scenes import ALLOWED, config_of, key, sampling_terms

MACHINES = list(machines().values())
NAMES = list(machines())
A, B, C, D = (key(number) for number in range(4))

Step = Callable[[Any, Event], Any]


@dataclass(frozen=True)
class Walk:
    """Where a random walk begins, how it goes on, and the events it draws from."""

    start: State
    step: Step
    events: Sequence[Event]


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
        )


def sampling_walks() -> Iterator[Walk]:
    lists = [("alice", "bob", "carol"), ("alice", "bob"), ("alice",), ("bob", "carol", "dora"), ()]
    for sample in (2, 3, 0.5, 1.0):
        terms = sampling_terms(1, sample=sample)
        yield Walk(
            sampling.Gathering(),
            lambda state, event, terms=terms: sampling.step(state, event, terms),
            [kind(asked) for kind in (sampling.Frozen, sampling.PeerAsked) for asked in lists],
        )


def assembly_walks() -> Iterator[Walk]:
    yield Walk(
        assembly.Expecting(),
        assembly.step,
        [kind(part) for kind in (assembly.Direct, assembly.Public) for part in (A, B)],
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
            [*frequent * 4, ssa.GaveUp("tired"), ssa.PeerAbort("S0 gave up: tired")],
        )
    yield counting_walk({"alice": A, "bob": B})


def counting_walk(roster: dict[str, bytes]) -> Walk:
    """A round that counts contributors, with the events alone that lead there, and on."""
    terms = ssa.Terms(round_id=D, server=1, minimum=2, verified=True, contributors=True)
    frequent = [
        *(ssa.Submitted(name, digest) for name, digest in roster.items()),
        *(ssa.CloseRound(), ssa.PeerRoster(roster), ssa.Evaluated(roster), ssa.PeerProofs(roster)),
        *(ssa.RowsCounted(A), ssa.PeerCounts(C), ssa.PeerCounts(D), ssa.Summed(A, B)),
        ssa.PeerCommitment(ssa.share_commitment(terms, 0, roster, C, D, (C, A))),
    ]
    return Walk(
        ssa.Open(),
        lambda state, event: ssa.step(state, event, terms),
        [*frequent * 4, ssa.GaveUp("tired"), ssa.PeerAbort("S0 gave up: tired")],
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
    )


def psu_walks() -> Iterator[Walk]:
    union = (UnionBlock("a", 3, A),)
    for rows in ("all", "union"):
        task = Task(name="t", blocks=(Sparse("a", rows=8, select=2),), ring=Ring(64), alignment=rows)
        found = [psu.UnionFound(union, stays) for stays in (True, False)]
        others = [psu.UnionPublished(A), psu.UnionLost(), psu.MainSettled()]
        yield Walk(psu.begin(task), psu.step, [*found, *others])


WALKS = {
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

Triple = tuple[type[State], type[Event], type[State]]


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


@pytest.mark.parametrize("walks", [100, pytest.param(500 * MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_random_walks_take_all_declared_transitions_and_no_others(machine: ModuleType, walks: int) -> None:
    seed = 1
    walks *= 5 if machine is ssa else 1  # some of its transitions are seldom reached
    rng, taken = random.Random(seed), set()
    for walk in WALKS[machine]():
        assert type(walk.start) in machine.MACHINE.initial
        for _ in range(walks):
            state = walk.start
            for event in rng.choices(walk.events, k=100):
                try:
                    after = walk.step(state, event)
                except FslError:
                    continue  # refused: the state is as it was, for states are immutable
                taken.add(check(machine, state, event, after))
                state = after
    assert declared(machine) - taken == set(), f"declared, but never taken with seed {seed}"


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_every_state_can_be_reached(machine: ModuleType) -> None:
    reached = set(machine.MACHINE.initial)
    for _ in machine.ACCEPTS:
        reached |= {after for before, _, after in declared(machine) if before in reached}
    assert reached == set(machine.ACCEPTS)


@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_parties_take_declared_transitions_only(selection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with a union, a session where selection is fixed, and one round that too few clients take part in."""
    taken: list[tuple[ModuleType, State, Event, State]] = []
    for machine in MACHINES:
        monkeypatch.setattr(machine, "step", recording(machine, taken))
    task = Task(
        name="t",
        blocks=(Sparse("a", rows=40, select=4),),
        ring=Ring(64),
        selection=selection,
        alignment="union",
        min_clients=2,
        max_clients=4,
    )
    async with (
        simulate(task, {"a": np.zeros((40, 1), dtype=np.int64)}, seed=1) as network,
        network.client("alice") as alice,
        network.client("bob") as bob,
    ):
        for number in range(3):
            if number == 0 or selection == "adaptive":
                for member in (alice, bob):
                    await member.unite({"a": [1, 2, 3]})
                await network.finish_union()
            for member in (alice, bob)[: 1 if number == 1 else 2]:
                await member.retrieve({"a": [1, 3]})
                await member.submit({"a": ([1, 3], np.ones((2, 1), dtype=np.int64))})
            if number == 1:
                with pytest.raises(FslError, match="at least 2 are needed"):
                    await network.finish_round()
            else:
                await network.finish_round()
            assert (await alice.outcome()).counted == (number != 1)
    steps = {(machine, check(machine, before, event, after)) for machine, before, event, after in taken}
    for machine in MACHINES:
        exercised = {triple for owner, triple in steps if owner is machine}
        assert exercised or machine in (partials, psr, sampling) or (machine is epochs and selection == "adaptive"), (
            machine
        )
    assert (ssa, (ssa.Concluded, ssa.PeerConclusion, ssa.Done)) in steps
    assert (ssa_client, (ssa_client.Submitted, ssa_client.Finish, ssa_client.Over)) in steps


def recording(machine: ModuleType, taken: list[tuple[ModuleType, State, Event, State]]) -> Callable[..., State]:
    step = machine.step

    def recorded(state: State, event: Event, *rest: Any) -> State:
        after: State = step(state, event, *rest)
        taken.append((machine, state, event, after))
        return after

    return recorded
