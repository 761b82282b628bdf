"""What a server's work grows with, and what it outgrows first: seconds of each of its parts for a client, as formulae.

A server's work has three axes: bytes that come in, leaves of trees, clients. Each part of a server (`Part`) spends a
fixed time on a client and a time for each megabyte of it (`Line`); evaluation spends its time on leaves and trees. A
part that is one thread is busy for as long as its work takes, whatever else the host has.

Rules: everything follows from public parameters and from `Constants`, which name the machine on which they were
measured; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from fsl_async.bin_count import planned
from fsl_async.costs.message_sizes import folded_bytes
from fsl_async.errors import MisuseError
from fsl_async.task import Task
from fsl_async.union import union_task
from fsl_async.wire.public_part import Layout, Trees, dense_bytes, forests_of, share_bytes

MEGABYTE = 1e6
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""As a file of constants is read; what is computed here follows from such numbers."""

MOST_WORKERS: Final = 10_000

SEALED: Final = 256
"""Clients in a partial sum that a worker sends (`parties.cluster.partial_sum.MOST_SEALED`, as a test checks)."""

Part: TypeAlias = Literal[
    "network",
    "event loop",
    "files",
    "writer",
    "disk",
    "link between servers",
    "network of the workers",
    "evaluation",
    "partial sums",
    "answers",
    "processors",
]
"""What a server can outgrow in time; memory and room on the disk are outgrown in bytes."""


@dataclass(frozen=True)
class Line:
    """Seconds that one part of a server spends on a client.

    Attributes:
        client: seconds for each client.
        megabyte: seconds for each megabyte (10^6 bytes) that the client brings.
    """

    client: NotNegative
    megabyte: NotNegative

    def at(self, size: float) -> float:
        """Seconds for a client that brings so many bytes."""
        return self.client + self.megabyte * size / MEGABYTE

    def __add__(self, other: Line) -> Line:
        """What both are together."""
        return Line(self.client + other.client, self.megabyte + other.megabyte)


@dataclass(frozen=True)
class Retrieval:
    """Seconds that the parts of a server spend on a retrieval beside its answer, by what the client brings in all.

    Its submission has the trees of the retrieval, as in a task with `updates = "retrieved"`: nothing comes twice.

    Attributes:
        loop: the event loop.
        writer: the thread that writes the store.
        bulk: other threads: its part is hashed and written, and the model's tables are laid out.
    """

    loop: Line
    writer: Line
    bulk: Line = Line(0.0, 0.0)


@dataclass(frozen=True)
class Constants:
    """What one machine takes, in seconds of one processor where nothing else is said.

    Attributes:
        machine: where this was measured.
        loop: the event loop.
        writer: the thread that writes the store.
        bulk: other threads that hash bulk and write it to files.
        submission: evaluation, for each submission.
        leaf: evaluation, for each leaf.
        plane: evaluation, for each block of 16 bytes under a leaf.
        proof: evaluation, for each byte of proofs that is hashed; a tree has 16.
        fold: for each byte of cells that is folded to rows.
        conclusion: for each byte of a share: sent, read, compared, combined and applied to the model.
        ending: seconds of a round's end that grow with nothing.
        written: bytes that reach the disk for each byte that comes in.
        record: bytes that the store keeps of a client beside its bulk.
        disk: bytes that the disk writes in a second, durably.
        waiting: bytes of memory of a server for each client in a round.
        partial: for each byte of a worker's partial sum: received through TLS, and added to the sum.
        retrieval: what a retrieval before a submission adds; None where it was not measured.
    """

    machine: str
    loop: Line
    writer: Line
    bulk: Line
    submission: NotNegative
    leaf: NotNegative
    plane: NotNegative
    proof: NotNegative
    fold: NotNegative
    conclusion: NotNegative
    ending: NotNegative
    written: NotNegative
    record: NotNegative
    disk: Annotated[float, msgspec.Meta(gt=0)]
    waiting: NotNegative
    partial: NotNegative = 2.0e-9
    retrieval: Retrieval | None = None


ANOTHER_MACHINE = Constants(
    machine="another machine: 2 virtual processors of an AMD EPYC, AES by vaes512",
    loop=Line(2.6e-3, 1.1e-3),
    writer=Line(0.61e-3, 0.18e-3),
    bulk=Line(0.58e-3, 0.43e-3),
    submission=0.22e-3,
    leaf=1.4e-9,
    plane=0.69e-9,
    proof=0.22e-9,
    fold=0.74e-9,
    conclusion=11e-9,
    ending=0.027,
    written=1.0,
    record=3_000,
    disk=1700e6,
    waiting=2_000,
    retrieval=Retrieval(loop=Line(0.75e-3, 0.53e-3), writer=Line(0.17e-3, 0.23e-3), bulk=Line(0.54e-3, 1.4e-3)),
)


