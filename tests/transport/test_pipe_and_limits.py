"""The memory stream under trio's own conformance suite; the books that limits are kept in; addresses."""

import random

import pytest
import trio
from endpoints import LARGE, Lab
from trio.testing import check_two_way_stream

from fsl_async.errors import MisuseError
from transport import HandshakeSettings, KeyPair, Kind, Limits, Network, Role, TcpTransport, TurnedAwayError
from transport.limits import KeyBook, RateLimiter
from transport.pipe import BUFFER_SIZE, pipe_pair


async def test_the_pipe_is_a_stream():
    async def make():
        return pipe_pair()

    async def make_clogged():
        near, far = pipe_pair()
        await near.send_all(bytes(BUFFER_SIZE))
        await far.send_all(bytes(BUFFER_SIZE))
        return near, far

    await check_two_way_stream(make, make_clogged)


async def test_the_pipe_holds_no_more_than_its_buffer(autojump_clock):
    near, far = pipe_pair()
    with trio.move_on_after(1) as scope:
        await near.send_all(bytes(BUFFER_SIZE + 1))
    assert scope.cancelled_caught
    assert len(await far.receive_some(10 * BUFFER_SIZE)) == BUFFER_SIZE


async def test_an_address_may_come_in_a_burst_and_then_at_its_rate(mock_clock):
    limiter = RateLimiter(per_second=20, burst=5)
    assert [limiter.admits("a") for _ in range(7)] == [True] * 5 + [False] * 2
    assert limiter.admits("b")
    mock_clock.jump(0.05)
    assert [limiter.admits("a") for _ in range(2)] == [True, False]
    mock_clock.jump(3600)
    assert [limiter.admits("a") for _ in range(7)] == [True] * 5 + [False] * 2


async def test_addresses_are_forgotten(mock_clock):
    limiter = RateLimiter(per_second=20, burst=5)
    for number in range(10_000):
        assert limiter.admits(f"address {number}")
        mock_clock.jump(0.05)
    assert len(limiter._empty_until) <= 4_096


def test_a_key_book_forgets_who_has_left():
    book = KeyBook(Limits(per_key=1))
    with book.entered(b"a"):
        assert book.is_full(b"a")
        assert not book.is_full(b"b")
    assert not book.is_full(b"a")
    assert book._connections == {}


async def test_an_address_that_comes_too_often_is_turned_away(nursery, mock_clock):
    lab = Lab(TcpTransport(), "127.0.0.1:0", nursery)
    await lab.serve(limits=Limits())
    channels = [await lab.dial() for _ in range(4)]
    async with await lab.dial(KeyPair.from_private(bytes(range(32)))):
        with pytest.raises(TurnedAwayError, match="limits how often"):
            await lab.dial()
        mock_clock.jump(0.05)
        async with await lab.dial(KeyPair.from_private(bytes(range(1, 33)))):
            pass
    for channel in channels:
        await channel.aclose()


@pytest.mark.parametrize("change", ["connections", "half_open", "handshakes_per_second", "burst", "per_key"])
def test_limits_are_positive(change):
    with pytest.raises(MisuseError, match="positive"):
        Limits(**{change: 0})


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1"])
async def test_ill_formed_tcp_addresses_are_refused(address):
    with pytest.raises(MisuseError, match="host:port"):
        await TcpTransport().connect(address)


@pytest.mark.parametrize("host", ["[::1]", "localhost"])
async def test_other_forms_of_addresses(nursery, host):
    lab = Lab(TcpTransport(), f"{host}:0", nursery)
    await lab.serve()
    assert lab.address.startswith(f"{host}:")
    async with await lab.dial() as channel:
        await channel.send(b"hello")
        assert await channel.receive(LARGE) == b"hello"


async def test_connections_stay_below_half_the_descriptors():
    import resource

    from transport.tcp import _within_descriptors

    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert _within_descriptors(Limits(connections=10**9)).connections <= max(1, descriptors // 2) or descriptors == -1
    assert _within_descriptors(Limits(connections=1)).connections == 1


async def test_who_waits_in_the_queue_is_turned_away_when_the_listener_ends(autojump_clock):
    network = Network()
    async with trio.open_nursery() as nursery:
        lab = Lab(network, "s0", nursery)
        await lab.serve(limits=Limits(half_open=1))
        first, second = await network.connect("s0"), await network.connect("s0")
        nursery.cancel_scope.cancel()
    for stream in (first, second):
        assert await stream.receive_some() == b""


def test_settings_are_checked_and_keep_their_secrets():
    draw = random.Random(1).randbytes
    private = draw(32)
    settings = HandshakeSettings(private, Role.CLIENT, Kind.LIVE, draw, payload=b"a token")
    assert private.hex() not in repr(settings)
    assert repr(private) not in repr(settings)
    assert "token" not in repr(settings)
    with pytest.raises(MisuseError, match="1022 bytes, this one has 1023"):
        HandshakeSettings(private, Role.CLIENT, Kind.LIVE, draw, payload=bytes(1_023))
    with pytest.raises(MisuseError, match="32 bytes"):
        HandshakeSettings(bytes(31), Role.CLIENT, Kind.LIVE, draw)
