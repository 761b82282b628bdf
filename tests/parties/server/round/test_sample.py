"""Drawing who takes part: gathered, agreed on by both servers, told to clients before they compute anything."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import sampling
from fsl_async.protocols.machine import UnexpectedEvent
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskedList, Forward, Message, Opened, RosterList, Submit
from fsl_async.wire.peer_lists import pack_digests
from parties import NotDrawnError, RequestDeniedError, Schedule, simulate
from parties.compute import InlineLane
from parties.events import ClientsDrawn
from parties.server.history import Restore
from parties.server.peer.forwarding import objection
from parties.server.server import Server
from parties.server.store_layout import RESTORES
from parties.simulation.network import Network
from parties.storage.store import Record
from parties.testing.faults import AtTransition, Crash, SlowDisk
from parties.testing.world import world
from tests.support.cases import one_in
from tests.support.machine_scenes import sampling_terms
from tests.support.shop import meddled, with_fields

NAMES = tuple(f"client {number}" for number in range(8))
COVER = {"items": [1, 2]}


@pytest.fixture
def seed() -> int:
    return 20240611


def task(**changes: Any) -> Task:
    blocks = (Sparse("items", rows=40, select=4), Dense("head", size=2))
    fields: dict[str, Any] = {"name": "drawn", "blocks": blocks, "ring": Ring(64), "min_clients": 2, "max_clients": 10}
    return Task(**(fields | {"sample": 0.5} | changes))


def model() -> dict[str, np.ndarray]:
    return {"items": np.zeros((40, 1), dtype=np.int64), "head": np.zeros(2, dtype=np.int64)}


class Crowd:
    """Clients that take part in one round, as soon as they are drawn."""

    def __init__(self, net: Network, *, wait: bool = False) -> None:
        self.net = net
        self.wait = wait
        self.counted: dict[str, int] = {}
        self.missed: dict[str, list[NotDrawnError]] = {}

    async def take_part(self, name: str) -> None:
        async with self.net.client(name) as client:
            try:
                await client.retrieve(COVER, wait=self.wait)
            except NotDrawnError as error:
                self.missed.setdefault(name, []).append(error)
                return
            await client.submit({"items": ([1], [[1]]), "head": [1, 1]})
            self.counted[name] = (await client.outcome()).number

    def start(self, nursery: trio.Nursery, *names: str) -> None:
        for name in names:
            nursery.start_soon(self.take_part, name)


async def test_half_of_those_that_ask_take_part_and_the_others_are_told(seed: int) -> None:
    async with simulate(task(), model(), seed) as net:
        crowd = Crowd(net)
        async with trio.open_nursery() as nursery:
            crowd.start(nursery, *NAMES)
            outcome = await net.finish_round()
        assert outcome.clients == tuple(sorted(crowd.counted))
        assert len(outcome.clients) == len(crowd.missed) == 4
        assert set(crowd.counted) | set(crowd.missed) == set(NAMES)
        for (error,) in crowd.missed.values():
            assert (error.number, error.asked, error.drawn, error.in_doubt) == (1, 8, 4, 0)
        assert outcome.update["head"].tolist() == [4, 4]
        sent = {note.sender for note in net.transcript if isinstance(note.message, Submit)}
        assert sent == set(crowd.counted), "who is not drawn sends nothing"


async def test_a_client_that_waits_takes_part_in_a_later_round(seed: int) -> None:
    async with simulate(task(), model(), seed) as net:
        crowd = Crowd(net, wait=True)
        async with trio.open_nursery() as nursery:
            crowd.start(nursery, *NAMES[:6])
            first = await net.finish_round()
            second = await net.finish_round()
            nursery.cancel_scope.cancel()
        assert len(first.clients) == 3
        assert len(second.clients) == 2
        assert not set(first.clients) & set(second.clients)
        assert crowd.missed == {}


async def test_who_was_not_drawn_may_ask_again_in_the_next_round(seed: int) -> None:
    async with simulate(task(sample=2), model(), seed) as net:
        met: list[int] = []

        async def persist(name: str) -> None:
            async with net.client(name) as client:
                while True:
                    with suppress(NotDrawnError):
                        await client.submit({"head": [1, 1]})
                        met.append((await client.outcome()).number)
                        return

        async with trio.open_nursery() as nursery:
            for name in NAMES[:6]:
                nursery.start_soon(persist, name)
            for _ in range(3):
                assert len((await net.finish_round()).clients) == 2
        assert sorted(met) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("sample", [6, 1.0])
async def test_where_as_many_ask_as_are_drawn_all_of_them_take_part(sample: float, seed: int) -> None:
    async with simulate(task(sample=sample), model(), seed) as net:
        crowd = Crowd(net)
        async with trio.open_nursery() as nursery:
            crowd.start(nursery, *NAMES[:4])
            assert (await net.finish_round()).clients == NAMES[:4]


async def test_nobody_is_drawn_where_too_few_ask(seed: int) -> None:
    async with simulate(task(), model(), seed) as net, trio.open_nursery() as nursery:
        nursery.start_soon(Crowd(net).take_part, NAMES[0])
        with pytest.raises(MisuseError, match=r"too few clients have asked S0 .* sample=0.5 of 1 has fewer than the 2"):
            await net.finish_round()
        assert net.servers[0].state_name() == "round 1: Gathering, waiting for clients to ask; 1 have, which is too few"
        nursery.cancel_scope.cancel()


async def test_a_task_for_everybody_draws_nobody(seed: int) -> None:
    async with simulate(task(sample=None), model(), seed) as net:
        with pytest.raises(MisuseError, match="nobody is to be drawn now at S0: everybody takes part in this task"):
            await net.draw()


@pytest.mark.parametrize("changes", [{"selection": "fixed"}, {"alignment": "union"}])
async def test_sessions_and_unions_survive_that_a_client_is_not_drawn(changes: dict[str, Any], seed: int) -> None:
    """Everybody comes in every round; a session's later rounds are hints for whoever has trees already."""
    async with simulate(task(sample=3, **changes), model(), seed) as net:
        counted: list[set[str]] = []

        async def persist(name: str) -> None:
            async with net.client(name) as client:
                while True:
                    try:
                        await client.submit({"items": ([1], [[1]])} if client.round_number else {}, wait=True)
                    except MisuseError as error:
                        if "finds the union first" not in str(error):
                            raise
                        await client.unite({"items": [1, 2]}, wait=True)
                    assert (await client.outcome()).counted

        async with trio.open_nursery() as nursery:
            for name in NAMES[:5]:
                nursery.start_soon(persist, name)
            counted.extend([set((await net.finish_round()).clients) for _ in range(6)])
            nursery.cancel_scope.cancel()
        assert all(len(clients) == 3 for clients in counted)
        assert set().union(*counted) == set(NAMES[:5])


