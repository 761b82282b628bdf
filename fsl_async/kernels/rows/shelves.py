"""A segment's rows as they are multiplied: how a row is cut into pieces, and where each word's product is found."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks, read_only
from fsl_async.kernels.rows.tag_lanes import PIECES, WORD_BYTES, Rows, absorb, words_of
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.lowering import compiled

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

RUN = 512


class Shelf(NamedTuple):
    """A segment's rows, and how they are cut.

    Attributes:
        table: the rows' bytes, leaf after leaf, flat.
        bins: rows of a leaf.
        row_bytes: bytes of a row.
        pieces: first byte and size of every piece of a row; int64 (pieces, 2).
        words: the words of all pieces.
    """

    table: Bytes
    bins: int
    row_bytes: int
    pieces: npt.NDArray[np.int64]
    words: int


def shelf_of(table: Bytes, bins: int) -> Shelf:
    """Rows of shape (n, row_bytes), `bins` of them to a leaf."""
    row_bytes = table.shape[1]
    pieces = pieces_of(row_bytes)
    flat = read_only("table", table, np.uint8, (-1, row_bytes)).reshape(-1)
    return Shelf(flat, bins, row_bytes, pieces, sum(words_of(int(size)) for size in pieces[:, 1]))


@cache
def pieces_of(row_bytes: int) -> npt.NDArray[np.int64]:
    """How a row is cut: first byte and size of every piece, int64 (pieces, 2).

    Whole words make pieces of eight; what is left of them makes one more piece, which reaches back over words that have
    been covered already where its size is none of the sizes that there are.
    """
    words, rest = divmod(row_bytes, WORD_BYTES)
    whole, left = divmod(words * WORD_BYTES, PIECES[0])
    pieces = [(PIECES[0] * place, PIECES[0]) for place in range(whole)]
    while left:
        fitting = [size for size in reversed(PIECES) if left <= size <= words * WORD_BYTES]
        size = fitting[0] if fitting else max(size for size in PIECES if size <= left)
        end = words * WORD_BYTES if fitting else words * WORD_BYTES - left + size
        pieces.append((end - size, size))
        left -= min(left, size)
    if rest:
        pieces.append((words * WORD_BYTES, rest))
    array = np.array(pieces, dtype=np.int64).reshape(-1, 2)
    array.flags.writeable = False
    return array


@cache
def products_of_words(row_bytes: int) -> npt.NDArray[np.intp]:
    """Where the product of each word of a row stands among the products of its pieces, counted in pairs of words."""
    places = np.zeros(words_of(row_bytes), dtype=np.intp)
    done = 0
    for offset, size in pieces_of(row_bytes):
        words = words_of(int(size))
        for word in range(words):
            places[offset // WORD_BYTES + word] = done + word // 2 + (word % 2) * -(-words // 2)
        done += words
    places.flags.writeable = False
    return places


@compiled
def multiply_rows(multiplier: Multiplier, shelf: Shelf, leaves: Blocks, sums: Words) -> None:
    """Add the products of every row with its leaf's key to sums: the client's side, where no answer is made.

    Args:
        multiplier: how to multiply.
        shelf: the rows.
        leaves: blocks with the keys as their high words and zeros as their low ones; shape (rows + RUN, 2), the last
            RUN of them zeros.
        sums: flat; for every piece its products, as `absorb` orders them, XORed in place.
    """
    nothing = np.zeros(RUN * (PIECES[0] // WORD_BYTES), dtype=np.uint64)
    total = len(leaves) - RUN
    for start in range(0, total, RUN):
        count, done = min(RUN, total - start), 0
        for piece in range(len(shelf.pieces)):
            offset, size = shelf.pieces[piece]
            first = start * shelf.row_bytes + offset
            rows = Rows(shelf.table, first, first, shelf.row_bytes, first, first, 0)
            absorb(multiplier, size, leaves, (start, total), count, rows, nothing, sums[2 * done :])
            done += (size + 7) >> 3
