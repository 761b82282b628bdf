"""What makes the transitions of a round come about in which contributors are counted; see `ways`."""

from collections.abc import Mapping

from parties.testing.faults import SlowDisk
from parties.testing.recorder import Transition
from parties.testing.round_faults import Fault

from .ways import ALL_ALONG, VERIFIES, Chance, Plan, Way, gives_up, of_round, slow

HEARS_COUNTS = of_round("Verified", "PeerCounts", "Verified")
TALLIES = of_round("Verified", "RowsCounted", "Tallied")
CHOOSES = of_round("Tallied", "PeerCounts", "Chosen")


def _counts(chance: Chance) -> Plan:
    return _counting()


def _counts_late(chance: Chance) -> Plan:
    """The peer's counts come while our slow disk still stores ours."""
    return _counting(slow(chance.ours, chance))


def _counts_first(chance: Chance) -> Plan:
    """The peer's disk is slower than ours, however slow that is, so ours are sent when its counts come."""
    return _counting(SlowDisk(chance.peer, 0.0, ALL_ALONG, chance.between(1.0, 1.5)))


def _give_up_tallied(chance: Chance) -> Plan:
    return _counting(gives_up(chance.ours, TALLIES), slow(chance.peer, chance))


def _peer_gives_up_counting(chance: Chance) -> Plan:
    """It has our counts, or will have them, and sends none."""
    return _counting(gives_up(chance.peer, chance.rng.choice((VERIFIES, HEARS_COUNTS))), slow(chance.peer, chance))


def _peer_gives_up_chosen(chance: Chance) -> Plan:
    """Our share is not summed when we hear of it, for our disk is slow."""
    given_up = gives_up(chance.peer, chance.rng.choice((TALLIES, CHOOSES)))
    return _counting(given_up, slow(chance.ours, chance))


def _counting(*faults: Fault) -> Plan:
    return Plan(faults, security="verified", contributors=2)


COUNTING: Mapping[Transition, Way] = {
    HEARS_COUNTS: _counts_late,
    TALLIES: _counts,
    of_round("Verified", "RowsCounted", "Chosen"): _counts_late,
    CHOOSES: _counts_first,
    of_round("Chosen", "Summed", "Committed"): _counts,
    of_round("Tallied", "GaveUp", "Aborted"): _give_up_tallied,
    of_round("Tallied", "PeerAbort", "Aborted"): _peer_gives_up_counting,
    of_round("Chosen", "GaveUp", "Aborted"): lambda chance: _counting(gives_up(chance.ours, CHOOSES)),
    of_round("Chosen", "PeerAbort", "Aborted"): _peer_gives_up_chosen,
}

SILENT_COUNTING = (HEARS_COUNTS, CHOOSES)
"""Transitions to a state that has nothing new to say to the peer."""
