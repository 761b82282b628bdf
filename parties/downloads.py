"""What a client fetches openly: dense blocks, and the unions that a round is aligned on.

Rules: all of a round's unions are fetched, whichever blocks the client is going to use; whatever comes is compared with
the digest that both servers announced. A union is fetched once, and kept for as long as rounds announce it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.alignment import unpack_union
from fsl_async.config import RoundConfig
from fsl_async.digests import Domain, digest, same
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.messages import Block, Download
from fsl_async.task import Task
from parties.requests import Requests

__all__ = ["Downloads"]


class Downloads:
    """What one client has fetched, and how it fetches more."""

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
        content = await self._download(config, name)
        model = config.block_model(name)
        if not same(digest(Domain.MODEL, name.encode(), model.dtype.encode(), content), model.digest):
            raise self._not_announced(config, f"a block {name!r}")
        return np.frombuffer(content, dtype=model.dtype).copy()

    async def unions(self, config: RoundConfig) -> None:
        """Have all unions of a round; those of other rounds are let go."""
        unions = {entry.digest: await self._union(config, entry.name, entry.digest) for entry in config.union}
        self._unions = unions or self._unions

    def named(self, config: RoundConfig, index: int, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The names of rows in this round: their ranks in its union, where it renames.

        Raises:
            MisuseError: a row is not in the union.
        """
        if not config.union:
            return rows
        name = self._task.sparse(index).name
        union = next(self._unions[entry.digest] for entry in config.union if entry.name == name)
        outside = rows[~np.isin(rows, union)]
        if len(outside):
            raise MisuseError(f"block {name!r}: row {outside[0]} is not in this round's union of {len(union)} rows")
        return np.searchsorted(union, rows).astype(np.uint32) if config.renamed else rows

    async def _union(self, config: RoundConfig, name: str, announced: bytes) -> npt.NDArray[np.uint32]:
        if announced in self._unions:
            return self._unions[announced]
        content = await self._download(config, name)
        if not same(digest(Domain.UNION, name.encode(), content), announced):
            raise self._not_announced(config, f"a union of {name!r}")
        rows = next(block.rows for _, block in self._task.sparse_blocks() if block.name == name)
        return unpack_union(content, rows, f"S{config.carrier(self._client)}")

    async def _download(self, config: RoundConfig, name: str) -> memoryview:
        """The content of a block, from the carrier."""
        message = Download(round_id=config.round_id(), block=name)
        return (await self._requests.ask(config.carrier(self._client), message, (), Block)).bulk

    def _not_announced(self, config: RoundConfig, what: str) -> PeerViolationError:
        return PeerViolationError(f"S{config.carrier(self._client)}", f"sent {what} that is not the announced one")
