"""Both servers' shares of a round's sum: pieces in blobs, and lists of pieces in the store, each under its digest.

    round-00000012/share/<digest of a piece>         in blobs: a piece
    round-00000012/share/<digest of a share>         in the store: the list of its pieces' digests

Rules: a list is stored after all its pieces, so a share that is stored is whole; a piece that is stored is not asked
for again after a restart. What is read back is compared with its digest, before it is added or sent.

The other server's share comes piece by piece:

    the other server                      this one
    Share(nonce), list of digests    ->   does the list open its commitment? which pieces are stored?
                                     <-   AskPieces(first)
    SharePiece(first), piece         ->   of that size? with the digest in the list? stored
    SharePiece(first + 1), piece     ->   …

Rules: nothing is stored that does not open the commitment; pieces come in order, each once; the machine hears of the
share when it is whole. What a lost connection or a restart leaves out is asked for when the servers have met again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fsl_async.digests import DIGEST_BYTES, Buffer, same
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import ssa
from fsl_async.task import Task
from fsl_async.wire.pieces import Span, packed_pieces, piece_digest, share_digest, unpacked_pieces
from parties.compute import ComputeLane
from parties.server.round.reading import altered
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


@dataclass(frozen=True)
class Listed:
    """A share whose list has come.

    Attributes:
        said: what the machine hears once it is whole.
        pieces: its pieces' digests.
        spans: what each piece has of it.
    """

    said: ssa.PeerShare
    pieces: tuple[bytes, ...]
    spans: Sequence[Span]


class ArrivingShare:
    """The peer's share in one round.

    Args:
        peer: the other server's name.
        task: as the round works on it.
        shares: where pieces are stored.
        lane: where they are hashed.
        ask: asks the peer for all pieces from one on.
    """

    def __init__(
        self, peer: str, task: Task, shares: ShareRecords, lane: ComputeLane, ask: Callable[[int], None]
    ) -> None:
        self._peer = peer
        self._task = task
        self._shares = shares
        self._lane = lane
        self._ask = ask
        self._coming: tuple[Listed, int] | None = None  # and the place of its next piece

    def listed(self, nonce: bytes, data: Buffer, spans: Sequence[Span]) -> Listed:
        """Read a list; whether it opens the commitment is for the machine to judge.

        Raises:
            PeerViolationError: it has another size than the task and the counts imply.
        """
        if len(data) != DIGEST_BYTES * len(spans):
            raise PeerViolationError(
                self._peer,
                f"sent a list of {len(data)} bytes for its share, the task implies {len(spans)} pieces and "
                f"{DIGEST_BYTES * len(spans)} bytes",
            )
        pieces = unpacked_pieces(data)
        return Listed(ssa.PeerShare(share_digest(pieces), nonce), pieces, spans)

    async def begin(self, listed: Listed) -> ssa.PeerShare | None:
        """Ask for what is missing of a share that opens the commitment; it is told if nothing is."""
        held = await self._shares.held(listed.pieces)
        self._coming = listed, held
        if held < len(listed.pieces):
            self._ask(held)
            return None
        return await self._whole(listed)

    async def take(self, place: int, piece: memoryview) -> ssa.PeerShare | None:
        """Store the next piece; the share is told when it is the last.

        Raises:
            PeerViolationError: it is another one, or was not asked for, or is not as it must be.
        """
        if self._coming is None:
            raise PeerViolationError(self._peer, f"sent piece {place} of its share, which was not asked for")
        listed, due = self._coming
        if place != due:
            raise PeerViolationError(
                self._peer, f"sent piece {place} of its share, and piece {due} of {len(listed.pieces)} is due"
            )
        expected = listed.spans[place].size(self._task)
        if len(piece) != expected:
            raise PeerViolationError(
                self._peer, f"sent {len(piece)} bytes as piece {place} of its share, the task implies {expected}"
            )
        name = await self._lane.run(partial(piece_digest, piece))
        if name != listed.pieces[place]:
            raise PeerViolationError(self._peer, f"sent another piece {place} of its share than it has committed to")
        await self._shares.keep_piece(name, piece)
        self._coming = listed, place + 1
        return await self._whole(listed) if place + 1 == len(listed.pieces) else None

    async def _whole(self, listed: Listed) -> ssa.PeerShare:
        self._coming = None
        await self._shares.keep_list(listed.pieces)
        return listed.said
