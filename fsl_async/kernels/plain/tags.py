"""Answers of authenticated retrieval, and carry-less sums of products.

A product with a key is the sum of the word's shifts by the places of the key's bits. So words are summed for each of
the 64 places first, masked by that bit of their keys, and every sum is shifted once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.plain.aes import ONE, control_mask
from fsl_async.kernels.plain.evaluation import tiles, walk
from fsl_async.kernels.trees.arguments import Span, Trees

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

WORD_BYTES, WORD_BITS = 8, 64
TILE = 2**14


def sum_products(keys: Words, rows: Bytes) -> Words:
    """The sum of keys times rows, (n,) and (n, row_bytes), word by word and not reduced: (words, 2)."""
    words = _words(rows)
    sums = np.zeros((words.shape[1], 2), dtype=np.uint64)
    step = max(1, TILE // max(1, words.shape[1]))
    for start in range(0, len(keys), step):
        sums ^= _products(keys[start : start + step], words[start : start + step])
    return sums


def answer_queries(queries: Sequence[Trees], table: Bytes, answers: Bytes, sums: Words, span: Span) -> None:
    """Answers uint8 (queries, bins, row_bytes) from rows (leaves·bins, row_bytes), and sums (queries, words, 2)."""
    bins, row_bytes = answers.shape[1:]
    rows = table.reshape(-1, bins, row_bytes)
    for trees, answer, products in zip(queries, answers, sums, strict=True):
        for start, stop in tiles(span.start, span.stop, span.leaves):
            total = np.zeros((stop - start, sums.shape[1]), dtype=np.uint64)
            for first, leaves in walk(trees, span.offset, start, stop, span.leaves):
                words = _words(rows[first : first + len(leaves), start:stop])
                total ^= np.bitwise_xor.reduce(words & control_mask(leaves), axis=0)
                products ^= sum_products(
                    leaves[..., 1].reshape(-1), words.view(np.uint8).reshape(leaves[..., 0].size, -1)
                )
            answer[start:stop] = total.view(np.uint8)[:, :row_bytes]


def _words(rows: Bytes) -> Words:
    """Rows of shape (…, row_bytes) as words, filled up with zeros."""
    row_bytes = rows.shape[-1]
    padded = np.zeros((*rows.shape[:-1], -(-row_bytes // WORD_BYTES) * WORD_BYTES), dtype=np.uint8)
    padded[..., :row_bytes] = rows
    return padded.view(np.uint64)


def _products(keys: Words, words: Words) -> Words:
    columns = np.ascontiguousarray(words.T)
    sums = np.zeros((len(columns), 2), dtype=np.uint64)
    for bit in range(WORD_BITS):
        chosen = np.negative(keys >> np.uint64(bit) & ONE)
        total = np.bitwise_xor.reduce(columns & chosen, axis=1)
        sums[:, 0] ^= total << np.uint64(bit)
        if bit:
            sums[:, 1] ^= total >> np.uint64(WORD_BITS - bit)
    return sums
