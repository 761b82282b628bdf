"""Links over which one server forwards public parts to the other: in order, again, not at all; and peers that cheat."""

import random
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pytest
import trio

from fsl_async.errors import ChannelError, PeerViolationError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.forward_messages import FromKeeper, OfferPart, PartFollows, PartLater, PartTaken, PartWanted
from parties.server.peer.forward_keeper import MOST_OFFERS, PATIENCE, ForwardKeeper, ForwardRoom, Verdict
from parties.server.peer.forward_sender import ForwardSender, Order
from parties.server.store_layout import RequestKey
from parties.storage.blobs.blobs import BlobsAwayError
from parties.storage.blobs.memory import MemoryBlobs
from tests.support.conversing import Overheard
from transport import HandshakeSettings, KeyPair, Kind, MemoryNetwork, Role, Service, TooSlowError

ROUND = bytes(32)


def settings(name, role):
    pair = KeyPair.generate(random.Random(name).randbytes)
    return HandshakeSettings(pair.private, role, Kind.SIMULATION, random.Random(name).randbytes), pair.public


SENDER, _ = settings("S0", Role.SERVER_0)
KEEPER, KEEPER_KEY = settings("S1", Role.SERVER_1)


@dataclass
class HandDesk:
    """Decides as the test says."""

    verdicts: list[Verdict] = field(default_factory=list)
    offers: list[OfferPart] = field(default_factory=list)
    kept: dict[str, bytes] = field(default_factory=dict)
    keeping: trio.Event = field(default_factory=trio.Event)

    async def offered(self, offer):
        self.offers.append(offer)
        return self.verdicts.pop(0) if self.verdicts else Verdict.WANTED

    async def keep(self, offer, part):
        await self.keeping.wait()
        if part[:1] == b"!":
            raise PeerViolationError("S0", "forwards another part than it offered")
        self.kept[offer.client] = bytes(part)


class Links:
    """A sender and a keeper, and the network between them."""

    def __init__(self, nursery, room=10**6):
        self.nursery = nursery
        self.network = MemoryNetwork()
        self.blobs, self.desk, self.room = MemoryBlobs(), HandDesk(), ForwardRoom(room)
        self.desk.keeping.set()
        self.reports, self.failures, self.channels = [], [], []
        self.sender = ForwardSender("S1", self.dial, self.size, self.read, self.report, Overheard([], []))
        self.listening = trio.CancelScope()

    async def size(self, order):
        return await self.blobs.size(order.blob)

    async def read(self, order):
        return await self.blobs.read(order.blob)

    def report(self, order, became):
        self.reports.append((order.order, became))

    async def dial(self):
        self.channels.append(await self.network.dial("S1", KEEPER_KEY, SENDER))
        return self.channels[-1]

    async def listen(self):
        keeper = ForwardKeeper("S0", self.desk, self.room, Overheard([], []))

        async def admit(key, payload):
            return b""

        service = Service(KEEPER, admit, keeper.hold, observe=lambda origin, error: self.failures.append(error))

        async def run(*, task_status):
            with self.listening:
                await self.network.listen("S1", service, task_status=task_status)

        await self.nursery.start(run)

    async def order(self, number, part=b"part"):
        order = Order(number, ROUND, 1, RequestKey(f"client-{number}", "submit", 0), bytes([number]) * 32)
        if part:
            await self.blobs.put(order.blob, part)
        self.sender.order(order)


@pytest.fixture
async def links(nursery):
    links = Links(nursery)
    await links.listen()
    nursery.start_soon(links.sender.run)
    return links


def offer(number=1, size=100):
    return OfferPart(number=number, round_id=ROUND, client="anna", purpose="submit", query=0, part=bytes(32), size=size)


async def heard(channel):
    return decode(await channel.receive(10**5), FromKeeper, "S1").message


# ---- honest


async def test_parts_are_forwarded_several_at_a_time(links, autojump_clock):
    links.desk.keeping = trio.Event()
    for number in range(40, 80):
        await links.order(number, bytes([number]) * 20_000)
    await trio.sleep(1)
    assert len(links.desk.offers) == 16
    links.desk.keeping.set()
    await trio.sleep(5)
    assert links.desk.kept == {f"client-{number}": bytes([number]) * 20_000 for number in range(40, 80)}
    assert sorted(links.reports) == [(number, "forwarded") for number in range(40, 80)]
    assert (links.sender.waiting, links.room.used, links.failures) == (0, 0, [])
    assert len(links.channels) == 1


