"""What workers say, and the process that talks to Dask for a server: orders, reports, and frames with arrays."""

import msgspec
import numpy as np

from fsl_async.errors import MisuseError
from parties.cluster import frames, orders
from parties.cluster.frames import Answered, array_of, form_of, framed
from parties.cluster.orders import decoded, encoded
from tests.support.machine_scenes import key

from .channel_parsers import at_once
from .message_parsers import EXTREMES
from .parser import SLOW, Parser

SAID: tuple[msgspec.Struct, ...] = (
    orders.HelloReport(release="1", isa="portable", key=key(1), owner=b"S0", threads=2),
    orders.AddedReport(entries={"alice": key(2)}, damaged={"bob": "missing"}, seconds=1.5),
    orders.AnsweredReport(damaged={1: "missing"}),
    orders.SealedReport(round_id=key(3), clients=["alice"]),
    orders.ReadReport(content=b"first bytes"),
    orders.ReadOrder(place="blob"),
    orders.SealOrder(life=key(4), sum=1, slice=0, partial=2),
    orders.DropOrder(life=key(4), sum=1, slice=0, but=2, below=3),
)
KINDS = tuple(type(said) for said in SAID)
ARRAY = np.arange(6, dtype="<u8").reshape(3, 2)
TOLD = (
    frames.Begun(()),
    frames.Here({"worker": "host"}),
    frames.Away("gone"),
    frames.Refused("no"),
    frames.Failed(3, "dead"),
)


def _read_said(data: bytes) -> None:
    """The first byte says what is expected."""
    found = decoded(data[1:], KINDS[int.from_bytes(data[:1], "big") % len(KINDS)])
    assert decoded(encoded(found), type(found)) == found


async def _hear(data: bytes) -> None:
    left = bytearray(data)

    async def receive(count: int) -> bytearray:
        if count > len(left):
            raise EOFError
        found = left[:count]
        del left[:count]
        return found

    try:
        while left:
            told = await frames.read(receive, frames.TOLD)
            for form in told.arrays if isinstance(told, Answered) else ():
                assert (await array_of(receive, form)).shape == form.shape
    except EOFError:
        return


def _frames() -> list[bytes]:
    answer = framed(Answered(4, b"report", (form_of(ARRAY),))) + ARRAY.tobytes()
    return [answer, b"".join(map(framed, TOLD)), *map(framed, TOLD)]


PARSERS = (
    Parser(
        "worker-words",
        _read_said,
        lambda: [bytes([place]) + encoded(said) for place, said in enumerate(SAID)],
        (MisuseError,),
        tokens=EXTREMES,
    ),
    Parser("cluster-frames", lambda data: at_once(_hear(data)), _frames, (MisuseError,), share=SLOW, tokens=EXTREMES),
)
