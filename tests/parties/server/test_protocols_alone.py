"""Servers of tasks that run one protocol alone: retrievals until the time is over; unions, one after the other."""

from typing import Any

import numpy as np
import pytest
import trio
from msgspec.structs import replace

from fsl_async import Dense, FslError, MisuseError, Ring, Sparse, Task
from fsl_async.client.planting import MasterSeeds
from fsl_async.errors import PeerViolationError
from fsl_async.protocols import psr
from fsl_async.randomness import SeededSource
from fsl_async.union import unpack_union
from fsl_async.wire.messages import (
    Abort,
    Closing,
    Conclusion,
    Download,
    Forward,
    Hint,
    Recall,
    Refused,
    Retrieve,
    RosterList,
    Submit,
)
from fsl_async.wire.public_part import Layout
from parties import simulate
from parties.server.peer.forwarding import objection
from parties.server.replies import reserve_nothing
from parties.server.server import Server
from parties.storage.store import Put
from parties.testing import AtTransition, Crash
from parties.testing.machines import declared
from tests.parties.server.test_restart import MODEL, restarted
from tests.support.hand_made import name_of
from tests.support.machine_scenes import key

PSR = Task(
    name="lookup",
    protocol="psr",
    blocks=(Sparse("items", rows=64, select=3, width=2), Dense("head", size=3)),
    retrievals=2,
    max_clients=6,
)
PSU = Task(name="seen", protocol="psu", blocks=(Sparse("items", rows=64, select=3),), min_clients=2, max_clients=6)
BOTH = (key(1), key(2))


async def asked(server: Server, client: str, message: Any) -> Any:
    """What a server answers to a client's message, whoever sent it."""
    return await server.requests.ask(client, message, reserve_nothing)


@pytest.mark.parametrize("kind", [Retrieve, Recall])
async def test_a_retrieval_where_no_block_has_trees_is_refused_and_ends_no_server(
    kind: type[Retrieve | Recall],
) -> None:
    dense = Task(name="head", blocks=(Dense("head", size=3),), ring=Ring(64), min_clients=2, max_clients=4)
    async with simulate(dense, {"head": np.zeros(3, dtype=np.int64)}, seed=1) as net, net.client("ada") as ada:
        run = await net.servers[0].next_round(0)
        config, empty = run.config, Layout.retrieval(run.config.shape)
        seeds = MasterSeeds.fresh(SeededSource(0, "ada"))
        commitments = seeds.commitments(config.round_id(), "ada")
        refused = []

        async def ask(server: int) -> None:
            message: Retrieve | Recall = Recall(config.round_id(), commitments[server])
            if kind is Retrieve:
                message = Retrieve(
                    round_id=config.round_id(),
                    query=1,
                    seed=seeds.msk[server],
                    commitments=commitments,
                    public_digest=name_of(empty, b""),
                )
            refused.append(await asked(net.servers[server], "ada", message))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            nursery.start_soon(ask, 1)
        for answer, _ in refused:
            assert (answer.reason, "no block of this round is retrieved" in answer.explanation) == ("malformed", True)
        found = await ada.retrieve({"head": ...})
        assert np.array_equal(found["head"], np.zeros(3))


# ---- retrievals alone


async def test_a_round_of_retrievals_counts_nobody_and_leaves_the_model() -> None:
    async with simulate(PSR, MODEL, seed=1) as net, net.client("ada") as ada:
        found = await ada.retrieve({"items": [3, 5], "head": ...})
        assert np.array_equal(found["items"], MODEL["items"][[3, 5]])
        first = net.servers[0].running
        outcome = await net.finish_round()
        assert (outcome.number, outcome.clients, outcome.update, outcome.elements) == (1, (), {}, {})
        report = first.report()
        assert (report.ended, report.clients, report.model) == ("done", {}, first.config.model)
        assert net.servers[1].status().rounds_done == 1
        second = await net.servers[0].next_round(1)
        assert second.config.hash_seed != first.config.hash_seed
        for server in net.servers:
            assert not await server.setup.store.keys("round-00000001/")


