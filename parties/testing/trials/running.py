"""Runs a trial in a simulated world of its own, checks the result, and shrinks a trial that fails to a short one.

Faults are removed one by one, then the scenario is made smaller, then the faults' times and numbers rounder, and all of
it is repeated until nothing more can be removed. Every candidate is run, so the result is known to fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import trio
from trio.testing import MockClock

from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.errors import MisuseError
from parties.schedule import Schedule
from parties.simulation.network import SERVERS
from parties.testing.faults import (
    CALM,
    Crash,
    Cut,
    Delay,
    FaultBase,
    FullDisk,
    Partition,
    SlowDisk,
    SpoiltBlobs,
    party_of,
)
from parties.testing.injector import CrashPoint
from parties.testing.recorder import Transition
from parties.testing.round_faults import Fault, Late, MaliciousClient, MaliciousServer, OldCopy, StoppedWorker, Straggle
from parties.testing.trials.case import Case, Violation
from parties.testing.trials.checks import check_all
from parties.testing.trials.members import Ledger, Member
from parties.testing.trials.rules import initial_model, made_for
from parties.testing.trials.scenario import NAMES, Scenario, Trial, in_pieces
from parties.testing.world import MakeServer, World, world

MALICIOUS = (MaliciousServer, MaliciousClient)
MALICIOUS_BOUND = 60.0
"""Seconds after the last fault for which a world with a malicious server is watched: its rounds need not end."""

BOUND = 900.0
"""Seconds after the last fault within which every round must have ended."""


@dataclass(frozen=True)
class Verdict:
    """The result of a trial.

    Attributes:
        violations: the rules that were violated.
        fired: the faults that have struck.
        transitions: the transitions that machines have taken.
        crash_points: the crash points at which servers died.
        seconds: the virtual time that it took.
        transcript: a digest of every message and its time.
        case: the world at its end, and what is known of it.
    """

    violations: tuple[Violation, ...]
    fired: tuple[FaultBase, ...]
    transitions: frozenset[Transition]
    crash_points: frozenset[CrashPoint]
    seconds: float
    transcript: str
    case: Case


class Malice:
    """Plays the malicious parties of a plan; this base class refuses every plan that has one."""

    def server(self, fault: MaliciousServer) -> MakeServer:
        """The maker of the malicious server that a fault names."""
        raise MisuseError(f"no malicious server is available: {fault}")

    def client(self, fault: MaliciousClient, member: Member) -> Member:
        """The malicious member that a fault names, in place of an honest one."""
        raise MisuseError(f"no malicious client is available: {fault}")


def run(trial: Trial, malice: Malice | None = None) -> Verdict:
    """Run a trial in a world of its own, and check the result.

    Args:
        trial: the trial.
        malice: plays the malicious parties of the plan; needed only if it has some.
    """
    with _quiet(), in_pieces(trial.scenario):
        return trio.run(_run, trial, malice or Malice(), clock=MockClock(autojump_threshold=0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logs of parties and of the transport, because faults in a simulated world are expected."""
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
    servers: list[MakeServer] = [made_for(trial, index) for index in (0, 1)]
    for fault in trial.faults:
        if isinstance(fault, MaliciousServer):
            servers[SERVERS.index(fault.party)] = malice.server(fault)
    malicious_servers = {fault.party for fault in trial.faults if isinstance(fault, MaliciousServer)}
    honest = frozenset(index for index in (0, 1) if SERVERS[index] not in malicious_servers)
    schedule = Schedule(
        clients=scenario.clients, seconds=scenario.seconds, rounds=scenario.rounds, gather=4.0, grace=3.0, patience=60.0
    )
    async with world(
        scenario.task,
        initial_model(scenario.task),
        trial.seed,
        trial.faults,
        schedule,
        (servers[0], servers[1]),
        clients=NAMES,
        computing=scenario.computing,
        workers=scenario.workers,
        worker_memory=scenario.worker_memory,
        workers_answer=scenario.workers_answer,
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
            while any(_waits(made, name, member.ledger) for name, member in members.items()):  # noqa: ASYNC110 - rarely
                await trio.sleep(0.5)
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
            crash_points=frozenset(point for point in made.injector.crash_points if point[0] in SERVERS),
            seconds=made.now,
            transcript=_digest(made),
            case=case,
        )


