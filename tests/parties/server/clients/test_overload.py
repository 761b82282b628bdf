"""Clients that declare much and send little, and clients that do not read: honest ones get through. Virtual time."""

import trio

from fsl_async.errors import ChannelError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import AskTask, Block, FromServer, Receipt
from parties.schedule import ConversationLimits
from tests.support.conversing import BULK, House, ask, reply, submit

LARGE = 20_000_000
MEMORY = 60_000_000


async def opened_house(nursery, **changes):
    house = House(nursery, ConversationLimits(memory_bytes=MEMORY), **changes)
    house.counter.sizes = {BULK, LARGE}
    await house.open(longest=LARGE)
    return house


async def trickle(house, name, rate):
    """Declares a large submission and sends it so slowly that it is just not cut off, again and again."""
    while True:
        channel = await house.dial_records(name)
        portions = channel.message(*submit(LARGE))
        try:
            while True:
                await channel.wire.send(next(portions))
                await trio.sleep(65_000 / rate)
        except ChannelError:
            await channel.aclose()
        await trio.sleep(0.1)


async def test_honest_clients_get_through_past_thirteen_that_trickle(nursery, autojump_clock):
    house = await opened_house(nursery)
    most = 0

    async def watch():
        nonlocal most
        while True:
            most = max(most, house.conversations.request_memory.used)
            await trio.sleep(0.1)

    nursery.start_soon(watch)
    for number in range(13):
        nursery.start_soon(trickle, house, f"mallory {number}", 12_000)
    await trio.sleep(100)
    waited = []
    for number in range(5):
        async with await house.dial(f"honest {number}") as channel:
            began = trio.current_time()
            assert isinstance(await ask(channel, *submit(LARGE)), Receipt)
            waited.append(trio.current_time() - began)
    assert max(waited) < 20
    assert most <= MEMORY
    nursery.cancel_scope.cancel()


async def test_who_comes_in_slowly_while_nobody_waits_is_served(nursery, autojump_clock):
    house = await opened_house(nursery)
    channel = await house.dial_records("slow")
    for portion in channel.message(*submit(LARGE)):
        await channel.wire.send(portion)
        await trio.sleep(65_000 / 50_000)
    assert isinstance(await reply(channel), Receipt)
    await channel.aclose()


async def test_a_request_counts_while_it_comes_and_no_longer(nursery, autojump_clock):
    house = await opened_house(nursery)
    channel = await house.dial_records("anna")
    first, *more = channel.message(*submit())
    await channel.wire.send(first)
    await trio.sleep(1)
    assert house.counter.begun == ["anna"]
    await channel.wire.send(b"".join(more))
    assert isinstance(await reply(channel), Receipt)
    assert house.counter.begun == []
    await channel.aclose()


# ---- answers


async def test_answers_that_nobody_reads_take_no_more_memory_than_there_is(nursery, autojump_clock):
    """Ninety clients ask for three megabytes each and do not read; one that reads is served soon."""
    house = await opened_house(nursery, longest_answer=3_000_000)
    house.counter.content = bytes(3_000_000)
    channels = [await house.dial(f"mallory {number}") for number in range(90)]
    for channel in channels:
        await channel.send(*encode(AskTask()))
    most = 0
    for _ in range(100):
        most = max(most, house.conversations.answer_memory.used)
        await trio.sleep(0.1)
    assert 0 < most <= house.conversations.answer_memory.limit < 90 * 3_000_000
    began = trio.current_time()
    async with await house.dial("honest") as channel:
        assert isinstance(await whole_reply(channel), Block)
    assert trio.current_time() - began < 120
    for channel in channels:
        await channel.aclose()


async def whole_reply(channel):
    await channel.send(*encode(AskTask()))
    return decode(await channel.receive(10**7), FromServer, "S0").message
