"""What simulated worlds have found, each with the little that it took: none of it may come back."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Adam, Dense, Ring, Sparse, Task
from fsl_async.wire.messages import Message, Retrieve
from parties import simulate
from parties.client.client import Client
from parties.errors import RoundClosedError
from parties.events import Warned
from parties.server import round_sequence
from parties.testing.faults import AtSend, AtTime, AtTransition, AtWrite, Crash, FullDisk, SlowDisk, SpoiltBlobs
from parties.testing.round_faults import AbortRound, Late
from parties.testing.trials import Scenario, Trial, Verdict, run

TASK = Task(
    name="laboratory",
    blocks=(Sparse("items", rows=64, select=1, width=2), Dense("head", size=3)),
    ring=Ring(64),
    security="semi-honest",
    min_clients=2,
    max_clients=5,
)
MODEL = {"items": np.zeros((64, 2), dtype=np.int64), "head": np.zeros(3, dtype=np.int64)}
UPDATE = {"items": ([5], np.ones((1, 2), dtype=np.int64))}
GIVEN_UP = AtTransition("ssa", "Open", "GaveUp", "Aborted", "after write")


def kept(trial: Trial) -> Verdict:
    """What comes of a trial, whose faults all strike and break no rule."""
    verdict = run(trial)
    assert verdict.violations == ()
    assert set(verdict.fired) == set(trial.faults), f"not all faults of seed {trial.seed} strike any more"
    return verdict


@pytest.mark.parametrize(("seed", "seconds"), [(41, 0.3), (20, 0.5)])
def test_a_round_is_given_up_before_the_peer_knows_that_it_began(seed: int, seconds: float) -> None:
    """And the server that gave it up is killed: it must say again that it tossed for that round, and how it ended."""
    faults = (Crash("S1", GIVEN_UP, down=1.0), AbortRound("S1", AtTime(seconds)))
    kept(Trial(seed, Scenario(TASK, clients=2, rounds=2, seconds=20.0), faults))


async def test_answered_trees_do_not_outlive_their_round() -> None:
    """A retrieval that is cancelled is not taken for one of the same number that an earlier round has answered."""
    async with simulate(TASK, MODEL, seed=1) as net:
        cancelling: list[trio.CancelScope] = []

        def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
            if isinstance(message, Retrieve):
                for scope in cancelling:
                    scope.cancel()

        async with (
            net.client("anna") as anna,
            net.client("ben") as ben,
            Client(replace(net.client("carol").setup, watch=watch)) as carol,
        ):
            await carol.retrieve({"items": [5]})
            await anna.submit(UPDATE)
            await ben.submit(UPDATE)
            await net.finish_round()
            with pytest.raises(RoundClosedError):
                await carol.submit(UPDATE)
            with trio.CancelScope() as scope:
                cancelling.append(scope)
                await carol.retrieve({"items": [7]})
            assert scope.cancelled_caught
            cancelling.clear()
            await carol.submit(UPDATE)
            await anna.submit(UPDATE)
            outcome = await net.finish_round()
            assert outcome.clients == ("anna", "carol")
            assert outcome.elements["items"][5].tolist() == [2, 2]


def test_what_is_said_first_is_what_the_peer_lacks() -> None:
    """A server whose disk is full when the servers meet again has news to tell before it has heard of the meeting."""
    tossed = AtTransition("toss", "Revealing", "PeerTossReveal", "Tossed", "before write")
    faults = (Crash("S0", tossed, down=5.184), FullDisk("S1", begin=4.0, seconds=20.0))
    kept(Trial(100114, Scenario(TASK, clients=2, rounds=1, seconds=5.0), faults))


def test_a_submission_that_is_stored_too_late_leaves_no_session() -> None:
    """A round is given up while a slow disk keeps a request: trees that came after its end must not wait for it."""
    task = msgspec.structs.replace(TASK, selection="fixed", blocks=(Sparse("items", rows=16, select=1), TASK.blocks[1]))
    faults = (
        SlowDisk("S1", begin=0.0, seconds=60.0, each=2.0),
        AbortRound("S0", AtTime(9.75)),
        Late("ben", submission=2, seconds=40.0),
    )
    kept(Trial(5, Scenario(task, clients=2, rounds=2, seconds=20.0), faults))


@pytest.mark.parametrize("seed", range(5))
async def test_a_round_is_given_up_while_submissions_are_added(seed: int) -> None:
    """Its records go at once; whatever still wants to add one of them is no reason for a server to end."""
    async with (
        simulate(TASK, MODEL, seed) as net,
        net.client("anna") as anna,
        net.client("ben") as ben,
        net.client("carol") as carol,
    ):
        clients = (anna, ben, carol)
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.submit, UPDATE)
            run = await net.servers[0].next_round(0)
            while run.status().submissions < len(clients):
                await trio.lowlevel.checkpoint()
            await net.servers[0].abort_round(1, "the operator said so")
        assert [(await client.outcome()).counted for client in clients] == [False] * 3
        await anna.submit(UPDATE)
        await ben.submit(UPDATE)
        assert (await net.finish_round()).clients == ("anna", "ben")


def test_a_round_on_a_union_of_clients_that_are_weighed() -> None:
    """Whether its block moves plainly was asked of a task without the block that holds the weights."""
    task = Task(
        name="laboratory",
        blocks=(Sparse("items", rows=64, select=3, width=2), Dense("head", size=1), Dense("examples", size=1)),
        ring=Ring(64, fraction_bits=8),
        updates="any",
        alignment="union",
        security="semi-honest",
        min_clients=2,
        max_clients=5,
        apply="weighted-mean",
        weights="examples",
    )
    kept(Trial(1_000_828, Scenario(task, clients=3, rounds=2, seconds=20.0), ()))


FIXED = msgspec.structs.replace(
    TASK,
    blocks=(Sparse("items", rows=64, select=3, width=1, stash=0),),
    ring=Ring(64, fraction_bits=8),
    selection="fixed",
    updates="any",
)
HARMED_AT_THE_END = Trial(
    5_013_289,
    Scenario(FIXED, clients=4, rounds=1, seconds=5.0, workers=(2, 0)),
    (SpoiltBlobs("S0", begin=4.25, seconds=46.0, harm="altered"),),
)
"""All is added, and nothing can be read any more when S0 settles the round: it has to keep the sessions' trees then."""


