"""The memory stream under trio's own conformance suite; the books that limits are kept in; addresses."""

import random
import re
import resource
import socket as system
import tracemalloc
from contextlib import ExitStack, contextmanager

import pytest
import trio
from trio.testing import check_two_way_stream

from fsl_async.errors import MisuseError
from tests.transport.endpoints import key_pair
from transport import (
    BusyError,
    HandshakeSettings,
    KeyPair,
    Kind,
    Limits,
    MemoryNetwork,
    Role,
    TcpTransport,
    TurnedAwayError,
)
from transport.limits import HandshakeBook, PlaceBook, RateLimiter
from transport.memory import BUFFER_SIZE, pipe_pair
from transport.sockets import SocketStream
from transport.tcp import origin_of
from transport.testing.case import ALICE, LARGE, Lab


@contextmanager
def memory_stays_below(most):
    """Fails if at some time the block holds more bytes than that."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


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
    with memory_stays_below(1_000_000):
        for number in range(20_000):
            assert limiter.admits(f"address {number}")
            mock_clock.jump(0.05)


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


async def test_a_handshake_book_forgets_who_has_left():
    book = HandshakeBook(4)
    with memory_stays_below(100_000):
        for number in range(10_000):
            with book.entered(f"address {number}", trio.CancelScope()):
                pass
    with ExitStack() as entered:
        scopes = [trio.CancelScope() for _ in range(4)]
        for scope in scopes:
            entered.enter_context(book.entered("a", scope))
        assert not any(scope.cancel_called for scope in scopes)


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
    with memory_stays_below(100_000):
        for number in range(10_000):
            with book.entered(number.to_bytes(32, "big")):
                pass


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
async def test_connections_stay_below_half_the_descriptors(nursery, descriptors, monkeypatch, caplog):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (descriptors, descriptors))
    await Lab(TcpTransport(), "127.0.0.1:0", nursery).serve(limits=Limits())
    connections, handshakes = map(int, re.search(r"(\d+) connections and (\d+) handshakes", caplog.text).groups())
    assert connections == min(10_000, descriptors // 2)
    assert connections + handshakes < 0.7 * descriptors
    assert "ulimit" in caplog.text


async def test_few_descriptors_leave_the_peer_its_places(nursery, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2, 2))
    lab = Lab(TcpTransport(), "127.0.0.1:0", nursery)
    await lab.serve(limits=Limits(per_key_exceptions={ALICE.public: 2}))
    async with await lab.dial(key_pair("a client")):
        with pytest.raises(BusyError, match="all 1 connections are taken"):
            await lab.dial(key_pair("another client"))
        async with await lab.dial(ALICE), await lab.dial(ALICE):
            pass


async def test_few_connections_need_no_warning(nursery, monkeypatch, caplog):
    for descriptors in (1024, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=descriptors: (soft, soft))
        lab = Lab(TcpTransport(), "127.0.0.1:0", nursery)
        await lab.serve(limits=Limits(connections=100, half_open=100))
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
    assert origin_of(host) == origin


async def test_both_ends_of_a_tcp_connection_are_probed(nursery, monkeypatch):
    ends, through = [], SocketStream.__init__

    def noted(end, stream):
        through(end, stream)
        ends.append(end._socket)

    monkeypatch.setattr(SocketStream, "__init__", noted)
    lab = Lab(TcpTransport(), "127.0.0.1:0", nursery)
    await lab.serve()
    async with await lab.dial():
        assert [end.getsockopt(system.SOL_SOCKET, system.SO_KEEPALIVE) for end in ends] == [1, 1]


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
