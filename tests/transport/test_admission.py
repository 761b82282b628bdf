"""Who gets a channel, who does not, and what each side is told; on every transport."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trio

from fsl_async.errors import ChannelError, MisuseError
from tests.transport.endpoints import expect_channel_error, key_pair, observed, settings_of
from transport import (
    BusyError,
    ConnectionLostError,
    ForeignPeerError,
    HandshakeTimeoutError,
    Kind,
    KindMismatchError,
    RefusedError,
    Role,
    RoleMismatchError,
    TcpTransport,
    TurnedAwayError,
    UnreachableError,
    VersionMismatchError,
    WrongServerKeyError,
)
from transport.preamble import MAGIC, PROTOCOL_VERSION
from transport.testing.case import ALICE, LARGE, SERVER, STRANGER, UNLIMITED


async def test_nothing_listens(lab):
    address = lab.address.replace("127.0.0.1:0", "127.0.0.1:1").replace("s0", "s1")
    with pytest.raises(UnreachableError, match=f"nothing listens at .*{address}"):
        await lab.transport.dial(address, SERVER.public, settings_of(ALICE))


async def test_a_wrong_pinned_key_is_named(lab):
    await lab.serve()
    with pytest.raises(WrongServerKeyError, match=STRANGER.public.hex()):
        await lab.dial(server=STRANGER.public)


async def test_an_unknown_client_learns_the_reason(lab):
    await lab.serve()
    with pytest.raises(RefusedError, match="'unknown client'") as caught:
        await lab.dial(STRANGER)
    assert caught.value.reason == "unknown client"
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, RefusedError)


async def test_simulated_and_live_parties_never_mix(lab):
    await lab.serve()
    with pytest.raises(KindMismatchError, match=r"SIMULATION.*LIVE"):
        await lab.dial(kind=Kind.SIMULATION)
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, KindMismatchError)
    assert "our randomness is LIVE, the peer's is SIMULATION" in str(seen)


async def test_another_version_is_named_on_both_sides(lab):
    await lab.serve()
    async with await lab.transport.connect(lab.address) as stream:
        await stream.send_all(MAGIC + bytes([0, 9, Role.CLIENT, Kind.LIVE]))
        assert (await stream.receive_some(8))[:6] == MAGIC + bytes([0, PROTOCOL_VERSION])
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, VersionMismatchError)
    assert f"version {PROTOCOL_VERSION}, the peer speaks version 9" in str(seen)


async def test_a_server_names_a_role_that_does_not_fit(lab):
    await lab.serve()
    async with await lab.transport.connect(lab.address) as stream:
        await stream.send_all(MAGIC + bytes([0, PROTOCOL_VERSION, Role.SERVER_0, Kind.LIVE]))
        (seen,) = await observed(lab, 1)
    assert isinstance(seen, RoleMismatchError)


@pytest.mark.parametrize(
    ("preamble", "error", "text"),
    [
        (MAGIC + bytes([0, 9, 2, 1]), VersionMismatchError, f"version {PROTOCOL_VERSION}, the peer speaks version 9"),
        (MAGIC + bytes([0, PROTOCOL_VERSION, 2, 2]), KindMismatchError, "LIVE, the peer's is SIMULATION"),
        (MAGIC + bytes([0, PROTOCOL_VERSION, 2, 7]), KindMismatchError, r"unknown \(7\)"),
        (MAGIC + bytes([0, PROTOCOL_VERSION, 1, 1]), RoleMismatchError, "CLIENT does not dial a CLIENT"),
        (MAGIC + bytes([0, PROTOCOL_VERSION, 9, 1]), RoleMismatchError, r"unknown \(9\)"),
        (b"HTTP/1.1", ForeignPeerError, "HTTP"),
        (b"", TurnedAwayError, "overloaded"),
        (MAGIC[:2], TurnedAwayError, "overloaded"),
        (MAGIC + b"a", ConnectionLostError, "1 of 4"),
    ],
)
async def test_a_client_names_what_is_wrong_with_a_server(preamble, error, text, nursery):
    async def answer(stream):
        async with stream:
            await stream.send_all(preamble)
            await stream.receive_some(8)

    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    nursery.start_soon(trio.serve_listeners, answer, [listener])
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    with pytest.raises(error, match=text):
        await TcpTransport().dial(address, SERVER.public, settings_of(ALICE))


async def test_roles_must_fit(lab):
    await lab.serve()
    async with await lab.dial(role=Role.SERVER_1):
        pass
    with pytest.raises(RoleMismatchError, match="SERVER_0 does not dial a SERVER_0"):
        await lab.dial(role=Role.SERVER_0)


async def test_a_client_may_break_off_over_the_servers_payload(lab):
    def check(payload):
        raise MisuseError(f"not what we agreed on: {payload!r}")

    await lab.serve()
    with pytest.raises(MisuseError, match="this is S0"):
        await lab.transport.dial(lab.address, SERVER.public, settings_of(ALICE), check)
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, ConnectionLostError)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"FSLA1234", MAGIC[::-1] * 1_000])
async def test_garbage_is_turned_away_in_silence(lab, garbage):
    await lab.serve()
    async with await lab.transport.connect(lab.address) as stream:
        await stream.send_all(garbage)
        with suppress(trio.BrokenResourceError):  # closing with bytes unread resets a TCP connection
            assert await stream.receive_some(1) == b""
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, ForeignPeerError)
    async with await lab.dial() as channel:
        await channel.send(b"the listener goes on")
        assert await channel.receive(LARGE) == b"the listener goes on"


class Silent(BaseHTTPRequestHandler):
    """The standard library's HTTP server, which reads a line before it says anything."""

    def log_message(self, *words):
        pass