def test_trees_that_cannot_be_read_when_a_round_is_settled_are_waited_for() -> None:
    """They were erased, for the other server to forward them again, which had settled the round and never did."""
    assert kept(HARMED_AT_THE_END).seconds > 50


def test_trees_that_are_not_put_back_end_their_sessions_and_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_sequence, "REPAIRED_WITHIN", 20.0)
    verdict = kept(HARMED_AT_THE_END)
    told = [event.explanation for _, _, event in verdict.case.world.events if isinstance(event, Warned)]
    assert any("the session of 'ben' ends here: the blob round-00000001/parts/ben/submit-0" in each for each in told)
    assert 20 < verdict.seconds < 50


def test_a_client_that_repeats_its_submission_in_two_lives() -> None:
    """The first repetition found out how the round had ended, which the member's ledger forgot in the second."""
    task = msgspec.structs.replace(
        TASK,
        blocks=(Sparse("items", rows=40, select=2, width=1, stash=0), Dense("examples", size=1)),
        ring=Ring(64, fraction_bits=8),
        apply="weighted-mean",
        weights="examples",
        optimizer=Adam(rate=0.1, beta2=0.99),
    )
    faults = (
        Crash("anna", AtTime(5.049), down=1.0),
        Crash("anna", AtWrite("submission", 4, "before sync"), down=1.0),
        Crash("S0", AtTime(1.933), down=1.965),
    )
    kept(Trial(6_007_840, Scenario(task, clients=2, rounds=2, seconds=5.0, workers=(0, 3)), faults))


def test_a_restarted_server_reads_a_submission_that_is_late_for_an_aligned_round() -> None:
    """Its union decided how long the submission is, and the server forgot it: the client hears that it is late."""
    task = Task(
        name="laboratory",
        blocks=(Sparse("items", rows=16, select=2, width=2),),
        ring=Ring(32),
        alignment="union",
        bound=768.0,
        bound_proof="projected",
        min_clients=2,
        max_clients=5,
    )
    faults = (Crash("S1", AtSend(45, "after send"), down=4.997),)
    kept(Trial(9020, Scenario(task, clients=2, rounds=2, seconds=20.0), faults))
