"""Several processes at one port: asked for by each of them, refused by name where it cannot be."""

import os
import socket
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
import trio

from fsl_async.errors import MisuseError
from parties.settings.writing import free_addresses
from transport import Port, SocketTransport, TcpTransport, UnreachableError
from transport.ports import users_at
from transport.testing import CASES
from transport.testing.lab import Lab

NOBODY = 65_534
OF_ANOTHER_USER = f"""
import os, socket, sys
os.setuid({NOBODY})
place = socket.create_server(("127.0.0.1", int(sys.argv[1])), reuse_port=True)
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def address() -> str:
    return free_addresses(1)[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def shared(nursery: trio.Nursery, address: str) -> Lab:
    """One of several listeners at an address, as each door has one; sockets, not processes, are what the port has."""
    return Lab(TcpTransport(Port.SHARED), address, nursery)


OF_EVERY_PORT = [case for case in CASES if case.name != "an_address_has_one_listener"]


@pytest.mark.parametrize("case", OF_EVERY_PORT, ids=str)
def test_a_shared_port_does_what_every_one_must(case, address):
    case.run(partial(TcpTransport, Port.SHARED), address)


async def test_two_listeners_share_the_connections_and_one_goes_on_alone(nursery, address):
    met = Counter()

    async def note(name, channel):
        met[name] += 1
        await channel.send(name.encode())

    labs = {name: shared(nursery, address) for name in ("first", "second")}
    stop = {name: await lab.serve(partial(note, name)) for name, lab in labs.items()}

    async def ask():
        async with await labs["first"].dial() as channel:
            return bytes(await channel.receive(100)).decode()

    while len(met) < 2:  # the system chooses by the connection's addresses
        await ask()
    await stop["first"]()
    assert [await ask() for _ in range(5)] == 5 * ["second"]


async def test_a_port_is_shared_only_if_both_ask_for_it(nursery, address):
    stop = await Lab(TcpTransport(), address, nursery).serve()
    with pytest.raises(UnreachableError, match=rf"a process that does not share port {port_of(address)} listens there"):
        await shared(nursery, address).serve()
    await stop()
    await shared(nursery, address).serve()
    with pytest.raises(UnreachableError, match="is the port free"):
        await Lab(SocketTransport(), address, nursery).serve()


async def test_port_0_is_another_one_for_each_process(nursery):
    with pytest.raises(MisuseError, match="need a port with a number"):
        await shared(nursery, "127.0.0.1:0").serve()


async def test_a_host_that_is_not_this_one_is_refused(nursery):
    with pytest.raises(UnreachableError, match="is the address this host's"):
        await shared(nursery, "192.0.2.1:7000").serve()


def test_a_system_without_shared_ports_is_refused_by_name(monkeypatch):
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(MisuseError, match="this system has no SO_REUSEPORT"):
        SocketTransport(Port.SHARED)
    SocketTransport()


def test_who_listens_is_seen(address):
    assert users_at(port_of(address)) == set()
    with socket.create_server(("127.0.0.1", port_of(address))):
        assert users_at(port_of(address)) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_a_process_of_another_user_is_named(nursery, address):
    command = [sys.executable, "-c", OF_ANOTHER_USER, str(port_of(address))]
    with subprocess.Popen(  # noqa: ASYNC220 - it waits for nothing
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "listens\n"
        with pytest.raises(UnreachableError, match=rf"another user \(user id {NOBODY}\) listen at port"):
            await shared(nursery, address).serve()
        other.stdin.close()
