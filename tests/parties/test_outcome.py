"""What a round's end looks like when it is printed: one line, whatever it holds."""

import numpy as np

from fsl_async import Dense, Ring, Sparse, Task
from parties import ClientOutcome, RoundOutcome, SubmissionReceipt, simulate
from parties.outcome import BY_OUTCOME

NAMES = tuple(f"client-{index:04}" for index in range(1000))


def test_an_outcome_says_how_many_and_shows_the_shapes_of_its_sums():
    update = {"items": np.zeros((10_000, 8)), "head": np.zeros(32)}
    union = {"items": np.arange(700, dtype=np.uint32)}
    outcome = RoundOutcome(
        number=3, clients=NAMES, excluded={"x": "proof"}, update=update, elements=update, union=union
    )
    assert (
        repr(outcome)
        == str(outcome)
        == (
            "RoundOutcome(number=3, clients=1000 (client-0000, client-0001, client-0002, …), excluded=1 (x), "
            "update={'items': (10000, 8) float64, 'head': (32,) float64}, union={'items': (700,) uint32})"
        )
    )


def test_a_client_s_outcome_says_why():
    assert repr(ClientOutcome(number=3, counted=True, reason="", participants=37)) == (
        "ClientOutcome(number=3, counted=True, participants=37)"
    )
    left_out = ClientOutcome(number=3, counted=False, reason="proof", participants=2, names=("anna", "ben"))
    assert repr(left_out) == (
        "ClientOutcome(number=3, counted=False, reason='proof', participants=2, names=2 (anna, ben))"
    )


def test_of_a_submission_that_is_in_no_sum_every_row_may_be_submitted_again():
    opened, own = {"items": np.array([3, 7], dtype=np.uint32)}, {"items": [9, 3], "tags": [1]}
    facts = {"number": 3, "participants": 2}
    counted = ClientOutcome(counted=True, reason="", opened_rows=opened, **facts)
    refused = ClientOutcome(counted=False, reason="wrong", opened=True, opened_rows=opened, **facts)
    for outcome in (counted, refused):
        assert {name: rows.tolist() for name, rows in outcome.withheld(own).items()} == {"items": [9], "tags": []}
    left_out = ClientOutcome(counted=False, reason="proof", opened_rows=opened, **facts)
    aborted = ClientOutcome(number=3, counted=False, reason="too few", participants=0)
    for outcome in (left_out, aborted):
        assert {name: rows.tolist() for name, rows in outcome.withheld(own).items()} == own


def test_a_receipt_shows_the_beginning_of_its_digest_and_who_has_signed():
    receipt = SubmissionReceipt(3, bytes(range(32)), (bytes(64), bytes(64)), 12_345, {"items": [5, 7], "tags": []})
    assert repr(receipt) == (
        "SubmissionReceipt(number=3, digest=0001020304050607…, signed by S0 and S1, bytes_sent=12,345, "
        "2 rows of 'items' left out)"
    )
    assert "signed by S1," in repr(SubmissionReceipt(3, bytes(32), (BY_OUTCOME, bytes(64)), 0))
    assert "signed by both in the outcome," in repr(SubmissionReceipt(3, bytes(32), (BY_OUTCOME, BY_OUTCOME), 0))


async def test_clients_learn_how_many_and_names_where_the_task_asks_for_them():
    for participants, names in (("count", ()), ("names", ("anna", "ben"))):
        blocks = [Sparse("items", rows=20, select=2), Dense("head", size=2)]
        task = Task(
            name="told",
            blocks=blocks,
            ring=Ring(64, fraction_bits=8),
            min_clients=2,
            max_clients=5,
            participants=participants,
        )
        async with (
            simulate(task, {"items": np.zeros(20), "head": np.zeros(2)}, seed=1) as net,
            net.client("anna") as anna,
            net.client("ben") as ben,
        ):
            await anna.submit({"head": np.ones(2)})
            await ben.submit({"items": ([3], np.ones((1, 1)))})
            assert (await net.finish_round()).clients == ("anna", "ben")
            for client in (anna, ben):
                outcome = await client.outcome()
                assert (outcome.counted, outcome.participants, outcome.names) == (True, 2, names)
