"""What a server stores because somebody else said so: judged first, bounded, and read back after a restart.

The peer here is an honest server whose link says what the test wants it to say.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgpack
import msgspec
import numpy as np
import pytest
import trio

from fsl_async.bin_count import planned
from fsl_async.bounds import private_bytes, verifier_bytes
from fsl_async.errors import PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.wire.messages import Abort, Answer, Commitment, Forward, RosterList, RowCounts, Share
from fsl_async.wire.peer_lists import pack_digests
from fsl_async.wire.pieces import list_bytes
from fsl_async.wire.public_part import Layout, Trees, counts_bytes, dense_bytes
from parties import simulate
from parties.compute import InlineLane
from parties.events import ServerEvent, Warned
from parties.server.round.outbox import Outbox
from parties.server.round.records import client_bytes, round_bytes
from parties.server.round.run import PARTS_APART, RoundRun
from parties.server.server import Server
from parties.simulation.network import Network
from parties.simulation.scheduling import seeded_scheduling
from parties.storage.store import Keep
from tests.support.hand_made import Request, ask, connected, retrieval, submission
from tests.support.shop import HEAD, TASK, WIDTH, model

from .byzantine import run_server

NAMES = tuple(f"client-{number}" for number in range(40))
PARTS = "round-00000001/parts/"


@dataclass
class Pair:
    """Two servers, each of which may end.

    Attributes:
        network: their network.
        ended: with what each of them ended.
        events: what each of them tells its operator.
    """

    network: Network
    ended: dict[int, list[BaseException]] = field(default_factory=dict)
    events: tuple[list[ServerEvent], list[ServerEvent]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        servers = zip(self.network.servers, self.events, strict=True)
        self.network.servers = tuple(Server(replace(server.setup, observe=told.append)) for server, told in servers)

    async def restarted(self, index: int, nursery: trio.Nursery) -> Server:
        """The server of that number, started again with its store; its peer is not there."""
        server = Server(self.network.servers[index].setup)
        await nursery.start(server.run)
        return server


@asynccontextmanager
async def pair(seed: int, **changes) -> AsyncIterator[Pair]:
    """Both servers in an open round, of the shop's task but for the changes."""
    network = Network(msgspec.structs.replace(TASK, **changes), model(), seed, InlineLane())
    both = Pair(network)
    with seeded_scheduling(seed):
        async with trio.open_nursery() as nursery:
            for index in (0, 1):
                await nursery.start(run_server, network.servers[index], index, both.ended)
            for name in NAMES:
                network.client(name)
            await network.servers[0].next_round(0)
            await trio.sleep(1)
            yield both
            nursery.cancel_scope.cancel()


def carried_by_s0(run: RoundRun) -> list[str]:
    return [name for name in NAMES if run.config.carrier(name) == 0]


async def forward(server: Server, request: Request, client: str, purpose: str, query: int) -> None:
    """Let a server forward the public part that the request has for its carrier."""
    run = await server.next_round(0)
    task = run.config.task
    layout = Layout.retrieval(planned(task)) if purpose == "retrieve" else Layout.submission(planned(task), Trees.OWN)
    message = Forward(round_id=run.round_id, client=client, purpose=purpose, query=query)
    server.link.post(message, request.bulk[0][: layout.size])


async def stored_parts(server: Server) -> list[str]:
    return await server.setup.store.keys(PARTS)


# ---- one part to a request


@pytest.mark.parametrize("purpose", ["retrieve", "submit"])
async def test_of_two_parts_under_one_key_one_is_stored_and_a_restart_comes_up(purpose, seed, autojump_clock):
    async with pair(seed, selection="fixed") as both:
        first, second = both.network.servers
        run = await first.next_round(0)
        client = carried_by_s0(run)[0]
        make, query = (retrieval, 1) if purpose == "retrieve" else (submission, 0)
        for _ in range(2):
            await forward(first, make(run.config, client), client, purpose, query)
        await trio.sleep(1)
        (error,) = both.ended[1]
        assert isinstance(error, PeerViolationError)
        assert "forwards twice" in str(error)
        assert len(await stored_parts(second)) == 1
        async with trio.open_nursery() as nursery:
            again = await both.restarted(1, nursery)
            assert again.state_name() == "round 1: Open"
            nursery.cancel_scope.cancel()


async def nothing(*_: object) -> None:
    """In the place of what sends parts again."""


async def test_what_a_restart_has_lost_is_not_replaced_by_another_part(seed, autojump_clock, monkeypatch):
    """The client's word is recorded, and its part was on loan; the carrier forwards another one after the restart."""
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await first.next_round(0)
        client = carried_by_s0(run)[0]
        await sent(both.network, client, submission(run.config, client))
        assert not await stored_parts(second)
        monkeypatch.setattr(Outbox, "resend_forwards", nothing)
        async with trio.open_nursery() as nursery:
            both.network.servers = (first, Server(replace(second.setup, loans=0)))
            nursery.start_soon(run_server, both.network.servers[1], 1, both.ended)
            await trio.sleep(10)
            await forward(first, submission(run.config, client), client, "submit", 0)
            await trio.sleep(1)
            assert "forwards twice" in str(both.ended[1])
            assert not await stored_parts(second)
            again = await both.restarted(1, nursery)
            assert again.state_name() == "round 1: Open"
            nursery.cancel_scope.cancel()


