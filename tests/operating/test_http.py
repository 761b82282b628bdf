"""The operator's port: what it answers, whom, and that nobody can do it harm."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import stat
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

import h11
import pytest
import trio
from stage import NASTY, Stage, play_day
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from fsl_async.errors import MisuseError, StorageError
from parties.operating import serve_operator
from parties.operating.access import OperatorToken, read_operator_token, written_token
from parties.operating.http import HttpLimits, Request, Response, attend, with_json
from parties.operating.resources import HEARTBEAT, LONGEST_REASON, MOST_VIEWERS, Resources, host_of
from transport import UnreachableError

LIMITS = HttpLimits()


class Port:
    """The port of a stage, without a socket.

    Attributes:
        stage: the server behind it.
        token: the operator's, as a header.
    """

    def __init__(self, stage: Stage | None = None, *hosts: str) -> None:
        self.stage = stage or Stage()
        token = OperatorToken()
        self.token = f"Bearer {token._text}"
        self.resources = Resources(self.stage.operations, self.stage, token, hosts)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own, through all of HTTP."""
        client = h11.Connection(h11.CLIENT)
        head = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close"} | headers
        request = h11.Request(method=method, target=path, headers=list(head.items()))
        data = client.send(request) + (client.send(h11.Data(data=body)) if body else b"")
        client.receive_data(await self.exchange(data + client.send(h11.EndOfMessage())))
        client.receive_data(b"")
        answer = client.next_event()
        content = b""
        while isinstance(event := client.next_event(), h11.Data):
            content += bytes(event.data)
        return answer.status_code, {k.decode(): v.decode() for k, v in answer.headers}, content

    async def exchange(self, data: bytes) -> bytes:
        """All that is answered to some bytes, after which the client says nothing more."""
        ours, theirs = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attend, theirs, self.resources.answer, LIMITS)
            await ours.send_all(data)
            await ours.send_eof()
            return await everything(ours)

    async def json(self, path: str, status: int = 200) -> dict:
        found, headers, body = await self.ask("GET", path)
        assert (found, headers["content-type"]) == (status, "application/json"), body
        return json.loads(body)


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    data = b""
    try:
        while piece := await stream.receive_some():
            data += bytes(piece)
    except trio.BrokenResourceError:
        pass
    return data


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def autojump() -> MockClock:
    return MockClock(autojump_threshold=0)


# ---- what it shows


async def test_the_status_says_how_the_server_stands(port):
    play_day(port.stage, rounds=4)
    status = await port.json("/status.json")
    assert (status["version"], status["server"], status["task"]) == (1, "S0", "goods")
    run = status["round"]
    assert (run["number"], run["state"], run["submissions"], run["evaluated"]) == (5, "Open", 37, 29)
    assert (run["minimum"], run["maximum"], run["closes_at"]) == (16, 100, port.stage.now - 96 + 300)
    assert status["peer"] == {"name": "S1", "connected": True}
    assert status["clients"]["connected"] == 23
    assert NASTY in status["clients"]["names"]
    assert status["rounds"] == {"done": 4, "aborted": 0}
    assert status["memory"]["resident"] > 1e6
    troubles = {each["about"]: each for each in status["troubles"]}
    assert troubles["connection failed (HandshakeTimeoutError)"]["times"] == 2


async def test_a_round_without_a_deadline_and_no_round_at_all(port):
    assert (await port.json("/status.json"))["round"] is None
    port.stage.open_round(1, seconds=float("inf"))
    assert (await port.json("/status.json"))["round"]["closes_at"] is None


async def test_past_rounds_in_short_and_one_in_full(port):
    port.stage.open_round(1)
    port.stage.settle(["alice", NASTY], {"bob": "proof"})
    port.stage.open_round(2)
    port.stage.settle([], {}, aborted="S1 was away\x1b[2J")
    (first, second) = (await port.json("/rounds.json"))["rounds"]
    assert (first["number"], first["counted"], first["not_counted"], first["aborted"]) == (1, 2, {"proof": 1}, "")
    assert second["aborted"] == "S1 was away\\x1b[2J"
    assert [each["number"] for each in (await port.json("/rounds.json?last=1"))["rounds"]] == [2]
    whole = await port.json("/rounds/1.json")
    assert whole["clients"] == sorted(["alice", NASTY])
    assert whole["excluded"] == {"bob": "proof"}
    assert whole["model"] == {"items": bytes(32).hex()}
    assert "not settled" in (await port.json("/rounds/3.json", 404))["error"]


