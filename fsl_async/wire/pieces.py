"""How what is long is cut: a server's share of the sum into pieces, a block that is downloaded whole into parts.

Pieces are formed, stored, sent and added one at a time. A piece has whole rows of one block (weights of a dense one),
as many as `LONGEST_PIECE` holds: so no party ever needs a whole share in memory. Where the cuts are follows from the
task and the opened rows, which both servers know.

    piece digest    H(fsl.share-piece, piece)
    share digest    H(fsl.share, all piece digests in order)

Rule: the share's digest is what its server commits to; the list of piece digests opens the commitment, before any piece
is sent; each piece is compared with its place in the list. A part of a block is 64 MiB, a request and a message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from fsl_async.digests import DIGEST_BYTES, Buffer, Domain, digest
from fsl_async.task import Task
from fsl_async.wire.public_part import ALL_ROWS, OpenedRows, shape_of_share

LONGEST_PIECE = 2**24
"""Bytes of a piece at most: a row of the largest width and ring has as many. The laboratory alone sets it lower."""

WEIGHTS_PER_PART = 2**16
"""Fewer weights than this (about 3 ms of work) are not worth a thread of their own."""


class Span(NamedTuple):
    """What one piece has of a share.

    Attributes:
        block: which of the task's blocks, from 0.
        start: its first row among those that are in the share; of a dense block, its first weight.
        stop: the one after its last.
        weights: elements of one row.
    """

    block: int
    start: int
    stop: int
    weights: int

    def size(self, task: Task) -> int:
        """Bytes of the piece."""
        return (self.stop - self.start) * self.weights * task.ring.element_bytes

    def cut(self, count: int) -> list[Span]:
        """The same in at most so many parts, in order, none of which is too small for a thread of its own."""
        rows = self.stop - self.start
        parts = max(1, min(count, rows * self.weights // WEIGHTS_PER_PART, rows))
        ends = [self.start + rows * part // parts for part in range(parts + 1)]
        return [self._replace(start=start, stop=stop) for start, stop in pairwise(ends)]


def spans_of(task: Task, opened: OpenedRows = ALL_ROWS) -> Sequence[Span]:
    """What each piece of a share has, in order.

        spans_of(task)      # [Span(block=0, start=0, stop=2097152, weights=1), …]

    Args:
        task: the task as the round works on it.
        opened: by sparse block, the rows that are in the share; all where contributors are not counted.
    """
    return list(_spans(task, opened))


def piece_digest(piece: Buffer) -> bytes:
    """The digest of a piece."""
    return digest(Domain.SHARE_PIECE, piece)


def share_digest(pieces: Iterable[bytes]) -> bytes:
    """The digest of a share: of the list of its pieces' digests."""
    return digest(Domain.SHARE, packed_pieces(pieces))


def packed_pieces(pieces: Iterable[bytes]) -> bytes:
    """A list of piece digests as it is sent and stored: one after the other."""
    return b"".join(pieces)


def unpacked_pieces(data: Buffer) -> tuple[bytes, ...]:
    """The digests in such a list."""
    whole = bytes(data)
    return tuple(whole[start : start + DIGEST_BYTES] for start in range(0, len(whole), DIGEST_BYTES))


def list_bytes(task: Task) -> int:
    """Bytes of the list of the pieces of a share in which all rows are."""
    return DIGEST_BYTES * sum(-(-rows // _rows_at_once(task, weights)) for _, rows, weights in _blocks(task, ALL_ROWS))


def longest_piece(task: Task) -> int:
    """Bytes of the longest piece."""
    sizes = (min(rows, _rows_at_once(task, weights)) * weights for _, rows, weights in _blocks(task, ALL_ROWS))
    return max(sizes) * task.ring.element_bytes


def _spans(task: Task, opened: OpenedRows) -> Iterator[Span]:
    for number, rows, weights in _blocks(task, opened):
        step = _rows_at_once(task, weights)
        for start in range(0, rows, step):
            yield Span(number, start, min(start + step, rows), weights)


def _blocks(task: Task, opened: OpenedRows) -> Iterator[tuple[int, int, int]]:
    """Each block's number, its rows in a share, and the weights of a row."""
    for number, block in enumerate(task.blocks):
        rows, *row = shape_of_share(block, opened)
        yield number, rows, math.prod(row)


def _rows_at_once(task: Task, weights: int) -> int:
    return max(1, LONGEST_PIECE // (weights * task.ring.element_bytes))


LONGEST_PART = 2**26
"""Bytes of a part at most; the last one has what is left."""


def parts_of(size: int) -> list[slice]:
    """Where each part of a block of so many bytes lies; a block has at least one."""
    starts = range(0, max(size, 1), LONGEST_PART)
    return [slice(start, min(start + LONGEST_PART, size)) for start in starts]
