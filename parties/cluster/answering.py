"""A worker's side of retrievals: it lays a slice of the model out, keeps it, and answers with it.

Rule: what is read is compared with its digest; the model of a round is forgotten when the next round's comes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError, StorageError
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.server.slicing import even_slices
from fsl_async.wire.public_part import Layout, Part
from parties.cluster.cluster import Reply
from parties.cluster.orders import (
    AnsweredReport,
    AnswerOrder,
    ModelBlock,
    StoredQuery,
    encoded,
    session_layouts,
)
from parties.compute import ComputeLane
from parties.server.round.reading import ReadBack, altered
from parties.server.store_layout import RequestKey, part_name, round_prefix
from parties.storage.blobs.blobs import Blobs

__all__ = ["Answering"]


class _ModelKey(NamedTuple):
    """Which model: of which life of the server, under which number, and which slice of it."""

    life: bytes
    number: int
    slices: int
    slice: int


class Answering:
    """Answers retrievals over slices of a model.

    Args:
        blobs: where trees and models lie.
        lane: where it computes.
    """

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
        harmed: dict[int, str] = {}
        queries: list[Query] = []
        for place, stored in enumerate(asked.queries):
            try:
                queries.append(await self._query(stored, config))
            except StorageError as error:
                harmed[place] = str(error)
        work = await self._lane.run(partial(permuted.begin, queries, self._lane.threads))
        for jobs in (work.selecting, work.answering):
            await self._lane.run_all(jobs)
        return Reply(encoded(AnsweredReport(harmed=harmed)), [await self._lane.run(work.finish)])

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
