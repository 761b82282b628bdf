"""`bench actors`: a round of a thousand actors in one process, against bare trio and the cryptography.

The bare loop is what no framework could leave out: for each client and server a pair of tasks and memory channels, the
handshake, messages of the same sizes under the same encryption, the client's trees, the servers' evaluation, and the
receipts' signatures. What actors add is the rest: state machines, stores, retries, timers, checks.

Rules: both are measured in turns; seconds are those of the processor, because all of it runs in one thread, and other
load on the machine shall not count; time is virtual, so that no timer fires because the machine is slow.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import trio
from trio.testing import MockClock

from fsl_async.digests import Domain
from fsl_async.errors import FslError
from fsl_async.randomness import Randomness, SeededSource
from fsl_async.server.aggregation import split_share
from fsl_async.wire.codec import encode
from parties.commands.bench.workload import SEED, Case, Client, aggregate, client_of
from parties.identity.keys import Identity, verify
from parties.simulation.network import SERVERS, Network, simulate
from parties.watch import Note
from tests.bench.measures import Spread
from tests.bench.results import Result, Target
from tests.bench.workload import Options
from transport.noise import HandshakeState, KeyPair

CLIENTS = 1000
REPETITIONS = 3
MOST = 5.0
"""The most that actors may take of what the bare loop takes."""

RECORD = 65_000
"""The longest piece of a message that is encrypted at once."""

VALUES = 1000

WARM = 2
"""Clients of the rounds that are run before anything is measured."""

Message = tuple[bool, int]
"""Whether it is the initiator's, and its bytes."""


@dataclass(frozen=True)
class Traffic:
    """What the parties of a round said to each other, in order.

    Attributes:
        clients: by client and server.
        servers: S0 is the initiator.
    """

    clients: dict[tuple[str, str], list[Message]] = field(default_factory=lambda: defaultdict(list))
    servers: list[Message] = field(default_factory=list)

    @staticmethod
    def of(transcript: Sequence[Note]) -> Traffic:
        """That of a transcript."""
        traffic = Traffic()
        for note in transcript:
            size = sum(len(part) for part in encode(note.message)) + note.bulk
            match note.sender in SERVERS, note.receiver in SERVERS:
                case True, True:
                    traffic.servers.append((note.sender == SERVERS[0], size))
                case True, False:
                    traffic.clients[note.receiver, note.sender].append((False, size))
                case _:
                    traffic.clients[note.sender, note.receiver].append((True, size))
        return traffic


def actors_suite(options: Options) -> Iterator[Result]:
    """A round of a thousand clients, or of as many as are asked for; each submits once.

    Raises:
        FslError: a sum is wrong.
    """
    case = options.apply(Case(rows=4096, select=16, bits=64, clients=CLIENTS))
    _run(_with(case, WARM))
    actors: list[float] = []
    bare: list[float] = []
    for _ in range(REPETITIONS):
        first, second = _run(case)
        actors.append(first)
        bare.append(second)
    ratio = Spread.of(actors).median / Spread.of(bare).median
    for name, seconds, targets in (
        ("bare trio and the cryptography", bare, ()),
        ("actors", actors, (Target(ratio, "at most", MOST, "× bare"),)),
    ):
        spread = Spread.of(seconds)
        yield Result(
            name=f"{name}, {case.clients} clients, {case.title}",
            parameters=case.parameters(),
            seconds=spread,
            rate=case.clients / spread.median,
            unit="clients/s",
            bound=Spread.of([case.clients / each for each in bare]),
            against="bare trio and the cryptography",
            targets=targets,
        )


def _with(case: Case, clients: int) -> Case:
    return Case(case.rows, case.select, case.width, case.bits, case.security, clients, case.threads)


def _run(case: Case) -> tuple[float, float]:
    """The processor's seconds of one round of actors, and of the same in the bare loop."""
    clients = [client_of(case, number) for number in range(case.clients)]
    begun = time.process_time()
    traffic = trio.run(_actors, case, clients, clock=MockClock(autojump_threshold=0))
    between = time.process_time()
    trio.run(_bare, case, traffic, clock=MockClock(autojump_threshold=0))
    return between - begun, time.process_time() - between