async def test_an_http_server_is_named_at_once():
    with HTTPServer(("127.0.0.1", 0), Silent) as server, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(server.handle_request)
        address = f"127.0.0.1:{server.server_port}"
        with trio.fail_after(5), pytest.raises(ForeignPeerError, match="not an fsl-async endpoint; check the address"):
            await TcpTransport().dial(address, SERVER.public, settings_of(ALICE))
        answering.result(5)


async def test_a_client_that_says_nothing_is_dropped_after_the_deadline(lab, autojump_clock):
    await lab.serve()
    async with await lab.transport.connect(lab.address) as stream:
        started = trio.current_time()
        assert await stream.receive_some(1) == b""
        assert trio.current_time() - started == pytest.approx(10)
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, HandshakeTimeoutError)


async def test_a_server_that_does_not_decide_is_left_after_the_deadline(lab, autojump_clock):
    async def never(key, payload):
        await trio.sleep_forever()

    await lab.serve(admit=never, settings=replace(lab.service().settings, deadline=1_000))
    started = trio.current_time()
    with pytest.raises(HandshakeTimeoutError, match="within 3 s"):
        await lab.dial(deadline=3)
    assert trio.current_time() - started == pytest.approx(3)


async def test_a_handshake_that_hangs_yields_to_a_newer_one(lab, autojump_clock):
    await lab.serve(limits=replace(UNLIMITED, half_open=3))
    silent = []
    for _ in range(3):
        silent.append(await lab.transport.connect(lab.address))
        await trio.sleep(1)
    started = trio.current_time()
    async with await lab.dial() as channel:
        await channel.send(b"no waiting")
        assert await channel.receive(LARGE) == b"no waiting"
    assert trio.current_time() - started < 1
    (seen,) = await observed(lab, 1)
    assert isinstance(seen, TurnedAwayError)
    assert "hung" in str(seen)
    assert await silent[0].receive_some(1) == b""  # the oldest; the others go when their own deadline comes
    await trio.sleep(10 - (trio.current_time() - started))
    assert [type(failure) for _, failure in lab.failures] == [TurnedAwayError] + [HandshakeTimeoutError] * 2
    for stream in silent:
        await stream.aclose()


async def test_a_flood_of_silent_connections_does_not_keep_a_client_out(lab, autojump_clock):
    await lab.serve(limits=replace(UNLIMITED, half_open=16, connections=2))
    flood = [await lab.transport.connect(lab.address) for _ in range(100)]
    with trio.fail_after(1):
        async with await lab.dial() as channel:
            await channel.send(b"through")
            assert await channel.receive(LARGE) == b"through"
    for stream in flood:
        await trio.aclose_forcefully(stream)


async def test_connections_are_bounded(lab, autojump_clock):
    await lab.serve(limits=replace(UNLIMITED, connections=2, per_key_exceptions={STRANGER.public: 1, SERVER.public: 1}))
    first, second = await lab.dial(), await lab.dial()
    with pytest.raises(BusyError, match=r"all 2 connections are taken.*try again later"):
        await lab.dial(key_pair("bob"))
    peer = await lab.dial(SERVER)  # has a place of its own
    await first.aclose()
    await trio.sleep(1)
    async with await lab.dial(key_pair("bob")) as third:
        await third.send(b"room again")
        assert await third.receive(LARGE) == b"room again"
    await second.aclose()
    await peer.aclose()


async def test_connections_with_one_key_are_bounded(lab):
    await lab.serve(limits=replace(UNLIMITED, per_key=2, per_key_exceptions={STRANGER.public: 1, SERVER.public: 3}))
    channels = [await lab.dial(), await lab.dial()]
    with pytest.raises(BusyError, match="2 connections with this key"):
        await lab.dial()
    channels += [await lab.dial(SERVER) for _ in range(3)]
    with pytest.raises(BusyError, match="3 connections with this key"):
        await lab.dial(SERVER)
    async with await lab.dial(key_pair("bob")):
        pass
    for channel in channels:
        await channel.aclose()
    with trio.fail_after(5):
        while True:
            try:
                channel = await lab.dial()
                break
            except RefusedError:
                await trio.lowlevel.checkpoint()
    await channel.aclose()


async def test_a_failing_handler_ends_one_connection_only(lab):
    async def handler(channel):
        message = await channel.receive(LARGE)
        if message == b"fail":
            raise MisuseError("a handler's own failure")
        if message == b"fail in a group":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.receive, LARGE)
                nursery.start_soon(channel.receive, LARGE)
        await channel.send(message)

    await lab.serve(handler)
    for message in (b"fail", b"fail in a group"):
        async with await lab.dial() as channel:
            await channel.send(message)
            with pytest.raises(ChannelError):
                await channel.receive(LARGE)
    async with await lab.dial() as channel:
        await channel.send(b"fine")
        assert await channel.receive(LARGE) == b"fine"
    assert [type(failure) for _, failure in lab.failures] == [MisuseError, MisuseError]


async def test_a_bug_in_a_handler_is_not_hidden(lab):
    async def handler(channel):
        raise KeyError("a bug")

    with pytest.RaisesGroup(pytest.RaisesExc(KeyError), flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            lab.nursery = nursery
            await lab.serve(handler)
            await expect_channel_error(receive_after_dial, lab)
            await trio.sleep_forever()


async def receive_after_dial(lab):
    async with await lab.dial() as channel:
        await channel.receive(LARGE)
