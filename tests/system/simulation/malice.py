"""Malice in trials: a malicious server or client in a share of them, from the catalogues of the security tests.

`draw` extends what `parties.testing.trials` draws for a seed, and `run` has the malicious parties played. At most
one server is malicious, as everywhere; clients may be as many as there are. The other faults of a trial stay in half of
the cases, so that honest parties meet malice while they are killed and started again as well.
"""

import traceback
from random import Random
from typing import Any

import msgspec

from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import Message
from parties.simulation.network import SERVERS
from parties.testing import trials
from parties.testing.round_faults import Fault, MaliciousClient, MaliciousServer
from parties.testing.trials import Member, Trial, Verdict
from parties.testing.trials.drawing import longest_update
from parties.testing.trials.drawing_variants import ALONE_FROM, WORKERS_FROM, draw_alone, draw_workers
from parties.testing.trials.rules import with_rule
from parties.testing.trials.scenario import MILLION, NAMES
from parties.testing.world import MakeServer
from tests.support.bounded import with_weight_lies
from tests.system.security.byzantine import Byzantine
from tests.system.security.client_attacks import LIES_TO_CLIENTS
from tests.system.security.peer_attacks import ABOUT_PIECES, MUTATIONS

from .villains import FALSE_WEIGHTS, Villain, villainies

SERVERS_SHARE = 0.1
CLIENTS_SHARE = 0.2

WEIGHED_FROM = 9_000_000
"""From this seed on, every trial has clients that lie about their weight in a mean with a bound; none before has."""

NOT_HERE = ("inserts a client", "adds an error to its share")
"""These write into a store in memory as they speak; here stores are on disks, and a write takes time."""

NOT_DRAWN = (
    "aborts without a reason",
    *LIES_TO_CLIENTS,
    *(mutation.name for mutation in ABOUT_PIECES),
    "opens with more bins",
)
"""These came later, and are drawn where malice is sure: a longer list would give seeds other trials than before."""

MISSING = (LookupError, ValueError, RuntimeError, AssertionError)
"""What a mutant ends with that was made for five clients and one task, and finds others: it then speaks honestly."""

SERVER_MUTATIONS: dict[str, type[Byzantine]] = {
    mutation.name: mutation.mutant for mutation in MUTATIONS if mutation.name not in NOT_HERE
} | LIES_TO_CLIENTS


def draw(seed: int, *, surely: bool = False, alone: bool = False) -> Trial:
    """The trial of a seed, with malice in some.

    Args:
        seed: decides all of it.
        surely: whether there is to be malice in every one.
        alone: whether its task is to run one protocol alone, as it does from seed `ALONE_FROM` on in any case; all its
            parties are honest then.
    """
    if seed >= WEIGHED_FROM:
        return draw_weighed(seed)
    if seed >= WORKERS_FROM:
        return draw_workers(seed)
    if alone or seed >= ALONE_FROM:
        return draw_alone(seed)
    trial, rng = trials.draw(seed), Random(f"{seed}/malice")
    chance, keeps = rng.random(), rng.random() < 0.5
    chance *= SERVERS_SHARE + CLIENTS_SHARE if surely else 1
    malicious: tuple[Fault, ...] = ()
    if chance < SERVERS_SHARE:
        malicious = (MaliciousServer(rng.choice(SERVERS), rng.choice(_drawn())),)
        if surely and Random(f"{seed}/later").random() < 0.5:
            malicious = (MaliciousServer(rng.choice(SERVERS), rng.choice(NOT_DRAWN)),)
    elif chance < SERVERS_SHARE + CLIENTS_SHARE:
        names = rng.sample(NAMES[: trial.scenario.clients], rng.choice((1, 1, 2)))
        task = trial.scenario.task
        known = list(
            villainies(task if surely else msgspec.structs.replace(task, min_contributors=None, lying_clients=1))
        )
        malicious = tuple(MaliciousClient(name, rng.choice(known)) for name in names)
    if not malicious:
        return trial
    return msgspec.structs.replace(trial, faults=(*malicious, *(trial.faults if keeps else ())))


def draw_weighed(seed: int) -> Trial:
    """The trial of a seed whose task has a bound and weighs its clients, some of which lie about that.

    Example:
        >>> run(draw_weighed(11)).violations
        ()
    """
    rng, trial = Random(f"{seed}/weighed"), trials.draw(seed % MILLION)
    bare: dict[str, Any] = {"security": "verified", "privacy": None, "bound": None, "bound_proof": "exact"}
    bare |= {"min_contributors": None, "lying_clients": 1}  # rules are judged where all rows are opened
    task = with_rule(msgspec.structs.replace(trial.scenario.task, **bare), rng.choice(("weighted mean", "FedAdam")))
    proof = rng.choice(("exact", "projected")) if task.ring.bits > 32 else "projected"
    task = msgspec.structs.replace(
        task, bound=longest_update(task), bound_proof=proof, largest_weight=float(len(NAMES))
    )
    names = rng.sample(NAMES[: trial.scenario.clients], rng.choice((1, 1, 2)))
    liars = tuple(MaliciousClient(name, rng.choice(FALSE_WEIGHTS)) for name in names)
    faults = (*liars, *(trial.faults if rng.random() < 0.5 else ()))
    return Trial(seed, msgspec.structs.replace(trial.scenario, task=task), faults)


def _drawn() -> list[str]:
    return [name for name in SERVER_MUTATIONS if name not in NOT_DRAWN]


def run(trial: Trial) -> Verdict:
    """Run a trial, with whoever its plan calls malicious, and judge it."""
    with with_weight_lies():
        return trials.run(trial, play)


def judged(trial: Trial) -> tuple[Verdict | None, tuple[str, ...]]:
    """What came of a trial, and all that is wrong with it; an error that it ends with is a failure like any other."""
    try:
        verdict = run(trial)
    except Exception:  # whatever it is, the laboratory has noticed
        return None, ("raised: " + traceback.format_exc(limit=-6),)
    return verdict, tuple(str(violation) for violation in verdict.violations)


class _Malice(trials.Malice):
    def server(self, fault: MaliciousServer) -> MakeServer:
        """See `trials.Malice.server`."""
        return _careful(SERVER_MUTATIONS[fault.name])

    def client(self, fault: MaliciousClient, member: Member) -> Member:
        """See `trials.Malice.client`."""
        return Villain.in_place_of(member, fault.name)


play = _Malice()


def _careful(mutant: type[Byzantine]) -> type[Byzantine]:
    """The same mutant, but honest where what it would change is not there."""

    class Careful(mutant):  # type: ignore[misc, valid-type]
        def say(self, message: Message, bulk: bytes) -> list[tuple[Message, bytes]]:
            try:
                return list(super().say(message, bulk))
            except MISSING:
                return [(message, bulk)]

        def hear(self, event: Event) -> tuple[Event, ...]:
            try:
                return tuple(super().hear(event))
            except MISSING:
                return (event,)

    return Careful
