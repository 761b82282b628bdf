"""What makes a transition come about: for each of them the ways that directed trials try.

`WAYS` says for every transition of a server's round and toss what must go wrong for it, if anything has to. Chance
decides the rest: who is how late, how slow a disk is, how long somebody is away.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.server.slicing import LEAVES_OF_GROUP
from parties.simulation.network import SERVERS
from parties.testing.faults import AtPeerTransition, AtTime, AtTransition, AtWrite, Crash, Delay, Partition, SlowDisk
from parties.testing.recorder import Transition
from parties.testing.round_faults import AbortRound, Fault, Late, MaliciousClient, MaliciousServer, Straggle
from parties.testing.trials import Scenario
from parties.testing.trials.rules import with_rule

ABSENT = 60.0
"""Seconds that keep a client out of the first round."""

ALL_ALONG = 100.0
"""Seconds that are as long as everything that goes wrong."""

SHORT, LONG = 5.0, 20.0
"""Seconds after which a round closes: before clients that are absent come, and after all clients are in."""


@dataclass(frozen=True)
class Chance:
    """What one try has to go on.

    Attributes:
        rng: decides what a way leaves open.
        ours: the server that is to take the transition.
    """

    rng: Random
    ours: str

    @property
    def peer(self) -> str:
        """The other server."""
        return SERVERS[1 - SERVERS.index(self.ours)]

    def between(self, low: float, high: float) -> float:
        """Some seconds."""
        return round(self.rng.uniform(low, high), 3)


@dataclass(frozen=True)
class Plan:
    """What goes wrong, in which scenario."""

    faults: tuple[Fault, ...] = ()
    clients: int = 2
    seconds: float = LONG
    rounds: int = 1
    security: Literal["verified", "semi-honest"] = "semi-honest"
    selection: Literal["adaptive", "fixed"] = "adaptive"
    alignment: Literal["all", "union"] = "all"
    more: tuple[Sparse, ...] = ()
    sample: float | None = None
    protocol: Literal["ssa", "psr", "psu"] = "ssa"
    rule: str = ""
    contributors: int | None = None
    workers: tuple[int, int] = (0, 0)
    worker_memory: int = 0
    group: int = LEAVES_OF_GROUP

    def scenario(self) -> Scenario:
        """As a trial has it."""
        if self.protocol != "ssa":
            blocks, least = (Sparse("items", rows=16, select=1),), 2 if self.protocol == "psu" else None
            alone = Task(name="laboratory", protocol=self.protocol, blocks=blocks, min_clients=least, max_clients=5)
            return Scenario(alone, self.clients, self.rounds, self.seconds)
        task = Task(
            name="laboratory",
            blocks=(Sparse("items", rows=16, select=1), *self.more, Dense("head", size=2)),
            ring=Ring(64),
            security=self.security,
            selection=self.selection,
            alignment=self.alignment,
            sample=self.sample,
            min_contributors=self.contributors,
            lying_clients=1 if self.contributors is None else 0,
            min_clients=2,
            max_clients=5,
        )
        task = with_rule(task, self.rule) if self.rule else task
        return Scenario(
            task,
            self.clients,
            self.rounds,
            self.seconds,
            workers=self.workers,
            worker_memory=self.worker_memory,
            group=self.group,
        )


Way: TypeAlias = Callable[[Chance], Plan]


def of_round(state: str, event: str, after: str) -> Transition:
    return Transition("ssa", state, event, after)


CLOSES = of_round("Open", "CloseRound", "Closed")
MUST_WAIT = of_round("Open", "PeerRoster", "Closing")
AGREES = of_round("Closed", "PeerRoster", "Rostered")
PROVES = of_round("Rostered", "Evaluated", "Proved")
EVALUATES = of_round("Rostered", "Evaluated", "Verified")
VERIFIES = of_round("Proved", "PeerProofs", "Verified")
COMMITS = of_round("Verified", "Summed", "Committed")
REVEALS = of_round("Committed", "PeerCommitment", "Revealed")
CONCLUDES = of_round("Combined", "Applied", "Concluded")


# ---- a round that goes well


def _nothing(chance: Chance) -> Plan:
    return Plan()


def _proofs(chance: Chance) -> Plan:
    return Plan(security="verified")


def _rules_differ(chance: Chance) -> Plan:
    """Each server has a function of its own that now and then gives something else."""
    return Plan(rule="own, unsteady")


def _one_is_absent_and_we_open_late(chance: Chance) -> Plan:
    """The peer's time is over first, and we have everybody whom it has."""
    return Plan((Late("carol", 1, ABSENT), _opens_late(chance)), clients=3, seconds=SHORT)


