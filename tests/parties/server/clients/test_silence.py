"""Connections that the network has forgotten, and servers that stand still: nobody waits in silence. Virtual time.

What a forgotten connection carries is swallowed, both ways or one way, and neither end is told: as it is where a
middlebox has dropped it, or where a process stands while its system goes on acknowledging.
"""

import logging
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import trio

from fsl_async.errors import ChannelError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskOutcome, AskTask, Receipt
from parties.client import requests
from parties.client.retries import PATIENCE
from parties.errors import ServerBusyError
from parties.events import PeerLost, ServerEvent
from parties.server.clients.requests import RequestHandler
from parties.server.rounds import AWAY_SECONDS
from parties.server.setup import ServerSetup
from tests.support.cases import often
from tests.support.conversing import ROUND, House, house_with, reply, submit
from tests.support.shop import Shop, all_take_part, assert_exact, opened, take_part
from transport import MemoryNetwork, UnansweredError
from transport.channel import HEARTBEAT, SILENCE

NOTICED = SILENCE + HEARTBEAT + 1
"""Seconds within which a silent peer is noticed."""


class Swamp(MemoryNetwork):
    """A network that forgets connections."""

    def __init__(self) -> None:
        super().__init__()
        self.swallows_all = False
        self.streams: list[SwampStream] = []

    def make_pair(self):
        pair = [SwampStream(stream, swallows=self.swallows_all) for stream in super().make_pair()]
        self.streams += pair
        return pair[0], pair[1]

    def forget(self) -> None:
        """Forget all connections that there are; new ones are as good as ever."""
        for stream in self.streams:
            stream.swallows = True

    def go_down(self) -> None:
        """Carry nothing any more, on old connections and new ones."""
        self.forget()
        self.swallows_all = True


class SwampStream(trio.abc.Stream):
    def __init__(self, inner: trio.abc.Stream, *, swallows: bool) -> None:
        self.inner = inner
        self.swallows = swallows

    async def send_all(self, data) -> None:
        if self.swallows:
            await trio.lowlevel.checkpoint()
        else:
            await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes=None) -> bytes:
        data = await self.inner.receive_some(max_bytes)
        if self.swallows:  # the end of the stream is swallowed with everything else
            await trio.sleep_forever()
        return data

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class NotingShop(Shop):
    """Notes when its servers lose each other."""

    lost: list[float] = field(default_factory=list)

    def setup_of(self, index: int) -> ServerSetup:
        return replace(super().setup_of(index), observe=self._note)

    def _note(self, event: ServerEvent) -> None:
        if isinstance(event, PeerLost):
            self.lost.append(trio.current_time())


@pytest.fixture
def swamp() -> Swamp:
    return Swamp()


@pytest.fixture
async def shop(nursery, swamp: Swamp) -> NotingShop:
    shop = await NotingShop.in_memory(nursery, transports=(swamp, swamp)).open()
    await shop.servers[0].next_round(0)  # the servers' own connection is the first
    return shop


async def test_a_client_that_waits_for_the_outcome_notices_a_forgotten_connection(shop, swamp, autojump_clock):
    told = []

    async def wait(client) -> None:
        told.append((await client.outcome(), trio.current_time()))

    async with opened(*(shop.client(name, patience=20.0) for name in ("ann", "ben"))) as (ann, ben):
        await all_take_part(ann, ben)
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait, ann)
            await trio.sleep(1)
            swamp.forget()
            await trio.sleep(NOTICED + 20)  # the servers find each other again
            assert_exact(await shop.finish_round(), "ann", "ben")
            done = trio.current_time()
    outcome, at = told[0]
    assert outcome.counted
    assert at - done < 1  # it was there in time


async def test_servers_notice_that_their_connection_was_forgotten(shop, swamp, autojump_clock):
    began = trio.current_time()
    swamp.forget()
    await trio.sleep(NOTICED + 6)
    assert len(shop.lost) == 2
    assert max(shop.lost) - began <= NOTICED
    assert all(server.status().peer_connected for server in shop.servers)
    async with opened(*map(shop.client, ("ann", "ben"))) as clients:
        await all_take_part(*clients)
        assert_exact(await shop.finish_round(), "ann", "ben")


@pytest.mark.parametrize("hours", often(1, [2, 24]))
async def test_servers_whose_connection_is_idle_for_a_day_stay_connected(shop, swamp, hours, autojump_clock):
    made = len(swamp.streams)
    await trio.sleep(hours * 3_600)
    assert len(swamp.streams) == made
    assert all(server.status().peer_connected for server in shop.servers)


async def test_a_request_over_a_forgotten_connection_is_answered_over_a_new_one(shop, swamp, autojump_clock):
    async with shop.client("ann") as ann:
        await ann.retrieve({"items": [1, 2]})
        for stream in swamp.streams[2:]:  # the servers' own stays
            stream.swallows = True
        began = trio.current_time()
        await ann.retrieve({"items": [3]})
        assert SILENCE <= trio.current_time() - began <= NOTICED + 5


async def test_both_forgotten_connections_are_noticed_at_the_first_silence(shop, swamp, autojump_clock):
    async with shop.client("ann") as ann:
        await take_part(ann)
        await shop.servers[0].abort_round(1, "for the next one")
        for stream in swamp.streams[2:]:
            stream.swallows = True
        began = trio.current_time()
        await ann.retrieve({"items": [3]})  # which asks one server after the other for the next round
        assert SILENCE <= trio.current_time() - began <= NOTICED + 10


