"""What a client's connection may and may not do: sizes, room, pace, idling, leaving. Virtual time, memory transport."""

import pytest
import trio.testing

from fsl_async.errors import ChannelError, MisuseError, PeerViolationError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import AskOutcome, AskTask, Enter, FromServer, Opened, Receipt, Refused, Submit, TaskIs
from parties.client.connection import ServerConnection
from parties.schedule import ConversationLimits
from parties.server.clients.connection import LONGEST_HEAD
from parties.server.replies import AbuseError, farewell, say_why
from tests.support.conversing import BULK, LONGER, ROUND, House, ask, house_with, reply, submit, until_lost
from transport import ChannelClosedError, TooSlowError
from transport.records import RecordType


@pytest.fixture
async def house(nursery):
    house = House(nursery)
    await house.open()
    return house


# ---- requests and answers


async def test_requests_are_answered_one_after_the_other(house):
    async with await house.dial() as channel:
        assert await ask(channel, *encode(AskTask())) == TaskIs(b"a task")
        receipt = await ask(channel, *submit(byte=7))
        assert receipt.signature[:1] == b"\7"
        await channel.send(*submit())
        await channel.send(*encode(AskTask()))  # sent ahead
        assert isinstance(await reply(channel), Receipt)
        assert isinstance(await reply(channel), TaskIs)
    assert [(client, type(message).__name__, size) for client, message, size in house.taken[:2]] == [
        ("anna", "AskTask", sum(map(len, encode(AskTask())))),
        ("anna", "Submit", sum(map(len, submit()))),
    ]
    assert [(type(message).__name__, size, bulk) for _, message, size, bulk in house.sent[:2]] == [
        ("TaskIs", sum(map(len, encode(TaskIs(b"a task")))), 0),
        ("Receipt", sum(map(len, encode(receipt))), 0),
    ]
    assert [type(message).__name__ for _, message, _, _ in house.sent] == ["TaskIs", "Receipt", "Receipt", "TaskIs"]
    assert house.failures == []
    assert house.conversations.request_memory.used == 0


async def test_who_goes_on_beyond_its_limits_gets_a_last_answer(house, autojump_clock):
    async with await house.dial() as channel:
        assert (await ask(channel, *submit(query=8))).reason == "limit"
        with pytest.raises(ChannelClosedError):
            await reply(channel)
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [AbuseError]
    assert house.conversations.request_memory.used == 0


async def test_what_is_not_granted_is_refused_unread_and_the_connection_lives(house, autojump_clock):
    async with await house.dial() as channel:
        refused = await ask(channel, *submit(query=7))
        assert (refused.reason, refused.explanation) == ("round-closed", f"not granted: {BULK} bytes")
        assert house.taken == []
        assert isinstance(await ask(channel, *submit()), Receipt)
    assert house.conversations.request_memory.used == 0
    assert house.failures == []


MISSPELT = encode(AskOutcome(ROUND))[0].replace(b"round_id", b"roundlid")
HEAD, CONTENT = submit()
BREACHES = {
    "a key that no request has": ((MISSPELT,), "unknown field `roundlid`"),
    "what is no message": ((b"hello",), "cannot be read"),
    "bulk with a request that has none": (encode(AskTask(), b"1"), "'ask-task', which has no bulk"),
    "as much bulk with such a request as with another": (encode(AskTask(), bytes(BULK)), "Invalid value 'ask-task'"),
    "a head in another form, before its bulk": ((HEAD.replace(b"query\0", b"query\xcc\0"), CONTENT), "cannot be read"),
}


@pytest.mark.parametrize(("parts", "why"), BREACHES.values(), ids=BREACHES)
async def test_who_breaks_the_rules_hears_which_before_the_connection_ends(house, autojump_clock, parts, why):
    async with await house.dial() as channel:
        refused = await ask(channel, *parts)
        assert refused.reason == "malformed"
        assert why in refused.explanation
        with pytest.raises(ChannelClosedError):
            await reply(channel)
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [PeerViolationError]
    assert house.counter.begun == []


async def test_who_breaks_the_rules_of_records_hears_which(house, autojump_clock):
    peer = await house.dial_records()
    await peer.wire.send(peer.record(RecordType.DATA, (100).to_bytes(8, "big") + b"a few of them"))
    refused = decode(await peer.receive(), FromServer, "S0").message
    assert refused.reason == "malformed"
    assert "has 108 in its first record, and not 21" in refused.explanation


