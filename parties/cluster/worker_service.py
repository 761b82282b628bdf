"""A worker's own side: it reads submissions from blobs, and adds them to partial sums until they are sealed.

For retrievals it lays a slice of the model out, keeps it, and answers with it; the model of a round is forgotten when
the next round's comes.

Rules: what is read is compared with its digest before it is used; a client is added to a partial once, and an order
that comes twice is reported twice and done once. A partial is a share of a sum: it stays in memory, and goes to its
server alone.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import trio
from nacl.public import PrivateKey

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError, StorageError
from fsl_async.geometry import RowNumbers
from fsl_async.server.aggregation import Aggregate, Submission, is_cut_by_bins
from fsl_async.server.batch import at_once
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.server.slicing import Slice, even_slices, slices_of
from fsl_async.union import unpack_union
from fsl_async.wire.public_part import Layout, Part
from parties.cluster.cluster import Reply
from parties.cluster.orders import (
    AddedReport,
    AddOrder,
    AnsweredReport,
    AnswerOrder,
    Brief,
    DropOrder,
    HelloReport,
    ModelBlock,
    ReadOrder,
    ReadReport,
    SealedReport,
    SealOrder,
    SessionTrees,
    StoredQuery,
    decoded,
    encoded,
    opened,
    session_layouts,
)
from parties.compute import ComputeLane
from parties.server.round.accumulation import READERS, add_batch
from parties.server.round.reading import ReadBack, StoredSubmission, SubmissionReader, altered
from parties.server.store_layout import RequestKey, part_name, round_prefix
from parties.storage.blobs.blobs import Blobs


class _ModelKey(NamedTuple):
    """Which model: of which life of the server, under which number, and which slice of it."""

    life: bytes
    number: int
    slices: int
    slice: int


class Answering:
    """Answers retrievals over slices of a model."""

    def __init__(self, blobs: Blobs, lane: ComputeLane) -> None:
        self._blobs = blobs
        self._lane = lane
        self._models: dict[_ModelKey, PermutedModel] = {}
        self._making = trio.Lock()

    async def answer(self, asked: AnswerOrder, config: RoundConfig) -> Reply:
        """Answer some retrievals.

        Raises:
            MisuseError: there is no such slice.
            StorageError: the model is missing or altered.
        """
        permuted = await self._laid_out(asked, config)
        damaged: dict[int, str] = {}
        queries: list[Query] = []
        for place, stored in enumerate(asked.queries):
            try:
                queries.append(await self._query(stored, config))
            except StorageError as error:
                damaged[place] = str(error)
        work = await self._lane.run(partial(permuted.begin, queries, self._lane.threads))
        for jobs in (work.selecting, work.answering):
            await self._lane.run_all(jobs)
        return Reply(encoded(AnsweredReport(damaged=damaged)), [await self._lane.run(work.finish)])

    def forget(self, life: bytes, number: int) -> None:
        """Forget the models of other lives of the server, and those with a smaller number."""
        self._models = {key: model for key, model in self._models.items() if key.life == life and key.number >= number}

    async def _laid_out(self, asked: AnswerOrder, config: RoundConfig) -> PermutedModel:
        key = _ModelKey(asked.brief.life, asked.brief.sum, asked.brief.slices, asked.slice)
        async with self._making:
            if key not in self._models:
                self.forget(key.life, key.number)
                slices = even_slices(config.shape, key.slices)
                if not 0 <= key.slice < len(slices):
                    raise MisuseError(f"slice {key.slice} of a model that has {len(slices)}")
                model = {block.name: await self._block(block) for block in asked.model}
                make = partial(PermutedModel, config, asked.brief.server, model, slices[key.slice])
                self._models[key] = await self._lane.run(make)
        return self._models[key]

    async def _block(self, block: ModelBlock) -> npt.NDArray[np.uint8]:
        rows = np.empty((block.rows, block.row_bytes), dtype=np.uint8)
        flat, done = rows.reshape(-1), 0
        for piece in block.pieces:
            content = await self._blobs.read(piece.place)
            if await self._lane.run(partial(digest, Domain.MODEL, content)) != piece.digest:
                raise altered(piece.place)
            flat[done : done + len(content)] = np.frombuffer(content, dtype=np.uint8)
            done += len(content)
        return rows

    async def _query(self, stored: StoredQuery, config: RoundConfig) -> Query:
        read = ReadBack(self._blobs, self._lane, config.shape)
        if stored.session is not None:
            layout = session_layouts(config)[stored.session.kind]
            return Query(stored.msk, Part(layout, await read.trees(stored.session.place, layout, stored.part)))
        key = RequestKey(stored.client, "retrieve", stored.query)
        place = part_name(round_prefix(config.number), key, stored.part)
        return Query(stored.msk, Part(Layout.retrieval(config.shape), await read.part(place, "retrieve", stored.part)))


SHOWN = 64
"""Bytes of a blob that a worker shows to a server that asks whether it can read it."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is made of.

    Attributes:
        blobs: its server's.
        owner: whose they are (`parties.deployment.blobs.blobs_owner`).
        lane: where it computes.
        release: of the software.
        secret: what orders are sealed to.
        memory: bytes that it may use; 0 where nobody says.
        clock: seconds, to measure with.
    """

    blobs: Blobs
    owner: bytes
    lane: ComputeLane
    release: str
    secret: PrivateKey = field(repr=False)
    memory: int = 0
    clock: Callable[[], float] = time.perf_counter


class PartialKey(NamedTuple):
    """Which partial: of which life of the server, of which of its sums, over which slice, and its number."""

    life: bytes
    sum: int
    slice: int
    number: int


@dataclass(eq=False)
class _Partial:
    """A partial that grows."""

    round_id: bytes
    aggregate: Aggregate = field(repr=False)
    clients: dict[str, None] = field(default_factory=dict)
    done: dict[int, bytes] = field(default_factory=dict)


class WorkerService:
    """Does what its server tells it."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._answering = Answering(setup.blobs, setup.lane)
        self._partials: dict[PartialKey, _Partial] = {}
        self._configs: dict[bytes, RoundConfig] = {}
        self._making = trio.Lock()
        self._adding = trio.Lock()

    async def perform(self, action: str, order: bytes) -> Reply:
        """Do one thing.

        Raises:
            MisuseError: it cannot be done, or is not understood.
            StorageError: blobs cannot be read.
        """
        actions: dict[str, Callable[[bytes], Awaitable[Reply]]] = {
            "hello": self._hello,
            "read": self._read_blob,
            "add": self._add,
            "seal": self._seal,
            "drop": self._drop,
            "answer": self._answer,
        }
        if action not in actions:
            raise MisuseError(f"{action!r} is nothing that a worker of this release does")
        return await actions[action](order)

    async def _hello(self, order: bytes) -> Reply:
        setup = self._setup
        report = HelloReport(
            release=setup.release,
            isa=await setup.lane.run(kernels.active_isa),
            key=bytes(setup.secret.public_key),
            owner=setup.owner,
            threads=setup.lane.threads,
            memory=setup.memory,
        )
        return Reply(encoded(report))

    async def _read_blob(self, order: bytes) -> Reply:
        place = decoded(order, ReadOrder).place
        try:
            return Reply(encoded(ReadReport(content=bytes((await self._setup.blobs.read(place))[:SHOWN]))))
        except StorageError as error:
            return Reply(encoded(ReadReport(content=b"", problem=str(error))))

    # ---- adding

    async def _add(self, order: bytes) -> Reply:
        asked = opened(order, self._setup.secret, AddOrder)
        config = self._config(asked.brief)
        into = await self._partial(asked, config)
        if asked.number not in into.done:
            damaged: dict[str, str] = {}
            entries: dict[str, bytes] = {}
            seconds, most = 0.0, at_once(config.shape, self._setup.lane.threads)
            for first in range(0, len(asked.submissions), most):
                some = asked.submissions[first : first + most]
                found = await self._read(asked, config, some, damaged)
                async with self._adding:
                    started = self._setup.clock()
                    entries |= await self._add_batch(into, asked.number, found)
                    seconds += self._setup.clock() - started
            into.done.setdefault(asked.number, encoded(AddedReport(entries=entries, damaged=damaged, seconds=seconds)))
        return Reply(into.done[asked.number])

    async def _add_batch(self, into: _Partial, number: int, found: Sequence[Submission]) -> dict[str, bytes]:
        if number in into.done or not found:
            return {}
        twice = [submission.client for submission in found if submission.client in into.clients]
        if twice:
            raise MisuseError(f"{twice[0]!r} is in this partial already")
        into.clients |= dict.fromkeys(submission.client for submission in found)
        entries = await add_batch(into.aggregate, found, self._setup.lane)
        return dict(zip((submission.client for submission in found), entries, strict=True))

    def _config(self, brief: Brief) -> RoundConfig:
        name = digest(Domain.ROUND, brief.config)
        if name not in self._configs:
            self._configs = {name: RoundConfig.parse(brief.config, f"S{brief.server}")}
        return self._configs[name]

    async def _partial(self, asked: AddOrder, config: RoundConfig) -> _Partial:
        brief, key = asked.brief, PartialKey(asked.brief.life, asked.brief.sum, asked.slice, asked.partial)
        async with self._making:
            if key not in self._partials:
                unions = {block: await self._union(config, block, place) for block, place in brief.unions.items()}
                some = _slice_of(asked, config)
                self._partials = {held: grown for held, grown in self._partials.items() if not _is_left(held, key)}
                make = partial(Aggregate, config, brief.server, brief.proof_key, MappingProxyType(unions), some=some)
                self._partials[key] = _Partial(config.round_id(), await self._setup.lane.run(make))
        return self._partials[key]

    # ---- reading

    async def _read(
        self, asked: AddOrder, config: RoundConfig, some: Sequence[StoredSubmission], damaged: dict[str, str]
    ) -> list[Submission]:
        """Those of some submissions whose bulk is there and as it was put; of the others, why not."""
        reader = self._reader(config, asked.sessions, {each.client: each for each in asked.submissions})
        found: dict[str, Submission] = {}
        limiter = trio.CapacityLimiter(READERS)

        async def read(stored: StoredSubmission) -> None:
            async with limiter:
                try:
                    found[stored.client] = await reader.read(stored)
                except StorageError as error:
                    damaged[stored.client] = str(error)

        async with trio.open_nursery() as nursery:
            for stored in some:
                nursery.start_soon(read, stored)
        return [found[stored.client] for stored in some if stored.client in found]

    def _reader(
        self, config: RoundConfig, sessions: Mapping[str, SessionTrees], stored: Mapping[str, StoredSubmission]
    ) -> SubmissionReader:
        prefix = round_prefix(config.number)
        read = ReadBack(self._setup.blobs, self._setup.lane, config.shape)

        async def part(key: RequestKey, name: bytes) -> memoryview:
            return await read.part(part_name(prefix, key, name), key.purpose, name)

        async def session(client: str) -> Part:
            known = sessions[client]
            layout = session_layouts(config)[known.kind]
            return Part(layout, await read.trees(known.place, layout, stored[client].tree))

        return SubmissionReader(read, config, part, session)

    async def _union(self, config: RoundConfig, block: str, place: str) -> RowNumbers:
        """The union of a block, which the round's configuration has the digest of."""
        expected = next(entry for entry in config.union if entry.name == block)
        rows = next(sparse.rows for _, sparse in config.task.sparse_blocks() if sparse.name == block)
        packed = await self._setup.blobs.read(place)
        if digest(Domain.UNION, block.encode(), packed) != expected.digest:
            raise altered(place)
        return np.asarray(unpack_union(packed, rows, place), dtype=np.uint32)

    # ---- sealing

    async def _seal(self, order: bytes) -> Reply:
        asked = decoded(order, SealOrder)
        async with self._adding:
            held = self._partials.get(PartialKey(asked.life, asked.sum, asked.slice, asked.partial))
        if held is None:
            raise MisuseError(f"this worker has no partial {asked.partial}")
        report = SealedReport(round_id=held.round_id, clients=list(held.clients))
        return Reply(encoded(report), held.aggregate.content())

    async def _drop(self, order: bytes) -> Reply:
        asked = decoded(order, DropOrder)
        self._answering.forget(asked.life, asked.sum)
        async with self._making, self._adding:
            self._partials = {key: held for key, held in self._partials.items() if _is_kept(key, asked)}
        return Reply(b"")

    # ---- retrievals

    async def _answer(self, order: bytes) -> Reply:
        asked = opened(order, self._setup.secret, AnswerOrder)
        return await self._answering.answer(asked, self._config(asked.brief))


def _is_kept(key: PartialKey, asked: DropOrder) -> bool:
    """What the server began after it asked is kept: the order may have been overtaken."""
    if (key.life, key.sum, key.slice) == (asked.life, asked.sum, asked.slice):
        return key.number == asked.but or key.number >= asked.below
    return key.life == asked.life and key.sum >= asked.sum


def _is_left(key: PartialKey, begun: PartialKey) -> bool:
    """Whether a partial is over a slice that the server does not have this worker add to any more."""
    return (key.life, key.sum) == (begun.life, begun.sum) and key.slice != begun.slice


def _slice_of(asked: AddOrder, config: RoundConfig) -> Slice | None:
    """The slice that an order is about; None for all bins.

    Raises:
        MisuseError: there is none of that number.
    """
    if asked.brief.slices == 1 and asked.slice == 0:
        return None
    slices = slices_of(config.shape, asked.brief.slices)
    if not 0 <= asked.slice < len(slices) or not is_cut_by_bins(config):
        raise MisuseError(f"slice {asked.slice} of a sum that has {len(slices)}")
    return slices[asked.slice]