@dataclass(frozen=True)
class Load:
    """What one client brings to one server, and what a round of any number of clients ends with.

    Attributes:
        leaves: leaves that are evaluated.
        planes: blocks of 16 bytes under them.
        trees: trees, each with a proof of 16 bytes where updates are verified.
        part: bytes of the public part: each server has them once, from the client or from the other server.
        shares: bytes of the dense blocks' share, which one of both servers has.
        cells: bytes of the sum's cells.
        share: bytes of a server's share of the sum.
    """

    leaves: int
    planes: int
    trees: int
    part: int
    shares: int
    cells: int
    share: int

    @property
    def size(self) -> float:
        """Bytes that a client brings to a server, on average over both."""
        return self.part + self.shares / 2


def load_of(task: Task) -> Load:
    """The load of a submission with trees of its own, over all rows; where only unions are found, of a client's rows.

    Raises:
        MisuseError: the task has no sums: its clients only retrieve.
    """
    if task.protocol == "psr":
        raise MisuseError(f"task {task.name!r} has protocol = 'psr': its clients submit nothing, and no load is known")
    task = planned(union_task(task) if task.protocol == "psu" else task)
    forests = [forest for _, forest in forests_of(task)]
    return Load(
        leaves=sum(forest.trees * forest.leaves for forest in forests),
        planes=sum(forest.trees * forest.leaves * forest.planes for forest in forests),
        trees=sum(forest.trees for forest in forests) if task.verified else 0,
        part=Layout.submission(task, Trees.OWN).size,
        shares=dense_bytes(task),
        cells=folded_bytes(task),
        share=share_bytes(task),
    )


@dataclass(frozen=True)
class Workers:
    """Workers of a cluster, each on a host of its own.

    Attributes:
        count: how many.
        threads: processors of each of their hosts.
        network: bits that each of them, and the server, receives or sends in a second: blobs, and partial sums.

    Raises:
        MisuseError: a number is out of range.
    """

    count: int
    threads: int
    network: float = 10e9

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_WORKERS:
            raise MisuseError(f"workers: a number from 1 to {MOST_WORKERS} expected, got {self.count}")
        if not 1 <= self.threads <= 1_024:
            raise MisuseError(f"workers: from 1 to 1024 threads of each expected, got {self.threads}")
        if not self.network > 0:
            raise MisuseError("workers: a network of bits per second above 0 expected")


@dataclass(frozen=True)
class HostCapacity:
    """What a server runs on.

    Attributes:
        threads: processors of the host.
        network: bits that it receives from clients in a second.
        link: bits that the servers send each other in a second, each way.
        servers: how many servers share the processors: 1, or 2 where both are on one machine.
        clients: seconds of processors that each client takes on the same machine; 0 where clients have their own.
        answers: seconds of one thread to answer a client's retrieval; 0 where retrievals are not counted, and neither
            is what the constants say of them.
        workers: what evaluates submissions in the server's place; None where its own processors do.

    Raises:
        MisuseError: a number is out of range.
    """

    threads: int = 2
    network: float = 10e9
    link: float = 1e9
    servers: int = 1
    clients: float = 0.0
    answers: float = 0.0
    workers: Workers | None = None

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise MisuseError(f"threads: at least 1 expected, got {self.threads}")
        if not (self.network > 0 and self.link > 0):
            raise MisuseError("network and link: bits per second above 0 expected")


@dataclass(frozen=True)
class Stage:
    """One part of a server and what a client takes of it.

    Attributes:
        part: which.
        work: its seconds for one client.
        lanes: how many clients it works on at a time.
        computes: whether it takes a processor of the host meanwhile.
    """

    part: Part
    work: float
    lanes: int = 1
    computes: bool = True

    @property
    def seconds(self) -> float:
        """Seconds in which it is done with one client more, where many wait."""
        return self.work / self.lanes


def evaluation(load: Load, constants: Constants) -> float:
    """Seconds of one thread to add one submission: leaves and what is under them, and its proofs' digest."""
    walked = load.leaves * constants.leaf + load.planes * constants.plane
    return constants.submission + walked + constants.proof * 16 * load.trees


