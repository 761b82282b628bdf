"""How fast a message must move, in either direction; and messages that are let pass. On every transport."""

import itertools
import tracemalloc

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async.errors import ChannelError, MisuseError
from tests.transport.endpoints import dial_records
from transport import ChannelBrokenError, ChannelClosedError, Pace, TooSlowError
from transport.arriving import UNHURRIED, Stopwatch
from transport.records import BODY_SIZE, RecordType
from transport.testing.case import LARGE, echo

RECORD = 65_510  # bytes of a message in its first record


class Watching:
    """A handler that takes one step with its channel and notes what came of it, and when."""

    def __init__(self, step):
        self.step = step
        self.seconds = []
        self.came = []

    async def __call__(self, channel):
        started = trio.current_time()
        try:
            self.came.append(await self.step(channel))
        except ChannelError as error:
            self.came.append(error)
        self.seconds.append(trio.current_time() - started)

    async def at(self, lab):
        await lab.serve(self)
        return self


async def trickle(peer, data, size, pause):
    """Sends ready-made bytes in small portions, until the other side has had enough."""
    for start in range(0, len(data), size):
        try:
            await peer.wire.send(data[start : start + size])
        except ChannelError:
            return
        await trio.sleep(pause)


# ---- the rule


@pytest.mark.parametrize(
    ("moved_at", "moved", "total", "expected"),
    [
        (0, 0, 0, 5),  # nothing yet: the grace
        (1, 8_192, 100_000, 5),
        (9, 81_920, 100_000, 10),  # at the least rate, 80 KiB are worth 10 s
        (0, 50_000_000, 10**8, 30),  # half of it came at once: no reason to be silent for long
        (0, 0, 416_000_000, 5),
        (10, 2_080_000, 416_000_000, 10),  # in 2,000 s 416 MB need 208 kB/s
    ],
)
def test_by_when_more_must_have_moved(moved_at, moved, total, expected):
    pace = Pace(message_seconds=2_000)
    assert pace.latest_progress(0, moved_at, moved, total) == pytest.approx(expected, rel=1e-3)
    assert UNHURRIED.latest_progress(0, moved_at, moved, total) == float("inf")


async def test_a_stopwatch_starts_anew_at_every_progress(mock_clock):
    watch = Stopwatch(Pace(bytes_per_second=1, silence=7))
    for second in range(0, 50, 5):
        assert watch.deadline(100 + second) == pytest.approx(trio.current_time() + 7)
        mock_clock.jump(5)
    assert watch.deadline(145) == pytest.approx(trio.current_time() + 2)
    mock_clock.jump(2)
    assert "145 bytes of a message have moved in 52.0 s and none in the last 7.0 s" in str(watch.too_slow())


@pytest.mark.parametrize("change", ["message_seconds", "grace", "silence"])
def test_a_pace_is_checked(change):
    for value in (0, -1, float("nan")):
        with pytest.raises(MisuseError, match="positive seconds"):
            Pace(**{change: value})
    with pytest.raises(MisuseError, match="not negative"):
        Pace(bytes_per_second=-1)


# ---- receiving


async def test_a_trickle_of_ten_bytes_a_second_is_noticed_in_a_first_record(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.announced(pace=Pace())).at(lab)
    peer = await dial_records(lab)
    await trio.sleep(1_000)  # silence between messages is no trickle
    record = next(peer.message(bytes(200_000)))
    await trickle(peer, record[:300], 10, 1)
    assert isinstance(watching.came[0], TooSlowError)
    assert watching.seconds == [pytest.approx(1_005)]
    await peer.aclose()


async def test_a_message_in_crumbs_a_little_faster_than_asked_comes_whole(lab, autojump_clock):
    """What waits in the socket because the reader sleeps until there is more counts as come."""
    watching = await Watching(lambda channel: channel.receive(LARGE, pace=Pace(bytes_per_second=100))).at(lab)
    peer = await dial_records(lab)
    message = bytes(range(256)) * 3
    [record] = peer.message(message)
    await trickle(peer, record, 11, 0.1)
    await peer.aclose()
    assert watching.came == [message]


async def test_a_trickle_of_pings_is_no_trickle_of_a_message(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.announced(pace=Pace())).at(lab)
    async with await lab.dial() as channel:
        for _ in range(100):
            await channel.ping()
            await trio.sleep(1)
        await channel.send(b"hello")
        await trio.sleep(1)
    assert watching.came == [5]


async def test_a_half_record_behind_a_ping_has_to_be_finished(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.announced(pace=Pace())).at(lab)
    peer = await dial_records(lab)
    await peer.wire.send(peer.record(RecordType.PING) + next(peer.message(bytes(100)))[:50])
    await trio.sleep(10)
    assert isinstance(watching.came[0], TooSlowError)
    await peer.aclose()


async def test_a_burst_does_not_buy_a_long_silence(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.receive(LARGE, pace=Pace())).at(lab)
    peer = await dial_records(lab)
    records = peer.message(bytes(10_000_000))
    for record in itertools.islice(records, 100):
        await peer.wire.send(record)
    await trio.sleep(1_000)
    assert isinstance(watching.came[0], TooSlowError)
    assert watching.seconds == [pytest.approx(30, abs=0.1)]
    await peer.aclose()


