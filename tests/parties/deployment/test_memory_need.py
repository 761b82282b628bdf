"""What a server's memory is reckoned to be, beside the peaks of real servers.

Each peak is of `fsl-async serve` in a process of its own, its VmHWM in the fourth round of so many clients that
retrieve and submit (Linux, glibc, Python 3.11). A server's first round takes a fifth less: there is no round before it.
"""

import numpy as np
import pytest

from fsl_async.bin_count import planned
from fsl_async.bounds import verifier_bytes
from fsl_async.ring import Ring
from fsl_async.server.batch import held_bytes
from fsl_async.server_rules import Adam
from fsl_async.task import Dense, Sparse, Task
from parties.deployment.memory_need import PROCESS_BYTES, message_bytes, server_bytes

MIB = 2**20
LARGE = Sparse(name="items", rows=2**20, width=16, select=500)
SMALLER = Sparse(name="items", rows=2**18, width=16, select=500)


def task_of(block, bits, clients=4, **more):
    fields = {"name": "need", "blocks": (block,), "ring": Ring(bits, fraction_bits=16), "min_clients": 2}
    return Task(**fields, max_clients=clients, **more)


@pytest.mark.parametrize(
    ("task", "peak_mib"),
    [
        (task_of(LARGE, 32), 1_063),
        (task_of(LARGE, 64), 1_171),
        (task_of(Sparse(name="items", rows=2**20, width=16, select=10_486), 64, 10), 1_206),
        (task_of(Sparse(name="items", rows=2**20, width=1, select=10_486), 64), 301),
        (task_of(Sparse(name="items", rows=2**20, width=1, select=10_486), 64, 20), 339),
        (task_of(SMALLER, 64, apply="mean", optimizer=Adam(rate=0.1)), 737),
        (task_of(Dense(name="items", size=2**24), 64), 1_344),
    ],
)
def test_what_is_reckoned_is_within_a_quarter_of_what_was_seen(task, peak_mib):
    model = {"items": np.empty(0, np.float32)}
    reckoned = server_bytes(task, model, message_bytes(task, model, 0)) / MIB
    assert 0.9 * peak_mib <= reckoned <= 1.25 * peak_mib


def test_messages_have_what_is_given_or_what_two_of_the_longest_take():
    task, model = task_of(LARGE, 64, 10_000), {"items": np.empty(0, np.float32)}
    assert message_bytes(task, model, 0) == 2**28
    assert message_bytes(task_of(LARGE, 64), model, 0) < 2**22, "four clients have four submissions and four answers"
    assert message_bytes(task, model, 2**26) == 2**26


def test_where_submissions_are_large_beside_the_model_those_that_are_added_are_counted():
    """A client selects a quarter of the rows: its trees take more than all that is done with the sum."""
    task = task_of(Sparse(name="items", rows=2**14, width=1, select=2**12), 64)
    beside = server_bytes(task, {"items": np.empty(0, np.float32)}, 0) - PROCESS_BYTES
    assert held_bytes(planned(task)) < beside < held_bytes(planned(task)) + 8 * MIB


def test_answers_about_every_clients_bound_are_held_at_once():
    """Twenty megabytes for a thousand clients with two hundred thousand weights."""
    blocks = (Dense(name="head", size=200_000),)
    fields = {"name": "need", "blocks": blocks, "ring": Ring(64, fraction_bits=16), "max_clients": 1_000}
    plain, bounded = Task(**fields), Task(**fields, bound=0.25)
    model = {"head": np.empty(0, np.float32)}
    lists = 1_000 * verifier_bytes(bounded)
    assert lists > 20e6
    beside = held_bytes(planned(bounded)) - held_bytes(planned(plain))  # submissions with a proof are longer
    assert server_bytes(bounded, model, 0) - server_bytes(plain, model, 0) == 5 * lists + beside
