"""What a client downloads openly: dense blocks, unions, and the rows of those unions that move plainly.

Rules: all of a round's unions are downloaded, whichever blocks the client will use; everything is compared with the
digest that both servers announced. A union is downloaded once, and kept as long as rounds announce it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel, RoundConfig
from fsl_async.digests import Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.task import Task
from fsl_async.union import unpack_union
from fsl_async.wire.messages import Block, Download
from parties.client.requests import Requests

__all__ = ["Downloads"]


class Downloads:
    """One client's downloads."""

    def __init__(self, task: Task, client: str, requests: Requests) -> None:
        self._task = task
        self._client = client
        self._requests = requests
        self._unions: dict[bytes, npt.NDArray[np.uint32]] = {}

    async def dense(self, config: RoundConfig, name: str) -> npt.NDArray[Any]:
        """A dense block.

        Raises:
            PeerViolationError: it is not the one announced.
        """
        return np.frombuffer(await self._model(config, config.block_model(name)), config.block_model(name).dtype).copy()

    async def plain(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> dict[int, npt.NDArray[Any]]:
        """The wanted rows, all in the union, of the blocks that the round moves plainly; each is downloaded whole.

        Raises:
            PeerViolationError: a block is not the one announced.
        """
        found: dict[int, npt.NDArray[Any]] = {}
        for (index, block), model in zip(config.shape.plain_blocks(), config.plain, strict=True):
            content = await self._model(config, model)
            if index in wanted:
                ranks = np.searchsorted(self.known(config)[block.name], wanted[index])
                found[index] = np.frombuffer(content, dtype=model.dtype).reshape(block.shape)[ranks]
        return found

    async def _model(self, config: RoundConfig, model: BlockModel) -> memoryview:
        content = await self._download(config, model.name, union=False)
        if not same(digest(Domain.MODEL, model.name.encode(), model.dtype.encode(), content), model.digest):
            raise self._not_announced(config, f"a block {model.name!r}")
        return content

    async def unions(self, config: RoundConfig) -> None:
        """Have all unions of a round; those of other rounds are dropped."""
        unions = {entry.digest: await self._union(config, entry.name, entry.digest) for entry in config.union}
        self._unions = unions or self._unions

    def within(self, config: RoundConfig, index: int, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Which rows this round works on: those in its union, where it is aligned on one."""
        if not config.union:
            return np.ones(len(rows), dtype=bool)
        return np.isin(rows, self.known(config)[self._task.sparse(index).name])

    def named(self, config: RoundConfig, index: int, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The names of rows that this round works on: their ranks in its union, where it plants trees over that."""
        name = self._task.sparse(index).name
        if config.union and index in dict(config.shape.sparse_blocks()) and config.in_ranks(name):
            return np.searchsorted(self.known(config)[name], rows).astype(np.uint32)
        return rows

    def known(self, config: RoundConfig) -> dict[str, npt.NDArray[np.uint32]]:
        """The unions of a round, by sparse block."""
        return {entry.name: self._unions[entry.digest] for entry in config.union}

    async def _union(self, config: RoundConfig, name: str, announced: bytes) -> npt.NDArray[np.uint32]:
        if announced in self._unions:
            return self._unions[announced]
        content = await self._download(config, name, union=True)
        if not same(digest(Domain.UNION, name.encode(), content), announced):
            raise self._not_announced(config, f"a union of {name!r}")
        rows = next(block.rows for _, block in self._task.sparse_blocks() if block.name == name)
        return unpack_union(content, rows, f"S{config.carrier(self._client)}")

    async def _download(self, config: RoundConfig, name: str, *, union: bool) -> memoryview:
        """The content of a block, or its union, from the carrier."""
        message = Download(round_id=config.round_id(), block=name, union=union)
        return (await self._requests.ask(config.carrier(self._client), message, (), Block)).bulk

    def _not_announced(self, config: RoundConfig, what: str) -> PeerViolationError:
        return PeerViolationError(f"S{config.carrier(self._client)}", f"sent {what} that is not the announced one")
