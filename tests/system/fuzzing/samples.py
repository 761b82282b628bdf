"""A task, a round, parties and their keys, all of them fixed: what the parsers' valid examples are made of."""

import tempfile
from functools import cache
from pathlib import Path

import msgspec
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import bins_of_round
from fsl_async.config import BlockModel, Draw, RoundConfig
from fsl_async.union import UnionBlock
from parties.identity.keys import Identity
from parties.outcome import Done, RoundReport
from tests.support.machine_scenes import key


def repeating(number: int):
    """Randomness that is none."""
    return lambda size: bytes([number]) * size


SERVERS = (Identity("S0", key(1), key(2), key(21)), Identity("S1", key(3), key(4), key(22)))
ALICE = Identity("alice", key(5), key(6), key(23))

TASK = Task(
    name="goods",
    blocks=[Sparse("items", rows=40, width=2, select=3), Dense("head", size=3)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=6,
)
CONFIG = RoundConfig(
    task=TASK,
    number=3,
    session=3,
    hash_seed=key(7),
    toss=(key(8), key(9)),
    servers=(SERVERS[0].public.keys, SERVERS[1].public.keys),
    model=(BlockModel("items", "f4", key(10)), BlockModel("head", "f4", key(11))),
    bins=bins_of_round(TASK, (), ()),
)
UNION_CONFIG = RoundConfig(
    task=Task(
        name="aligned",
        blocks=[Sparse("items", rows=300, select=8)],
        ring=Ring(128),
        selection="fixed",
        updates="any",
        alignment="union",
        security="semi-honest",
        largest=2.5,
    ),
    number=2**32,
    session=1,
    hash_seed=key(12),
    toss=(key(13), key(14)),
    servers=(SERVERS[0].public.keys, SERVERS[1].public.keys),
    model=(BlockModel("items", "u1", key(15)),),
    bins=(0,),
    union=(UnionBlock("items", 17, key(16)),),
    plain=(BlockModel("items", "u1", key(17)),),
)


@cache
def workplace() -> Path:
    """A folder of this process's own."""
    folder = tempfile.TemporaryDirectory(prefix="fsl-async-fuzzing-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []

REPORT = RoundReport(
    round_id=CONFIG.round_id(),
    number=3,
    ending=Done(),
    clients={"alice": key(4), "bob": key(5)},
    excluded={"carol": "only_s0"},
    model=CONFIG.model,
    union=(UnionBlock("items", 5, key(3)),),
)
SAMPLED_CONFIG = msgspec.structs.replace(
    CONFIG, task=msgspec.structs.replace(TASK, sample=0.5), sample=Draw(asked=9, size=5, digest=key(18))
)


class Script(trio.abc.Stream):
    """A peer that says what stands in the script, whatever it hears."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.heard = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    async def wait_send_all_might_not_block(self) -> None:
        """There is always room."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        said, self.data = self.data[:max_bytes], self.data[max_bytes or len(self.data) :]
        return said

    async def aclose(self) -> None:
        """There is nothing to close."""
