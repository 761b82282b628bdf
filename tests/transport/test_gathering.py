"""A long message goes and comes several records at a time, and a slow one is not waited for longer than a moment."""

import trio

from tests.transport.endpoints import LARGE
from transport import Pace
from transport.channel import _GATHERING

RECORD = 65_537  # on the wire
MESSAGE = bytes(20 * 65_000)
PACE = Pace()


async def receive(channel):
    """A handler that takes messages and sends back how long each was."""
    while True:
        message = await channel.receive(LARGE, pace=PACE)
        await channel.send(len(message).to_bytes(4, "big"))


class Pieces:
    """Notes how many bytes at a time go through a wire's method."""

    def __init__(self, wire, name):
        self.sizes = []
        self._through = getattr(wire, name)
        setattr(wire, name, self)

    async def __call__(self, *words):
        piece = await self._through(*words)
        self.sizes.append(len(piece or words[0]))
        return piece


async def test_records_leave_together_where_they_leave_swiftly(lab, autojump_clock):
    await lab.serve(receive)
    async with await lab.dial() as channel:
        pieces = Pieces(channel._wire, "send")
        await channel.send(MESSAGE, pace=PACE)
        assert await channel.receive(4) == len(MESSAGE).to_bytes(4, "big")
    assert [-(-size // RECORD) for size in pieces.sizes[:-1]] == [1, 2, 4, 4, 4, 4, 1]


async def test_records_leave_one_by_one_where_they_do_not(lab, autojump_clock):
    await lab.serve(receive)
    async with await lab.dial() as channel:
        pieces = Pieces(channel._wire, "send")
        through = channel._wire.send

        async def slowly(data):
            await through(data)
            await trio.sleep(1)

        channel._wire.send = slowly
        await channel.send(MESSAGE, pace=PACE)
        assert [-(-size // RECORD) for size in pieces.sizes] == [1] * 20


async def test_one_that_slows_down_in_the_middle_is_heard_at_once(lab):
    """What has come is taken although more was waited for, and nobody waits for more than is still to come."""
    await lab.serve(receive)
    channel = await lab.dial()
    records = b"".join(channel._writer.message([MESSAGE]))
    for piece in (records[: 10 * RECORD], records[10 * RECORD : -1]):
        await channel._wire.send(piece)
        await trio.sleep(3 * _GATHERING)
    with trio.fail_after(0.5):
        await channel._wire.send(records[-1:])
        assert await channel.receive(4) == len(MESSAGE).to_bytes(4, "big")
    await channel.aclose()