def stages(load: Load, host: HostCapacity, constants: Constants) -> tuple[Stage, ...]:
    """Every part of a server through which a client's submission goes, in this order; the shared processors last."""
    size, disk = load.size, (constants.written * load.size + constants.record) / constants.disk
    if host.answers:
        constants = _with_retrieval(constants)
    if host.workers is None:
        adding: tuple[Stage, ...] = (Stage("evaluation", evaluation(load, constants), host.threads),)
    else:
        adding = _on_workers(load, host.workers, constants)
    if host.answers:
        adding += (Stage("answers", host.answers, host.threads),)
    loop, files = Stage("event loop", constants.loop.at(size)), Stage("files", constants.bulk.at(size), host.threads)
    writer = Stage("writer", constants.writer.at(size))
    busy = sum(stage.work for stage in (loop, files, writer, *adding) if stage.computes)
    return (
        Stage("network", 8 * size / host.network, computes=False),
        loop,
        files,
        Stage("disk", disk, computes=False),
        Stage("link between servers", 8 * load.part / 2 / host.link, computes=False),
        writer,
        *adding,
        Stage("processors", host.servers * busy + host.clients, host.threads),
    )


def _with_retrieval(constants: Constants) -> Constants:
    """The constants of a client that retrieves before it submits, as far as that was measured."""
    asking = constants.retrieval
    if asking is None:
        return constants
    sums = {part: getattr(constants, part) + getattr(asking, part) for part in ("loop", "writer", "bulk")}
    return replace(constants, **sums)


def _on_workers(load: Load, workers: Workers, constants: Constants) -> tuple[Stage, ...]:
    """What workers do, on hosts of their own, and what the server does with what they send: one partial at a time.

    A worker reads a submission from blobs and compares it with its digest; all cells go to the server every so often.
    """
    cells = load.cells / SEALED
    computing = evaluation(load, constants) + constants.proof * load.size
    return (
        Stage("network of the workers", 8 * (load.size + cells) / workers.network, workers.count, computes=False),
        Stage("evaluation", computing, workers.count * workers.threads, computes=False),
        Stage("partial sums", max(constants.partial, 8 / workers.network) * cells),
    )


def worker_hourly(load: Load, workers: Workers, constants: Constants) -> float:
    """Clients that one of these workers adds up in an hour."""
    one = _on_workers(load, replace(workers, count=1), constants)
    return 3600 / max(stage.seconds for stage in one if not stage.computes)


@dataclass(frozen=True)
class Limit:
    """What a server is capable of, and what it would outgrow first.

    Attributes:
        stages: every part.
        first: the part that is the busiest.
        collecting: seconds in which so many clients are received and added, if all come at once.
        ending: seconds from the last one until the next model is there.
    """

    stages: tuple[Stage, ...]
    first: Stage
    collecting: float
    ending: float

    @property
    def round_seconds(self) -> float:
        """Seconds of a round whose clients all come at once."""
        return self.collecting + self.ending

    @property
    def clients_per_hour(self) -> float:
        """Clients in an hour while a round is open."""
        return 3600 / self.first.seconds


def capacity(load: Load, host: HostCapacity, constants: Constants, clients: int) -> Limit:
    """What a server is capable of, with so many clients in a round.

    Raises:
        MisuseError: there is no client.
    """
    if clients < 1:
        raise MisuseError(f"clients: at least 1 expected, got {clients}")
    every = stages(load, host, constants)
    first = max(every, key=lambda stage: stage.seconds)
    return Limit(every, first, clients * first.seconds, ending(load, host, constants, clients))


def ending(load: Load, host: HostCapacity, constants: Constants, clients: int) -> float:
    """Seconds from a round's last submission until the next model: the sum folded, shares exchanged and combined.

    The fold runs on all threads that the server has for itself; what follows it is done piece by piece. Before it, each
    worker that has added anybody sends what it has not sent.
    """
    threads = max(1.0, host.threads / host.servers)
    folded = load.cells * constants.fold / threads
    if host.workers is not None:
        folded += min(host.workers.count, clients) * load.cells * max(constants.partial, 8 / host.workers.network)
    return constants.ending + folded + load.share * (constants.conclusion + 8 / host.link)


def memory_bytes(server: float, constants: Constants, clients: int) -> float:
    """The most bytes of memory that a server's process holds: those that do not grow with clients, and theirs."""
    return server + clients * constants.waiting


def stored_bytes(load: Load, constants: Constants, clients: int) -> float:
    """The most bytes on the disk for one round: what came in, with what the store keeps of each client, and shares."""
    return clients * (load.part + load.shares + constants.record) + 2 * load.share