# ---- sizes


@pytest.mark.parametrize("size", [BULK - 1, BULK + LONGEST_HEAD + 1, 250_000, 400_000, LONGEST_HEAD + 1])
async def test_a_size_that_no_request_has_is_refused_unread(house, autojump_clock, size):
    async with await house.dial() as channel:
        refused = await ask(channel, bytes(size))
        assert (refused.reason, refused.explanation) == ("malformed", f"no request of this task has {size:,} bytes")
        with pytest.raises(ChannelClosedError):
            await reply(channel)
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [PeerViolationError]
    assert "anna" in str(house.failures[0])
    assert house.taken == []


async def test_far_too_large_a_request_is_not_even_let_pass(house, autojump_clock):
    async with await house.dial() as channel:
        with pytest.raises(ChannelError):
            await channel.send(bytes(50_000_000))
    assert channel.bytes_sent < 3_000_000
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [PeerViolationError]


async def test_a_client_of_ours_hears_even_then_what_was_wrong(house, autojump_clock):
    connection = ServerConnection(house.dial, 10**6)
    await connection.open()
    for request, answer in ((bytes(50_000_000), Refused), (*encode(AskTask()), TaskIs)):
        data = await connection.request(request, remind=list)
        assert isinstance(decode(data, FromServer, "S0").message, answer)
    await connection.aclose()


async def test_who_does_not_read_is_not_waited_for(autojump_clock):
    class Deaf:
        async def send(self, *parts):
            await trio.sleep_forever()

    started = trio.current_time()
    await say_why(Deaf(), farewell("malformed", "anna", "anna: is deaf"))
    assert trio.current_time() - started == pytest.approx(1)


async def test_sizes_are_those_of_the_moment(house, autojump_clock):
    house.counter.sizes = {LONGER}
    async with await house.dial() as channel:
        assert isinstance(await ask(channel, *submit(LONGER)), Receipt)
        assert (await ask(channel, *submit(BULK))).reason == "malformed"


# ---- room


async def test_without_room_a_request_waits_unread(nursery, autojump_clock):
    house = await house_with(nursery, memory_bytes=1_150_000)
    house.counter.working = trio.Event()
    async with await house.dial("anna") as anna, await house.dial("ben") as ben:
        await anna.send(*submit())
        await trio.sleep(1)
        nursery.start_soon(ben.send, *submit())
        await trio.sleep(1)
        assert [client for client, _, _ in house.taken] == ["anna"]
        house.counter.working.set()
        assert isinstance(await reply(anna), Receipt)
        assert isinstance(await reply(ben), Receipt)
    assert house.conversations.request_memory.used == 0


async def test_after_a_while_without_room_the_answer_is_busy_and_the_request_goes_by(nursery, autojump_clock):
    house = await house_with(nursery, memory_bytes=1_150_000, queue_seconds=20)
    house.counter.working = trio.Event()
    async with await house.dial("anna") as anna, await house.dial("ben") as ben:
        await anna.send(*submit())
        await trio.sleep(1)
        started = trio.current_time()
        busy = await ask(ben, *submit())
        assert (busy.reason, busy.retry_after) == ("busy", 20)
        assert "no room for 300," in busy.explanation
        assert trio.current_time() - started == pytest.approx(20, abs=0.5)
        assert isinstance(await ask(ben, *encode(AskTask())), TaskIs)  # a small one needs no room
        house.counter.working.set()
        assert isinstance(await reply(anna), Receipt)
        assert isinstance(await ask(ben, *submit()), Receipt)
    assert [client for client, message, _ in house.taken if isinstance(message, Submit)] == ["anna", "ben"]
    assert house.failures == []


async def test_one_client_on_many_connections_has_room_once(nursery, autojump_clock):
    house = await house_with(nursery, memory_bytes=10 * LONGER)
    house.counter.working = trio.Event()
    channels = [await house.dial("anna") for _ in range(3)]
    for channel in channels:
        nursery.start_soon(channel.send, *submit())
    await trio.sleep(1)
    assert len(house.taken) == 1
    assert house.conversations.request_memory.used < BULK + LONGEST_HEAD
    async with await house.dial("ben") as ben:
        nursery.start_soon(ben.send, *submit())
        await trio.sleep(1)
        assert [client for client, _, _ in house.taken] == ["anna", "ben"]
        house.counter.working.set()
        assert isinstance(await reply(ben), Receipt)
    for channel in channels:
        assert isinstance(await reply(channel), Receipt)
        await channel.aclose()


