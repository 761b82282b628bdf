"""A trial: from a seed to a scenario and a plan of faults, through a simulated world, to a verdict.

    trial = draw(seed)           # what is learnt, by how many clients, and what goes wrong: printed, stored, shrunk
    verdict = run(trial)         # violations, and what was covered

A trial holds all that decides what happens; running it again gives the same transcript.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal

import msgspec
import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.errors import MisuseError
from parties.server.limits import Schedule
from parties.server.server import Server
from parties.simulation.network import SERVERS
from parties.testing.faults import (
    CALM,
    AtCommit,
    AtSend,
    AtTime,
    AtTransition,
    AtWrite,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    Fault,
    FaultPoint,
    FullDisk,
    GiveUp,
    Late,
    MaliciousClient,
    MaliciousServer,
    Moment,
    OldCopy,
    Partition,
    SkewedClock,
    SlowDisk,
    Straggle,
    party_of,
)
from parties.testing.injector import CrashPoint
from parties.testing.recorder import Transition, declared
from parties.testing.trials.checks import Case, Violation, check_all
from parties.testing.trials.members import Ledger, Member
from parties.testing.world import MakeServer, World, world

__all__ = ["Malice", "Scenario", "Trial", "Verdict", "draw", "run"]

MALICIOUS = (MaliciousServer, MaliciousClient)
MALICIOUS_BOUND = 60.0
"""Seconds after the last fault up to which a world is watched whose rounds need not end: one server is malicious."""

BOUND = 900.0
"""Seconds after the last fault in which everything must have come to its end."""

COMBINED_SHARE = 0.4
"""How many of the trials in which something goes wrong have faults besides that show something only together."""

NAMES = ("anna", "ben", "carol", "dora", "emil")
MOMENTS: tuple[Moment, ...] = ("before write", "before sync", "after write", "before send", "after send")
SERVERS_WRITE = (
    *("/events", "/events", "/events"),
    *("standing", "model/", "session/", "/toss", "/requests", "/parts/", "/submissions/", "/share/"),
)
COMMITTED = ("Committed", "Revealed", "Combined", "Concluded")
AFTER_THE_LISTS = ("Closed", "Closing", "Rostered", "Proved", "Verified", *COMMITTED)
CLIENTS_WRITE = ("submission", "submission", "bulk/", "retrieval", "session")


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
    count = min(int(rng.expovariate(0.25)), 10)
    drawn = rng.choices(list(_DRAWN), list(_DRAWN.values()), k=count)
    faults = [fault for make in drawn for fault in make(rng, scenario)]
    if faults and rng.random() < COMBINED_SHARE:
        faults += rng.choice(_COMBINED)(rng, scenario)
    return Trial(seed, scenario, tuple(dict.fromkeys(faults)))


def _scenario(rng: Random) -> Scenario:
    clients = rng.choice((2, 2, 3, 3, 3, 4, 5))
    alignment: Literal["all", "union"] = "union" if rng.random() < 0.25 else "all"
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
    return Scenario(task, clients, rng.choice((1, 1, 2, 2, 3)), rng.choice((5.0, 20.0)))


Make = Callable[[Random, Scenario], Iterator[Fault]]


def _anyone(rng: Random, scenario: Scenario) -> str:
    return rng.choice((*SERVERS, *SERVERS, *NAMES[: scenario.clients]))


def _server(rng: Random) -> str:
    return rng.choice(SERVERS)


def _client(rng: Random, scenario: Scenario) -> str:
    return rng.choice(NAMES[: scenario.clients])


def _time(rng: Random) -> float:
    """When something happens: most does in the first seconds."""
    return round(2 ** rng.uniform(-4, 5), 3)


def _spell(rng: Random) -> tuple[float, float]:
    """When something begins, and how long it lasts."""
    return _time(rng), round(2 ** rng.uniform(-2, 6), 3)


def _down(rng: Random) -> float:
    return round(2 ** rng.uniform(-4, 5), 3)


def _crash_at_transition(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _server(rng)
    at = rng.choice(declared(rng.choice(("round", "round", "round", "round", "round", "toss"))))
    occurrence = 1 if rng.random() < 0.8 else rng.randint(2, 4)
    yield Crash(party, AtTransition(*at, rng.choice(MOMENTS), occurrence), _down(rng))
    yield from _leading_to(at, party, rng, scenario)


def _leading_to(at: Transition, party: str, rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """What makes a transition likelier that does not come about by itself."""
    other = SERVERS[1 - SERVERS.index(party)]
    if at.event == "GaveUp":
        yield from _give_up_in(at.state, party, rng)
    elif at.event == "PeerAbort":
        yield from _give_up_in(rng.choice((at.state, "Verified", "Proved")), other, rng)
    if at.state in ("Closing", "Closed"):
        yield Delay(_client(rng, scenario), 1 + SERVERS.index(party), round(2 ** rng.uniform(-1, 3), 3))
    if at.after == "Aborted" and at.event in ("PeerRoster", "Submitted", "GraceOver"):
        yield from _vanish(rng, scenario)


def _give_up_in(state: str, party: str, rng: Random) -> Iterator[Fault]:
    ways = [at for at in declared("round") if at.after == state != at.state]
    if ways:
        yield GiveUp(party, AtTransition(*rng.choice(ways), "after write"))
    else:
        yield GiveUp(party, AtTime(_time(rng)))


def _crash_at_write(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _anyone(rng, scenario)
    words = rng.choice(SERVERS_WRITE if party in SERVERS else CLIENTS_WRITE)
    yield Crash(party, AtWrite(words, rng.randint(1, 4), rng.choice(MOMENTS[:3])), _down(rng))


def _crash_anywhere(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _anyone(rng, scenario)
    commits, sends = (60, 120) if party in SERVERS else (20, 40)
    places: tuple[FaultPoint, ...] = (
        AtTime(_time(rng)),
        AtCommit(rng.randint(1, commits), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, sends), rng.choice(MOMENTS[3:])),
    )
    yield Crash(party, rng.choice(places), _down(rng))


def _vanish(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    places: tuple[FaultPoint, ...] = (
        AtCommit(rng.randint(1, 15), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, 30), rng.choice(MOMENTS[3:])),
    )
    yield Crash(_client(rng, scenario), rng.choice(places), float("inf"))


def _dialler(rng: Random, scenario: Scenario) -> str:
    return rng.choice(("S1", *NAMES[: scenario.clients]))


def _cut(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    after = int(2 ** rng.uniform(0, 13))
    yield Cut(_dialler(rng, scenario), rng.randint(1, 4), rng.random() < 0.5, after, rng.random() < 0.5)


def _delay(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield Delay(_dialler(rng, scenario), rng.randint(1, 3), round(2 ** rng.uniform(-3, 4), 3))


def _partition(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    client, server = _client(rng, scenario), _server(rng)
    pairs = (("S0", "S1"), ("S1", "S0"), (client, server), (server, client))
    yield Partition(*rng.choice(pairs), *_spell(rng))


def _skew(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield SkewedClock(_server(rng), _time(rng), round(rng.choice((-1, 1)) * 2 ** rng.uniform(-1, 17), 3))


def _slow_disk(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield SlowDisk(_anyone(rng, scenario), *_spell(rng), round(2 ** rng.uniform(-5, 3), 3))


def _full_disk(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield FullDisk(_anyone(rng, scenario), *_spell(rng))


def _broken_write(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _anyone(rng, scenario)
    yield BrokenWrite(party, rng.randint(1, 60 if party in SERVERS else 20))


def _late(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield Late(_client(rng, scenario), rng.randint(1, 3), _time(rng))


def _old_copy(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    yield OldCopy(_client(rng, scenario), rng.randint(1, 3))


def _give_up(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    state = rng.choice(("Open", "Closed", "Closing", "Rostered", "Proved", "Verified"))
    yield from _give_up_in(state, _server(rng), rng)


def _straggle(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """Who is with one server in time and late with the other, which is killed; often the round lacks somebody else."""
    late, missing = rng.sample(NAMES[: scenario.clients], 2)
    server, submission = _server(rng), rng.choice((1, 1, 1, 2))
    yield Straggle(late, submission, server, round(2 ** rng.uniform(-1, 7), 3))
    if rng.random() < 0.6:
        yield Late(missing, submission, 2 * scenario.seconds)
    if rng.random() < 0.6:
        at = rng.choice([at for at in declared("round") if at.state in AFTER_THE_LISTS])
        yield Crash(server, AtTransition(*at, rng.choice(MOMENTS)), _down(rng))


def _give_up_too_late(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """An operator who would give up what both servers have committed to."""
    at = rng.choice([at for at in declared("round") if at.after in COMMITTED and at.state != at.after])
    yield GiveUp(_server(rng), AtTransition(*at, "after write"))


def _crash_while_settling(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    words, rounds = rng.choice((("standing", 1), ("model/", 1), ("past/", 0)))  # the first two also before the first
    number = rounds + rng.randint(1, scenario.rounds)
    yield Crash(_server(rng), AtWrite(words, number, rng.choice(MOMENTS[:3])), _down(rng))


def _forget_the_peer(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """A server dies before it has recorded what the other said, which has gone on by then."""
    at = rng.choice([at for at in declared("round") if at.event.startswith("Peer")])
    party, moment = _server(rng), rng.choice(MOMENTS[:2])
    yield Crash(party, AtTransition(*at, moment), _down(rng))
    yield from _leading_to(at, party, rng, scenario)


_COMBINED: tuple[Make, ...] = (_straggle, _straggle, _give_up_too_late, _crash_while_settling, _forget_the_peer)

_DRAWN: Mapping[Make, float] = {
    _crash_at_transition: 8,
    _crash_at_write: 4,
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
    _give_up: 1.5,
}


# ---- running


class Malice:
    """Who takes the place of parties that the plan calls malicious; by itself nobody does."""

    def server(self, fault: MaliciousServer) -> MakeServer:
        """What makes the server that a fault names."""
        raise MisuseError(f"nobody plays a malicious server here: {fault}")

    def client(self, fault: MaliciousClient, member: Member) -> Member:
        """Who plays the client that a fault names, in place of an honest member."""
        raise MisuseError(f"nobody plays a malicious client here: {fault}")


def run(trial: Trial, malice: Malice | None = None) -> Verdict:
    """Run a trial in a world of its own, and judge it.

    Args:
        trial: what decides what happens.
        malice: plays the malicious parties of a plan that has some.
    """
    with _quiet():
        return trio.run(_run, trial, malice or Malice(), clock=MockClock(autojump_threshold=0))


@contextmanager
def _quiet() -> Iterator[None]:
    """What goes wrong in a world is no news: the logs of parties and of the transport are silent meanwhile."""
    logs = [logging.getLogger(name) for name in ("parties", "transport")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


async def _run(trial: Trial, malice: Malice) -> Verdict:
    scenario = trial.scenario
    servers: list[MakeServer] = [Server, Server]
    for fault in trial.faults:
        if isinstance(fault, MaliciousServer):
            servers[SERVERS.index(fault.party)] = malice.server(fault)
    honest = frozenset(index for index in (0, 1) if servers[index] is Server)
    schedule = Schedule(
        clients=scenario.clients, seconds=scenario.seconds, rounds=scenario.rounds, grace=3.0, patience=60.0
    )
    model = {
        block.name: np.zeros(block.size if isinstance(block, Dense) else (block.rows, block.width), dtype=np.int64)
        for block in scenario.task.blocks
    }
    async with world(
        scenario.task, model, trial.seed, trial.faults, schedule, (servers[0], servers[1]), clients=NAMES
    ) as made:
        members = {name: _member(made, trial, place, name) for place, name in enumerate(NAMES[: scenario.clients])}
        villains = {
            fault.party: malice.client(fault, members.pop(fault.party))
            for fault in trial.faults
            if isinstance(fault, MaliciousClient) and fault.party in members
        }
        for name, member in sorted((members | villains).items()):
            made.start(name, member.live, member.make, judged=True)
        with trio.move_on_after(CALM + (BOUND if len(honest) == 2 else MALICIOUS_BOUND)):
            await made.wait_settled(scenario.rounds)
            await _all_told(made, members)
        ledgers = {name: member.ledger for name, member in members.items()}
        case = Case(
            world=made,
            rounds=scenario.rounds,
            ledgers=ledgers,
            honest=honest,
            stranded=frozenset(name for name in members if len(honest) == 2 and _waits(made, name, ledgers[name])),
            faults=trial.faults,
            spoiled={name: frozenset(villain.spoiled) for name, villain in villains.items()},
        )
        struck = (fault for member in (members | villains).values() for fault in member.struck)
        fired = [*made.injector.fired, *struck, *(fault for fault in trial.faults if isinstance(fault, MALICIOUS))]
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
    """Wait until every client that has submitted to a round knows how it ended."""
    while any(_waits(made, name, member.ledger) for name, member in members.items()):  # noqa: ASYNC110 - rarely
        await trio.sleep(0.5)


def _waits(made: World, name: str, ledger: Ledger) -> bool:
    """Whether a client that has not vanished has submitted to a round that is over, and never heard how it ended."""
    sent = [report for report in made.settled[0].values() if ledger.plans.get(report.round_id)]
    heard = ledger.repeated | {name for name, plans in ledger.refused.items() if plans}
    unheard = [report for report in sent if report.number not in ledger.told and report.round_id not in heard]
    return bool(unheard) and made.process(name).down != float("inf")


def _digest(made: World) -> str:
    lines = (f"{at:.9f} {note!r}".encode() for at, note in made.transcript)
    return digest(Domain.SIMULATION, *lines)[:DIGEST_BYTES].hex()