@pytest.mark.parametrize("last", ["0", "-1", "x", "1e3", "9999999", "²"])
async def test_a_wrong_number_of_rounds_is_refused(port, last):
    assert (
        await port.ask("GET", f"/rounds.json?last={last}".encode().decode("ascii", "replace").replace("�", "%C2%B2"))
    )[0] == 400


async def test_metrics_come_as_prometheus_wants_them(port):
    status, headers, body = await port.ask("GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"\nfsl_peer_connected 0.0\n" in body


async def test_ready_means_that_clients_can_be_served(port):
    stage = port.stage
    assert await port.json("/readyz", 503) == {"ready": False, "missing": ["S1 is not connected"]}
    stage.open_round(1)
    assert (await port.json("/readyz"))["ready"]
    stage.move("Closed")
    assert not (await port.json("/readyz", 503))["ready"]
    stage.meet_peer()
    assert (await port.json("/readyz"))["ready"]
    stage.store = "the disk is full"
    assert (await port.json("/readyz", 503))["missing"] == ["the store cannot be written: the disk is full"]


async def test_healthy_means_that_the_event_loop_runs(port, autojump):
    assert not (await port.json("/healthz", 503))["healthy"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.stage.operations.lag.watch)
        await trio.sleep(1)
        assert (await port.json("/healthz"))["healthy"]
        nursery.cancel_scope.cancel()
    await trio.sleep(60)
    assert "late" in (await port.json("/healthz", 503))["trouble"]


async def test_every_file_of_the_page_is_served_and_nothing_else_of_the_package(port):
    folder = Path(__file__).parents[2] / "parties" / "operating" / "page"
    for file in folder.iterdir():
        status, headers, body = await port.ask("GET", "/" if file.name == "index.html" else f"/{file.name}")
        assert (status, body) == (200, file.read_bytes()), file
        assert "text/" in headers["content-type"] or file.suffix == ".svg"
    for path in (
        "/../log.py",
        "/%2e%2e/log.py",
        "/page/index.html",
        "/index.html",
        "/etc/passwd",
        "/page.js/",
        "//page.js",
    ):
        assert (await port.ask("GET", path))[0] in (400, 404), path


async def test_every_answer_has_the_headers_that_keep_pages_apart(port):
    for method, path in (("GET", "/"), ("GET", "/status.json"), ("GET", "/nothing"), ("POST", "/rounds/1/abort")):
        _, headers, _ = await port.ask(method, path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]


async def test_head_is_get_without_the_body(port):
    for path in ("/", "/status.json", "/metrics", "/events"):
        status, headers, body = await port.ask("HEAD", path)
        assert (status, body) == (200, b"")
        assert path == "/events" or int(headers["content-length"]) > 0


# ---- whom it answers


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost", True),
        ("LocalHost:9464", True),
        ("127.0.0.1:9464", True),
        ("[::1]:9464", True),
        ("192.0.2.7", True),
        ("s0.example.org:9464", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example:9464", False),
        ("", False),
        ("localhost:port", False),
        ("localhost@evil.example", False),
    ],
)
async def test_only_this_hosts_names_are_answered_to(host, answered):
    port = Port(None, "s0.example.org")
    status, _, body = await port.ask("GET", "/status.json", Host=host)
    assert status == (200 if answered else 421)
    assert answered or b"goods" not in body