async def sent(network: Network, client: str, request: Request) -> None:
    """Send a request to both servers, and wait for their answers."""

    async def one(server: int) -> None:
        async with connected(network.client(client), server) as channel:
            await ask(channel, request, server)

    async with trio.open_nursery() as nursery:
        for server in (0, 1):
            nursery.start_soon(one, server)


async def test_parts_that_contradict_each_other_are_named_and_do_not_count(seed, autojump_clock, nursery):
    """Whoever can write blobs could else keep a server from starting."""
    async with pair(seed, selection="fixed") as both:
        first, second = both.network.servers
        run = await first.next_round(0)
        client = carried_by_s0(run)[0]
        await forward(first, retrieval(run.config, client), client, "retrieve", 1)
        await trio.sleep(1)
        (key,) = await stored_parts(second)
        await second.setup.store.commit(Keep(f"{key[:-64]}{bytes(32).hex()}", b"another part"))
        told = []
        again = Server(replace(second.setup, address="S1, again", observe=told.append))
        await nursery.start(again.run)
        warned = [each.explanation for each in told if isinstance(each, Warned)]
        assert len(warned) == 2
        assert all(f"{PARTS_APART} of {client!r}" in explanation for explanation in warned)
        nursery.cancel_scope.cancel()


# ---- whose parts, and how many


async def test_parts_for_names_that_nobody_knows_are_not_stored(seed, autojump_clock, caplog):
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await first.next_round(0)
        strangers = [name for name in (f"stranger-{number}" for number in range(60)) if run.config.carrier(name) == 0]
        for name in strangers:
            await forward(first, retrieval(run.config, name), name, "retrieve", 1)
        await trio.sleep(1)
        assert not both.ended
        assert not await stored_parts(second)
        assert sum("who is not known here" in record.message for record in caplog.records) == 1
        assert (await second.next_round(0)).requests.turned_away == len(strangers)


async def test_parts_are_stored_for_as_many_clients_as_the_round_has(seed, autojump_clock):
    async with pair(seed, max_clients=3) as both:
        first, second = both.network.servers
        run = await first.next_round(0)
        for name in carried_by_s0(run):
            for query in range(1, TASK.retrievals + 1):
                await forward(first, retrieval(run.config, name, query), name, "retrieve", query)
        await trio.sleep(1)
        assert not both.ended
        assert len(await stored_parts(second)) == 3 * TASK.retrievals
        for late in [name for name in NAMES if run.config.carrier(name) == 1][:8]:  # who comes itself finds a place
            async with connected(both.network.client(late), 1) as channel:
                assert isinstance(await ask(channel, retrieval(run.config, late), 1), Answer)
        assert len(await stored_parts(second)) == 3 * TASK.retrievals + 8


async def test_who_has_come_itself_leaves_its_place_to_others(seed, autojump_clock):
    async with pair(seed, max_clients=2) as both:
        first, second = both.network.servers
        run = await second.next_round(0)
        for client in carried_by_s0(run)[:6]:
            await sent(both.network, client, retrieval(run.config, client))
        assert len(await stored_parts(second)) == 6
        for client in carried_by_s0(run)[6:]:
            await forward(first, retrieval(run.config, client), client, "retrieve", 1)
        await trio.sleep(1)
        assert len(await stored_parts(second)) == 6 + 2