# ---- sending


async def test_a_reader_that_does_not_read_is_left(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.send(bytes(30_000_000), pace=Pace())).at(lab)
    channel = await lab.dial()
    await trio.sleep(100)
    assert isinstance(watching.came[0], TooSlowError)
    assert watching.seconds[0] <= 31
    with pytest.raises(ChannelError):
        await channel.receive(LARGE)
    await channel.aclose()


async def test_a_slow_reader_at_the_agreed_pace_gets_all(lab, autojump_clock):
    message = bytes(400_000)
    watching = await Watching(lambda channel: channel.send(message, pace=Pace())).at(lab)
    peer = await dial_records(lab)
    taken = 0
    while not watching.came or taken < 400_000:
        taken += await peer.read(30_000)
        await trio.sleep(1.5)
    assert watching.came == [None]
    assert await peer.receive(LARGE) == message
    await peer.aclose()


async def test_after_a_message_that_was_too_slow_nothing_is_sent(lab, autojump_clock):
    async def step(channel):
        with pytest.raises(TooSlowError):
            await channel.send(bytes(30_000_000), pace=Pace())
        await channel.send(b"more")

    watching = await Watching(step).at(lab)
    channel = await lab.dial()
    await trio.sleep(100)
    assert isinstance(watching.came[0], ChannelBrokenError)
    await channel.aclose()


# ---- letting pass


@pytest.mark.parametrize("size", [0, 1, 100, RECORD, 300_000])
async def test_a_message_is_let_pass_and_the_next_one_taken(lab, size):
    async def handler(channel):
        assert await channel.announced() == size
        await channel.discard()
        await channel.send(await channel.receive(LARGE))

    await lab.serve(handler)
    async with await lab.dial() as channel:
        await channel.send(bytes(size))
        await channel.send(b"kept")
        assert await channel.receive(LARGE) == b"kept"
    assert lab.failures == []


async def test_letting_pass_takes_no_room(lab):
    async def handler(channel):
        for _ in range(3):
            tracemalloc.start()
            await channel.discard()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            await channel.send(b"done")

    peaks = []
    await lab.serve(handler)
    message = bytes(10_000_000)
    async with await lab.dial() as channel:
        for _ in range(3):
            await channel.send(message)
            assert await channel.receive(LARGE) == b"done"
    assert min(peaks) < 2_000_000  # a thread that an earlier test has left may take some now and then


async def test_what_is_let_pass_must_keep_the_pace(lab, autojump_clock):
    watching = await Watching(lambda channel: channel.discard(pace=Pace())).at(lab)
    peer = await dial_records(lab)
    await peer.wire.send(next(peer.message(bytes(200_000))))
    await trio.sleep(60)
    assert isinstance(watching.came[0], TooSlowError)
    await peer.aclose()


async def a_message_in_halves_and_another(lab, handler):
    """The first message's rest comes two seconds after its beginning; the second is echoed."""
    await lab.serve(handler)
    peer = await dial_records(lab)
    records = list(peer.message(bytes(200_000)))
    await peer.wire.send(records[0])
    await trio.sleep(2)
    for record in records[1:]:
        await peer.wire.send(record)
    await peer.send(b"kept")
    assert await peer.receive(LARGE) == b"kept"
    await peer.aclose()


async def test_a_cancelled_discard_is_finished_by_the_next_read(lab, autojump_clock):
    async def handler(channel):
        with trio.move_on_after(1) as scope:
            await channel.discard()
        assert scope.cancelled_caught
        assert await channel.announced() == 4
        await channel.send(await channel.receive(LARGE))

    await a_message_in_halves_and_another(lab, handler)
    assert lab.failures == []


async def test_a_message_half_received_may_still_be_let_pass(lab, autojump_clock):
    async def handler(channel):
        with trio.move_on_after(1):
            await channel.receive(LARGE)
        await channel.discard()
        await channel.send(await channel.receive(LARGE))

    await a_message_in_halves_and_another(lab, handler)


async def test_an_announced_message_takes_no_room_before_it_comes(lab, autojump_clock):
    """Room is taken as bytes come: a peer's word costs nothing."""

    async def handler(channel):
        tracemalloc.start()
        with trio.move_on_after(5):
            await channel.receive(LARGE)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    peaks = []
    await lab.serve(handler)
    peer = await dial_records(lab)
    await peer.wire.send(peer.record(RecordType.DATA, (50_000_000).to_bytes(8, "big") + bytes(BODY_SIZE - 8)))
    await trio.sleep(10)
    assert peaks[0] < 2_000_000
    await peer.aclose()


async def test_only_one_task_reads(lab):
    await lab.serve(echo)
    async with await lab.dial() as channel, trio.open_nursery() as nursery:
        nursery.start_soon(channel.announced)
        await wait_all_tasks_blocked()
        with pytest.raises(MisuseError, match="another task"):
            await channel.discard()
        nursery.cancel_scope.cancel()


async def test_closing_ends_a_wait_for_a_message_to_let_pass(lab):
    watching = await Watching(lambda channel: channel.discard()).at(lab)
    async with await lab.dial():
        pass
    with trio.fail_after(5):
        while not watching.came:
            await trio.lowlevel.checkpoint()
    assert isinstance(watching.came[0], ChannelClosedError)