async def test_a_request_without_a_host_is_malformed_or_refused(port):
    assert (await port.exchange(b"GET /status.json HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    assert (await port.exchange(b"GET /status.json HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 421 ")


async def test_nothing_changes_without_the_token(port):
    port.stage.open_round(1)
    because = json.dumps({"because": "a trial"}).encode()
    token = port.token
    for wrong in (
        "",
        "Bearer",
        "Bearer x",
        token[:-1],
        token + "0",
        token.replace("Bearer", "bearer"),
        "Basic eDp5",
        token.upper(),
    ):
        headers = {"Authorization": wrong} if wrong else {}
        for method, path in (("POST", "/rounds/1/abort"), ("PUT", "/log-level")):
            status, found, body = await port.ask(method, path, because, **headers)
            assert (status, found["www-authenticate"]) == (401, "Bearer"), wrong
            assert token[7:].encode() not in body
    assert port.stage.aborted == []
    assert port.stage.log.level == "info"


async def test_an_operator_gives_a_round_up_and_says_why(port):
    port.stage.open_round(4)
    headers = {"Authorization": port.token}
    body = json.dumps({"because": "  wrong model "}).encode()
    status, _, answer = await port.ask("POST", "/rounds/4/abort", body, **headers)
    assert status == 202
    assert json.loads(answer) == {"version": 1, "number": 4, "because": "wrong model"}
    assert port.stage.aborted == [(4, "wrong model")]
    status, _, answer = await port.ask("POST", "/rounds/5/abort", body, **headers)
    assert (status, json.loads(answer)["error"]) == (409, "round 5 is not running")
    for wrong in (
        b"",
        b"{}",
        b"[]",
        b'{"because": 3}',
        b'{"because": ""}',
        b"\xff",
        b"[" * 4000,
        json.dumps({"because": "x" * (LONGEST_REASON + 1)}).encode(),
    ):
        assert (await port.ask("POST", "/rounds/4/abort", wrong, **headers))[0] == 400
    assert len(port.stage.aborted) == 1


async def test_an_operator_changes_the_level_of_the_log(port):
    headers = {"Authorization": port.token}
    status, _, answer = await port.ask("PUT", "/log-level", b'{"level": "DEBUG"}', **headers)
    assert (status, json.loads(answer)["level"], port.stage.log.level) == (200, "debug", "debug")
    status, _, answer = await port.ask("PUT", "/log-level", b'{"level": "loud"}', **headers)
    assert (status, port.stage.log.level) == (400, "debug")
    assert "debug, info, warning, error" in json.loads(answer)["error"]


async def test_errors_of_the_server_are_answers(port, monkeypatch):
    async def fail() -> None:
        raise StorageError("the store cannot be read\x1b[2J")

    monkeypatch.setattr(port.stage, "past_rounds", fail)
    assert (await port.json("/rounds.json", 503))["error"] == "the store cannot be read\\x1b[2J"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("DELETE", "/status.json", 405, "GET"),
        ("GET", "/rounds/1/abort", 405, "POST"),
        ("POST", "/log-level", 405, "PUT"),
        ("OPTIONS", "/log-level", 405, "PUT"),
        ("GET", "/rounds/0.json", 404, None),
        ("GET", "/rounds/99999999999999999999.json", 404, None),
        ("GET", "/rounds/1.json/x", 404, None),
        ("POST", "/", 404, None),
        ("GET", "*", 400, None),
        ("GET", "http://evil.example/", 400, None),
        ("GET", "http://[/", 400, None),
    ],
)
async def test_other_methods_and_paths_are_refused(port, method, path, status, allow):
    found, headers, _ = await port.ask(method, path)
    assert (found, headers.get("allow")) == (status, allow)


# ---- live