def _member(made: World, trial: Trial, place: int, name: str) -> Member:
    faults = [fault for fault in trial.faults if isinstance(fault, Late | OldCopy) and party_of(fault) == name]
    return Member(name, place, trial.scenario.task, trial.seed, made.disks[name], faults)


def _waits(made: World, name: str, ledger: Ledger) -> bool:
    """Whether a client that will still run has submitted to a settled round and does not know its outcome."""
    sent = [report for report in made.settled[0].values() if ledger.plans.get(report.round_id)]
    heard = ledger.repeated | {name for name, plans in ledger.refused.items() if plans}
    told = ledger.outcomes.keys() | ledger.refused_sums
    unheard = [report for report in sent if report.number not in told and report.round_id not in heard]
    return bool(unheard) and made.process(name).down != float("inf")


def _digest(made: World) -> str:
    lines = (f"{at:.9f} {note!r}".encode() for at, note in made.transcript)
    return digest(Domain.SIMULATION, *lines)[:DIGEST_BYTES].hex()


Fails = Callable[[Trial], bool]


def shrink(trial: Trial, fails: Fails) -> Trial:
    """The smallest trial found that still fails.

    Args:
        trial: a trial that fails.
        fails: runs a trial, and returns whether it fails in the same way.
    """
    while True:
        smaller = next((candidate for candidate in _candidates(trial) if fails(candidate)), trial)
        if smaller == trial:
            return trial
        trial = smaller


def _candidates(trial: Trial) -> Iterator[Trial]:
    """Trials that are a step smaller, the greatest steps first."""
    faults = trial.faults
    if len(faults) > 3:
        half = len(faults) // 2
        yield _with(trial, faults[:half])
        yield _with(trial, faults[half:])
    for index in range(len(faults)):
        yield _with(trial, (*faults[:index], *faults[index + 1 :]))
    for scenario in _smaller_scenarios(trial):
        yield msgspec.structs.replace(trial, scenario=scenario)
    for index, fault in enumerate(faults):
        for simpler in _simpler(fault):
            yield _with(trial, (*faults[:index], simpler, *faults[index + 1 :]))


def _with(trial: Trial, faults: tuple[Fault, ...]) -> Trial:
    return msgspec.structs.replace(trial, faults=faults)


def _smaller_scenarios(trial: Trial) -> Iterator[Scenario]:
    scenario = trial.scenario
    struck = {party_of(fault) for fault in trial.faults}
    if scenario.rounds > 1:
        yield msgspec.structs.replace(scenario, rounds=scenario.rounds - 1)
    if scenario.clients > 2 and NAMES[scenario.clients - 1] not in struck:
        yield msgspec.structs.replace(scenario, clients=scenario.clients - 1)
    task = scenario.task
    for plainer in ({"alignment": "all"}, {"selection": "adaptive"}, {"security": "semi-honest"}):
        with suppress(MisuseError):  # what the task has beside that may need it
            candidate = msgspec.structs.replace(task, **plainer)
            if candidate != task:
                yield msgspec.structs.replace(scenario, task=candidate)


def _simpler(fault: Fault) -> Iterator[Fault]:
    """The same fault with rounder numbers; every step makes a number smaller or final, so shrinking ends."""
    match fault:
        case Crash(down=down) if down not in (1.0, float("inf")):
            yield msgspec.structs.replace(fault, down=1.0)
        case Partition() | SlowDisk() | FullDisk() | SpoiltBlobs() | StoppedWorker():
            for name in ("begin", "seconds"):
                yield from _rounded(fault, name)
        case Delay() | Late() | Straggle():
            yield from _rounded(fault, "seconds")
        case Cut(after=after) if after > 1:
            yield msgspec.structs.replace(fault, after=after // 2)


def _rounded(fault: Fault, name: str) -> Iterator[Fault]:
    value = getattr(fault, name)
    if value != int(value):
        yield msgspec.structs.replace(fault, **{name: float(int(value))})