# ---- drawing who takes part


def _everybody_asks(chance: Chance) -> Plan:
    return Plan(sample=1.0)


def _one_asks_us_late(chance: Chance) -> Plan:
    """The peer has heard everybody and lists them; one is still on its way to us."""
    return Plan((Delay("anna", 1 + SERVERS.index(chance.ours), chance.between(0.5, 2.0)),), clients=3, sample=0.7)


def _asks_no_longer(server: str, chance: Chance) -> Plan:
    """Two of three have asked both servers; one server starts again, and one of the two does not reach it any more."""
    away = Partition("anna", server, 2.0, 15.0)
    faults = (Crash(server, AtTime(chance.between(2.2, 4.0)), 0.1), away, Late("carol", 1, ABSENT))
    return Plan(faults, clients=3, sample=1.0)


# ---- clients that are late with one server


def _one_is_late(chance: Chance) -> Plan:
    """The peer's time is over, and we lack one that comes within the grace period."""
    return Plan((Straggle("anna", 1, chance.ours, chance.between(5.3, 8.0)), _opens_late(chance)), seconds=SHORT)


def _some_are_late(chance: Chance) -> Plan:
    """The peer's time is over, and we lack some that come within the grace period, and some that never do."""
    late = (Straggle(name, 1, chance.ours, chance.between(5.3, 8.0)) for name in ("carol", "dora", "emil"))
    never = (Straggle(name, 1, chance.ours, ALL_ALONG) for name in ("anna", "ben"))
    return Plan((*late, *never, _opens_late(chance)), clients=5, seconds=SHORT)


def _one_of_two_is_too_late(chance: Chance) -> Plan:
    """The peer closes with both, of whom we have one."""
    return Plan(_lacks_one(chance), seconds=SHORT)


def _one_alone_is_late(chance: Chance) -> Plan:
    """The peer closes with one client, whom we lack; with it the round has still too few."""
    late = Straggle("anna", 1, chance.ours, chance.between(5.3, 8.0))
    return Plan((late, Late("ben", 1, ABSENT), _opens_late(chance)), seconds=SHORT)


# ---- too few clients


def _nobody_comes_and_we_open_late(chance: Chance) -> Plan:
    """The peer's time is over first."""
    return Plan((*_nobody(), _opens_late(chance)), seconds=SHORT)


def _nobody_comes(chance: Chance) -> Plan:
    """The time of both is over before either hears of the other's."""
    return Plan((*_nobody(), Partition(chance.ours, chance.peer, 2.0, chance.between(4.0, 8.0))), seconds=SHORT)


def _one_of_two_cheats(chance: Chance) -> Plan:
    return Plan((MaliciousClient("anna", "a bit of a tag correction flipped"),), security="verified")


# ---- rounds that are given up


def _gives_up_open(server: str, chance: Chance) -> Plan:
    return Plan((AbortRound(server, AtTime(chance.between(0.3, 3.0))), Late("ben", 1, ABSENT)))


def _peer_gives_up_while_it_waits(chance: Chance) -> Plan:
    """We are full and have closed; the peer lacks a client, and gives up."""
    return Plan((Straggle("anna", 1, chance.peer, ALL_ALONG), gives_up(chance.peer, MUST_WAIT)))


def _give_up_closing(chance: Chance) -> Plan:
    return Plan((*_lacks_one(chance), gives_up(chance.ours, MUST_WAIT)))


def _peer_gives_up_closed(chance: Chance) -> Plan:
    """We lack a client that the peer has, which has closed and gives up."""
    return Plan((*_lacks_one(chance), gives_up(chance.peer, CLOSES)))


def _peer_gives_up_at_once(chance: Chance) -> Plan:
    """Its time is over first; its list is followed by its last word, and our slow disk has both of them wait."""
    faults = (gives_up(chance.peer, CLOSES), Late("carol", 1, ABSENT), slow(chance.ours, chance))
    return Plan(faults, clients=3, seconds=SHORT)