async def test_a_client_that_was_not_drawn_is_refused(seed: int) -> None:
    """It does not listen to what both servers say, and is no better off."""
    deaf = with_fields(Opened, drawn=True)
    async with simulate(task(sample=2), model(), seed) as net, trio.open_nursery() as nursery:
        refused: list[str] = []

        async def insist(name: str) -> None:
            async with meddled(net.client(name), incoming=deaf) as client:
                try:
                    await client.submit({"head": [1, 1]})
                except RequestDeniedError as error:
                    refused.append(error.reason)

        for name in NAMES[:5]:
            nursery.start_soon(insist, name)
        outcome = await net.finish_round()
        assert (len(outcome.clients), refused) == (2, ["not-drawn"] * 3)
        assert outcome.excluded == {}


async def test_servers_that_contradict_each_other_about_a_client_are_named(seed: int) -> None:
    async def lie(address: str, message: Message, data: bytes) -> bytes:
        if isinstance(message, Opened) and address == "S1":
            return b"".join(encode(msgspec.structs.replace(message, drawn=not message.drawn)))
        return data

    async with simulate(task(), model(), seed) as net, trio.open_nursery() as nursery:
        crowd, errors = Crowd(net), []

        async def lied_to() -> None:
            async with meddled(net.client("lied to"), incoming=lie) as client:
                with pytest.raises(
                    PeerViolationError, match=r"^S0 and S1: contradict each other: S. says that this"
                ) as e:
                    await client.retrieve(COVER)
                errors.append(e.value)

        nursery.start_soon(lied_to)
        crowd.start(nursery, *NAMES[:5])
        await net.draw()
        await trio.testing.wait_all_tasks_blocked()
        assert len(errors) == 1
        nursery.cancel_scope.cancel()


async def test_a_server_that_says_not_drawn_in_a_round_for_everybody_is_a_violation(seed: int) -> None:
    lie = with_fields(Opened, drawn=False)
    async with simulate(task(sample=None), model(), seed) as net, meddled(net.client("anna"), incoming=lie) as anna:
        with pytest.raises(PeerViolationError, match="not drawn, but rounds of this task are for every client"):
            await anna.retrieve(COVER)