async def test_room_comes_back_from_whoever_leaves_in_the_middle(house, autojump_clock):
    channel = await house.dial_records()
    await channel.wire.send(next(channel.message(*submit())))
    await trio.sleep(1)
    assert house.conversations.request_memory.used > BULK
    await channel.wire.aclose()
    await trio.sleep(1)
    assert house.conversations.request_memory.used == 0


async def test_room_is_free_before_a_slow_client_reads_its_answer(house, autojump_clock):
    house.counter.content = bytes(2_000_000)
    channel = await house.dial()
    await channel.send(*submit())
    await trio.sleep(1)
    assert len(house.taken) == 1
    assert house.sent == []
    assert house.conversations.request_memory.used == 0
    await channel.aclose()


# ---- pace


@pytest.mark.parametrize("place", ["in the first record", "later"])
async def test_a_trickle_of_ten_bytes_a_second_costs_the_connection(house, autojump_clock, place):
    channel = await house.dial_records()
    first, *more = channel.message(*submit())
    if place == "later":
        await channel.wire.send(first)
    data = more[0] if place == "later" else first
    started = trio.current_time()
    await until_lost(channel, [data[start : start + 10] for start in range(0, len(data), 10)])
    assert trio.current_time() - started < 12
    refused = decode(await channel.receive(), FromServer, "S0").message
    assert (refused.reason, refused.retry_after) == ("busy", 0)
    assert "8,192 bytes per second are expected" in refused.explanation
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [TooSlowError]
    assert house.conversations.request_memory.used == 0
    await channel.aclose()


async def test_who_does_not_read_its_answer_loses_the_connection(house, autojump_clock):
    house.counter.content = bytes(3_000_000)
    channel = await house.dial()
    await channel.send(*encode(AskTask()))
    await trio.sleep(60)
    await trio.testing.wait_all_tasks_blocked()  # until the house has noted it, too
    assert [type(failure) for failure in house.failures] == [TooSlowError]
    assert house.left[0][0] == "anna"
    await channel.aclose()


async def test_a_request_that_goes_by_must_keep_the_pace_too(nursery, autojump_clock):
    house = await house_with(nursery, memory_bytes=1_150_000, queue_seconds=1)
    house.counter.working = trio.Event()
    async with await house.dial("anna") as anna:
        await anna.send(*submit())
        await trio.sleep(1)
        ben = await house.dial_records("ben")
        await ben.wire.send(next(ben.message(*submit())))
        await trio.sleep(60)
        assert [type(failure) for failure in house.failures] == [TooSlowError]
        await ben.aclose()
        house.counter.working.set()
        assert isinstance(await reply(anna), Receipt)


# ---- idling and leaving


async def test_an_idle_client_is_let_go_with_a_word(house, autojump_clock):
    async with await house.dial() as channel:
        await trio.sleep(50)
        assert isinstance(await ask(channel, *encode(AskTask())), TaskIs)
        started = trio.current_time()
        refused = await reply(channel)
        assert (refused.reason, refused.explanation) == ("busy", "nothing was asked for in 60 s")
        with pytest.raises(ChannelClosedError):
            await channel.receive(100)
        assert trio.current_time() - started == pytest.approx(60)
    assert house.failures == []


async def test_pings_are_no_requests(house, autojump_clock):
    channel = await house.dial_records()
    started = trio.current_time()
    await until_lost(channel, [channel.record(RecordType.PING) for _ in range(100)])
    assert trio.current_time() - started == pytest.approx(60, abs=2)
    await channel.aclose()


@pytest.mark.parametrize("message", [Enter(0), AskOutcome(ROUND)])
async def test_who_waits_for_a_late_answer_is_not_idle(house, autojump_clock, message):
    async with await house.dial() as channel:
        await channel.send(*encode(message))
        with trio.move_on_after(3_600):
            await channel.awaited()
        house.counter.opened.set()
        assert await reply(channel) == Opened(b"a configuration")
        assert await ask(channel, *encode(AskTask())) == TaskIs(b"a task")
    assert house.failures == []