def _give_up_proved(chance: Chance) -> Plan:
    return Plan((gives_up(chance.ours, PROVES), slow(chance.peer, chance)), security="verified")


def _peer_gives_up_proving(chance: Chance) -> Plan:
    """We have proofs, and wait for those of the peer, which is slow to say that there are none."""
    given_up = gives_up(chance.peer, chance.rng.choice((AGREES, AGREES, CLOSES)))
    return Plan((given_up, slow(chance.rng.choice(SERVERS), chance)), security="verified")


def _give_up_verified(chance: Chance) -> Plan:
    if chance.rng.random() < 0.5:
        return Plan((gives_up(chance.ours, EVALUATES),))
    return Plan((gives_up(chance.ours, VERIFIES),), security="verified")


def _peer_gives_up_evaluating(chance: Chance) -> Plan:
    """Our share is not summed when we hear of it, for our disk is slow, and the peer's a little."""
    peer = SlowDisk(chance.peer, 0.0, ALL_ALONG, chance.between(0.0, 0.8))
    return Plan((gives_up(chance.peer, chance.rng.choice((AGREES, EVALUATES))), slow(chance.ours, chance), peer))


def _peer_gives_up_verified(chance: Chance) -> Plan:
    """We have committed when we hear of it, for its disk is slow."""
    return Plan((gives_up(chance.peer, EVALUATES), slow(chance.peer, chance)))


# ---- what ways are made of


def _opens_late(chance: Chance) -> Fault:
    """Its disk is slow until the round is open, which then is so later than at the peer."""
    return SlowDisk(chance.ours, 0.0, 2.5, chance.between(0.2, 0.6))


def _lacks_one(chance: Chance) -> tuple[Fault, ...]:
    """It never has a client that the peer has, where that one comes to the peer first; and the peer closes first."""
    return Straggle("anna", 1, chance.ours, ALL_ALONG), _opens_late(chance)


def _nobody() -> tuple[Fault, ...]:
    return Late("anna", 1, ABSENT), Late("ben", 1, ABSENT)


def gives_up(server: str, when: Transition) -> Fault:
    return AbortRound(server, AtTransition(*when, "after write"))


def slow(server: str, chance: Chance) -> Fault:
    return SlowDisk(server, 0.0, ALL_ALONG, chance.between(0.2, 0.8))


