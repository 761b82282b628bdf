"""A long message goes and comes several records at a time, and a slow one is not waited for longer than a moment."""

import trio

from tests.transport.endpoints import NO_FAULT, Tap, dial_records, settings_of
from transport import Pace
from transport.channel import GATHERING
from transport.handshake import initiate
from transport.testing.case import ALICE, LARGE, SERVER
from transport.wire import Wire

RECORD = 65_537  # on the wire
MESSAGE = bytes(20 * 65_000)
PACE = Pace()


async def receive(channel):
    """A handler that takes messages and sends back how long each was."""
    while True:
        message = await channel.receive(LARGE, pace=PACE)
        await channel.send(len(message).to_bytes(4, "big"))


class Pieces(Tap):
    """Notes how many bytes at a time leave, and takes a while over each portion."""

    def __init__(self, stream, seconds):
        super().__init__(stream, NO_FAULT)
        self.sizes = []
        self.seconds = seconds

    async def send_all(self, data):
        await super().send_all(data)
        self.sizes.append(len(data))
        await trio.sleep(self.seconds)


async def dial_in_pieces(lab, seconds):
    pieces = Pieces(await lab.transport.connect(lab.address), seconds)
    channel = await initiate(Wire(pieces), SERVER.public, settings_of(ALICE))
    pieces.sizes.clear()  # those of the handshake
    return channel, pieces


async def test_records_leave_together_where_they_leave_swiftly(lab, autojump_clock):
    await lab.serve(receive)
    channel, pieces = await dial_in_pieces(lab, 0)
    async with channel:
        await channel.send(MESSAGE, pace=PACE)
        assert await channel.receive(4) == len(MESSAGE).to_bytes(4, "big")
        assert [-(-size // RECORD) for size in pieces.sizes] == [1, 2, 4, 4, 4, 4, 1]


async def test_records_leave_one_by_one_where_they_do_not(lab, autojump_clock):
    await lab.serve(receive)
    channel, pieces = await dial_in_pieces(lab, 1)
    async with channel:
        await channel.send(MESSAGE, pace=PACE)
        assert [-(-size // RECORD) for size in pieces.sizes] == [1] * 20


async def test_one_that_slows_down_in_the_middle_is_heard_at_once(lab):
    """What has come is taken although more was waited for, and nobody waits for more than is still to come."""
    await lab.serve(receive)
    peer = await dial_records(lab)
    records = b"".join(peer.message(MESSAGE))
    for piece in (records[: 10 * RECORD], records[10 * RECORD : -1]):
        await peer.wire.send(piece)
        await trio.sleep(3 * GATHERING)
    with trio.fail_after(0.5):
        await peer.wire.send(records[-1:])
        assert await peer.receive(4) == len(MESSAGE).to_bytes(4, "big")
    await peer.aclose()
