"""What a client downloads openly: blocks that its caller wants whole, and the rows of unions that move plainly.

Rules: all that is downloaded is compared with the digest that both servers announced. Everything that a round moves
plainly is downloaded, whichever blocks the client will use (see `unions` for the unions). That a client wants a block
whole is no secret; which of its rows it uses then never leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel, RoundConfig
from fsl_async.digests import Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.task import Sparse
from fsl_async.wire.block_parts import parts_of
from fsl_async.wire.messages import Block, Download
from parties.client.requests import Requests
from parties.client.setup import ClientSetup
from parties.client.unions import Unions

__all__ = ["Downloads"]


class Downloads:
    """One client's downloads."""

    def __init__(self, setup: ClientSetup, requests: Requests, unions: Unions) -> None:
        self._client = setup.identity.name
        self._lane = setup.lane
        self._requests = requests
        self._unions = unions

    async def whole(self, config: RoundConfig, name: str) -> npt.NDArray[Any]:
        """A dense block, or all rows of a sparse one.

        Raises:
            PeerViolationError: it is not the one announced.
        """
        model, block = config.block_model(name), config.task.block(name)
        content = await self._model(config, model, block.weights, whole=isinstance(block, Sparse))
        return content.view(model.dtype).reshape(block.shape)

    async def plain(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> dict[int, npt.NDArray[Any]]:
        """The wanted rows, all in the union, of the blocks that the round moves plainly; each is downloaded whole.

        Raises:
            PeerViolationError: a block is not the one announced.
        """
        found: dict[int, npt.NDArray[Any]] = {}
        for (index, block), model in zip(config.shape.plain_blocks(), config.plain, strict=True):
            content = await self._model(config, model, block.weights)
            if index in wanted:
                ranks = np.searchsorted(self._unions.known(config)[block.name], wanted[index])
                found[index] = content.view(model.dtype).reshape(block.shape)[ranks]
        return found

    async def _model(
        self, config: RoundConfig, model: BlockModel, weights: int, *, whole: bool = False
    ) -> npt.NDArray[np.uint8]:
        """The content of a block, from the carrier, part by part."""
        carrier = config.carrier(self._client)
        content = np.empty(weights * model.weight_bytes, dtype=np.uint8)
        for number, place in enumerate(parts_of(len(content))):
            message = Download(round_id=config.round_id(), block=model.name, whole=whole, part=number)
            part = (await self._requests.ask(carrier, message, (), Block)).bulk
            if len(part) != place.stop - place.start:
                raise self._another(carrier, model)
            content[place] = np.frombuffer(part, dtype=np.uint8)
        described = partial(digest, Domain.MODEL, model.name.encode(), model.dtype.encode(), content.data)
        if not same(await self._lane.run(described) if whole else described(), model.digest):
            raise self._another(carrier, model)
        return content

    def _another(self, carrier: int, model: BlockModel) -> PeerViolationError:
        return PeerViolationError(f"S{carrier}", f"sent a block {model.name!r} that is not the announced one")