WAYS: Mapping[Transition, Way] = {
    Transition("toss", "Committing", "PeerTossCommitment", "Revealing"): _nothing,
    Transition("toss", "Revealing", "PeerTossReveal", "Tossed"): _nothing,
    Transition("sampling", "Gathering", "Frozen", "Listed"): _everybody_asks,
    Transition("sampling", "Gathering", "PeerAsked", "Answering"): _one_asks_us_late,
    Transition("sampling", "Answering", "Frozen", "Drawn"): _one_asks_us_late,
    Transition("sampling", "Answering", "Frozen", "TooFew"): lambda chance: _asks_no_longer(chance.ours, chance),
    Transition("sampling", "Listed", "PeerAsked", "Drawn"): _everybody_asks,
    Transition("sampling", "Listed", "PeerAsked", "TooFew"): lambda chance: _asks_no_longer(chance.peer, chance),
    of_round("Open", "Submitted", "Open"): _nothing,
    CLOSES: _nothing,
    MUST_WAIT: _one_is_late,
    of_round("Open", "PeerRoster", "Rostered"): _one_is_absent_and_we_open_late,
    of_round("Open", "PeerRoster", "Aborted"): _nobody_comes_and_we_open_late,
    of_round("Open", "GaveUp", "Aborted"): lambda chance: _gives_up_open(chance.ours, chance),
    of_round("Open", "PeerAbort", "Aborted"): lambda chance: _gives_up_open(chance.peer, chance),
    AGREES: _nothing,
    of_round("Closed", "PeerRoster", "Aborted"): _nobody_comes,
    of_round("Closed", "GaveUp", "Aborted"): lambda chance: Plan((gives_up(chance.ours, CLOSES),)),
    of_round("Closed", "PeerAbort", "Aborted"): _peer_gives_up_while_it_waits,
    of_round("Closing", "Submitted", "Closing"): _some_are_late,
    of_round("Closing", "Submitted", "Rostered"): _one_is_late,
    of_round("Closing", "Submitted", "Aborted"): _one_alone_is_late,
    of_round("Closing", "GraceOver", "Rostered"): lambda chance: Plan(_lacks_one(chance), clients=3),
    of_round("Closing", "GraceOver", "Aborted"): _one_of_two_is_too_late,
    of_round("Closing", "GaveUp", "Aborted"): _give_up_closing,
    of_round("Closing", "PeerAbort", "Aborted"): _peer_gives_up_closed,
    PROVES: _proofs,
    EVALUATES: _nothing,
    of_round("Rostered", "GaveUp", "Aborted"): lambda chance: Plan((gives_up(chance.ours, AGREES),)),
    of_round("Rostered", "PeerAbort", "Aborted"): _peer_gives_up_at_once,
    VERIFIES: _proofs,
    of_round("Proved", "PeerProofs", "Aborted"): _one_of_two_cheats,
    of_round("Proved", "GaveUp", "Aborted"): _give_up_proved,
    of_round("Proved", "PeerAbort", "Aborted"): _peer_gives_up_proving,
    COMMITS: _nothing,
    of_round("Verified", "GaveUp", "Aborted"): _give_up_verified,
    of_round("Verified", "PeerAbort", "Aborted"): _peer_gives_up_evaluating,
    REVEALS: _nothing,
    of_round("Committed", "PeerAbort", "Aborted"): _peer_gives_up_verified,
    of_round("Revealed", "PeerShare", "Combined"): _nothing,
    CONCLUDES: _nothing,
    of_round("Concluded", "PeerConclusion", "Done"): _nothing,
    of_round("Concluded", "PeerConclusion", "Differed"): _rules_differ,
}


# ---- a reason to speak

SILENT = (
    Transition("toss", "Revealing", "PeerTossReveal", "Tossed"),
    Transition("sampling", "Gathering", "PeerAsked", "Answering"),
    Transition("sampling", "Listed", "PeerAsked", "Drawn"),
    Transition("sampling", "Listed", "PeerAsked", "TooFew"),
    MUST_WAIT,
    of_round("Closing", "Submitted", "Closing"),
    AGREES,
    EVALUATES,
    VERIFIES,
    of_round("Revealed", "PeerShare", "Combined"),
    of_round("Concluded", "PeerConclusion", "Done"),
    of_round("Concluded", "PeerConclusion", "Differed"),
)
"""Transitions to a state that has nothing new to say to the peer."""


def meet_again(chance: Chance, transition: Transition) -> tuple[Fault, ...]:
    """What has a server speak to its peer after a silent transition, and before its next one.

    The peer dies just then, and is back while our slow disk still records what comes next; when two servers meet they
    greet each other, and say again what the other may lack.
    """
    dies = Crash(chance.peer, AtPeerTransition(*transition), chance.between(0.05, 0.2))
    return SlowDisk(chance.ours, 0.0, ALL_ALONG, chance.between(0.1, 0.8)), dies


# ---- other machines


def _forgotten(chance: Chance) -> Plan:
    """A server denies a round that a client asks for which has both receipts."""
    return Plan((MaliciousServer(chance.ours, "forgets its rounds"),))


def _forgotten_in_doubt(chance: Chance, receipts: int) -> Plan:
    """A server denies a round; a client that has so many receipts comes back after it."""
    dies = Crash("anna", AtWrite("submission", 1 + receipts, "after write"), chance.between(5.0, 30.0))
    return Plan((MaliciousServer(chance.ours, "forgets its rounds"), dies))


def _slow_lines(chance: Chance) -> tuple[Fault, ...]:
    """Clients lose patience with their retrievals, and rounds close in the midst of them."""
    return tuple(Delay(name, 1, chance.between(0.3, 3.0)) for name in ("anna", "ben", "carol"))


def _slow_retrievals(chance: Chance) -> Plan:
    return Plan(_slow_lines(chance), clients=3, seconds=SHORT, rounds=3)


def _slow_retrievals_in_a_session(chance: Chance) -> Plan:
    return Plan(_slow_lines(chance), clients=5, rounds=4, selection="fixed")


