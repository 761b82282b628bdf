"""Deployed parties over another transport than TCP: Unix-domain sockets, and one that their files name."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

import pytest
import trio

from fsl_async.errors import MisuseError
from parties import connect, server_setup
from parties.client.client import Client
from parties.commands.preflight import Verdict, preflight
from parties.deployment.transports import named_transport
from parties.server.server import Server
from parties.settings.party_file import ServerFile
from tests.support import guide
from tests.support.shop import assert_exact, take_part
from tests.support.town import deploy, servers_of
from transport import MemoryNetwork, SocketTransport

PAGE = "docs/extending.md"
OWN = "shown_transport:AbstractSockets"


@pytest.fixture
def shown(monkeypatch) -> ModuleType:
    """The transport of the page, as a module that is installed."""
    module = ModuleType("shown_transport")
    exec(compile(guide.blocks(PAGE, "python")[0], PAGE, "exec"), module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, "shown_transport", module)
    return module


def write(folder: Path, addresses: list[str], transport: str = "") -> None:
    """All files of two servers and two clients that listen and dial there."""
    deploy(folder, ("anna", "ben"), addresses, store="memory", transport=transport or None)
    for client in ("anna", "ben") if transport else ():
        with (folder / f"{client}.toml").open("a") as file:
            file.write(f'transport = "{transport}"\n')


def running(folder: Path, *numbers: int) -> AbstractAsyncContextManager[list[Server]]:
    """These servers, until the block ends."""
    return servers_of(*(folder / f"S{number}.toml" for number in numbers))


async def round_of_two(folder: Path) -> None:
    """Both servers and both clients from their files, until the round is done."""

    async def live(name: str) -> None:
        async with connect(folder / f"{name}.toml") as client:
            assert isinstance(client, Client)
            await take_part(client)

    async with running(folder, 0, 1) as servers, trio.open_nursery() as nursery:
        run = await servers[0].next_round(0)
        nursery.start_soon(live, "anna")
        nursery.start_soon(live, "ben")
        assert_exact(await servers[0].settled_outcome(run), "anna", "ben")
        nursery.cancel_scope.cancel()


async def test_a_round_over_unix_domain_sockets(tmp_path):
    write(tmp_path, [f"unix:{tmp_path}/S0.socket", f"unix:{tmp_path}/S1.socket"])
    await round_of_two(tmp_path)
    assert not list(tmp_path.glob("*.socket"))


async def test_a_round_over_tcp_and_websockets_at_once(tmp_path):
    write(tmp_path, ["127.0.0.1:0", "127.0.0.1:0"])
    for index in (0, 1):
        with (tmp_path / f"S{index}.toml").open("a") as file:
            file.write('[web]\nlisten = "ws://127.0.0.1:0/fsl"\n')

    async def live(name: str, addresses: list[str]) -> None:
        write_deployment_at(tmp_path / f"{name}-task.toml", tmp_path / "task.toml", addresses)
        async with connect(tmp_path / f"{name}-task.toml", tmp_path / f"{name}.key") as client:
            await take_part(client)

    async with trio.open_nursery() as nursery:
        first = Server(await server_setup(tmp_path / "S0.toml"))
        tcp = [await nursery.start(first.run)]
        write_deployment_at(tmp_path / "task.toml", tmp_path / "task.toml", [tcp[0], "127.0.0.1:0"])
        second = Server(await server_setup(tmp_path / "S1.toml"))
        tcp.append(await nursery.start(second.run))
        web = [server.setup.transport.also_bound[0] for server in (first, second)]
        run = await first.next_round(0)
        nursery.start_soon(live, "anna", tcp)
        nursery.start_soon(live, "ben", web)
        assert_exact(await first.settled_outcome(run), "anna", "ben")
        nursery.cancel_scope.cancel()


def write_deployment_at(place: Path, task: Path, addresses: list[str]) -> None:
    """Write a task file whose servers are elsewhere."""
    lines, left = task.read_text().splitlines(), list(addresses)
    place.write_text("\n".join(f'address = "{left.pop(0)}"' if line.startswith("address") else line for line in lines))


async def test_a_round_over_a_transport_that_the_files_name(shown, tmp_path):
    write(tmp_path, [f"{tmp_path.name}-S0", f"{tmp_path.name}-S1"], OWN)
    await round_of_two(tmp_path)


async def test_a_transport_that_is_given_goes_before_the_file_s(shown, tmp_path):
    write(tmp_path, [f"{tmp_path.name}-S0", f"{tmp_path.name}-S1"], OWN)
    given = SocketTransport()
    assert (await server_setup(tmp_path / "S0.toml", transport=given)).transport is given
    async with running(tmp_path, 0, 1):
        with pytest.raises(MisuseError, match="is not an address"):
            async with connect(tmp_path / "anna.toml", transport=given):
                pass


async def test_preflight_listens_and_dials_over_the_transport(shown, tmp_path):
    addresses = [f"{tmp_path.name}-S0", f"{tmp_path.name}-S1"]
    write(tmp_path, addresses, OWN)
    found = {finding.check: finding for finding in await preflight(tmp_path / "S1.toml")}
    assert (found["transport"].text, found["port"].text) == ("AbstractSockets", f"{addresses[1]} is free")
    assert f"nothing listens at '{addresses[0]}'" in found["other server"].text
    async with running(tmp_path, 0):
        found = {finding.check: finding for finding in await preflight(tmp_path / "S1.toml")}
        assert "holds its key and runs the same task" in found["other server"].text
        found = {finding.check: finding for finding in await preflight(tmp_path / "S0.toml")}
        assert found["port"].verdict is Verdict.BAD


async def test_preflight_says_that_servers_of_one_socket_folder_share_a_host(tmp_path):
    write(tmp_path, [f"unix:{tmp_path}/S0.socket", f"unix:{tmp_path}/S1.socket"])
    found = {finding.check: finding for finding in await preflight(tmp_path / "S0.toml")}
    assert found["port"].text == f"unix:{tmp_path}/S0.socket is free"
    assert "both servers are at" in found["two hosts"].text


REFUSED = {
    "no such module": ("no_such_module:Transport", "cannot be imported.*PYTHONPATH"),
    "no such name": ("transport:NoSuchTransport", "cannot be imported.*NoSuchTransport"),
    "no colon": ("transport", "cannot be imported.*written module:name"),
    "no module": (":Transport", "cannot be imported"),
    "needs arguments": ("json:loads", "cannot be made .TypeError: .*without arguments"),
    "not a transport": ("transport:Limits", "which is no transport.Transport"),
}


@pytest.mark.parametrize(("name", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_transport_is_refused_where_it_is_named(name, text):
    with pytest.raises(MisuseError, match=text):
        named_transport(name)


@pytest.mark.parametrize(
    ("given", "told"), [(MemoryNetwork, r"make one: MemoryNetwork\(\)"), (3, "transport = 3 is no")]
)
async def test_a_program_that_gives_no_transport_is_told_so(tmp_path, given, told):
    write(tmp_path, ["127.0.0.1:0", "127.0.0.1:0"])
    with pytest.raises(MisuseError, match=told):
        async with connect(tmp_path / "anna.toml", transport=given):
            pass
    with pytest.raises(MisuseError, match=told):
        await server_setup(tmp_path / "S0.toml", transport=given)


@pytest.mark.parametrize("address", ["quic:host:9000", "unix:S0.socket", "unix:/" + "x" * 200])
def test_an_address_of_no_transport_is_refused_with_the_file(tmp_path, address):
    write(tmp_path, [address, "127.0.0.1:0"])
    with pytest.raises(MisuseError, match=r"S0\.toml: listen = "):
        ServerFile.load(tmp_path / "S0.toml")