async def test_what_one_client_can_have_stored_is_what_room_is_kept_for(seed, autojump_clock):
    async with simulate(TASK, model(), seed) as network:
        async with network.client("anna") as anna:
            for _ in range(TASK.retrievals):
                await anna.retrieve({"items": [1, 2]})
            await anna.submit({"items": ([1], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
        most = TASK.retrievals * Layout.retrieval(planned(TASK)).size + Layout.submission(planned(TASK), Trees.OWN).size
        assert client_bytes(TASK) == most + dense_bytes(TASK)
        for server in network.servers:
            store = server.setup.store
            kept = [key for kind in ("parts", "dense") for key in await store.keys(f"round-00000001/{kind}/")]
            stored = sum([len(await store.blob(key)) for key in kept])
            assert TASK.retrievals * Layout.retrieval(planned(TASK)).size <= stored <= client_bytes(TASK)
        await honest_round_without_anna(network)


def test_room_is_kept_for_what_is_stored_of_a_bound():
    """The proof, and both servers' answers about it, which are among its events; the last are in the log, too."""
    bounded, of_all = msgspec.structs.replace(TASK, bound=16.0), 10_000
    answer = verifier_bytes(planned(bounded))
    assert client_bytes(bounded) == client_bytes(TASK) + private_bytes(planned(bounded)) + 2 * answer
    assert round_bytes(bounded, of_all) == of_all * (client_bytes(bounded) + answer)


async def honest_round_without_anna(network: Network) -> None:
    async with network.client("ben") as ben:
        await ben.submit({"items": ([1], np.ones((1, WIDTH))), "head": np.ones(HEAD)})
    outcome = await network.finish_round()
    assert outcome.clients == ("anna", "ben")


# ---- what is ahead of its turn, and whom a roster names


async def test_what_is_ahead_of_its_turn_waits_once(seed, autojump_clock):
    """A peer that sends commitments in an open round, each another one, is stopped at the second."""
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await second.next_round(0)
        for _ in range(50):
            first.link.post(Commitment(run.round_id, bytes(32)))
        await trio.sleep(1)
        assert (len(run._early), both.ended) == (1, {})
        first.link.post(Commitment(run.round_id, b"another" + bytes(25)))
        await trio.sleep(1)
        assert "sent two different commitments for one round" in str(both.ended[1])


async def test_a_share_is_judged_before_it_is_stored(seed, autojump_clock):
    async with pair(seed) as both:
        _, second = both.network.servers
        run = await second.next_round(0)
        entries = {"anna": bytes(32), "ben": bytes(32)}
        run.driver.state = ssa.Revealed(entries, {}, bytes(32), bytes(32), b"a commitment" + bytes(20), {})
        with pytest.raises(PeerViolationError, match="does not match its commitment"):
            await run.take_message(Share(run.round_id, bytes(32)), memoryview(bytes(list_bytes(TASK))))
        assert not await second.setup.store.keys("round-00000001/share/")


async def test_counts_are_judged_before_they_are_stored(seed, autojump_clock):
    async with pair(seed, min_contributors=2, lying_clients=0) as both:
        _, second = both.network.servers
        run = await second.next_round(0)
        entries = {"anna": bytes(32), "ben": bytes(32)}
        run.driver.state = ssa.Tallied(entries, entries, {}, entries, bytes(32), {})
        size = counts_bytes(TASK)
        with pytest.raises(PeerViolationError, match=f"sent counts of {size + 4} bytes, the task implies {size}"):
            await run.take_message(RowCounts(run.round_id), memoryview(bytes(size + 4)))
        run.driver.state = ssa.Chosen(entries, entries, {}, entries, (bytes(32), bytes(32)), {"count": bytes(32)})
        with pytest.raises(PeerViolationError, match="sent two different counts for one round"):
            await run.take_message(RowCounts(run.round_id), memoryview(bytes(size)))
        assert not await second.setup.store.keys("round-00000001/counts/")


@pytest.mark.parametrize("name", ["S0", "S1", "", "a\x1b[2Jb", "a\nb", 'a"b', "\u202ename", "n" * 65])
async def test_a_roster_with_what_names_no_client_halts(name, seed, autojump_clock):
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await second.next_round(0)
        first.link.post(RosterList(run.round_id), msgpack.packb([[name, bytes(32)]]))
        await trio.sleep(1)
        assert "sent a list of clients" in str(both.ended[1])
        assert name.isprintable() or name not in str(both.ended[1])


async def test_names_of_a_roster_that_are_unknown_here_are_told_and_not_counted(seed, autojump_clock):
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await second.next_round(0)
        first.link.post(RosterList(run.round_id), pack_digests({"nobody": bytes(32), NAMES[0]: bytes(32)}))
        await trio.sleep(1)
        (warned,) = [event for event in both.events[1] if isinstance(event, Warned)]
        assert warned.about == "clients"
        assert "S0 lists 1 clients that are not known here, 'nobody' the first of them" in warned.explanation
        assert not both.ended


# ---- words


@pytest.mark.parametrize("reason", ["half of a character: \ud800", "\x1b]0;title\x07 and more", "\udcff" * 200])
async def test_whatever_reason_an_operator_gives_a_round_is_given_up(reason, seed, autojump_clock):
    async with simulate(TASK, model(), seed) as network, network.client("anna") as anna:
        await anna.submit({"items": ([1], np.ones((1, WIDTH)))})
        report = await network.servers[0].abort_round(1, reason)
        assert report.explanation.isprintable()
        assert "\\" in report.explanation
        assert await network.servers[1].rounds.settled_report(report.round_id) == report
        told = await anna.outcome()
        assert (told.counted, told.reason) == (False, report.explanation)


async def test_what_a_peer_gives_as_its_reason_is_made_printable(seed, autojump_clock):
    async with pair(seed) as both:
        first, second = both.network.servers
        run = await second.next_round(0)
        first.link.post(Abort(run.round_id, "\x1b[2J" * 50))
        await trio.sleep(1)
        report = await second.rounds.settled_report(run.round_id)
        assert report.explanation.startswith("\\x1b[2J\\x1b[2J")
        assert len(report.explanation.encode()) <= 256
        assert not both.ended.get(1)