# ---- actors


async def _actors(case: Case, clients: Sequence[Client]) -> Traffic:
    """One round of actors in memory, and what they said."""
    task = msgspec.structs.replace(case.task, min_clients=2, max_clients=case.clients)
    model = {"block": np.zeros((case.rows, case.width), dtype=np.int64)}
    async with simulate(task, model, SEED) as network:
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(_take_part, network, case, client)
        outcome = await network.finish_round()
    total = np.zeros_like(model["block"])
    for client in clients:
        total[client.rows] += _values(case, client)
    if len(outcome.clients) != len(clients) or not np.array_equal(outcome.elements["block"], total):
        raise FslError("the actors' sum differs from the sum in the clear: this must never happen")
    return Traffic.of(network.transcript)


async def _take_part(network: Network, case: Case, client: Client) -> None:
    async with network.client(client.name) as actor:
        await actor.submit({"block": (client.rows, _values(case, client))})


def _values(case: Case, client: Client) -> npt.NDArray[np.int64]:
    """Small ones, of which the sum has room for many."""
    return np.asarray(case.task.ring.to_integers(client.elements) % VALUES, dtype=np.int64)


# ---- bare trio


async def _bare(case: Case, traffic: Traffic) -> None:
    """The same round without parties."""
    random = SeededSource(SEED, "bare")
    keys = [KeyPair.generate(random) for _ in SERVERS]
    signers = [Identity.generate(name, random) for name in SERVERS]
    sums = [aggregate(case, server) for server in (0, 1)]

    async def one(number: int) -> None:
        client, own = client_of(case, number), KeyPair.generate(random)
        submissions = client.submissions()
        async with trio.open_nursery() as lines:
            for server, name in enumerate(SERVERS):
                said = traffic.clients[client.name, name]
                lines.start_soon(_line, own, keys[server], said, random)
        for server in (0, 1):
            jobs, finish = sums[server].jobs(submissions[server], 1)
            for job in jobs:
                job()
            finish()
            _receipt(signers[server], client.name.encode())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_line, keys[0], keys[1], traffic.servers, random)
        for number in range(case.clients):
            nursery.start_soon(one, number)
    first, second = (split_share(case.task, each.share())["block"] for each in sums)
    case.task.ring.add(first, second)


def _receipt(signer: Identity, content: bytes) -> None:
    """A server signs, and a client checks it."""
    if not verify(signer.public.statement, signer.sign(Domain.RECEIPT, content), Domain.RECEIPT, content):
        raise FslError("a signature does not hold: this must never happen")


async def _line(initiator: KeyPair, responder: KeyPair, said: Sequence[Message], random: Randomness) -> None:
    """Two tasks that shake hands and say what was said."""
    forth, there = trio.open_memory_channel[bytes](1)
    back, here = trio.open_memory_channel[bytes](1)
    async with trio.open_nursery() as nursery:
        begins = HandshakeState(initiator, responder.public, b"", random)
        nursery.start_soon(_speak, begins, said, True, forth, here)
        nursery.start_soon(_speak, HandshakeState(responder, None, b"", random), said, False, back, there)


async def _speak(
    handshake: HandshakeState,
    said: Sequence[Message],
    begins: bool,
    out: trio.MemorySendChannel[bytes],
    into: trio.MemoryReceiveChannel[bytes],
) -> None:
    """One side of a line."""
    speaks = begins
    while not handshake.finished:
        if speaks:
            await out.send(handshake.write_message(b""))
        else:
            handshake.read_message(await into.receive())
        speaks = not speaks
    sending, receiving = handshake.split()
    for initiators, size in said:
        for place in range(0, size, RECORD):
            if initiators == begins:
                await out.send(sending.encrypt(b"", bytes(min(RECORD, size - place))))
            else:
                receiving.decrypt(b"", await into.receive())