# ---- the machine


def test_lists_are_compared_and_a_second_one_is_a_violation() -> None:
    terms = sampling_terms()
    state = sampling.step(sampling.Gathering(), sampling.Frozen(("a", "b", "c")), terms)
    assert [sent.message for sent in sampling.effects(state, terms)] == [AskedList(number=3)]
    state = sampling.step(state, sampling.PeerAsked(("b", "c", "d")), terms)
    assert isinstance(state, sampling.Drawn)
    assert (state.asked, state.drawn) == (2, ("b", "c"))
    assert sampling.step(state, sampling.PeerAsked(("b", "c", "d")), terms) is state
    with pytest.raises(PeerViolationError, match="S1: sent two different asker lists for one round"):
        sampling.step(state, sampling.PeerAsked(("b", "c")), terms)
    with pytest.raises(UnexpectedEvent):
        sampling.step(state, sampling.Frozen(("a",)), terms)


def test_both_servers_draw_the_same_whoever_lists_first() -> None:
    ours, theirs = tuple("abcdefgh"), tuple("bcdefghij")
    drawn = []
    for server, own, other in ((0, ours, theirs), (1, theirs, ours)):
        for events in (
            (sampling.Frozen(own), sampling.PeerAsked(other)),
            (sampling.PeerAsked(other), sampling.Frozen(own)),
        ):
            state: sampling.Sampling = sampling.Gathering()
            for event in events:
                state = sampling.step(state, event, sampling_terms(server, sample=3))
            assert isinstance(state, sampling.Drawn)
            drawn.append(state.drawn)
    assert len(set(drawn)) == 1
    assert len(drawn[0]) == 3


# ---- gathering, restarts


async def live(client: Any) -> None:
    while True:
        with suppress(NotDrawnError):
            await client.submit({"head": [1, 1]}, wait=True)
            await client.outcome()


@pytest.mark.parametrize(
    ("moment", "event"),
    one_in(
        2,
        ("before write", "after write", "before send", "after send"),
        (("Gathering", "Frozen", "Listed"), ("Listed", "PeerAsked", "Drawn")),
    ),
)
async def test_a_server_killed_while_it_draws_draws_the_same(event, moment, seed: int, autojump_clock) -> None:
    crash = Crash("S0", AtTransition("sampling", *event, moment), down=2.0)
    schedule = Schedule(clients=10, seconds=10, rounds=2, gather=5.0)
    async with world(task(), model(), seed, faults=[crash], schedule=schedule, clients=NAMES) as made:
        for name in NAMES[:6]:
            made.start(name, live)
        await made.wait_settled(2)
        for number in (1, 2):
            first, second = (settled[number] for settled in made.settled)
            assert first.clients == second.clients
            assert len(first.clients) == 3
        assert made.process("S0").lives == 2
        assert not made.ended
        assert not made.contradictions


async def test_a_round_is_drawn_when_its_time_is_over_or_all_on_the_list_have_asked(seed: int, autojump_clock) -> None:
    schedule = Schedule(clients=10, seconds=60, rounds=1, gather=30.0)
    for gone, waited in ((False, 0.0), (True, 30.0)):
        async with world(task(), model(), seed, schedule=schedule, clients=NAMES) as made:
            if gone:
                made.network.client("somebody who never comes")
            for name in NAMES[:4]:
                made.start(name, live)
            await made.wait_settled(1)
            assert waited <= made.now < waited + 10
            assert len(made.settled[0][1].clients) == 2


async def test_where_too_few_ask_the_round_is_aborted_after_patience(seed: int, autojump_clock) -> None:
    schedule = Schedule(clients=10, seconds=60, rounds=1, gather=5.0, patience=20.0)
    async with world(task(), model(), seed, schedule=schedule, clients=NAMES) as made:
        made.start(NAMES[0], live)
        await made.wait_settled(1)
        assert 25 <= made.now < 35
        for settled in made.settled:
            assert "1 clients asked both servers to take part, which is too few" in settled[1].explanation