@pytest.mark.parametrize("message", [Enter(0), AskOutcome(ROUND)])
@pytest.mark.parametrize("way", ["with a word", "without"])
async def test_who_leaves_while_its_answer_is_late_frees_its_place_at_once(house, autojump_clock, message, way):
    channel = await house.dial_records()
    await channel.send(*encode(message))
    await trio.sleep(10)
    assert house.counter.waiting == 1
    left = trio.current_time()
    await (channel.aclose() if way == "with a word" else channel.wire.aclose())
    await trio.sleep(1)
    assert house.counter.waiting == 0
    assert house.left == [("anna", pytest.approx(left, abs=0.2))]
    assert bool(house.failures) == (way == "without")


async def test_who_waits_and_gives_no_sign_of_life_hears_that_it_has_to(house, autojump_clock):
    channel = await house.dial_records()
    await channel.send(*encode(Enter(0)))
    refused = decode(await channel.receive(), FromServer, "S0").message
    assert (refused.reason, refused.retry_after) == ("busy", 0)
    assert refused.explanation.endswith("who waits sends a PING every 10 s")
    with pytest.raises(ChannelClosedError):
        await channel.receive()
    assert house.counter.waiting == 0


async def test_a_request_sent_ahead_of_a_late_answer_waits_for_it(house, autojump_clock):
    async with await house.dial() as channel:
        await channel.send(*encode(Enter(0)))
        await channel.send(*encode(AskTask()))
        await trio.sleep(10)
        assert house.sent == []
        house.counter.opened.set()
        assert isinstance(await reply(channel), Opened)
        assert isinstance(await reply(channel), TaskIs)


async def test_who_leaves_while_its_submission_is_carried_out_has_it_carried_out(house, autojump_clock):
    house.counter.working = trio.Event()
    channel = await house.dial_records()
    await channel.send(*submit())
    await trio.sleep(1)
    await channel.wire.aclose()
    await trio.sleep(1)
    assert house.sent == []
    house.counter.working.set()
    await trio.sleep(1)
    assert house.conversations.request_memory.used == 0
    assert len(house.left) == 1


# ---- floods


async def test_a_flood_of_requests_is_slowed_down_and_nobody_elses(nursery, autojump_clock):
    house = await house_with(nursery, requests_per_second=10, request_burst=20)
    async with await house.dial("mallory") as mallory, await house.dial("mallory") as second:
        started = trio.current_time()
        for channel in (mallory, second):
            for _ in range(60):
                await channel.send(*encode(AskTask()))
        async with await house.dial("anna") as anna:
            before = trio.current_time()
            assert isinstance(await ask(anna, *encode(AskTask())), TaskIs)
            assert trio.current_time() == pytest.approx(before, abs=0.1)
        for channel in (mallory, second):
            for _ in range(60):
                assert isinstance(await reply(channel), TaskIs)
        assert trio.current_time() - started == pytest.approx(10, abs=0.5)  # 120 requests, of which 20 at once
    assert house.failures == []


# ---- limits


def test_memory_is_what_is_given_or_what_the_task_needs():
    ordinary = ConversationLimits()
    assert sum(ordinary.memory(10_000, 20_000)) == 2**28
    assert sum(ordinary.memory(416_000_000, 84_000_000)) == 1_000_000_000
    given = ConversationLimits(memory_bytes=10**9)
    assert given.memory(416_000_000, 84_000_000) == (832_000_000, 168_000_000)
    assert given.memory(200_000_000, 800_000_000) == (200_000_000, 800_000_000)
    with pytest.raises(MisuseError, match="memory_bytes is 1,000, and one request of this task and one answer take"):
        ConversationLimits(memory_bytes=1_000).memory(1_500, 500)


@pytest.mark.parametrize(
    "name", ["minimum_rate", "message_seconds", "idle_seconds", "queue_seconds", "requests_per_second", "request_burst"]
)
def test_limits_are_positive(name):
    for value in (0, -1, float("nan")):
        with pytest.raises(MisuseError, match=f"{name} must be positive"):
            ConversationLimits(**{name: value})