async def test_a_model_that_stays_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulate(PSR, MODEL, seed=1) as net:
        store, written = net.servers[0].setup.store, []
        commit = store.commit

        async def noted(*changes: Any) -> None:
            written.extend(change.key for change in changes if isinstance(change, Put))
            await commit(*changes)

        monkeypatch.setattr(store, "commit", noted)
        for _ in range(2):
            await net.finish_round()
        assert "past/00000002" in written
        assert not [key for key in written if key.startswith("model/")]


async def test_an_operator_aborts_a_round_while_the_other_server_is_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    closes = [at for at in declared("psr") if at.state == "Open" and at.event in ("CloseRound", "PeerClosed")]
    gone = [Crash("S1", AtTransition(*at, "before write"), down=1000.0) for at in closes]
    async with restarted(*gone, task=PSR, seconds=10.0, patience=1e6) as (made, (ada, *_)):
        await ada.retrieve({"items": [1]})
        await trio.sleep(50)
        status = made.servers[0].status().round
        assert (status.state, status.waiting_for) == ("Closed", "S1 to close it, too")
        report = await made.servers[0].abort_round(1, "S1 is away")
        assert report.explanation == "S0 gave up: S1 is away"
        await trio.sleep(1000)
        assert made.settled[1][1] == report


async def test_a_round_that_both_have_closed_is_not_aborted(autojump_clock: trio.testing.MockClock) -> None:
    async with simulate(PSR, MODEL, seed=1) as net:
        run = await net.servers[0].next_round(0)
        run.driver.state = psr.Concluded({"closing": b""})
        with pytest.raises(MisuseError, match="in state Concluded: both servers have closed it"):
            await net.servers[0].abort_round(1, "why not")


PARTS = {"round_id": b"", "seed": bytes(16), "commitments": BOTH, "public_digest": key(3)}
NO_SUBMISSIONS, NO_RETRIEVALS = "psr: it takes no submissions", "psu: it neither retrieves nor recalls"
MISPLACED = {
    "a submission": (PSR, Submit(query=0, **PARTS), NO_SUBMISSIONS),
    "a hint": (PSR, Hint(b"", key(1), key(3)), NO_SUBMISSIONS),
    "a retrieval": (PSU, Retrieve(query=1, **PARTS), NO_RETRIEVALS),
    "a recall": (PSU, Recall(b"", key(1)), NO_RETRIEVALS),
}


@pytest.mark.parametrize(("task", "message", "says"), MISPLACED.values(), ids=MISPLACED)
async def test_a_request_that_does_not_belong_into_the_round_is_refused(task: Task, message: Any, says: str) -> None:
    async with simulate(task, MODEL if task is PSR else {}, seed=1) as net, net.client("ada"):
        run = await net.servers[0].next_round(0)
        refused, _ = await asked(net.servers[0], "ada", replace(message, round_id=run.round_id))
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.explanation) == ("malformed", f"round 1 runs {says}")


# ---- unions alone


