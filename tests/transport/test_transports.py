"""Channels on each transport: what `transport.testing` asks of a transport, and what channels do over it besides."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async.errors import ChannelError, MisuseError
from tests.transport.conftest import PLACES
from tests.transport.endpoints import dial_records, observed
from transport import (
    AuthenticationError,
    ChannelBrokenError,
    ChannelClosedError,
    MessageTooLongError,
    Pace,
    Role,
    TooSlowError,
)
from transport.records import BODY_SIZE, RecordType, wire_size
from transport.testing import CASES
from transport.testing.case import ALICE, LARGE, SERVER


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_a_transport_does_what_every_one_must(place, case, tmp_path):
    make, address = PLACES[place]
    case.run(make, address.format(folder=tmp_path))


async def test_both_ends_know_each_other(lab):
    async with lab.both_ends(b"alice") as (channel, far):
        assert channel.peer_key == SERVER.public
        assert far.peer_key == ALICE.public
        assert channel.handshake_hash == far.handshake_hash
        assert channel.introduction.peer_payload == b"this is S0"
        assert far.introduction.peer_payload == b"alice"
        assert channel.introduction.welcome == far.introduction.welcome == b"welcome, alice"
        assert channel.introduction.peer_role is Role.SERVER_0
        assert far.introduction.peer_role is Role.CLIENT
        async with await lab.dial() as other:
            assert other.handshake_hash != channel.handshake_hash


async def test_the_counters_are_the_bytes_on_the_wire(lab):
    await lab.serve()
    async with await lab.dial() as channel:
        sent, received = channel.bytes_sent, channel.bytes_received
        assert (sent, received) == (8 + 48 + 1_088, 8 + 1_072 + wire_size(1_024))
        for size in (0, 10, 65_511):
            await channel.send(bytes(size))
            await channel.receive(size)
            sent, received = sent + wire_size(size), received + wire_size(size)
            assert (channel.bytes_sent, channel.bytes_received) == (sent, received)


async def test_a_message_beyond_the_limit_is_refused_and_can_still_be_taken(lab):
    await lab.serve()
    async with await lab.dial() as channel:
        await channel.send(bytes(1_000))
        with pytest.raises(MessageTooLongError, match=r"1,000 bytes .* 999 ") as caught:
            await channel.receive(999)
        assert (caught.value.announced, caught.value.limit) == (1_000, 999)
        assert await channel.announced() == 1_000
        assert await channel.receive(1_000) == bytes(1_000)


async def test_an_announcement_alone_takes_no_memory(lab):
    """The announced terabyte could not be allocated: that the refusal comes shows that nobody tried."""
    await lab.serve()
    peer = await dial_records(lab)
    await peer.wire.send(peer.record(RecordType.DATA, (2**40).to_bytes(8, "big").ljust(BODY_SIZE, b"x")))
    await peer.aclose()
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, MessageTooLongError)
    assert (seen.announced, seen.limit) == (2**40, LARGE)


async def test_close_is_seen_after_the_last_message(lab):
    async def handler(channel):
        await channel.send(b"last")

    await lab.serve(handler)
    channel = await lab.dial()
    assert await channel.receive(LARGE) == b"last"
    for _ in range(2):
        with pytest.raises(ChannelClosedError, match="peer has closed"):
            await channel.announced()
    await channel.aclose()
    await channel.aclose()
    for attempt in (channel.send(b""), channel.ping()):
        with pytest.raises(ChannelError):
            await attempt


async def test_a_closed_channel_refuses_its_owner(lab):
    await lab.serve()
    channel = await lab.dial()
    await channel.aclose()
    for attempt in (channel.send(b""), channel.ping(), channel.receive(1), channel.announced()):
        with pytest.raises(ChannelClosedError, match="this side"):
            await attempt


async def test_pings_are_not_messages(lab):
    await lab.serve()
    async with await lab.dial() as channel:
        await channel.ping()
        await channel.send(b"between")
        await channel.ping()
        assert await channel.receive(LARGE) == b"between"
    assert lab.failures == []


async def test_a_forged_record_breaks_both_directions(lab):
    ended = trio.Event()

    async def handler(channel):
        with pytest.raises(AuthenticationError):
            await channel.receive(LARGE)
        for attempt in (channel.send(b"more"), channel.ping(), channel.receive(LARGE), channel.announced()):
            with pytest.raises(ChannelBrokenError, match="earlier failure"):
                await attempt
        ended.set()

    await lab.serve(handler)
    peer = await dial_records(lab)
    await peer.wire.send(b"\x00\x20" + bytes(32))
    await ended.wait()
    await peer.aclose()


async def test_one_task_receives(lab):
    await lab.serve()
    async with await lab.dial() as channel, trio.open_nursery() as nursery:
        nursery.start_soon(channel.receive, LARGE)
        await wait_all_tasks_blocked()
        with pytest.raises(MisuseError, match="another task"):
            await channel.receive(LARGE)
        await channel.send(b"")


async def cancel_after(ticks, scope):
    for _ in range(ticks):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_send_cancelled_half_way_breaks_the_channel(lab):
    async def deaf(channel):
        await trio.sleep_forever()

    await lab.serve(deaf)
    async with await lab.dial() as channel, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_after, 100, scope)
            await channel.send(bytes(50_000_000))
        assert scope.cancelled_caught
        with pytest.raises(ChannelBrokenError, match="as a whole"):
            await channel.send(b"more")


async def test_a_send_cancelled_while_it_waits_for_its_turn_does_nothing(lab):
    await lab.serve()
    message = bytes(30_000_000)
    async with await lab.dial() as channel, trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, message)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_after, 3, scope)
            await channel.send(b"never")
        assert scope.cancelled_caught
        nursery.start_soon(channel.send, b"later")
        assert await channel.receive(LARGE) == message
        assert await channel.receive(LARGE) == b"later"


async def test_a_slow_peer_is_noticed(lab, autojump_clock):
    noticed = []

    async def handler(channel):
        started = trio.current_time()
        with pytest.raises(TooSlowError, match="8,192 bytes per second"):
            await channel.receive(LARGE, pace=Pace())
        noticed.append(trio.current_time() - started)

    await lab.serve(handler)
    peer = await dial_records(lab)
    await peer.wire.send(next(peer.message(bytes(200_000))))
    with pytest.raises(ChannelError):
        await peer.receive(LARGE)
    assert noticed == [pytest.approx(65_510 / 8_192)]  # what came is worth so many seconds
    await peer.aclose()


async def test_a_peer_at_the_agreed_pace_is_served(lab, autojump_clock):
    await lab.serve(paced_echo)
    peer = await dial_records(lab)
    for record in peer.message(bytes(400_000)):
        for start in range(0, len(record), 30_000):
            await peer.wire.send(record[start : start + 30_000])
            await trio.sleep(1.5)
    assert await peer.receive(LARGE) == bytes(400_000)
    await peer.aclose()


async def paced_echo(channel):
    await channel.send(await channel.receive(LARGE, pace=Pace()))
