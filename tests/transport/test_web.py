"""WebSockets: what is refused on either side, proxies, TLS. That channels work over them, `test_transports` says."""

import random
import struct
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection

from fsl_async.errors import ChannelError, MisuseError
from tests.support.certificates import write_certificates
from transport import ForeignPeerError, SocketTransport, TurnedAwayError, UnreachableError
from transport.memory import pipe_pair
from transport.testing.case import LARGE, Lab
from transport.web import WebTransport, split_web_address
from transport.websocket import FRAME_SIZE, AnsweringStream, AskingStream

ASK = (
    b"GET /fsl HTTP/1.1\r\nHost: s0\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
END = b"\r\n"


def frame(opcode: int, content: bytes = b"", *, size: int | None = None, masked: bool = True) -> bytes:
    """A frame with a mask of zeros; `size`: what it declares in the place of its content's."""
    size = len(content) if size is None else size
    mark = 0x80 * masked
    long = struct.pack(">BH", mark | 126, size) if size < 2**16 else struct.pack(">BQ", mark | 127, size)
    length = bytes([mark | size]) if size < 126 else long
    return bytes([opcode]) + length + bytes(4 * masked) + content


TEXT, BINARY, PING, CLOSE = 0x81, 0x82, 0x89, 0x88

NO_WEBSOCKET = {
    "another path": (ASK.replace(b"/fsl", b"/") + END, 404),
    "a page": (b"GET /fsl HTTP/1.1\r\nHost: s0\r\n\r\n", 400),
    "another method": (ASK.replace(b"GET", b"POST") + END, 400),
    "an old version": (ASK.replace(b"13", b"8") + END, 426),
    "no key": (ASK.partition(b"Sec-WebSocket-Key")[0] + END, 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "a host in another script": (ASK.replace(b"s0", b"\xff\xfe") + END, 400),
    "an endless request": (ASK + b"X: " + b"x" * 70_000, 400),
}

NOT_TAKEN = {
    "text": (frame(TEXT, b"hello"), 1003, "a text frame; send binary"),
    "no mask": (frame(BINARY, b"hello", masked=False), 1002, "mask"),
    "a compressed frame": (frame(BINARY | 0x40, b"hello"), 1002, "(?i)reserved"),
    "an unknown kind": (frame(0x83, b"hello"), 1002, "(?i)opcode"),
    "a fragment of a ping": (frame(0x09, b"hello"), 1002, "(?i)fragment"),
    "a frame without end": (frame(BINARY, bytes(FRAME_SIZE + 1), size=2**62), 1009, "1,048,576 bytes; cut it"),
    "frames that carry nothing": (frame(BINARY) * 3_000, 1008, "carry next to nothing"),
    "pings without end": (frame(PING) * 3_000, 1008, "carry next to nothing"),
}


@asynccontextmanager
async def answered(asked: bytes = ASK + END):
    """A server's end that has been asked, and the other one's bare stream."""
    near, far = pipe_pair()
    await near.send_all(asked)
    async with aclosing(AnsweringStream(far, "/fsl")) as server, near:
        yield server, near


@pytest.mark.parametrize(("asked", "status"), NO_WEBSOCKET.values(), ids=NO_WEBSOCKET)
async def test_who_asks_for_no_websocket_is_told_so(asked, status):
    async with answered(asked) as (server, near):
        with pytest.raises(ForeignPeerError, match=f"was told {status}: "):
            await server.receive_some(10)
        assert (await near.receive_some(1_000)).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(("sent", "code", "text"), NOT_TAKEN.values(), ids=NOT_TAKEN)
async def test_what_is_not_taken_ends_the_websocket_with_a_reason(sent, code, text):
    async with answered() as (server, near), trio.open_nursery() as nursery:
        nursery.start_soon(send_what_goes, near, sent)
        with pytest.raises(ForeignPeerError, match=text):
            await read_out(server)
        nursery.cancel_scope.cancel()
    async with answered() as (server, near):
        await server.open()
        server._take(server._frames, sent)
        await server.aclose()
        said = b"".join([part async for part in near])
        assert said.partition(b"\r\n\r\n")[2][2:4] == code.to_bytes(2, "big")


async def read_out(stream):
    while await stream.receive_some():
        pass


async def send_what_goes(stream, data):
    with suppress(trio.BrokenResourceError):
        await stream.send_all(data)


async def test_compression_is_offered_and_not_negotiated_and_any_page_may_ask():
    asked = ASK + b"Sec-WebSocket-Extensions: permessage-deflate\r\nOrigin: https://elsewhere.example\r\n\r\n"
    async with answered(asked) as (server, near):
        await server.open()
        await near.send_all(frame(0x02, b"one ") + frame(0x00, b"two ") + frame(0x80, b"three"))
        whole = b""
        while len(whole) < 13:
            whole += await server.receive_some(5)
        assert whole == b"one two three"
        answer = await near.receive_some(1_000)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"extensions" not in answer.lower()


async def test_pings_are_answered_and_an_end_is_the_stream_s():
    async with answered() as (server, near):
        await server.open()
        await near.receive_some(1_000)
        await near.send_all(frame(PING, b"first") + frame(PING, b"alive?"))
        with trio.move_on_after(0.01):
            await server.receive_some(10)
        assert await near.receive_some(100) == b"\x8a\x06alive?"
        await near.send_all(frame(BINARY, b"last") + frame(CLOSE, b"\x03\xe8"))
        assert [await server.receive_some(10) for _ in range(3)] == [b"last", b"", b""]
        with pytest.raises(trio.BrokenResourceError, match="the WebSocket has ended"):
            await server.send_all(b"more")
        await server.aclose()
        assert await near.receive_some(100) == b"\x88\x02\x03\xe8"


async def test_the_stream_does_not_depend_on_cuts():
    """Byte by byte, with pings in between, and all at once."""
    draw = random.Random(5)
    sent, frames, start = draw.randbytes(900), b"", 0
    while start < len(sent):
        size = draw.randint(1, 300)
        frames += frame(BINARY, sent[start : start + size]) + frame(PING, b"?")
        start += size
    for step in (1, len(frames)):
        async with answered() as (server, near), trio.open_nursery() as nursery:
            await server.open()
            received = b""

            async def send(near=near, step=step) -> None:
                for place in range(0, len(frames), step):
                    await near.send_all(frames[place : place + step])

            nursery.start_soon(send)
            while len(received) < len(sent):
                received += await server.receive_some(70)
            assert received == sent


async def test_frames_in_the_packet_of_the_request_or_of_the_answer_are_read():
    """With every cut of the request, and with line ends of both kinds."""
    early = frame(BINARY, b"early") + frame(BINARY, b"frames")
    for asked in (ASK + END, (ASK + END).replace(b"\r", b"")):
        for cut in range(1, len(asked + early), 7):
            async with answered((asked + early)[:cut]) as (server, near), trio.open_nursery() as nursery:
                nursery.start_soon(near.send_all, (asked + early)[cut:])
                assert await exactly(server, 11) == b"earlyframes"
    near, far = pipe_pair()
    async with aclosing(AskingStream(near, "s0", "/", "ws://s0/")) as client, aclosing(AnsweringStream(far, "/")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.open)
            handshake = WSConnection(ConnectionType.SERVER)
            handshake.receive_data(await far.receive_some(1_000))
            await far.send_all(handshake.send(AcceptConnection()) + frame(BINARY, b"early", masked=False))
        assert await client.receive_some(10) == b"early"


async def exactly(stream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += await stream.receive_some(size)
    return found


ANSWERS = {
    "no such page": (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", UnreachableError, "404; check the path"),
    "a redirection": (b"HTTP/1.1 302 Found\r\nlocation: /x\r\n\r\n", UnreachableError, "302: .* is elsewhere"),
    "nobody behind": (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", UnreachableError, "502: a proxy is there"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ForeignPeerError, "opens no WebSocket"),
    "another key": (ASK.partition(b"Sec")[0].replace(b"GET /fsl HTTP/1.1", b"HTTP/1.1 101 Switching Protocols") + END,
                    ForeignPeerError, "opens no WebSocket .*token"),
    "nothing": (b"", TurnedAwayError, "did not answer"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "error", "text"), ANSWERS.values(), ids=ANSWERS)
async def test_what_answers_with_no_websocket_is_named(answer, error, text):
    near, far = pipe_pair()
    await far.send_all(answer)
    far._outgoing.close_writer()
    with pytest.raises(error, match=text):
        await AskingStream(near, "s0", "/fsl", "ws://s0/fsl").open()


PROXIES = {
    "wants a password": (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", r"407, it wants a name .* HTTPS_PROXY"),
    "does not reach it": (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502, it does not reach the server"),
    "does not allow it": (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403; ask who runs it to allow CONNECT"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP"),
    "closes": (b"", "it closed the connection|does not speak HTTP"),
}


@pytest.mark.parametrize(("answer", "text"), PROXIES.values(), ids=PROXIES)
async def test_a_proxy_that_does_not_connect_us_is_named(nursery, monkeypatch, answer, text):
    place = await proxy_at(nursery, answer, [])
    monkeypatch.setenv("http_proxy", f"http://{place}")
    with pytest.raises(UnreachableError, match=f"the proxy at {place} .*{text}"):
        await WebTransport().connect("ws://s0.example/fsl")


async def test_a_host_that_is_no_name_is_refused_before_a_proxy_is_asked_for_it_or_after(nursery, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{await proxy_at(nursery, b'HTTP/1.1 200 OK' + END + END, [])}")
    for address in ("ws://a..b/fsl", "ws://ü..b/fsl"):
        with pytest.raises(MisuseError, match="its host is not the name of one"):
            await WebTransport().connect(address)


async def test_a_channel_through_a_proxy_with_tls_inside(nursery, monkeypatch, tmp_path):
    """An authority of one's own is named in SSL_CERT_FILE; without it, the error says so; NO_PROXY is honoured."""
    write_certificates(tmp_path, "web")
    heads: list[bytes] = []
    place = await proxy_at(nursery, None, heads)
    transport = WebTransport(tmp_path / "web.pem", tmp_path / "web.key")
    lab = Lab(transport, "wss://127.0.0.1:0/behind/fsl", nursery)
    await lab.serve()
    monkeypatch.setenv("HTTPS_PROXY", f"http://ann:p%40ss@{place}")
    with pytest.raises(UnreachableError, match=r"certificate verify failed.*SSL_CERT_FILE"):
        await lab.dial()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for there in ("", "example.org, 127.0.0.1"):
        monkeypatch.setenv("NO_PROXY", there)
        async with await lab.dial() as channel:
            await channel.send(bytes(200_000))
            assert await channel.receive(LARGE) == bytes(200_000)
    assert len(heads) == 2
    assert heads[1].startswith(b"CONNECT 127.0.0.1:")
    assert b"Basic YW5uOnBAc3M=" in heads[1]
    assert lab.failures
    monkeypatch.setenv("HTTPS_PROXY", "socks5://s:1")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(MisuseError, match="HTTPS_PROXY in the environment names no proxy of the form http://host:port"):
        await lab.dial()


async def test_a_renewed_certificate_is_shown_to_the_next_client(nursery, caplog, monkeypatch, tmp_path):
    """An unusable one is warned of once, and leaves the old one in use."""
    caplog.set_level("INFO")
    write_certificates(tmp_path, "web")
    lab = Lab(WebTransport(tmp_path / "web.pem", tmp_path / "web.key"), "wss://127.0.0.1:0/fsl", nursery)
    await lab.serve()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "old.pem"))
    (tmp_path / "ca.pem").rename(tmp_path / "old.pem")
    key = (tmp_path / "web.key").read_bytes()
    for spoilt in (b"no key", None):
        (tmp_path / "web.key").unlink() if spoilt is None else (tmp_path / "web.key").write_bytes(spoilt)
        for _ in range(2):
            await (await lab.dial()).aclose()
        assert caplog.text.count("the certificate as read before stays in use") == 1
        caplog.clear()
    (tmp_path / "web.key").write_bytes(key)
    write_certificates(tmp_path, "web")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    await (await lab.dial()).aclose()
    assert "web.pem and its key have changed, and are shown from now on" in caplog.text


async def proxy_at(nursery, answer: bytes | None, heads: list[bytes]) -> str:
    """A proxy with one answer; None: it connects whom it is asked to."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            head = await stream.receive_some(4_096)
            heads.append(head)
            if answer is not None:
                await stream.send_all(answer)
                return
            host, _, port = head.split()[1].decode().partition(":")
            there = await trio.open_tcp_stream(host, int(port))
            await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with there, trio.open_nursery() as moving:
                moving.start_soon(move, there, stream)
                await move(stream, there)
                moving.cancel_scope.cancel()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    return f"127.0.0.1:{listener.socket.getsockname()[1]}"


async def move(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for part in source:
            await sink.send_all(part)


async def test_one_listener_has_several_addresses_and_one_set_of_limits(nursery):
    transport = SocketTransport(also=["ws://127.0.0.1:0/fsl"])
    lab = Lab(transport, "127.0.0.1:0", nursery)
    await lab.serve(limits=lab.service().limits.__class__(per_key=1))
    async with await lab.dial():
        lab.address = transport.also_bound[0]
        with pytest.raises(ChannelError, match="1 connections with this key are open already"):
            await lab.dial()


def test_an_address_is_split_or_refused():
    assert split_web_address("wss://s0.example/a/b") == (True, "s0.example:443", "/a/b")
    assert split_web_address("ws://[::1]:8000") == (False, "[::1]:8000", "/")
    assert split_web_address("wss://s0.example").authority == "s0.example"
    for address in (
        "ws://",
        "ws://a:b",
        "ws://a:99999/",
        "ws://u@a/",
        "ws://a/x?y",
        "ws://a/ü",
        "ws://a/\r\nx",
        "http://a/",
    ):
        with pytest.raises(MisuseError, match="is not an address of the form wss://host:port/path"):
            split_web_address(address)
    with pytest.raises(MisuseError, match="without a certificate"):
        WebTransport()._tls("wss://s0")
