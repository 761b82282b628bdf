"""Draws trials from seeds: a scenario, and a plan of faults that strike where they are most likely to show a defect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Literal

import msgspec

from fsl_async import Dense, Privacy, Ring, Sparse, Task
from parties.simulation.network import SERVERS
from parties.testing.faults import (
    AtCommit,
    AtSend,
    AtTime,
    AtTransition,
    AtWrite,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    FaultPoint,
    FullDisk,
    Moment,
    Partition,
    SkewedClock,
    SlowDisk,
    SpoiltBlobs,
)
from parties.testing.machines import declared
from parties.testing.recorder import Transition
from parties.testing.round_faults import AbortRound, CloseNow, Fault, Late, OldCopy, Straggle
from parties.testing.trials.rules import ruled
from parties.testing.trials.scenario import NAMES, Scenario, Trial, is_late

COMBINED_SHARE = 0.4
"""The share of trials with faults that also get a combination of faults that shows something only together."""

CLOSED_SHARE = 0.3
"""The share of trials, of the seeds that have it, in which an operator closes a round."""

CUT_SHARE = 0.4
"""The share of trials, of the same seeds, in which shares have many pieces."""

BUSY_SHARE = 0.4
"""The share of trials, of the same seeds, in which computing takes time, so that submissions wait for one another."""

SAMPLED_SHARE = 0.12
"""The share of trials in whose task clients are drawn; that is drawn beside everything else."""

COUNTED_SHARE = 0.25
"""The share of trials, of those whose task may have it, in which contributors are counted; drawn beside as well."""

BOUNDED_SHARE = 0.25
"""The share of trials, of those whose task is verified, in which updates have a bound; drawn beside as well."""

HARMS: tuple[Literal["altered", "missing"], ...] = ("altered", "missing")
SPOILT_SHARE = 0.2
"""The share of trials with faults in which blobs are damaged, or a server dies around one; drawn beside as well."""

MOMENTS: tuple[Moment, ...] = ("before write", "before sync", "after write", "before send", "after send")
SERVERS_WRITE = (
    *("/events", "/events", "/events"),
    *("standing", "model/", "session/", "/toss", "/requests", "/parts/", "/submissions/", "/share/"),
)
COMMITTED = ("Committed", "Revealed", "Combined", "Concluded")
AFTER_THE_LISTS = ("Closed", "Closing", "Rostered", "Proved", "Verified", *COMMITTED)
COUNTING = (
    Transition("ssa", "Verified", "PeerCounts", "Verified"),
    Transition("ssa", "Verified", "RowsCounted", "Tallied"),
    Transition("ssa", "Verified", "RowsCounted", "Chosen"),
    Transition("ssa", "Tallied", "PeerCounts", "Chosen"),
    Transition("ssa", "Chosen", "Summed", "Committed"),
)
"""What happens only where contributors are counted."""

CHARGING = (
    Transition("ssa", "Verified", "Summed", "Committed"),
    Transition("ssa", "Committed", "PeerCommitment", "Revealed"),
    Transition("ssa", "Revealed", "PeerShare", "Combined"),
)
"""Where noise is drawn, and where a round is charged."""

NOISED_SHARE = 0.4
NOISE = Privacy(noise=1e-6, delta=1e-6, budget=1e15)
"""A little noise, so that sums stay within what numbers hold, and a budget for every round."""

COUNTING_ENDS = tuple(
    Transition("ssa", state, event, "Aborted") for state in ("Tallied", "Chosen") for event in ("GaveUp", "PeerAbort")
)
LATER = (Transition("ssa", "Concluded", "PeerConclusion", "Differed"), *COUNTING, *COUNTING_ENDS)
"""Transitions that came later, and are drawn beside: a longer list would give seeds other trials than before."""

PROVING = (
    Transition("ssa", "Rostered", "Evaluated", "Proved"),
    Transition("ssa", "Proved", "PeerProofs", "Verified"),
)
"""Around these a server's answers about bounds are made, sent and judged."""

CLIENTS_WRITE = ("submission", "submission", "bulk/", "retrieval", "session")


RULED_FROM = 1_000_000
"""From this seed on, every trial's task has a rule (see `parties.testing.trials.rules`); none before has."""


