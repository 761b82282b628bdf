"""What a client downloads openly: unions, blocks that its caller wants whole, and the rows of unions that move plainly.

Rules: all that is downloaded is compared with the digest that both servers announced. Everything that a round moves
plainly is downloaded, whichever blocks the client will use, and so are all unions on which a round is aligned. That a
client wants a block whole is no secret; which of its rows it uses then never leaves it.

What a client knows of unions is the machine `fsl_async.protocols.psu.client`. Where a task's rounds only find unions,
the last one is read by whoever asks for it. The rows that are here are kept as long as the servers describe the same
union.
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
from fsl_async.protocols.psu import client as psu
from fsl_async.task import Sparse
from fsl_async.union import UnionBlock, unpack_union
from fsl_async.wire.messages import Block, Download
from fsl_async.wire.pieces import parts_of
from parties.client.outcomes import signed_statement
from parties.client.requests import Requests
from parties.client.setup import ClientSetup

RowsByName = dict[str, npt.NDArray[np.uint32]]


class Unions:
    """What one client knows of unions.

    Attributes:
        state: of the machine.
    """

    def __init__(self, setup: ClientSetup, requests: Requests) -> None:
        self.state: psu.Learning = psu.Unknown()
        self._setup = setup
        self._task = setup.task
        self._requests = requests
        self._rows: dict[bytes, npt.NDArray[np.uint32]] = {}

    # ---- learning

    async def of_round(self, config: RoundConfig) -> None:
        """Have all unions on which a round is aligned; both servers have announced its configuration.

        Raises:
            PeerViolationError: a union is not the announced one.
        """
        if config.union:
            self._step(psu.Described((config.union, config.union)))
            await self._fetch(config.round_id(), self._carrier(config))

    async def published(self, config: RoundConfig) -> None:
        """Have the union that the servers have found last, where a round's configuration names the round that found it.

        Raises:
            PeerViolationError: the servers have signed different unions, or none, or sent another than they signed.
            RoundClosedError: they have found another one since.
        """
        first, second = await self._requests.both(partial(self._signed, config.found))
        self._step(psu.Described((first, second)))
        await self._fetch(config.found, self._carrier(config))

    async def _signed(self, round_id: bytes, server: int) -> psu.Union:
        union = (await signed_statement(self._setup, self._requests, round_id, server)).union
        if [block.name for block in union] != [block.name for _, block in self._task.sparse_blocks()]:
            raise PeerViolationError(f"S{server}", "has signed no union for a round that has found one")
        return union

    async def _fetch(self, round_id: bytes, server: int) -> None:
        """Download what is not here."""
        for effect in psu.effects(self.state):
            match effect:
                case psu.Fetch(block=block) if block.digest in self._rows:
                    self._step(psu.Downloaded(server, block.name, block.digest))
                case psu.Fetch(block=block):
                    await self._download(round_id, server, block)
        if isinstance(self.state, psu.Known):
            self._rows = {block.digest: self._rows[block.digest] for block in self.state.union}

    async def _download(self, round_id: bytes, server: int, block: UnionBlock) -> None:
        """Take a block's rows, as they were described."""
        message = Download(round_id=round_id, block=block.name, union=True)
        content = (await self._requests.ask(server, message, (), Block)).bulk
        sent = psu.Downloaded(server, block.name, digest(Domain.UNION, block.name.encode(), content))
        after = psu.step(self.state, sent)
        rows = next(sparse.rows for _, sparse in self._task.sparse_blocks() if sparse.name == block.name)
        self._rows[block.digest], self.state = unpack_union(content, rows, f"S{server}"), after

    def _step(self, event: psu.LearningEvent) -> None:
        self.state = psu.step(self.state, event)

    def _carrier(self, config: RoundConfig) -> int:
        return config.carrier(self._setup.identity.name)

    def forget(self) -> None:
        """Know of no union: the servers have begun anew."""
        self.state = psu.Unknown()
        self._rows.clear()

    # ---- what is known

    def found(self) -> RowsByName:
        """The union that is known, by sparse block; empty where none is."""
        if not isinstance(self.state, psu.Known):
            return {}
        return {block.name: self._rows[block.digest].copy() for block in self.state.union}

    def known(self, config: RoundConfig) -> RowsByName:
        """The unions of a round, by sparse block."""
        return {entry.name: self._rows[entry.digest] for entry in config.union}

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
