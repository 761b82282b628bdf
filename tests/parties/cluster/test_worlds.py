"""Whole servers whose sums are computed by workers: exact, whoever is killed, stopped or damaged, and whenever."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
import trio

from fsl_async.errors import MisuseError
from parties.cluster.cluster import Reply
from parties.cluster.orders import AddedReport, HelloReport, SealedReport, SealOrder, decoded, encoded, sealed
from parties.cluster.worker_pool import WorkerPool
from parties.cluster.worker_service import WorkerService, WorkerSetup
from parties.events import Warned
from parties.simulation.network import SERVERS
from parties.testing import AtTime, Crash, SpoiltBlobs, StoppedWorker
from parties.testing.played_cluster import PlayedCluster
from tests.parties.testing.small_world import MODEL, TASK, exact, listening, settled, take_part
from tests.parties.testing.small_world import THREE as NAMES
from tests.support.cases import often

a_world = partial(listening, TASK, MODEL, NAMES, workers=(2, 1))


@pytest.mark.parametrize("workers", [(1, 0), (0, 2), (3, 2)])
async def test_workers_add_what_a_server_would(autojump_clock, workers):
    async with a_world(workers=workers) as made:
        await settled(made)
        exact(made)
        for index in (0, 1):
            assert bool(made.clusters[index].calls.get("seal")) == bool(workers[index])


@pytest.mark.parametrize("moment", often(3, [0.2, 1.5, 3.0, 1.0, 2.0, 5.0]))
async def test_a_worker_dies_and_its_clients_are_given_out_again(autojump_clock, moment):
    deaths = [Crash("S0.worker-1", AtTime(moment), down=4.0), Crash("S1.worker-1", AtTime(moment + 0.5), down=9.0)]
    async with a_world(*deaths, computing=0.3) as made:
        await settled(made)
        exact(made)


async def test_without_any_worker_a_round_waits_and_says_so(autojump_clock):
    async with a_world(Crash("S0.worker-1", AtTime(0.01), down=100.0), workers=(1, 1)) as made:
        for name in NAMES:
            made.start(name, take_part)
        await trio.sleep(90)
        status = made.servers[0].status().engine
        assert status is not None
        assert (status.waiting, status.sealed, status.workers) == (3, 0, ())
        assert not made.settled[0]
        with trio.fail_after(100):
            await made.wait_settled(1)
        exact(made)


async def test_a_worker_that_is_stopped_is_doubted_and_what_it_says_later_counts_once(autojump_clock):
    stopped = StoppedWorker("S0.worker-1", begin=1.0, seconds=100.0)
    async with a_world(stopped, workers=(2, 0), computing=0.3) as made:
        await settled(made)
        assert made.now < stopped.begin + stopped.seconds
        await trio.sleep(120)
        exact(made)
        assert not made.ended


@pytest.mark.parametrize(("harm", "said"), [("altered", "has other content than was put"), ("missing", "is missing")])
async def test_blobs_that_workers_find_harmed_are_named_and_waited_for(autojump_clock, harm, said):
    async with a_world(*(SpoiltBlobs(server, 0.0, 60.0, harm) for server in SERVERS), workers=(1, 2)) as made:
        await settled(made)
        exact(made)
        explanations = [told.explanation for _, _, told in made.events if isinstance(told, Warned)]
        assert any("the blob round-00000001/parts/client" in line and said in line for line in explanations)


class Strange(WorkerService):
    """A worker of another release, another server or another processor."""

    def __init__(self, setup: WorkerSetup, **says: object) -> None:
        super().__init__(setup)
        self.says = says

    async def perform(self, action: str, order: bytes) -> Reply:
        reply = await super().perform(action, order)
        if action != "hello":
            return reply
        report = msgspec.structs.replace(decoded(reply.report, HelloReport), **self.says)
        return Reply(encoded(report))


@pytest.mark.parametrize(
    ("says", "named"),
    [
        ({"release": "0.0.9"}, "it has release 0.0.9, and this server played; install the same on both"),
        ({"owner": b"S1"}, "it has the blobs of another server or task"),
        ({"isa": "plain"}, "it has no compiled kernels"),
    ],
)
async def test_a_worker_that_cannot_be_used_is_refused_by_name(autojump_clock, monkeypatch, says, named):
    monkeypatch.setattr("parties.testing.world.WorkerService", lambda setup: Strange(setup, **says))
    monkeypatch.setattr(
        WorkerPool, "takes_plain", property(lambda pool: False, lambda pool, value: None), raising=False
    )
    async with a_world(workers=(1, 0)) as made:
        await trio.sleep(30)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert len(told) == 1
        assert told[0].startswith(f"worker S0.worker-1.1 is not used: {named}")


@pytest.mark.parametrize("key", [b"", bytes(32)])
def test_an_order_is_sealed_to_a_key_alone(key):
    with pytest.raises(MisuseError, match="to which nothing can be sealed"):
        sealed(SealOrder(life=b"", sum=1, slice=0, partial=1), key)


@pytest.mark.parametrize("report", [b"\x81\xa2\xff\xfe\x01", b"\x81\xa1x" + b"\x91" * 2_000])
def test_a_report_that_no_decoder_reads_is_none(report):
    with pytest.raises(MisuseError, match="no AddedReport"):
        decoded(report, AddedReport)


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        (lambda said: {"seconds": 5e-324}, ()),
        (lambda said: {"entries": {name: entry[1:] for name, entry in said.entries.items()}}, ("is no proof: 32",)),
        (lambda said: {"entries": dict.fromkeys(said.entries, b"")}, ("is no proof: 32",)),
    ],
    ids=["in no time", "a byte less", "nothing"],
)
async def test_what_a_worker_says_of_what_it_has_added_ends_no_server(autojump_clock, monkeypatch, lie, named):
    plain, lies = WorkerService.perform, ["once"]

    async def perform(self: WorkerService, action: str, order: bytes) -> Reply:
        reply = await plain(self, action, order)
        if action != "add" or not lies or not (said := decoded(reply.report, AddedReport)).entries or not lies.pop():
            return reply
        return Reply(encoded(msgspec.structs.replace(said, **lie(said))), reply.arrays)

    monkeypatch.setattr(WorkerService, "perform", perform)
    async with a_world(workers=(1, 0)) as made:
        await settled(made)
        exact(made)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert not lies
        assert len(told) == len(named)
        assert all(why in line for why, line in zip(named, told, strict=True))


class Liar(WorkerService):
    """A worker whose partials are not what it was told to make."""

    def __init__(self, setup: WorkerSetup, lie: Callable[[SealedReport], SealedReport], cut: bool) -> None:
        super().__init__(setup)
        self.lie, self.cut, self.lies = lie, cut, 2

    async def perform(self, action: str, order: bytes) -> Reply:
        reply = await super().perform(action, order)
        if action != "seal" or not self.lies:
            return reply
        self.lies -= 1
        report = self.lie(decoded(reply.report, SealedReport))
        return Reply(encoded(report), reply.arrays[:-1] if self.cut else reply.arrays)


@pytest.mark.parametrize(
    ("lie", "cut", "named"),
    [
        (lambda said: msgspec.structs.replace(said, round_id=bytes(32)), False, "a partial of round 0000000000000000"),
        (lambda said: msgspec.structs.replace(said, clients=[*said.clients, "eve"]), False, "it was not given for it"),
        (lambda said: msgspec.structs.replace(said, clients=said.clients * 2), False, "or twice"),
        (lambda said: said, True, "another form than the round"),
    ],
)
async def test_a_partial_that_is_not_what_was_asked_for_counts_for_nothing(
    autojump_clock, monkeypatch, lie, cut, named
):
    monkeypatch.setattr("parties.testing.world.WorkerService", lambda setup: Liar(setup, lie, cut))
    async with a_world(workers=(1, 0)) as made:
        await settled(made)
        exact(made)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert len(told) == 2
        assert all(line.startswith("worker S0.worker-1.1 has failed: ") and named in line for line in told)


async def test_nothing_that_is_secret_is_readable_in_an_order(autojump_clock, monkeypatch):
    orders: list[bytes] = []
    plain = PlayedCluster.call

    async def call(self: PlayedCluster, worker: str, action: str, order: bytes) -> Reply:
        orders.append(order)
        return await plain(self, worker, action, order)

    monkeypatch.setattr(PlayedCluster, "call", call)
    async with a_world(workers=(1, 1)) as made:
        await settled(made)
        exact(made)
    assert len(orders) > 6
    clear = b"".join(orders)
    assert not any(name.encode() in clear for name in NAMES)