async def test_what_is_unwanted_is_not_sent(links, autojump_clock):
    links.desk.verdicts = [Verdict.UNWANTED]
    await links.order(1, bytes(50_000))
    await trio.sleep(1)
    assert links.reports == [(1, "forwarded")]
    assert links.channels[0].bytes_sent < 5_000


async def test_what_comes_too_early_is_offered_again(links, autojump_clock):
    links.desk.verdicts = [Verdict.LATER, Verdict.LATER]
    await links.order(1)
    await trio.sleep(1.5)
    assert links.reports == []
    await trio.sleep(2)
    assert links.reports == [(1, "forwarded")]


async def test_without_a_link_orders_are_given_back(nursery, autojump_clock):
    links = Links(nursery)
    nursery.start_soon(links.sender.run)
    await links.order(1)
    await trio.sleep(1)
    assert links.reports == [(1, "not-forwarded")]
    await links.listen()
    await trio.sleep(10)
    await links.order(2)
    await trio.sleep(10)
    assert links.reports == [(1, "not-forwarded"), (2, "forwarded")]


async def test_a_link_that_is_lost_gives_back_what_was_not_taken(links, autojump_clock):
    links.desk.keeping = trio.Event()
    await links.order(1)
    await links.order(2)
    await trio.sleep(1)
    links.listening.cancel()
    await trio.sleep(1)
    assert sorted(links.reports) == [(1, "not-forwarded"), (2, "not-forwarded")]
    assert links.room.used == 0
    links.listening = trio.CancelScope()
    links.desk.keeping.set()
    await links.listen()
    await links.order(3)
    await trio.sleep(10)
    assert links.reports[2:] == [(3, "forwarded")]


async def test_a_part_that_is_not_there_is_given_back(links, autojump_clock):
    await links.order(1, b"")
    await trio.sleep(60)
    assert links.reports == [(1, "not-forwarded")]
    assert links.desk.offers == []


async def test_room_is_lent_before_a_part_comes(nursery, autojump_clock):
    links = Links(nursery, room=250_000)
    await links.listen()
    nursery.start_soon(links.sender.run)
    links.desk.keeping = trio.Event()
    for number in range(1, 6):
        await links.order(number, bytes(100_000))
    await trio.sleep(1)
    assert links.room.used == 200_000
    assert links.channels[0].bytes_sent < 220_000
    links.desk.keeping.set()
    await trio.sleep(5)
    assert len(links.desk.kept) == 5
    assert links.room.used == 0


async def test_blobs_that_are_away_for_a_while_give_back_and_end_nothing(links, autojump_clock):
    async def away(name):
        raise BlobsAwayError("the object store does not answer")

    links.blobs.size = away
    await links.order(1)
    await trio.sleep(60)
    assert links.reports == [(1, "not-forwarded")]
    del links.blobs.size
    await links.order(2)
    await trio.sleep(1)
    assert links.reports[1:] == [(2, "forwarded")]
    assert len(links.channels) == 1


async def test_a_slow_link_is_waited_for_as_long_as_parts_come(links, autojump_clock):
    """Sixteen parts are wanted at a time, and the last one comes when all others have."""
    async with await links.dial() as channel:
        for number in range(16):
            asked = msgspec.structs.replace(offer(number), client=f"client-{number}")
            await channel.send(*encode(asked))
            assert isinstance(await heard(channel), PartWanted)
        for number in range(16):
            await trio.sleep(PATIENCE - 1)
            await channel.send(*encode(PartFollows(number), b"x" * 100))
            assert isinstance(await heard(channel), PartTaken)
    assert len(links.desk.kept) == 16


async def test_one_long_part_may_take_longer_than_the_patience_with_nothing(links, autojump_clock):
    links.room.limit = size = 8_192 * 4 * round(PATIENCE)

    async with await links.dial() as channel:
        await channel.send(*encode(offer(size=size)))
        assert isinstance(await heard(channel), PartWanted)
        wire, send = channel._wire, channel._wire.send

        async def trickle(data):
            await trio.sleep(len(data) / 16_384)
            await send(data)

        wire.send = trickle
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, *encode(PartFollows(1), bytes(size)))
            assert isinstance(await heard(channel), PartTaken)
    assert trio.current_time() > 1.5 * PATIENCE