@pytest.mark.parametrize("call", ["retrieve", "outcome"])
async def test_patience_bounds_a_wait_while_the_servers_are_apart(shop, swamp, call, autojump_clock, caplog):
    caplog.set_level(logging.WARNING, "parties.client")
    ends = []
    async with shop.client("ann", patience=5) as ann:
        await take_part(ann)
        wait = {"retrieve": partial(ann.retrieve, {"items": [3]}, wait=True), "outcome": ann.outcome}[call]

        async def wait_in_vain() -> None:
            with pytest.raises(ServerBusyError, match=r"waiting for .*: S\d has been away for \d+ s") as raised:
                await wait()
            ends.append((raised.value, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain)
            await trio.sleep(600)
            assert not ends  # while both are there, a round may take its time
            began, swamp.swallows_all = trio.current_time(), True
            for stream in swamp.streams[:2]:
                stream.swallows = True
        ((error, at),) = ends
        assert at - began <= NOTICED + AWAY_SECONDS + 5 + 1
        assert error.in_doubt == (call == "outcome")  # of round 1
        assert "has been away for" in caplog.text


@pytest.mark.parametrize("patience", [5.0, 20.0, 60.0, 300.0])
async def test_patience_bounds_a_try_on_a_network_that_carries_nothing(shop, swamp, patience, autojump_clock):
    async with shop.client("ann", patience=patience) as ann:
        await ann.retrieve({"items": [1, 2]})
        swamp.go_down()
        began = trio.current_time()
        with pytest.raises(ChannelError, match=r"S[01] \(S[01]\): retriev"):
            await ann.retrieve({"items": [3]})
        assert patience <= trio.current_time() - began <= patience + 10


async def test_patience_bounds_a_try_at_a_server_that_stands_still(shop, swamp, autojump_clock):
    """It takes what comes, and says nothing."""
    async with shop.client("ann", patience=20) as ann:
        await ann.retrieve({"items": [1, 2]})
        for stream in swamp.streams[3::2]:
            stream.swallows = True
        began = trio.current_time()
        with pytest.raises(UnansweredError, match="retrieving rows: tried once, for 20 s, last: no answer came"):
            await ann.retrieve({"items": [3]})
        assert trio.current_time() - began <= 26


async def test_patience_bounds_a_try_that_a_living_server_does_not_answer(shop, swamp, autojump_clock):
    """The servers are cut off from each other, and one waits for what the other has of a retrieval."""
    async with shop.client("ann", patience=30) as ann:
        await ann.retrieve({"items": [1, 2]})
        for stream in swamp.streams[:2]:
            stream.swallows = True
        began = trio.current_time()
        with pytest.raises(UnansweredError, match="retrieving rows: tried once, for 30 s, last: no answer came"):
            await ann.retrieve({"items": [3]})
        assert trio.current_time() - began == pytest.approx(30, abs=1)


async def test_a_caller_is_told_after_a_while_what_it_waits_for(shop, autojump_clock, caplog):
    caplog.set_level(logging.WARNING, "parties.client")
    async with shop.client("ann") as ann:
        await take_part(ann)
        with trio.move_on_after(29):
            await ann.outcome()
        assert "no answer" not in caplog.text
        with trio.move_on_after(3_600):
            await ann.outcome()
        for seconds in (30, 60, 120, 240, 480, 960, 1920):
            words = f"waiting for a round's outcome: no answer for {seconds} s; waiting for as long as it is there"
            assert caplog.text.count(words) == 2  # of S0 and of S1
        assert len(caplog.messages) == 14


async def test_a_server_that_lives_and_does_not_say_which_task_it_runs_is_not_waited_for_in_silence(
    shop, swamp, autojump_clock, monkeypatch, caplog
):
    """A client that waits for the outcome connects again, to servers that only show signs of life."""
    caplog.set_level(logging.WARNING, "parties.client")
    reply = RequestHandler.ask

    async def only_lives(reception, client, message, *rest):
        if isinstance(message, AskTask):
            await trio.sleep_forever()
        return await reply(reception, client, message, *rest)

    async with shop.client("ann") as ann:
        await take_part(ann)
        monkeypatch.setattr(RequestHandler, "ask", only_lives)
        monkeypatch.setattr(requests, "serves", lambda shown, task: False)  # else nobody asks for the task
        swamp.forget()
        with trio.move_on_after(NOTICED + PATIENCE + 10):
            await ann.outcome()
        assert "the server did not say within 60 s which task it runs; trying again" in caplog.text


async def test_a_client_that_takes_no_sign_of_life_does_not_delay_what_is_carried_out(nursery, autojump_clock):
    """Else it would keep the room that it holds for so long, and could not be hurried."""
    house = House(nursery, network=Stuck())
    await house.open()
    house.counter.working = trio.Event()
    channel = await house.dial()
    await channel.send(*submit())
    await trio.sleep(HEARTBEAT + 5)
    house.counter.working.set()
    began = trio.current_time()
    assert isinstance(await reply(channel), Receipt)
    assert trio.current_time() - began < 1


class Stuck(MemoryNetwork):
    """A network on which small messages pass, and yet never look as if they would."""

    def make_pair(self):
        return tuple(StuckStream(stream, swallows=False) for stream in super().make_pair())


class StuckStream(SwampStream):
    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()


async def test_a_server_lets_a_client_go_that_has_sent_ahead_and_is_gone(nursery, autojump_clock):
    """It sends two requests, of which the first one is answered late, and its connection breaks."""
    house = await house_with(nursery)
    channel = await house.dial_records()
    for _ in range(2):
        await channel.send(*encode(AskOutcome(round_id=ROUND)))
    await trio.sleep(1)
    assert house.counter.waiting == 1
    await channel.wire.aclose()
    await trio.sleep(HEARTBEAT + 1)
    assert (house.counter.waiting, len(house.left)) == (0, 1)
