"""A sum that is more than its clients can have contributed is opened, and not applied; everybody is told so."""

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.server.sum_limits import ExcessError
from parties import SumRefusedError, simulate
from parties.commands.report import ExitCode, exit_code
from parties.server.server import Server
from tests.fsl_async.server.test_sum_limits import check_contributions
from tests.support.shop import HEAD, TASK, WIDTH, model

from .byzantine import CLIENTS
from .meeting import meet
from .peer_attacks import adding

SMALL = msgspec.structs.replace(TASK, largest=4.0, selection="fixed")
MALLORY = "mallory"


@pytest.mark.parametrize("index", [0, 1], ids="by S{}".format)
async def test_a_marked_row_is_refused_and_nobody_is_told_to_repeat(index, seed, autojump_clock):
    """More is added to one of its weights than all clients together can submit."""
    account = await meet(adding(2**63, slice(10, 11)), index, seed)
    assert account.mutant.fired
    assert account.halts == {}
    (report,) = account.report
    assert (report.ended, tuple(report.clients), report.counted) == ("refused", CLIENTS, ())
    assert "the sum of block 'items' at [5, 0] is more than 5 clients" in report.explanation
    for told in account.clients.values():
        assert isinstance(told, SumRefusedError)
        assert report.explanation in str(told)
        assert "do not submit the same values again" in str(told)
        assert exit_code(told) is ExitCode.SENT
    (entry,) = account.evidence
    assert (entry.kind, entry.about) == ("excess", f"S{index} or a client")
    assert "which of the two cannot be told" in entry.explanation
    for server in (account.honest, account.mutant):
        assert not server.model["items"].any()
        assert server.status().round.number == 2


async def test_what_a_client_may_not_submit_is_refused_and_the_next_round_goes_on(seed, autojump_clock, monkeypatch):
    async with simulate(SMALL, model(), seed) as network:
        before = {name: array.copy() for name, array in network.model.items()}
        async with network.client("anna") as anna, network.client(MALLORY) as mallory:
            await anna.submit({"items": ([1], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
            monkeypatch.setattr(Task, "largest_integer", property(lambda task: 2**40))
            await mallory.submit({"items": ([2], np.full((1, WIDTH), 9.0)), "head": np.ones(HEAD)})
            monkeypatch.undo()
            with pytest.raises(SumRefusedError, match=r"of round 1 was opened and refused: .* 'items' at \[2, 0\]"):
                await network.finish_round()
            for _ in range(2):
                with pytest.raises(SumRefusedError):
                    await anna.outcome()
            with pytest.raises(SumRefusedError):  # a client that has not asked is told before anything else is sent
                await mallory.submit({"items": ([2], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
            assert all(np.array_equal(network.model[name], before[name]) for name in before)
            for name in ("anna", MALLORY):  # no trees of a refused sum outlive it
                assert not any(name in server.records.sessions._states for server in network.servers)
            await anna.submit({"items": ([1], np.ones((1, WIDTH))), "head": 2 * np.ones(HEAD)})
            await mallory.submit({"items": ([2], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
            outcome = await network.finish_round()
        assert (outcome.number, outcome.clients) == (2, ("anna", MALLORY))
        assert [server.status().rounds_aborted for server in network.servers] == [1, 1]


async def test_a_refusal_is_the_same_after_a_restart(seed, autojump_clock, monkeypatch):
    async with simulate(SMALL, model(), seed) as network:
        async with network.client("anna") as anna, network.client(MALLORY) as mallory:
            await anna.submit({"items": ([1], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
            monkeypatch.setattr(Task, "largest_integer", property(lambda task: 2**40))
            await mallory.submit({"items": ([2], np.full((1, WIDTH), 9.0)), "head": np.ones(HEAD)})
            monkeypatch.undo()
            with pytest.raises(SumRefusedError):
                await network.finish_round()
        (past,) = await network.servers[0].past_rounds()
    again = Server(network.servers[0].setup)
    async with trio.open_nursery() as nursery:
        await nursery.start(again.run)
        assert (await again.rounds.settled_report(past.report.round_id)) == past.report
        assert past.report.ended == "refused"
        assert [entry.kind for entry in await again.evidence.entries()] == ["excess"]
        nursery.cancel_scope.cancel()


# ---- the bound


def task_of(ring: Ring, **fields) -> Task:
    blocks = (Sparse("items", rows=4, select=1, width=2), Dense("head", size=3))
    return Task(name="bound", blocks=blocks, ring=ring, min_clients=2, max_clients=4, **fields)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("bits", [32, 64, 128])
def test_a_sum_is_refused_from_the_first_value_that_nobody_can_have_contributed(bits, sign):
    task = task_of(Ring(bits, fraction_bits=4), largest=100.0)
    dtype = {32: np.int32, 64: np.int64, 128: object}[bits]
    sums = {"items": np.zeros((4, 2), dtype), "head": np.zeros(3, dtype)}
    sums["head"][1] = sign * 3 * 1600
    check_contributions(task, sums, 3)
    sums["head"][1] += sign
    with pytest.raises(ExcessError, match=r"block 'head' at \[1\] is more than 3 clients with values of at most 100"):
        check_contributions(task, sums, 3)


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_the_least_integer_of_a_ring_is_never_a_sum(bits):
    dtype = {32: np.int32, 64: np.int64, 128: object}[bits]
    sums = {"head": np.array([0, 0, -(2 ** (bits - 1))], dtype)}
    with pytest.raises(ExcessError, match=r"'head' at \[2\]"):
        check_contributions(task_of(Ring(bits)), sums, 4)
