"""This server's share of the sum, formed piece by piece, as many pieces at a time as the lane has threads.

Rule: a piece is stored with the noise that the task asks for, and never without; if the server is killed before the
share's list is stored, all pieces are formed anew, and are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from fsl_async.server.aggregation import Aggregate
from fsl_async.wire.public_part import Opened
from fsl_async.wire.share_pieces import Span, piece_digest
from parties.compute import ComputeLane
from parties.server.round.noising import Noised
from parties.server.round.shares import ShareRecords


class FormedPiece(NamedTuple):
    """A piece, and the digest that names it."""

    name: bytes
    content: bytes


@dataclass(frozen=True)
class Forming:
    """How the pieces of a share of a sum are formed, as they are stored and sent.

    Attributes:
        aggregate: the sum.
        spans: what each piece has of the share.
        opened: by sparse block, the rows that are in the share.
        noised: adds the noise that the task asks for to a piece.
    """

    aggregate: Aggregate
    spans: Sequence[Span]
    opened: Opened
    noised: Noised

    def folds(self, place: int, count: int) -> list[Callable[[], bytes]]:
        """What forms a piece, in at most so many parts."""
        return [partial(self.aggregate.piece, span, self.opened) for span in self.spans[place].cut(count)]

    def finished(self, place: int, parts: Sequence[bytes]) -> FormedPiece:
        """A piece of which all parts are formed."""
        content = self.noised(self.spans[place], parts[0] if len(parts) == 1 else b"".join(parts))
        return FormedPiece(piece_digest(content), content)

    def piece(self, place: int) -> FormedPiece:
        """A piece, by one thread."""
        return self.finished(place, [fold() for fold in self.folds(place, 1)])


async def keep_formed(forming: Forming, shares: ShareRecords, lane: ComputeLane) -> bytes:
    """Form and store a share, and return the digest that names it; of few pieces each is formed by several threads."""
    count = len(forming.spans)
    threads = lane.threads // count if count else 0
    names: dict[int, bytes] = {}
    places = iter(range(count))

    async def form(place: int) -> FormedPiece:
        if threads < 2:
            return await lane.run(partial(forming.piece, place))
        parts = await lane.run_each(forming.folds(place, threads))
        return await lane.run(partial(forming.finished, place, parts))

    async def work() -> None:
        for place in places:
            piece = await form(place)
            await shares.keep_piece(piece.name, piece.content)
            names[place] = piece.name

    async with trio.open_nursery() as nursery:
        for _ in range(min(lane.threads, count)):
            nursery.start_soon(work)
    return await shares.keep_list(tuple(names[place] for place in range(count)))
