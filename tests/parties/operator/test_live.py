"""Live views: every change at once, and a sign of life from time to time."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import h11
import trio
from trio.testing import memory_stream_pair

from parties.operator.http import serve_connection
from parties.operator.resources import HEARTBEAT, MOST_VIEWERS
from tests.parties.operator.asking import LIMITS, Port


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
    nursery.start_soon(serve_connection, theirs, port.resources.answer, LIMITS)
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