async def test_nobody_enters_a_round_that_opens_for_nobody(seed: int, autojump_clock) -> None:
    """Who asks while such a round is being given up asks for the next one, and is not told that others were drawn."""
    schedule = Schedule(clients=10, seconds=60, rounds=2, gather=5.0, patience=20.0)
    slow = [SlowDisk(server, 20.0, 60.0, 1.0) for server in ("S0", "S1")]
    async with world(task(), model(), seed, faults=slow, schedule=schedule, clients=NAMES) as made:
        missed: list[NotDrawnError] = []

        async def ask(client: Any) -> None:
            try:
                await client.submit({"head": [1, 1]})
            except NotDrawnError as error:
                missed.append(error)

        made.start(NAMES[0], ask)
        await trio.sleep(26)
        for name in NAMES[1:]:
            made.start(name, ask)
            await trio.sleep(0.3)
        await made.wait_settled(2)
        assert [report.ended for report in made.settled[0].values()] == ["aborted", "done"]
        assert {error.number for error in missed} == {2}


async def test_a_round_closes_once_all_that_were_drawn_have_submitted(seed: int, autojump_clock) -> None:
    schedule = Schedule(clients=10, seconds=500, rounds=1, gather=30.0)
    async with world(task(sample=3), model(), seed, schedule=schedule, clients=NAMES) as made:
        for name in NAMES[:6]:
            made.network.client(name)  # both servers have it on their lists from the start
        for name in NAMES[:6]:
            made.start(name, live)
        await made.wait_settled(1)
        assert made.now < 60
        assert len(made.settled[0][1].clients) == 3


async def test_an_operator_of_one_server_ends_the_gathering(seed: int, autojump_clock) -> None:
    schedule = Schedule(clients=10, seconds=60, rounds=1, gather=3600.0)
    async with world(task(), model(), seed, schedule=schedule, clients=NAMES) as made:
        made.network.client("somebody who never comes")
        await trio.sleep(1)
        server = made.servers[1]
        with pytest.raises(MisuseError, match="nobody is to be drawn for round 2 now; S1 is at: round 1: Gathering"):
            server.draw_round(2)
        with pytest.raises(MisuseError, match="too few clients have asked S1 to take part in round 1"):
            server.draw_round(1)
        for name in NAMES[:4]:
            made.start(name, live)
        await trio.sleep(10)
        assert server.draw_round(1) == 4
        await made.wait_settled(1)
        assert made.now < 60
        drawn = [(server, told) for _, server, told in made.events if isinstance(told, ClientsDrawn)]
        assert dict(drawn) == dict.fromkeys(("S0", "S1"), ClientsDrawn(number=1, asked=4, drawn=2))
        with pytest.raises(MisuseError, match="nobody is to be drawn for round 2 now"):
            made.servers[0].draw_round(2)


async def test_a_server_whose_store_is_a_copy_lists_nobody_and_gives_the_round_up(seed: int, autojump_clock) -> None:
    """At once: nobody asks for hours to take part in a round that is given up when it opens."""
    network = Network(task(), model(), seed, InlineLane())
    copied = Restore(settled=0, newest=False, gives_up=True, at=0.0)
    await network.servers[0].setup.store.commit(Record(RESTORES, msgspec.msgpack.encode(copied)))
    schedule = Schedule(clients=10, seconds=60, gather=3600.0, grace=1.0)
    network.servers = tuple(Server(replace(server.setup, schedule=schedule)) for server in network.servers)
    async with trio.open_nursery() as nursery:
        for server in network.servers:
            await nursery.start(server.run)
        await trio.sleep(100)
        (first,), (second,) = [await server.past_rounds() for server in network.servers]
        assert "its store was made of a copy" in first.report.explanation
        assert (first.report.ended, second.report.ended) == ("aborted", "aborted")
        assert [server.state_name()[:19] for server in network.servers] == ["round 2: Gathering,"] * 2
        nursery.cancel_scope.cancel()


# ---- a peer that lists or forwards for others


async def test_what_the_peer_says_of_a_client_that_was_not_drawn_is_a_violation(seed: int) -> None:
    async with simulate(task(sample=2), model(), seed) as net, trio.open_nursery() as nursery:
        Crowd(net, wait=True).start(nursery, *NAMES[:5])
        await net.draw()
        run = net.servers[0].running
        assert run is not None
        others = [name for name in NAMES[:5] if not run.start.is_drawn(name)]
        assert len(others) == 3
        with pytest.raises(PeerViolationError, match=r"S1: lists 'client \d', which was not drawn for this round"):
            await run.driver.read(RosterList(run.round_id), memoryview(pack_digests({others[0]: bytes(32)})))
        stranger = next(name for name in (f"x {n}" for n in range(64)) if run.config.carrier(name) == 1)
        forward = Forward(round_id=run.round_id, client=stranger, purpose="retrieve", query=1)
        assert objection(run, forward, 10) == f"forwards for {stranger!r}, which was not drawn for this round"
        nursery.cancel_scope.cancel()
