"""A trial: from a seed to a scenario and a plan of faults, through a simulated world, to a verdict.

    trial = draw(seed)           # what is learnt, by how many clients, and what goes wrong: printed, stored, shrunk
    verdict = run(trial)         # violations, and what was covered

A trial holds all that decides what happens; running it again gives the same transcript.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

import msgspec
import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.digests import DIGEST_BYTES, Domain, digest
from parties.cluster import SERVERS
from parties.server import Schedule, Server, ServerSetup
from parties.testing.checks import Case, Violation, check_all
from parties.testing.faults import (
    CALM,
    AtCommit,
    AtSend,
    AtTime,
    AtTransition,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    Fault,
    FullDisk,
    GiveUp,
    Late,
    MaliciousServer,
    Moment,
    OldCopy,
    Partition,
    Place,
    SkewedClock,
    SlowDisk,
    party_of,
)
from parties.testing.injector import CrashPoint
from parties.testing.members import Ledger, Member
from parties.testing.recorder import Transition, declared
from parties.testing.world import MakeServer, World, world

__all__ = ["Scenario", "Trial", "Verdict", "draw", "run"]

BOUND = 900.0
"""Seconds after the last fault in which everything must have come to its end."""

NAMES = ("anna", "ben", "carol", "dora", "emil")
MOMENTS: tuple[Moment, ...] = ("before write", "before sync", "after write", "before send", "after send")


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes on in a world when nothing goes wrong."""

    task: Task
    clients: int
    rounds: int
    seconds: float


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what happens in a world."""

    seed: int
    scenario: Scenario
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Verdict:
    """What came of a trial.

    Attributes:
        violations: what must not be.
        fired: the faults that have struck.
        transitions: what every machine did.
        crash_points: where servers died.
        seconds: of virtual time.
        transcript: a digest of every message and its time.
        world: as it was at the end.
    """

    violations: tuple[Violation, ...]
    fired: tuple[Fault, ...]
    transitions: frozenset[Transition]
    crash_points: frozenset[CrashPoint]
    seconds: float
    transcript: str
    world: World


# ---- drawing


def draw(seed: int) -> Trial:
    """The trial of a seed."""
    rng = Random(f"{seed}/trial")
    scenario = _scenario(rng)
    count = min(int(rng.expovariate(0.4)), 8)
    faults = tuple(rng.choices(list(_DRAWN), list(_DRAWN.values()), k=count))
    return Trial(seed, scenario, tuple(dict.fromkeys(make(rng, scenario) for make in faults)))


def _scenario(rng: Random) -> Scenario:
    clients = rng.randint(2, len(NAMES))
    alignment = "union" if rng.random() < 0.25 else "all"
    dense = (Dense("head", size=rng.randint(1, 4)),) if rng.random() < 0.7 else ()
    task = Task(
        name="laboratory",
        blocks=(
            Sparse("items", rows=rng.choice((16, 40, 64)), select=rng.randint(1, 3), width=rng.choice((1, 2))),
            *dense,
        ),
        ring=Ring(rng.choice((32, 64, 64, 128))),
        selection=rng.choice(("adaptive", "fixed")),
        updates=rng.choice(("retrieved", "any")),
        alignment=alignment,
        security=rng.choice(("verified", "semi-honest")),
        min_clients=2,
        max_clients=len(NAMES),
    )
    return Scenario(task, clients, rng.randint(1, 3), rng.choice((5.0, 20.0)))


Make = Callable[[Random, Scenario], Fault]


def _anyone(rng: Random, scenario: Scenario) -> str:
    return rng.choice((*SERVERS, *SERVERS, *NAMES[: scenario.clients]))


def _server(rng: Random) -> str:
    return rng.choice(SERVERS)


def _client(rng: Random, scenario: Scenario) -> str:
    return rng.choice(NAMES[: scenario.clients])


def _spell(rng: Random) -> tuple[float, float]:
    """When something begins, and how long it lasts."""
    begin = round(rng.uniform(0, CALM / 3), 3)
    return begin, round(2 ** rng.uniform(-2, 6), 3)


def _down(rng: Random) -> float:
    return round(2 ** rng.uniform(-4, 5), 3)


def _crash_at_transition(rng: Random, scenario: Scenario) -> Fault:
    machine = rng.choice(("round", "round", "round", "round", "round", "toss"))
    at = rng.choice(declared(machine))
    occurrence = 1 if rng.random() < 0.8 else rng.randint(2, 4)
    place = AtTransition(machine, at.state, at.event, at.after, rng.choice(MOMENTS), occurrence)
    return Crash(_server(rng), place, _down(rng))


def _crash_anywhere(rng: Random, scenario: Scenario) -> Fault:
    party = _anyone(rng, scenario)
    commits, sends = (60, 120) if party in SERVERS else (20, 40)
    places: tuple[Place, ...] = (
        AtTime(round(rng.uniform(0, CALM / 3), 3)),
        AtCommit(rng.randint(1, commits), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, sends), rng.choice(MOMENTS[3:])),
    )
    return Crash(party, rng.choice(places), _down(rng))


def _vanish(rng: Random, scenario: Scenario) -> Fault:
    places: tuple[Place, ...] = (
        AtCommit(rng.randint(1, 15), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, 30), rng.choice(MOMENTS[3:])),
    )
    return Crash(_client(rng, scenario), rng.choice(places), float("inf"))


def _cut(rng: Random, scenario: Scenario) -> Fault:
    dialler = rng.choice(("S1", *NAMES[: scenario.clients]))
    after = int(2 ** rng.uniform(0, 13))
    return Cut(dialler, rng.randint(1, 4), rng.random() < 0.5, after, rng.random() < 0.5)


def _delay(rng: Random, scenario: Scenario) -> Fault:
    return Delay(rng.choice(("S1", *NAMES[: scenario.clients])), rng.randint(1, 4), round(2 ** rng.uniform(-3, 4), 3))


def _partition(rng: Random, scenario: Scenario) -> Fault:
    pairs = [("S0", "S1"), ("S1", "S0")]
    pairs += [pair for name in NAMES[: scenario.clients] for server in SERVERS for pair in ((name, server), (server, name))]
    return Partition(*rng.choice(pairs[:2] if rng.random() < 0.5 else pairs), *_spell(rng))


def _skew(rng: Random, scenario: Scenario) -> Fault:
    return SkewedClock(_server(rng), round(rng.uniform(0, 30), 3), round(rng.choice((-1, 1)) * 2 ** rng.uniform(-1, 17), 3))


def _slow_disk(rng: Random, scenario: Scenario) -> Fault:
    return SlowDisk(_anyone(rng, scenario), *_spell(rng), round(2 ** rng.uniform(-5, 3), 3))


def _full_disk(rng: Random, scenario: Scenario) -> Fault:
    return FullDisk(_anyone(rng, scenario), *_spell(rng))


def _broken_write(rng: Random, scenario: Scenario) -> Fault:
    party = _anyone(rng, scenario)
    return BrokenWrite(party, rng.randint(1, 60 if party in SERVERS else 20))


def _late(rng: Random, scenario: Scenario) -> Fault:
    return Late(_client(rng, scenario), rng.randint(1, 3), round(rng.uniform(0, 40), 3))


def _old_copy(rng: Random, scenario: Scenario) -> Fault:
    return OldCopy(_client(rng, scenario), rng.randint(1, 3))


def _give_up(rng: Random, scenario: Scenario) -> Fault:
    return GiveUp(_server(rng), round(rng.uniform(0, 30), 3))


_DRAWN: Mapping[Make, float] = {
    _crash_at_transition: 8,
    _crash_anywhere: 5,
    _vanish: 1,
    _cut: 3,
    _delay: 2,
    _partition: 3,
    _skew: 1,
    _slow_disk: 1.5,
    _full_disk: 1,
    _broken_write: 1,
    _late: 1.5,
    _old_copy: 1.5,
    _give_up: 1,
}


# ---- running


def run(trial: Trial, make_server: Callable[[MaliciousServer], MakeServer] | None = None) -> Verdict:
    """Run a trial in a world of its own, and judge it.

    Args:
        trial: what decides what happens.
        make_server: gives the server that a `MaliciousServer` names; needed where the plan has one.
    """
    logging.getLogger("parties").setLevel(logging.CRITICAL)
    logging.getLogger("transport").setLevel(logging.CRITICAL)
    return trio.run(_run, trial, make_server, clock=MockClock(autojump_threshold=0))


async def _run(trial: Trial, make_server: Callable[[MaliciousServer], MakeServer] | None) -> Verdict:
    scenario = trial.scenario
    servers: list[MakeServer] = [Server, Server]
    for fault in trial.faults:
        if isinstance(fault, MaliciousServer) and make_server is not None:
            servers[SERVERS.index(fault.party)] = make_server(fault)
    honest = frozenset(index for index in (0, 1) if servers[index] is Server)
    schedule = Schedule(
        clients=scenario.clients, seconds=scenario.seconds, rounds=scenario.rounds, grace=3.0, patience=60.0
    )
    model = {
        block.name: np.zeros(block.size if isinstance(block, Dense) else (block.rows, block.width), dtype=np.int64)
        for block in scenario.task.blocks
    }
    async with world(
        scenario.task, model, trial.seed, trial.faults, schedule, (servers[0], servers[1])
    ) as made:
        members = {name: _member(made, trial, place, name) for place, name in enumerate(NAMES[: scenario.clients])}
        for name, member in members.items():
            made.start(name, member.live, member.make)
        with trio.move_on_after(CALM + BOUND):
            await made.wait_settled(scenario.rounds)
            await _all_told(made, members)
        ledgers = {name: member.ledger for name, member in members.items()}
        stranded = frozenset(name for name in members if _waits(made, name, ledgers[name]))
        case = Case(made, scenario.rounds, ledgers, honest, stranded)
        fired = [*made.injector.fired, *(fault for member in members.values() for fault in member.struck)]
        return Verdict(
            violations=tuple(check_all(case)),
            fired=tuple(fired),
            transitions=frozenset(step.transition for step in made.steps),
            crash_points=frozenset(made.injector.crash_points),
            seconds=made.now,
            transcript=_digest(made),
            world=made,
        )


def _member(made: World, trial: Trial, place: int, name: str) -> Member:
    faults = [fault for fault in trial.faults if isinstance(fault, Late | OldCopy) and party_of(fault) == name]
    return Member(name, place, trial.scenario.task, trial.seed, made.disks[name], faults)


async def _all_told(made: World, members: Mapping[str, Member]) -> None:
    """Wait until every client that has both receipts of a round knows how it ended."""
    while any(_waits(made, name, member.ledger) for name, member in members.items()):
        await trio.sleep(0.5)


def _waits(made: World, name: str, ledger: Ledger) -> bool:
    """Whether a client that has not vanished has receipts of a round, and has never been told of it."""
    return made.process(name).running and bool(ledger.acknowledged - ledger.told.keys())


def _digest(made: World) -> str:
    lines = (f"{at:.9f} {note!r}".encode() for at, note in made.transcript)
    return digest(Domain.SIMULATION, *lines)[:DIGEST_BYTES].hex()