def _slow_unions(chance: Chance) -> Plan:
    return Plan(_slow_lines(chance), clients=3, seconds=SHORT, rounds=3, alignment="union")


def _hears_one_server_a_round_later(chance: Chance) -> Plan:
    """What a client asks one server arrives when the round that the other has announced is over."""
    away = Partition("anna", chance.ours, chance.between(0.0, 6.0), chance.between(8.0, 30.0))
    return Plan((away,), clients=4, seconds=SHORT, rounds=4)


def _two_unions(chance: Chance) -> Plan:
    return Plan(rounds=2, alignment="union", more=(Sparse("others", rows=16, select=1),))


def _unions_alone(chance: Chance) -> Plan:
    return Plan(rounds=2, protocol="psu")


def _a_later_union_is_given_up(chance: Chance) -> Plan:
    closes_again = AtTransition(*CLOSES, "after write", occurrence=2)
    return Plan((AbortRound(chance.ours, closes_again),), rounds=2, protocol="psu")


def _not_all_are_drawn(chance: Chance) -> Plan:
    return Plan(clients=4, sample=0.5)


def _announces_another_part(chance: Chance) -> Plan:
    return Plan((MaliciousClient("anna", "another part announced than sent"),))


def _stored_and_not_listed(chance: Chance) -> Plan:
    """A submission and its trees are stored; the server dies before it is in the list, and it is sent again."""
    dies = Crash(chance.ours, AtWrite("session/", 1, "after write"), chance.between(0.1, 2.0))
    return Plan((dies,), selection="fixed")


OTHER_WAYS: Mapping[Transition, Way] = {
    Transition("entry", "HalfEntered", "Announced", "Undrawn"): _not_all_are_drawn,
    Transition("entry", "Undrawn", "Leave", "Outside"): _not_all_are_drawn,
    Transition("psu", "Seeking", "UnionPublished", "Found"): _unions_alone,
    Transition("psu", "Found", "UnionPublished", "Found"): _unions_alone,
    Transition("psu", "Found", "UnionLost", "Found"): _a_later_union_is_given_up,
    Transition("entry", "HalfEntered", "Announced", "HalfEntered"): _hears_one_server_a_round_later,
    Transition("entry", "Inside", "RoundGone", "Outside"): _slow_retrievals,
    Transition("psr.client", "Interrupted", "End", "Away"): _slow_retrievals,
    Transition("psr.client", "HalfAnswered", "Interrupt", "Interrupted"): _slow_retrievals,
    Transition("psr.client", "Interrupted", "Recollect", "Asked"): _slow_retrievals_in_a_session,
    Transition("psr.client", "Holding", "Recollect", "Asked"): _slow_retrievals_in_a_session,
    Transition("psu.client", "Told", "Downloaded", "Told"): _two_unions,
    Transition("psu.client", "Told", "Described", "Told"): _two_unions,
    Transition("psu.client", "Known", "Described", "Told"): lambda chance: Plan(rounds=4, alignment="union"),
    Transition("ssa.client", "Ready", "RoundGone", "Away"): _slow_unions,
    Transition("ssa.client", "Drafted", "Leave", "Away"): lambda chance: _forgotten_in_doubt(chance, 0),
    Transition("ssa.client", "HalfReceipted", "Leave", "Away"): lambda chance: _forgotten_in_doubt(chance, 1),
    Transition("ssa.client", "Submitted", "Leave", "Away"): _forgotten,
    Transition("assembly", "DirectOnly", "Public", "Mismatched"): _announces_another_part,
    Transition("epochs", "Planted", "Brought", "Planted"): _stored_and_not_listed,
}
"""The same for those transitions of other machines that do not come about by chance."""

LIKELIER: Mapping[str, Mapping[str, str]] = {
    "psu": {"alignment": "union", "selection": "adaptive"},
    "entry": {"alignment": "union", "selection": "adaptive"},
    "psr.client": {"alignment": "union", "selection": "adaptive"},
    "psu.client": {"alignment": "union", "selection": "adaptive"},
    "ssa.client": {"alignment": "union", "selection": "adaptive"},
    "epochs": {"selection": "fixed"},
}
"""By machine, the tasks in which chance brings its other transitions about sooner."""
