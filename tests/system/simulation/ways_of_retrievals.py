"""What makes the transitions of a round come about that only serves retrievals; see `ways`."""

from collections.abc import Mapping

from parties.testing.faults import AtTime, AtTransition, Partition, SlowDisk
from parties.testing.recorder import Transition
from parties.testing.round_faults import AbortRound, Fault

from .ways import SHORT, Chance, Plan, Way


def _of_retrievals(state: str, event: str, after: str) -> Transition:
    return Transition("psr", state, event, after)


CLOSES = _of_retrievals("Open", "CloseRound", "Closed")
ENDS = _of_retrievals("Concluded", "PeerConclusion", "Done")


def _plan(*faults: Fault) -> Plan:
    return Plan(faults, seconds=SHORT, protocol="psr")


def _late(server: str, chance: Chance) -> Fault:
    """Its disk is slow until the round is open, which then is so later than at the other one."""
    return SlowDisk(server, 0.0, 2.5, chance.between(0.3, 0.6))


def _we_close_first(chance: Chance) -> Plan:
    return _plan(_late(chance.peer, chance))


def _gives_up_open(server: str, chance: Chance) -> Plan:
    return _plan(AbortRound(server, AtTime(chance.between(0.5, 4.0))))


def _give_up_closed(chance: Chance) -> Plan:
    """The peer does not hear that we have closed."""
    away = Partition(chance.peer, chance.ours, 3.0, chance.between(6.0, 12.0))
    return _plan(_late(chance.peer, chance), away, AbortRound(chance.ours, AtTransition(*CLOSES, "after write")))


def _the_peer_gives_up_unheard(chance: Chance) -> Plan:
    """We have closed; the peer, which has not heard of it, gives the round up while it is open there."""
    each = chance.between(1.0, 1.6)  # we open after two such commits, it after four
    late = SlowDisk(chance.peer, 0.0, 4 * each + 1.0, each)
    away = Partition(chance.ours, chance.peer, 2 * each + SHORT - 1.0, 15.0)
    return _plan(late, away, AbortRound(chance.peer, AtTime(chance.between(2 * each, 4 * each) + SHORT + 0.5)))


def _the_peer_gives_up_closed(chance: Chance) -> Plan:
    """We have heard that the peer has closed; it has not heard of us, and gives up."""
    away = Partition(chance.ours, chance.peer, 3.0, chance.between(6.0, 12.0))
    gives_up = AbortRound(chance.peer, AtTime(chance.between(5.5, 8.0)))
    return _plan(_late(chance.ours, chance), away, gives_up)


RETRIEVING: Mapping[Transition, Way] = {
    CLOSES: _we_close_first,
    _of_retrievals("Open", "PeerClosed", "Concluded"): lambda chance: _plan(_late(chance.ours, chance)),
    _of_retrievals("Closed", "PeerClosed", "Concluded"): _we_close_first,
    ENDS: _we_close_first,
    _of_retrievals("Open", "GaveUp", "Aborted"): lambda chance: _gives_up_open(chance.ours, chance),
    _of_retrievals("Closed", "GaveUp", "Aborted"): _give_up_closed,
    _of_retrievals("Open", "PeerAbort", "Aborted"): lambda chance: _gives_up_open(chance.peer, chance),
    _of_retrievals("Closed", "PeerAbort", "Aborted"): _the_peer_gives_up_unheard,
    _of_retrievals("Concluded", "PeerAbort", "Aborted"): _the_peer_gives_up_closed,
}

SILENT_RETRIEVALS = (ENDS,)
"""Transitions to a state that has nothing new to say to the peer."""
