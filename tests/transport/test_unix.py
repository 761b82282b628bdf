"""Unix-domain sockets: their addresses, what lies in their place, and who is counted."""

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from fsl_async.errors import MisuseError
from transport import SocketTransport, UnixTransport, UnreachableError, unix
from transport.testing.case import Lab

REFUSED = {
    "relative": ("unix:s0", "form unix:/absolute/path"),
    "another form": ("127.0.0.1:9000", "form unix:/absolute/path"),
    "a zero byte": ("unix:/tmp/\0", "form unix:/absolute/path"),
    "too long": ("unix:/" + "x" * 107, "at most 107 bytes, this one 108"),
    "no name of a file": ("unix:/\ud800", "no path can have such a name"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "s0"


@pytest.fixture
def lab(place: Path, nursery: trio.Nursery) -> Lab:
    return Lab(UnixTransport(), f"unix:{place}", nursery)


def left_over(place: Path) -> None:
    """What a killed process leaves."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place))


@contextmanager
def folder_locked(folder: Path) -> Iterator[Callable[[], None]]:
    """A folder in which another process is about to listen, until what is given is called."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield partial(fcntl.flock, number, fcntl.LOCK_UN)
    finally:
        os.close(number)


async def test_a_left_over_socket_is_replaced(lab, place):
    left_over(place)
    with pytest.raises(UnreachableError, match=r"nothing listens at unix:.*\(Connection refused\)"):
        await lab.dial()
    await lab.serve()
    async with await lab.dial():
        pass


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
async def test_what_is_no_socket_is_left_alone(lab, place, make):
    make(place)
    with pytest.raises(UnreachableError, match="a file that is no socket"):
        await lab.serve()
    assert place.exists()


async def test_a_folder_that_is_missing_is_named(lab, place):
    lab.address = f"unix:{place}/none/s0"
    with pytest.raises(UnreachableError, match=r"No such file or directory.*is the folder there"):
        await lab.serve()


async def test_the_socket_goes_with_its_listener(place):
    async with trio.open_nursery() as nursery:
        await Lab(UnixTransport(), f"unix:{place}", nursery).serve()
        assert place.is_socket()
        nursery.cancel_scope.cancel()
    assert not place.exists()


async def test_the_socket_of_another_listener_stays(place):
    async with trio.open_nursery() as nursery:
        await Lab(UnixTransport(), f"unix:{place}", nursery).serve()
        place.unlink()
        left_over(place)
        nursery.cancel_scope.cancel()
    assert place.is_socket()


def test_of_two_that_find_a_left_over_socket_at_the_same_time_one_listens(place, monkeypatch):
    left_over(place)
    both, answers = threading.Barrier(2), unix._answers

    def answers_later(path: Path) -> bool:
        found = answers(path)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        return found

    def listen() -> None:
        try:
            trio.run(serve)
        except* UnreachableError as refused:
            refusals.extend(map(str, refused.exceptions))
            done.set()

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            await Lab(UnixTransport(), f"unix:{place}", nursery).serve()
            await trio.to_thread.run_sync(done.wait, 2)
            nursery.cancel_scope.cancel()

    monkeypatch.setattr(unix, "_answers", answers_later)
    refusals: list[str] = []
    done = threading.Event()
    threads = [threading.Thread(target=listen) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == 1
    assert "another process" in refusals[0]


@pytest.fixture
def looks_seldom(monkeypatch):
    """Each look at a folder that is not free takes a moment of real time; so there are few."""
    monkeypatch.setattr(unix, "_BETWEEN_LOOKS", 0.5)


@pytest.mark.usefixtures("looks_seldom")
async def test_listeners_of_one_folder_that_start_together_wait_for_each_other(place, nursery, autojump_clock):
    with folder_locked(place.parent) as unlock:
        nursery.start_soon(Lab(UnixTransport(), f"unix:{place}", nursery).serve)
        await trio.sleep(1)
        assert not place.exists()
        unlock()
        await trio.sleep(1)
    assert place.is_socket()


@pytest.mark.usefixtures("looks_seldom")
async def test_a_folder_that_is_never_free_is_named(place, nursery, autojump_clock):
    with folder_locked(place.parent), pytest.raises(UnreachableError, match="keeps its folder to itself"):
        await Lab(UnixTransport(), f"unix:{place}", nursery).serve()


async def test_a_listener_answers_until_its_socket_is_gone(place, monkeypatch):
    """If it did not, a second one could take the path, and the first would then remove the second one's socket."""
    gone, unlink = [], Path.unlink

    def watched(path: Path, *args: bool) -> None:
        gone.append(unix._answers(path))
        unlink(path, *args)

    monkeypatch.setattr(Path, "unlink", watched)
    async with trio.open_nursery() as nursery:
        await Lab(UnixTransport(), f"unix:{place}", nursery).serve()
        nursery.cancel_scope.cancel()
    assert gone == [True]


async def test_connections_count_under_their_user(lab):
    origins = []
    service = lab.service(observe=lambda origin, error: origins.append(origin))
    await lab.nursery.start(lab.transport.listen, lab.address, service)
    async with await lab.transport.connect(lab.address) as stream:
        await stream.send_all(b"not our protocol")
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""
    assert origins == [f"user-{os.geteuid()}"]


@pytest.mark.parametrize(("address", "text"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_address_is_refused(address, text):
    with pytest.raises(MisuseError, match=text):
        await UnixTransport().connect(address)
    with pytest.raises(MisuseError, match=text):
        await UnixTransport().listen(address, None)


@pytest.mark.parametrize("address", ["quic:host:9000", "vsock:/dev/x", "tls://host:443", "Unix:/run/s0"])
async def test_an_unknown_scheme_is_named_with_those_there_are(address):
    with pytest.raises(MisuseError, match=r"no transport for '\w+:'.*host:port is TCP.*unix:/absolute/path"):
        await SocketTransport().connect(address)


@pytest.mark.parametrize("address", ["localhost:1", "[::1]:1", "::1:1", "fe80::1%lo:1"])
async def test_addresses_of_tcp_are_no_schemes(address):
    with trio.move_on_after(1), pytest.raises(UnreachableError, match="nothing listens at"):
        await SocketTransport().connect(address)


@pytest.mark.parametrize("address", ["", "host", "unix:", "unix:x", ":9000"])
async def test_an_address_without_a_form_is_refused(address):
    with pytest.raises(MisuseError, match="is not an address of the form"):
        await SocketTransport().listen(address, None)