class Viewer:
    """Reads the events of `/events`."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT)
        self.rest = b""
        self.status = 0

    async def ask(self) -> None:
        request = h11.Request(method="GET", target="/events", headers=[("Host", "localhost")])
        await self.stream.send_all(self.http.send(request) + self.http.send(h11.EndOfMessage()))
        self.status = (await self._event()).status_code

    async def next(self) -> dict:
        while b"\n\n" not in self.rest:
            event = await self._event()
            assert isinstance(event, h11.Data)
            self.rest += bytes(event.data)
        event, _, self.rest = self.rest.partition(b"\n\n")
        assert event.startswith(b"data: ")
        return json.loads(event[6:])

    async def _event(self):
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(bytes(await self.stream.receive_some()))
        return event


@asynccontextmanager
async def viewer(port: Port, nursery: trio.Nursery) -> AsyncGenerator[Viewer, None]:
    ours, theirs = memory_stream_pair()
    nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
    found = Viewer(ours)
    await found.ask()
    yield found
    await ours.aclose()


async def test_a_live_view_hears_of_changes_at_once_and_of_many_together(port, autojump):
    async with trio.open_nursery() as nursery, viewer(port, nursery) as view:
        assert (await view.next())["round"] is None
        begun = trio.current_time()
        port.stage.open_round(1)
        for name in "abcdefgh":
            port.stage.submit(name)
        event = await view.next()
        assert trio.current_time() - begun < 1
        assert event["round"]["submissions"] == 8, "one event for changes that come together"
        begun = trio.current_time()
        await view.next()
        assert HEARTBEAT <= trio.current_time() - begun < HEARTBEAT + 1, "no change, but a sign of life"
        nursery.cancel_scope.cancel()


async def test_a_change_between_two_events_is_not_lost(port, autojump):
    async with trio.open_nursery() as nursery, viewer(port, nursery) as view:
        await view.next()
        for number in range(1, 30):
            port.stage.open_round(number)
            begun = trio.current_time()
            while (await view.next())["round"]["number"] != number:
                pass
            assert trio.current_time() - begun < 1
            await trio.sleep(number / 50)
        nursery.cancel_scope.cancel()


async def test_there_is_a_number_of_live_views_at_most_and_whoever_leaves_makes_room(port, autojump):
    async with trio.open_nursery() as nursery, AsyncExitStack() as opened:
        for _ in range(MOST_VIEWERS - 1):
            assert (await (await opened.enter_async_context(viewer(port, nursery))).next())["server"] == "S0"
        async with viewer(port, nursery) as last, viewer(port, nursery) as late:
            assert (await last.next())["server"] == "S0"
            assert late.status == 503
        await trio.sleep(2 * HEARTBEAT)  # by then the next event has not found it
        async with viewer(port, nursery) as later:
            assert later.status == 200
        nursery.cancel_scope.cancel()


# ---- what it bears


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x01\x02\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: -4\r\n\r\n", 400),
        (b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"G" * 40_000, 431),
        (b"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000, 413),
        (
            b"PUT /log-level HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1000\r\n"
            + b"x" * 4096
            + b"\r\n"
            + b"1\r\nx\r\n",
            413,
        ),
    ],
)
async def test_malformed_and_oversized_requests_are_refused(port, data, status, autojump):
    answer = await port.exchange(data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_an_unfinished_request_is_let_go_without_a_word(port):
    assert await port.exchange(b"") == b""
    half = await port.exchange(b"GET / HTTP/1.1\r\nHost: local")
    assert half == b"" or half.startswith(b"HTTP/1.1 400 ")


async def test_requests_that_come_together_are_answered_in_order(port):
    one = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = await port.exchange(one % b"/healthz" + one % b"/nothing" + one % b"/status.json")
    assert re.findall(rb"HTTP/1\.1 (\d+) ", answer) == [b"503", b"404", b"200"]


async def test_random_bytes_never_do_more_than_end_their_connection(port, autojump):
    seed = secrets.randbits(32)
    chance = random.Random(seed)
    words = (
        f"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nAuthorization: {port.token}\r\n"
        'Content-Length: 17\r\n\r\n{"level": "info"}'
    )
    good = words.encode()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        answer = await port.exchange(
            bytes(data[: chance.randint(1, len(data))]) if chance.random() < 0.3 else bytes(data)
        )
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), f"seed {seed}"


async def test_a_request_that_trickles_in_is_cut_off_in_time(port, autojump):
    ours, theirs = memory_stream_pair()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
        nursery.start_soon(trickle, ours, b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 1000)
        answer = await everything(ours)
        nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert LIMITS.request_seconds <= trio.current_time() - begun <= LIMITS.request_seconds + 2


async def trickle(stream: trio.abc.SendStream, data: bytes) -> None:
    try:
        for byte in data:
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)
    except trio.BrokenResourceError:
        pass


async def test_a_connection_that_asks_nothing_is_closed_in_time(port, autojump):
    ours, theirs = memory_stream_pair()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
        assert await everything(ours) == b""
    assert trio.current_time() - begun == pytest.approx(LIMITS.request_seconds)


async def test_a_client_that_does_not_take_its_answer_is_let_go(port, autojump):
    ours, theirs = lockstep_stream_pair()  # nothing is taken before it is read
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert trio.current_time() - begun == pytest.approx(LIMITS.send_seconds)


async def test_a_client_that_leaves_in_the_middle_disturbs_nobody(port):
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ours.aclose()


async def test_a_body_that_waits_for_leave_gets_it(port):
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, port.resources.answer, LIMITS)
        head = (
            f"PUT /log-level HTTP/1.1\r\nHost: localhost\r\nAuthorization: {port.token}\r\n"
            "Content-Length: 18\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        await ours.send_all(head.encode())
        assert bytes(await ours.receive_some()).startswith(b"HTTP/1.1 100 ")
        await ours.send_all(b'{"level": "debug"}')
        assert (await everything(ours)).startswith(b"HTTP/1.1 200 ")


async def test_a_bug_is_not_hidden():
    async def buggy(request: Request) -> Response:
        raise ZeroDivisionError

    ours, theirs = memory_stream_pair()
    with pytest.RaisesGroup(ZeroDivisionError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attend, theirs, buggy, LIMITS)
            await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def test_a_pieces_generator_is_closed_when_its_client_leaves():
    closed = trio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x"
                await trio.lowlevel.checkpoint()
        finally:
            closed.set()

    async def answer(request: Request) -> Response:
        return Response(HTTPStatus.OK, "text/plain", pieces())

    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attend, theirs, answer, LIMITS)
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ours.receive_some()
        await ours.aclose()
        await closed.wait()


# ---- on sockets


@asynccontextmanager
async def serving(stage: Stage, token: Path, address: str = "127.0.0.1:0", **settings) -> AsyncGenerator[str, None]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve_operator, stage.operations, stage, address, token, **settings))
        nursery.cancel_scope.cancel()


async def fetch(address: str, path: str = "/healthz") -> bytes:
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        return await everything(stream)


async def test_it_serves_at_a_loopback_address_and_leaves_nothing_behind(tmp_path):
    stage, token = Stage(), tmp_path / "token"
    async with serving(stage, token) as address:
        assert (await fetch(address)).startswith(b"HTTP/1.1 200 ")
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert read_operator_token(token)
    assert list(tmp_path.iterdir()) == []
    assert stage.operations.troubles.latest() == []
    with pytest.raises(OSError, match="all attempts to connect"):
        await fetch(address)


async def test_an_address_that_others_reach_is_warned_of(tmp_path):
    stage = Stage()
    async with serving(stage, tmp_path / "token", "0.0.0.0:0"):
        (trouble,) = stage.operations.troubles.latest()
    assert trouble.about == "operator-port"
    assert "0.0.0.0: whoever reaches it" in trouble.explanation


async def test_a_taken_port_and_a_wrong_address_are_told_apart(tmp_path):
    async with serving(Stage(), tmp_path / "token") as address:
        with pytest.RaisesGroup(pytest.RaisesExc(UnreachableError, match="is the port free")):
            async with serving(Stage(), tmp_path / "other", address):
                pass
    for wrong in ("9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":80", "[::1:80", "http://localhost:80"):
        with pytest.RaisesGroup(pytest.RaisesExc(MisuseError, match="is not an address")):
            async with serving(Stage(), tmp_path / "other", wrong):
                pass


async def test_more_connections_than_there_is_room_for_wait_outside(tmp_path):
    async with serving(Stage(), tmp_path / "token", limits=HttpLimits(connections=2)) as address:
        port = int(address.rpartition(":")[2])
        idle = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.move_on_after(0.2) as waited:
            await fetch(address)
        assert waited.cancelled_caught, "both places are taken"
        await idle[0].aclose()
        assert (await fetch(address)).startswith(b"HTTP/1.1 200 ")
        await idle[1].aclose()


# ---- the token


def test_a_token_is_for_its_owner_alone_and_a_new_one_replaces_it(tmp_path):
    path = tmp_path / "s0.sqlite.operator-token"
    path.write_text("an older one")
    path.chmod(0o644)
    with written_token(path) as first:
        assert first.opens(b"Bearer " + read_operator_token(path).encode())
        with written_token(path) as second:
            assert not first.opens(b"Bearer " + read_operator_token(path).encode())
            assert second.opens(b"Bearer " + read_operator_token(path).encode())
            OperatorToken().write(path)
        assert path.exists(), "a third server's token is not taken away by the second"
    assert "token" not in repr(first).lower().replace("operatortoken", "")
    assert first._text not in repr(first)


def test_a_token_that_cannot_be_used_says_why(tmp_path):
    with pytest.raises(MisuseError, match="is it running"):
        read_operator_token(tmp_path / "none")
    path = tmp_path / "open"
    path.write_text("x")
    path.chmod(0o644)
    with pytest.raises(MisuseError, match="others can read"):
        read_operator_token(path)
    with pytest.raises(StorageError, match="cannot be written"):
        OperatorToken().write(tmp_path / "no folder" / "token")
    (tmp_path / "bytes").write_bytes(b"\xff")
    os.chmod(tmp_path / "bytes", 0o600)
    with pytest.raises(MisuseError, match="cannot be read"):
        read_operator_token(tmp_path / "bytes")


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("Localhost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("127.0.0.1", "127.0.0.1"),
        ("a:b", ""),
        ("[::1", ""),
        ("::1", ""),
        ("", ""),
        ("a:123456", ""),
    ],
)
def test_the_host_of_a_header(header, host):
    assert host_of(header) == host


def test_json_has_no_numbers_that_json_has_not():
    with pytest.raises(ValueError, match="not JSON compliant"):
        with_json({"x": float("inf")})
