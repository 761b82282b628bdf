"""Tags of retrieved rows in GF(2^64), modulo x^64 + x^4 + x^3 + x + 1.

A row is a vector of words: its bytes, little-endian, filled up with zeros. A leaf's *key* is the high word of its
block. A server's tag is, word by word, the sum over all leaves of key times row. The blocks of a leaf are the same on
both servers but at the client's own leaf, where their keys differ by a Δ that no server knows; so the two servers' tags
differ by the sum over all trees of Δ times the row that their answers make, and a server that changed anything would
have to guess a Δ.

Products are summed before they are reduced, as pairs of words (low, high): reduction is linear, and once is enough.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import read_only
from fsl_async.kernels.lane import passes

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

WORD_BYTES = 8


def tag_words(row_bytes: int) -> int:
    """The words of a row, and of its block's tag."""
    return -(-row_bytes // WORD_BYTES)


def finish_tags(sums: Words) -> Words:
    """The tags from what the jobs of a retrieval summed.

    Args:
        sums: unreduced products, low word first; uint64 (jobs, queries, words, 2).

    Returns:
        uint64 (queries, words).

    Raises:
        MisuseError: for a wrong type or shape.
    """
    sums = read_only("sums", sums, np.uint64, (-1, -1, -1, 2))
    total = np.bitwise_xor.reduce(sums, axis=0)
    return reduced(total[..., 0], total[..., 1])


def answers_match(keys: Words, answers: tuple[Bytes, Bytes], tags: tuple[Words, Words]) -> bool:
    """Whether two servers' answers for one block fit their tags; the time it takes depends on shapes alone.

    Args:
        keys: Δ of every tree, high word of the difference of both servers' blocks at its leaf; uint64 (trees,).
        answers: each server's answer; uint8 (trees, row_bytes).
        tags: each server's tag; uint64 (words,).

    Returns:
        True where every word fits. False means that one of the servers answered wrongly, and not which.

    Raises:
        MisuseError: for wrong types or shapes.
    """
    keys = read_only("keys", keys, np.uint64, (-1,))
    row_bytes = answers[0].shape[1]
    first, second = (read_only("answers", answer, np.uint8, (len(keys), row_bytes)) for answer in answers)
    ours, theirs = (read_only("tags", tag, np.uint64, (tag_words(row_bytes),)) for tag in tags)
    wanted = _tag_of(keys, first ^ second)
    return not int(np.bitwise_or.reduce(wanted ^ ours ^ theirs))


def _tag_of(keys: Words, rows: Bytes) -> Words:
    """The sum of keys times rows, (n,) and (n, row_bytes), reduced."""
    sums = passes().sum_products(keys, rows)
    return reduced(sums[:, 0], sums[:, 1])


def reduced(low: Words, high: Words) -> Words:
    """Polynomials of degree 127 at most, low and high words, modulo x^64 + x^4 + x^3 + x + 1."""
    over = high ^ high >> np.uint64(60) ^ high >> np.uint64(61) ^ high >> np.uint64(63)
    folded: Words = low ^ over ^ over << np.uint64(1) ^ over << np.uint64(3) ^ over << np.uint64(4)
    return folded