def draw(seed: int) -> Trial:
    """The trial of a seed.

    Example:
        >>> run(draw(11)).violations
        ()
    """
    rng = Random(f"{seed}/trial")
    scenario = _scenario(rng)
    count = min(int(rng.expovariate(0.25)), 10)
    drawn = rng.choices(list(_DRAWN), list(_DRAWN.values()), k=count)
    faults = [fault for make in drawn for fault in make(rng, scenario)]
    if faults and rng.random() < COMBINED_SHARE:
        faults += rng.choice(_COMBINED)(rng, scenario)
    trial = sampled(Trial(seed, scenario, tuple(dict.fromkeys((*faults, *closed(seed))))))
    trial = busy(cut_up(trial))
    return spoilt(noised(bounded(counted(trial))) if seed < RULED_FROM else ruled(trial))


def spoilt(trial: Trial) -> Trial:
    """The same trial, or one in which a server reads damaged blobs for a while, or dies around a put or an erasure."""
    rng = Random(f"{trial.seed}/blobs")
    if rng.random() >= SPOILT_SHARE or not trial.faults:
        return trial
    server, harm = _server(rng), rng.choice(HARMS)
    spell = SpoiltBlobs(server, *_spell(rng), harm)
    faults: list[Fault] = [spell]
    if rng.random() < 0.5:  # what is in memory is not read back before a restart
        faults.append(Crash(server, AtTime(spell.begin), round(2 ** rng.uniform(-4, 2), 3)))
    if rng.random() < 0.5:
        place = rng.choice(("/parts/", "/dense/", "/bound/", "/share/", "erase/round"))
        faults.append(Crash(_server(rng), AtWrite(place, rng.randint(1, 3), rng.choice(MOMENTS[:3])), _time(rng)))
    return _changed(trial, faults)


def noised(trial: Trial) -> Trial:
    """The same trial, or one with a bound in which servers add noise; often one dies while it draws or charges it."""
    rng, task = Random(f"{trial.seed}/noise"), trial.scenario.task
    if rng.random() >= NOISED_SHARE or task.bound is None or task.alignment != "all" or task.ring.bits == 32:
        return trial
    dies = Crash(_server(rng), AtTransition(*rng.choice(CHARGING), rng.choice(MOMENTS)), _time(rng))
    return _changed(trial, [dies] if trial.faults and rng.random() < 0.7 else [], privacy=NOISE)


def counted(trial: Trial) -> Trial:
    """The same trial, or one in which contributors are counted; often a server dies while they are."""
    rng, task = Random(f"{trial.seed}/contributors"), trial.scenario.task
    if rng.random() >= COUNTED_SHARE or task.security != "verified" or task.alignment != "all":
        return trial
    least = rng.choice((2, 2, 3))
    dies = Crash(_server(rng), AtTransition(*rng.choice(COUNTING), rng.choice(MOMENTS)), _time(rng))
    ends = AbortRound(_server(rng), AtTransition(*rng.choice(COUNTING[:4]), "after write"))
    extra: tuple[Fault, ...] = (*[dies] * (rng.random() < 0.6), *[ends] * (rng.random() < 0.2)) if trial.faults else ()
    return _changed(trial, extra, min_contributors=least, lying_clients=0)


def bounded(trial: Trial) -> Trial:
    """The same trial, or one in which updates have a bound, by either proof; often a server dies around its answers.

    The bound is the norm of the longest update that a client of the trial can make.
    """
    rng, task = Random(f"{trial.seed}/bound"), trial.scenario.task
    if rng.random() >= BOUNDED_SHARE or task.security != "verified":
        return trial
    proof: Literal["exact", "projected"] = "projected" if task.ring.bits == 32 else rng.choice(("exact", "projected"))
    dies = Crash(_server(rng), AtTransition(*rng.choice(PROVING), rng.choice(MOMENTS)), _time(rng))
    extra = [dies] if trial.faults and rng.random() < 0.6 else []
    return _changed(trial, extra, bound=longest_update(task), bound_proof=proof)


def longest_update(task: Task) -> float:
    """No client of a trial can make an update of a larger norm."""
    touched = sum(block.select * block.width if isinstance(block, Sparse) else block.size for block in task.blocks)
    return float(4 ** (len(NAMES) - 1) * (math.isqrt(touched) + 1))


