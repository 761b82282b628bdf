"""What a server puts into a round's blobs for its workers alone: trees of sessions, unions, the model.

It lies below `round-<number>/compute`, and is erased with the round.
"""

from __future__ import annotations

import numpy as np

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer, Domain, digest
from fsl_async.union import pack_union
from fsl_async.wire.public_part import Part
from parties.cluster.orders import ModelBlock, ModelPiece, SessionTrees, session_layouts
from parties.outcome import Model
from parties.server.round.engine import RoundStart
from parties.server.round.records import RoundRecords
from parties.server.store_layout import client_key, round_prefix

PIECE_BYTES = 2**24


class LayingOut:
    """Puts what a round's workers read."""

    def __init__(self, config: RoundConfig, records: RoundRecords) -> None:
        self._config = config
        self._records = records

    async def session(self, client: str, trees: Part) -> SessionTrees:
        """The trees of a client's session."""
        kinds = session_layouts(self._config).items()
        kind = next(kind for kind, layout in kinds if layout == trees.layout)
        return SessionTrees(place=await self._put(f"session/{client_key(client)}", trees.data), kind=kind)

    async def unions(self, start: RoundStart) -> dict[str, str]:
        """The union of every sparse block that the round is aligned on, where its sum needs it."""
        config = self._config
        if not config.union or config.task.selection != "fixed":
            return {}
        return {
            block.name: await self._put(
                f"union/{client_key(block.name)}", pack_union(start.union[block.name], block.rows)
            )
            for _, block in config.task.sparse_blocks()
        }

    async def model(self, model: Model) -> tuple[ModelBlock, ...]:
        """The sparse blocks as the round retrieves them."""
        found: list[ModelBlock] = []
        for index, block in self._config.shape.sparse_blocks():
            rows = np.ascontiguousarray(model[block.name]).view(np.uint8).reshape(block.rows, -1)
            step = max(1, PIECE_BYTES // max(1, rows.shape[1]))
            pieces = [
                await self._piece(f"model/{index}-{start}", rows[start : start + step].reshape(-1).data)
                for start in range(0, block.rows, step)
            ]
            found.append(ModelBlock(name=block.name, rows=block.rows, row_bytes=rows.shape[1], pieces=tuple(pieces)))
        return tuple(found)

    async def _piece(self, name: str, content: memoryview) -> ModelPiece:
        return ModelPiece(place=await self._put(name, content), digest=digest(Domain.MODEL, content))

    async def _put(self, name: str, content: Buffer) -> str:
        place = f"{round_prefix(self._config.number)}/compute/{name}"
        await self._records.blobs.put(place, content, durable=False)
        return place