async def test_unions_follow_each_other_and_stay_readable() -> None:
    async with simulate(PSU, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        ids = []
        for rows in ([1, 2, 3], [3, 9], [60]):
            run = await net.servers[0].next_round(0)
            assert (run.config.protocol, run.config.model, run.config.found) == ("psu", (), ids[-1] if ids else b"")
            await ada.unite({"items": rows})
            await bob.unite({"items": [5]})
            outcome = await net.finish_round()
            assert outcome.union["items"].tolist() == sorted({5, *rows})
            assert (await ada.union())["items"].tolist() == sorted({5, *rows})
            ids.append(run.round_id)
            for server in net.servers:
                block, packed = await asked(server, "ada", Download(round_id=ids[-1], block="items", union=True))
                assert unpack_union(packed, 64, "S0").tolist() == sorted({5, *rows}), block
        refused, _ = await asked(net.servers[0], "ada", Download(round_id=ids[0], block="items", union=True))
        assert refused.reason == "round-closed"
        refused, _ = await asked(net.servers[0], "ada", Download(round_id=ids[-1], block="items"))
        assert refused.reason == "malformed"


async def test_a_union_that_is_not_found_leaves_the_last_one_readable() -> None:
    async with simulate(PSU, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        for client in (ada, bob):
            await client.unite({"items": [7]})
        await net.finish_round()
        await ada.outcome()
        with pytest.raises(FslError, match="at least 2 are needed"):
            await net.finish_round()
        async with net.client("eve") as eve:
            assert (await eve.union())["items"].tolist() == [7]


async def test_a_client_asks_for_a_union_so_many_times() -> None:
    async with simulate(PSU, {}, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        for client in (ada, bob):
            await client.unite({"items": [7]})
        run = net.servers[0].running
        await net.finish_round()
        handler = net.servers[0].requests
        wanted = Download(round_id=run.round_id, block="items", union=True)
        answers = [(await handler.ask("ada", wanted, reserve_nothing))[0] for _ in range(17)]
        assert [type(answer).__name__ for answer in answers] == ["Block"] * 16 + ["Refused"]


# ---- the other server


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([RosterList(b"")], "sends a RosterList in a round that only serves retrievals"),
        ([Conclusion(b"", key(9))], "speaks out of turn"),
        ([Closing(b""), Conclusion(b"", key(9))], "has another outcome of a round that only answered retrievals"),
    ],
)
async def test_a_server_that_ends_retrievals_otherwise_breaks_the_protocol(messages: list[Any], expected: str) -> None:
    async with simulate(PSR, MODEL, seed=1) as net:
        run = await net.servers[0].next_round(0)
        run.driver.state = psr.Open() if len(messages) > 1 or expected.startswith("sends") else psr.Done({})
        *before, last = (replace(message, round_id=run.round_id) for message in messages)
        for message in before:
            await run.take_message(message, memoryview(b""))
        with pytest.raises(PeerViolationError, match=expected):
            await run.take_message(last, memoryview(b""))


async def test_a_server_that_aborts_retrievals_says_why() -> None:
    async with simulate(PSR, MODEL, seed=1) as net:
        run = await net.servers[0].next_round(0)
        with pytest.raises(PeerViolationError, match="does not say why"):
            await run.take_message(Abort(run.round_id, ""), memoryview(b""))


async def test_a_round_that_is_ended_twice_ends_once() -> None:
    async with simulate(PSR, MODEL, seed=1) as net:
        run = await net.servers[0].next_round(0)
        for _ in range(2):
            await run.take_message(Closing(run.round_id), memoryview(b""))
        assert type(run.state) is psr.Concluded
        await net.finish_round() if not run.settled.is_set() else None
        for _ in range(2):
            await run.take_message(Conclusion(run.round_id, run.driver.terms.outcome), memoryview(b""))
        assert type(run.state) is psr.Done
        with pytest.raises(PeerViolationError, match="sent two different conclusions"):
            await run.take_message(Conclusion(run.round_id, key(9)), memoryview(b""))


async def test_a_server_that_closes_submissions_as_retrievals_breaks_the_protocol() -> None:
    async with simulate(PSU, {}, seed=1) as net:
        run = await net.servers[0].next_round(0)
        with pytest.raises(PeerViolationError, match="closes a round of submissions as if it only served retrievals"):
            await run.take_message(Closing(run.round_id), memoryview(b""))


@pytest.mark.parametrize(("task", "purpose"), [(PSR, "submit"), (PSU, "retrieve")])
async def test_a_part_that_does_not_belong_into_the_round_is_not_forwarded(task: Task, purpose: Any) -> None:
    async with simulate(task, MODEL if task is PSR else {}, seed=1) as net:
        run = await net.servers[0].next_round(0)
        config = run.config
        name = next(name for name in "abcdefgh" if config.carrier(name) == 1)
        message = Forward(round_id=config.round_id(), client=name, purpose=purpose, query=int(purpose == "retrieve"))
        assert objection(run, message, 10) == f"forwards a {purpose} in a round of {task.protocol}"