def sampled(trial: Trial) -> Trial:
    """The same trial, or one in which clients are drawn; often a server dies while they are."""
    rng = Random(f"{trial.seed}/chosen")
    if rng.random() >= SAMPLED_SHARE:
        return trial
    size = rng.choice((2, 3, 0.5, 0.7, 1.0))
    dies = Crash(_server(rng), AtTransition(*rng.choice(declared("sampling")), rng.choice(MOMENTS)), _time(rng))
    return _changed(trial, [dies] if trial.faults and rng.random() < 0.7 else [], sample=size)


def cut_up(trial: Trial) -> Trial:
    """In some trials of late seeds, shares have many pieces; often a server dies while one is formed or taken."""
    rng = Random(f"{trial.seed}/pieces")
    if not is_late(trial.seed) or rng.random() >= CUT_SHARE:
        return trial
    scenario = msgspec.structs.replace(trial.scenario, piece=rng.choice((32, 64, 200)))
    dies = Crash(_server(rng), AtWrite("share/", rng.randint(1, 60), rng.choice(MOMENTS[:3])), _time(rng))
    return _changed(msgspec.structs.replace(trial, scenario=scenario), [dies] if rng.random() < 0.6 else [])


def busy(trial: Trial) -> Trial:
    """In some trials of late seeds, whatever is computed takes time."""
    rng = Random(f"{trial.seed}/computing")
    if not is_late(trial.seed) or rng.random() >= BUSY_SHARE:
        return trial
    scenario = msgspec.structs.replace(trial.scenario, computing=round(2 ** rng.uniform(-6, -1), 3))
    return msgspec.structs.replace(trial, scenario=scenario)


def _changed(trial: Trial, faults: Iterable[Fault], **fields: Any) -> Trial:
    """The same trial with more faults, each of which it has once, and with other fields of its task."""
    scenario = msgspec.structs.replace(trial.scenario, task=msgspec.structs.replace(trial.scenario.task, **fields))
    return Trial(trial.seed, scenario, tuple(dict.fromkeys((*trial.faults, *faults))))


def closed(seed: int) -> Iterator[Fault]:
    """In some trials of the second half of each million seeds an operator closes a round; often a server dies then."""
    rng = Random(f"{seed}/closed")
    if not is_late(seed) or rng.random() >= CLOSED_SHARE:
        return
    for _ in range(rng.choice((1, 2))):
        yield CloseNow(_server(rng), AtTime(_time(rng)))
    if rng.random() < 0.5:
        for machine in ("ssa", "psr"):
            closes = AtTransition(machine, "Open", "CloseRound", "Closed", rng.choice(MOMENTS))
            yield Crash(_server(rng), closes, _time(rng))


