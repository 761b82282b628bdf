"""What a client downloads openly: dense blocks, and the rows of unions that move plainly; see `unions` for those.

Rules: everything that a round moves plainly is downloaded, whichever blocks the client will use, and compared with the
digest that both servers announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel, RoundConfig
from fsl_async.digests import Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.wire.messages import Block, Download
from parties.client.requests import Requests
from parties.client.unions import Unions

__all__ = ["Downloads"]


class Downloads:
    """One client's downloads."""

    def __init__(self, client: str, requests: Requests, unions: Unions) -> None:
        self._client = client
        self._requests = requests
        self._unions = unions

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
                ranks = np.searchsorted(self._unions.known(config)[block.name], wanted[index])
                found[index] = np.frombuffer(content, dtype=model.dtype).reshape(block.shape)[ranks]
        return found

    async def _model(self, config: RoundConfig, model: BlockModel) -> memoryview:
        """The content of a block, from the carrier."""
        carrier = config.carrier(self._client)
        message = Download(round_id=config.round_id(), block=model.name)
        content = (await self._requests.ask(carrier, message, (), Block)).bulk
        if not same(digest(Domain.MODEL, model.name.encode(), model.dtype.encode(), content), model.digest):
            raise PeerViolationError(f"S{carrier}", f"sent a block {model.name!r} that is not the announced one")
        return content
