"""What makes the transitions of a sum on workers come about that chance seldom brings; see `ways`.

Nobody dies at them, so they are the same for each server: here S0 has the workers. A sum is long in settling where
somebody is to be taken off again, a client that the peer lacks.
"""

from collections.abc import Mapping
from dataclasses import replace

from fsl_async import Sparse
from parties.testing.faults import AtTime, Crash, SpoiltBlobs
from parties.testing.recorder import Transition
from parties.testing.round_faults import Fault, Late, StoppedWorker, Straggle

from .ways import ALL_ALONG, SHORT, Chance, Plan, Way

WORKER = "S0.worker-1"

TWO_BLOCKS = Plan(more=(Sparse("others", rows=16, select=1),), workers=(1, 0), worker_memory=960, group=4)
"""Their cells take 768 bytes, and a worker takes no more than 480 of them at a time: there are two slices."""


def _stopped_while_others_come(chance: Chance) -> Plan:
    """It has one client's submission; the round is open for longer than a server is patient with it."""
    stops = StoppedWorker(WORKER, chance.between(1.0, 2.0), ALL_ALONG)
    return Plan((stops, Late("ben", 1, 60.0)), seconds=90.0, workers=(1, 0))


def _one_is_taken_off(chance: Chance, *faults: Fault) -> Plan:
    never = Straggle("anna", 1, "S1", ALL_ALONG)
    return Plan((never, *faults), clients=3, seconds=SHORT, workers=(1, 0))


def _killed_in_settling(chance: Chance) -> Plan:
    """It is stopped, so that the sum still settles when it is killed and comes back."""
    return _one_is_taken_off(chance, _stop(chance), Crash(WORKER, AtTime(chance.between(12.0, 18.0)), 2.0))


def _harmed_in_settling(chance: Chance) -> Plan:
    return _one_is_taken_off(chance, SpoiltBlobs(WORKER, chance.between(3.0, 5.0), 20.0, "altered"))


def _one_worker_for_two_slices(chance: Chance) -> Plan:
    """It leaves one of them when the other waits for as many clients as are sealed at once, or when all are in."""
    late = tuple(Late(name, 1, chance.between(0.0, 4.0)) for name in ("anna", "ben", "carol"))
    return replace(TWO_BLOCKS, faults=late, clients=5)


def _one_is_taken_off_both_slices(chance: Chance) -> Plan:
    plan = _one_is_taken_off(chance, *((_killed(chance),) if chance.rng.random() < 0.5 else ()))
    return replace(TWO_BLOCKS, faults=plan.faults, clients=plan.clients, seconds=plan.seconds)


def _killed(chance: Chance) -> Fault:
    return Crash(WORKER, AtTime(chance.between(4.0, 10.0)), 2.0)


def _stop(chance: Chance) -> Fault:
    return StoppedWorker(WORKER, chance.between(3.0, 5.0), 40.0)


def _of_sum(state: str, event: str) -> Transition:
    return Transition("partials", state, event, state)


SUMMING: Mapping[Transition, Way] = {
    _of_sum("Adding", "Doubted"): _stopped_while_others_come,
    _of_sum("Settling", "Added"): _one_is_taken_off,
    _of_sum("Settling", "Doubted"): lambda chance: _one_is_taken_off(chance, _stop(chance)),
    _of_sum("Settling", "Joined"): _killed_in_settling,
    _of_sum("Adding", "Leaving"): _one_worker_for_two_slices,
    _of_sum("Settling", "Leaving"): _one_is_taken_off_both_slices,
    _of_sum("Settling", "Lost"): _killed_in_settling,
    _of_sum("Settling", "Put"): _harmed_in_settling,
}
