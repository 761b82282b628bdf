"""HTTP on the operator's port: nobody can do it harm."""

import random
import re
import secrets
from collections.abc import AsyncGenerator
from http import HTTPStatus

import pytest
import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair

from parties.operator.http import Request, Response, serve_connection
from tests.parties.operator.asking import LIMITS, everything


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
        (b"HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n", 400),
        (b"HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000, 413),
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
    assert answer.endswith(b"\r\n\r\n") == data.startswith(b"HEAD")


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
        nursery.start_soon(serve_connection, theirs, port.resources.answer, LIMITS)
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
    begun = trio.current_time()
    async with port.reached() as ours:
        assert await everything(ours) == b""
    assert trio.current_time() - begun == pytest.approx(LIMITS.request_seconds)


async def test_a_client_that_does_not_take_its_answer_is_let_go(port, autojump):
    begun = trio.current_time()
    async with port.reached(lockstep_stream_pair) as ours:  # nothing is taken before it is read
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert trio.current_time() - begun == pytest.approx(LIMITS.send_seconds)


async def test_a_client_that_leaves_in_the_middle_disturbs_nobody(port):
    async with port.reached() as ours:
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ours.aclose()


async def test_a_body_that_waits_for_leave_gets_it(port):
    async with port.reached() as ours:
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
            nursery.start_soon(serve_connection, theirs, buggy, LIMITS)
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
        nursery.start_soon(serve_connection, theirs, answer, LIMITS)
        await ours.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ours.receive_some()
        await ours.aclose()
        await closed.wait()
