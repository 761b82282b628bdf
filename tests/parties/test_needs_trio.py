"""What needs trio names the right front when it is called on an asyncio loop, in no loop, or with the wrong word."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fsl_async.errors import MisuseError
from parties import Client, SqliteStore, connect, server_setup, simulate
from parties.client.setup import ClientSetup
from parties.compute import InlineLane
from parties.identity.keys import Identity
from parties.testing.world import world
from tests.support.shop import TASK, model
from transport import Kind, MemoryNetwork, TcpTransport


async def enter(manager: Any) -> None:
    async with manager:
        raise AssertionError("entered")


def client() -> Client:
    anna, *servers = [Identity.generate(name) for name in ("anna", "S0", "S1")]
    first, second = (server.public for server in servers)
    return Client(
        ClientSetup(TASK, anna, (first, second), ("S0", "S1"), MemoryNetwork(), InlineLane(), bytes, Kind.LIVE)
    )


NOWHERE = Path("nowhere.toml")
NEEDY: dict[str, tuple[Callable[[], Awaitable[Any]], str, str]] = {
    "parties.connect": (lambda: enter(connect(NOWHERE)), "parties.aio.connect", "parties.connect_blocking"),
    "parties.simulate": (
        lambda: enter(simulate(TASK, model(), 1)),
        "parties.aio.simulate",
        "parties.simulate_blocking",
    ),
    "Client": (lambda: enter(client()), "parties.aio", "parties.connect_blocking"),
    "parties.server_setup": (lambda: server_setup(NOWHERE), "asyncio.to_thread(trio.run, main)", "trio.run(main)"),
    "SqliteStore.open": (lambda: SqliteStore.open(NOWHERE), "asyncio.to_thread(trio.run, main)", "trio.run(main)"),
    "a simulated world": (
        lambda: enter(world(TASK, model(), 1)),
        "asyncio.to_thread(trio.run, main)",
        "trio.run(main)",
    ),
    "Transport.dial": (
        lambda: TcpTransport().dial("127.0.0.1:1", bytes(32), None),  # type: ignore[arg-type]
        "asyncio.to_thread(trio.run, main)",
        "trio.run(main)",
    ),
    "Transport.listen": (
        lambda: MemoryNetwork().listen("S0", None),  # type: ignore[arg-type]
        "asyncio.to_thread(trio.run, main)",
        "trio.run(main)",
    ),
}


@pytest.mark.parametrize("name", NEEDY)
def test_on_an_asyncio_loop(name):
    call, instead, _ = NEEDY[name]

    async def main() -> None:
        await call()

    with pytest.raises(MisuseError) as caught:
        asyncio.run(main())
    assert str(caught.value).startswith(f"{name} needs trio, and an asyncio loop runs here: ")
    assert instead in str(caught.value)


@pytest.mark.parametrize("name", NEEDY)
def test_in_no_loop(name):
    """A coroutine that is driven by hand."""
    call, _, instead = NEEDY[name]
    with pytest.raises(MisuseError) as caught:
        call().__await__().__next__()  # type: ignore[attr-defined]
    assert str(caught.value).startswith(f"{name} needs trio, and no trio task runs here: ")
    assert instead in str(caught.value)


MANAGERS = [lambda: connect(NOWHERE), lambda: simulate(TASK, model(), 1)]


@pytest.mark.parametrize("manager", MANAGERS)
def test_with_instead_of_async_with(manager):
    def outside() -> None:
        with manager():
            raise AssertionError

    with pytest.raises(MisuseError, match=r"no trio task runs here: use `with parties\.\w+_blocking\(\.\.\.\)`"):
        outside()

    async def inside() -> None:
        outside()

    with pytest.raises(MisuseError, match=r"parties\.\w+ is entered with `async with`, not with `with`"):
        trio.run(inside)
    with pytest.raises(MisuseError, match=r"an asyncio loop runs here: use `async with parties\.aio\.\w+\(\.\.\.\)`"):
        asyncio.run(inside())


@pytest.mark.parametrize("manager", MANAGERS)
def test_awaited_instead_of_entered(manager):
    async def main() -> None:
        await manager()

    for run in (trio.run, lambda function: asyncio.run(function())):
        with pytest.raises(MisuseError, match=r"is entered, not awaited: `async with parties\.\w+\(\.\.\.\) as …:`"):
            run(main)
