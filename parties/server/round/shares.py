"""Both servers' shares of a round's sum: pieces in blobs, and lists of pieces in the store, each under its digest.

    round-00000012/share/<digest of a piece>         in blobs: a piece
    round-00000012/share/<digest of a share>         in the store: the list of its pieces' digests

Rules: a list is stored after all its pieces, so a share that is stored is whole; a piece that is stored is not asked
for again after a restart. What is read back is compared with its digest, before it is added or sent.
"""

from __future__ import annotations

from functools import partial

from fsl_async.digests import Buffer, same
from fsl_async.errors import StorageError
from fsl_async.wire.share_pieces import packed_pieces, piece_digest, share_digest, unpacked_pieces
from parties.compute import ComputeLane
from parties.server.round.reading_back import altered
from parties.storage.blobs.blobs import Blobs
from parties.storage.store import DAMAGED, Keep, Store


class ShareRecords:
    """The shares of one round.

    Args:
        store: where lists lie, as the server uses it itself: if the disk is full, it waits.
        blobs: likewise, where pieces lie.
        lane: where pieces are compared with their digests.
        prefix: what the names of all records of the round begin with.
    """

    def __init__(self, store: Store, blobs: Blobs, lane: ComputeLane, prefix: str) -> None:
        self._store = store
        self._blobs = blobs
        self._lane = lane
        self._prefix = f"{prefix}/share"

    async def keep_piece(self, name: bytes, piece: Buffer) -> None:
        """Put a piece under its digest."""
        await self._blobs.put(self._key(name), piece)

    async def keep_list(self, pieces: tuple[bytes, ...]) -> bytes:
        """Store the list of a share whose pieces are all stored, and return the digest that names it."""
        name = share_digest(pieces)
        await self._store.commit(Keep(self._key(name), packed_pieces(pieces)))
        return name

    async def pieces(self, share: bytes) -> tuple[bytes, ...]:
        """The digests of a share's pieces.

        Raises:
            StorageError: the share is not stored, or its list is not as it was stored.
        """
        pieces = unpacked_pieces(await self._store.blob(self._key(share)))
        if not same(share_digest(pieces), share):
            raise StorageError(f"{self._key(share)} in the store has other content than was stored; {DAMAGED}")
        return pieces

    async def piece(self, name: bytes) -> memoryview:
        """A piece, by its digest.

        Raises:
            StorageError: it is missing, or is not the one that was put.
        """
        piece = await self._blobs.read(self._key(name))
        if not same(await self._lane.run(partial(piece_digest, piece)), name):
            raise altered(self._key(name))
        return piece

    async def held(self, pieces: tuple[bytes, ...]) -> int:
        """How many of a share's pieces are stored, without a gap from the first one on."""
        stored = set(await self._blobs.names(f"{self._prefix}/"))
        missing = (place for place, name in enumerate(pieces) if self._key(name) not in stored)
        return next(missing, len(pieces))

    def _key(self, name: bytes) -> str:
        return f"{self._prefix}/{name.hex()}"