def ordinary_faults(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """Some faults of the kinds that know no protocol."""
    kinds = (_crash_at_write, _crash_anywhere, _vanish, _cut, _delay, _partition, _skew, _slow_disk, _full_disk)
    for make in rng.choices(kinds, k=min(int(rng.expovariate(0.3)), 8)):
        yield from make(rng, scenario)


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


def _drawn(machine: str) -> list[Transition]:
    return [at for at in declared(machine) if at not in LATER]


def _anyone(rng: Random, scenario: Scenario) -> str:
    return rng.choice((*SERVERS, *SERVERS, *NAMES[: scenario.clients]))


def _server(rng: Random) -> str:
    return rng.choice(SERVERS)


def _client(rng: Random, scenario: Scenario) -> str:
    return rng.choice(NAMES[: scenario.clients])


def _time(rng: Random) -> float:
    """A time for a fault, most often in the first seconds, or for a process to be down."""
    return round(2 ** rng.uniform(-4, 5), 3)


def _spell(rng: Random) -> tuple[float, float]:
    """When a fault begins, and how long it lasts."""
    return _time(rng), round(2 ** rng.uniform(-2, 6), 3)


def _crash_at_transition(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _server(rng)
    at = rng.choice(_drawn(rng.choice(("ssa", "ssa", "ssa", "ssa", "ssa", "toss"))))
    occurrence = 1 if rng.random() < 0.8 else rng.randint(2, 4)
    yield Crash(party, AtTransition(*at, rng.choice(MOMENTS), occurrence), _time(rng))
    yield from _leading_to(at, party, rng, scenario)


def _leading_to(at: Transition, party: str, rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """Faults that make a transition likelier that rarely happens by itself."""
    other = SERVERS[1 - SERVERS.index(party)]
    if at.event == "GaveUp":
        yield from _abort_in(at.state, party, rng)
    elif at.event == "PeerAbort":
        yield from _abort_in(rng.choice((at.state, "Verified", "Proved")), other, rng)
    if at.state in ("Closing", "Closed"):
        yield Delay(_client(rng, scenario), 1 + SERVERS.index(party), round(2 ** rng.uniform(-1, 3), 3))
    if at.after == "Aborted" and at.event in ("PeerRoster", "Submitted", "GraceOver"):
        yield from _vanish(rng, scenario)


def _abort_in(state: str, party: str, rng: Random) -> Iterator[Fault]:
    ways = [at for at in _drawn("ssa") if at.after == state != at.state]
    yield AbortRound(party, AtTransition(*rng.choice(ways), "after write") if ways else AtTime(_time(rng)))


def _crash_at_write(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _anyone(rng, scenario)
    name_part = rng.choice(SERVERS_WRITE if party in SERVERS else CLIENTS_WRITE)
    yield Crash(party, AtWrite(name_part, rng.randint(1, 4), rng.choice(MOMENTS[:3])), _time(rng))


def _crash_anywhere(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    party = _anyone(rng, scenario)
    commits, sends = (60, 120) if party in SERVERS else (20, 40)
    points: tuple[FaultPoint, ...] = (
        AtTime(_time(rng)),
        AtCommit(rng.randint(1, commits), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, sends), rng.choice(MOMENTS[3:])),
    )
    yield Crash(party, rng.choice(points), _time(rng))


def _vanish(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    points: tuple[FaultPoint, ...] = (
        AtCommit(rng.randint(1, 15), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, 30), rng.choice(MOMENTS[3:])),
    )
    yield Crash(_client(rng, scenario), rng.choice(points), float("inf"))


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


def _abort(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    state = rng.choice(("Open", "Closed", "Closing", "Rostered", "Proved", "Verified"))
    yield from _abort_in(state, _server(rng), rng)


def _straggle(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """A client reaches one server in time and the other late, which is killed; often another client is missing."""
    late, missing = rng.sample(NAMES[: scenario.clients], 2)
    server, submission = _server(rng), rng.choice((1, 1, 1, 2))
    yield Straggle(late, submission, server, round(2 ** rng.uniform(-1, 7), 3))
    if rng.random() < 0.6:
        yield Late(missing, submission, 2 * scenario.seconds)
    if rng.random() < 0.6:
        at = rng.choice([at for at in _drawn("ssa") if at.state in AFTER_THE_LISTS])
        yield Crash(server, AtTransition(*at, rng.choice(MOMENTS)), _time(rng))


def _abort_too_late(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """An operator tries to abort a round to which both servers have committed."""
    at = rng.choice([at for at in _drawn("ssa") if at.after in COMMITTED and at.state != at.after])
    yield AbortRound(_server(rng), AtTransition(*at, "after write"))


def _crash_while_settling(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    name_part, rounds = rng.choice(
        (("standing", 1), ("model/", 1), ("past/", 0))
    )  # the first two also before the first
    number = rounds + rng.randint(1, scenario.rounds)
    yield Crash(_server(rng), AtWrite(name_part, number, rng.choice(MOMENTS[:3])), _time(rng))


def _forget_the_peer(rng: Random, scenario: Scenario) -> Iterator[Fault]:
    """A server dies before it has committed what the other said, which has continued by then."""
    at = rng.choice([at for at in _drawn("ssa") if at.event.startswith("Peer")])
    party, moment = _server(rng), rng.choice(MOMENTS[:2])
    yield Crash(party, AtTransition(*at, moment), _time(rng))
    yield from _leading_to(at, party, rng, scenario)


_COMBINED: tuple[Make, ...] = (_straggle, _straggle, _abort_too_late, _crash_while_settling, _forget_the_peer)

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
    _abort: 1.5,
}
