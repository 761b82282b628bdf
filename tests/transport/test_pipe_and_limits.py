"""The memory stream under trio's own conformance suite; the books that limits are kept in; addresses."""

import random
import resource
import socket as system
from contextlib import ExitStack

import pytest
import trio
from trio.testing import check_two_way_stream

from fsl_async.errors import MisuseError
from tests.transport.endpoints import LARGE, Lab
from transport import HandshakeSettings, KeyPair, Kind, Limits, MemoryNetwork, Role, TcpTransport, TurnedAwayError
from transport.limits import HandshakeBook, PlaceBook, RateLimiter
from transport.pipe import BUFFER_SIZE, pipe_pair
from transport.tcp import _accept, _origin, _within_descriptors


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


async def test_a_flood_from_many_addresses_is_swept_seldom(mock_clock, monkeypatch):
    limiter = RateLimiter(per_second=20, burst=100)
    sweeps = []
    monkeypatch.setattr(limiter, "_sweep", lambda now: (sweeps.append(now), RateLimiter._sweep(limiter, now)))
    for number in range(40_000):  # all at once: no bucket is full again
        limiter.admits(f"address {number}")
    assert len(sweeps) <= 5


async def test_the_handshake_given_up_is_the_oldest_where_there_are_most():
    book = HandshakeBook(4)
    addresses = ["a", "b", "c", "b", "d", "e"]
    scopes = [trio.CancelScope() for _ in addresses]
    with ExitStack() as entered:
        for address, scope in zip(addresses, scopes, strict=True):
            entered.enter_context(book.entered(address, scope))
        # d is the fifth: b has two, and gives up its first; then all have one, and a is the oldest
        assert [scope.cancel_called for scope in scopes] == [True, True, False, False, False, False]
    assert book._under_way == {}


def test_a_place_book_forgets_who_has_left():
    book = PlaceBook(Limits(per_key=1, connections=2, per_key_exceptions={b"peer": 2}))
    with book.entered(b"a"):
        assert "1 connections with this key" in book.shortage(b"a")
        assert book.shortage(b"b") is None
        with book.entered(b"b"):
            assert book.shortage(b"c") == "all 2 connections are taken"
            assert book.shortage(b"peer") is None
            with book.entered(b"peer"), book.entered(b"peer"):
                assert "2 connections with this key" in book.shortage(b"peer")
    assert book.shortage(b"a") is book.shortage(b"c") is None
    assert book._connections == {}


async def test_an_address_that_comes_too_often_is_turned_away(nursery, mock_clock):
    lab = Lab(TcpTransport(), "127.0.0.1:0", nursery)
    await lab.serve(limits=Limits(burst=5))
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


@pytest.mark.parametrize("descriptors", [256, 1024, 19_999])
def test_connections_stay_below_half_the_descriptors(descriptors, monkeypatch, caplog):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (descriptors, descriptors))
    limits = Limits(per_key_exceptions={b"peer": 2})
    lowered = _within_descriptors(limits)
    assert lowered.connections == min(10_000, descriptors // 2)
    assert lowered.most_at_once < 0.7 * descriptors
    assert f"{lowered.connections} connections" in caplog.text
    assert "ulimit" in caplog.text
    assert lowered.per_key_exceptions == limits.per_key_exceptions


def test_few_connections_need_no_warning(monkeypatch, caplog):
    few = Limits(connections=100, half_open=100)
    for descriptors in (1024, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=descriptors: (soft, soft))
        assert _within_descriptors(few) == few
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host, origin):
    assert _origin(host) == origin


async def test_both_ends_of_a_tcp_connection_are_probed(nursery):
    accepted = []
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def accept():
        accepted.append(await _accept(listener))

    async with listener, trio.open_nursery() as both:
        both.start_soon(accept)
        near = await TcpTransport().connect(f"127.0.0.1:{listener.socket.getsockname()[1]}")
    far, origin = accepted[0]
    assert origin == "127.0.0.1"
    for stream in (near, far):
        assert stream.getsockopt(system.SOL_SOCKET, system.SO_KEEPALIVE) == 1
        await stream.aclose()


async def test_who_waits_in_the_queue_is_turned_away_when_the_listener_ends(autojump_clock):
    network = MemoryNetwork()
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
