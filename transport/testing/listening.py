"""Cases about listening: which addresses there are, who has them, and that a listener's limits hold."""

from __future__ import annotations

from dataclasses import replace

import trio

from transport.errors import BusyError, UnreachableError
from transport.testing.case import Suite, expect, require
from transport.testing.lab import LARGE, UNLIMITED, Lab

SUITE = Suite()


@SUITE.case
async def a_listener_reports_an_address_that_can_be_dialled(lab: Lab) -> None:
    """`listen` calls `task_status.started` with the address, once it can be dialled."""
    await lab.serve()
    require(isinstance(lab.address, str) and lab.address, f"a listener reports {lab.address!r} for its address")
    async with await lab.dial():
        pass


@SUITE.case
async def an_address_has_one_listener(lab: Lab) -> None:
    """A second listener at an address is refused, and the first one serves on."""
    await lab.serve()
    with expect(UnreachableError):
        await lab.serve()
    async with await lab.dial():
        pass


@SUITE.case
async def nothing_listens_where_a_listener_has_ended(lab: Lab) -> None:
    """Dialling an address at which nothing listens is an `UnreachableError` at once."""
    stop = await lab.serve()
    await stop()
    with trio.fail_after(5), expect(UnreachableError):
        await lab.dial()


@SUITE.case
async def an_address_is_free_again(lab: Lab) -> None:
    """When a listener has ended, another one may listen at its address."""
    for _ in range(3):
        stop = await lab.serve()
        async with await lab.dial() as channel:
            await channel.send(b"hello")
            await channel.receive(LARGE)
        await stop()


@SUITE.case
async def limits_hold(lab: Lab) -> None:
    """A transport serves through a `Listener`, so that the limits hold: here, connections with one key."""
    await lab.serve(limits=replace(UNLIMITED, per_key=1))
    async with await lab.dial():
        with expect(BusyError):
            await lab.dial()