# ---- hostile


async def test_a_part_that_nobody_wants_ends_the_link(links, autojump_clock):
    async with await links.dial() as channel:
        await channel.send(*encode(PartFollows(1), b"x" * 100))
        with pytest.raises(ChannelError):
            await heard(channel)
    assert [str(failure) for failure in links.failures] == ["S0: forwards a part that is not wanted"]


@pytest.mark.parametrize("size", [99, 101])
async def test_a_part_of_another_size_ends_the_link(links, autojump_clock, size):
    async with await links.dial() as channel:
        await channel.send(*encode(offer()))
        assert isinstance(await heard(channel), PartWanted)
        await channel.send(*encode(PartFollows(1), b"x" * size))
        with pytest.raises(ChannelError):
            await heard(channel)
    assert "offered with 100" in str(links.failures[0])
    assert links.room.used == 0


async def test_another_part_than_was_offered_ends_the_link(links, autojump_clock):
    async with await links.dial() as channel:
        await channel.send(*encode(offer()))
        assert isinstance(await heard(channel), PartWanted)
        await channel.send(*encode(PartFollows(1), b"!" * 100))
        with pytest.raises(ChannelError):
            await heard(channel)
    assert isinstance(links.failures[0], PeerViolationError)
    assert links.room.used == 0
    assert links.desk.kept == {}


async def test_an_endless_message_is_not_read(links, autojump_clock):
    async with await links.dial() as channel:
        with pytest.raises(ChannelError):
            await channel.send(bytes(20_000_000))
    assert channel.bytes_sent < 5_000_000
    assert "where" in str(links.failures[0])


async def test_who_offers_and_sends_nothing_holds_room_for_a_while_only(links, autojump_clock):
    channel = await links.dial()
    await channel.send(*encode(offer(size=200_000)))
    assert isinstance(await heard(channel), PartWanted)
    assert links.room.used == 200_000
    await trio.sleep(PATIENCE + 1)
    assert links.room.used == 0
    assert [type(failure) for failure in links.failures] == [TooSlowError]


async def test_too_many_offers_end_the_link(links, autojump_clock):
    links.desk.keeping = trio.Event()
    async with await links.dial() as channel:
        with suppress(ChannelError):
            for number in range(MOST_OFFERS + 1):
                await channel.send(*encode(offer(number)))
            while not links.failures:
                await heard(channel)
    assert f"more than {MOST_OFFERS} at a time" in str(links.failures[0])


async def test_a_keeper_that_speaks_out_of_turn_is_left_and_dialled_again(nursery, autojump_clock):
    links = Links(nursery)
    met = []

    async def lie(channel):
        met.append(channel)
        await channel.receive(10**5)
        await channel.send(*encode(PartTaken(len(met))))
        await channel.receive(10**5)

    async def admit(key, payload):
        return b""

    await nursery.start(links.network.listen, "S1", Service(KEEPER, admit, lie, observe=lambda *told: None))
    nursery.start_soon(links.sender.run)
    await links.order(1)
    await trio.sleep(1)
    assert links.reports == [(1, "not-forwarded")]
    await links.order(2)
    await trio.sleep(10)
    assert links.reports == [(1, "not-forwarded"), (2, "not-forwarded")]
    assert len(met) == 2


async def test_a_keeper_that_answers_unasked_cannot_pile_answers_up(nursery, autojump_clock):
    links = Links(nursery)

    async def flood(channel):
        await channel.receive(10**5)
        for _ in range(1_000):
            await channel.send(*encode(PartLater(1)))
        await trio.sleep(1_000)

    async def admit(key, payload):
        return b""

    await nursery.start(links.network.listen, "S1", Service(KEEPER, admit, flood, observe=lambda *told: None))
    nursery.start_soon(links.sender.run)
    await links.order(1)
    await trio.sleep(0.5)
    assert links.reports == [(1, "not-forwarded")]


async def test_a_keeper_that_puts_off_for_ever_keeps_no_room_here(nursery, autojump_clock):
    links = Links(nursery)
    links.desk.verdicts = [Verdict.LATER] * 50
    await links.listen()
    nursery.start_soon(links.sender.run)
    await links.order(1)
    await trio.sleep(100)
    assert links.reports == [(1, "forwarded")]
    assert isinstance(PartLater(1), PartLater)
