"""The server's side of an authenticated retrieval: answers and their tags, from trees and a segment of the model.

Source: paper §"Basic Protocols" (PSR) for the answers; `rows.tagging` for the tags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import read_only, require
from fsl_async.kernels.rows.tagging import as_words, products, tag_words
from fsl_async.kernels.trees.evaluation import Selection, evaluate_leaves

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


def answer_tagged(
    queries: Sequence[Selection], table: Bytes, answers: Bytes, sums: Words, segment: int, start: int, stop: int
) -> None:
    """Answer queries for some bins of one segment, and add their leaves' products to the queries' tags.

    Calls for ranges of bins that do not overlap may run in threads side by side if each has sums of its own.

    Args:
        queries: the trees of each query, of one shape; a leaf covers one position.
        table: one segment of the model, uint8 (leaves · bins, row_bytes): `permuted_model`, or the rows themselves
            where there is one bin. Leaves beyond it cover no row.
        answers: the XOR of the selected rows of every bin; uint8 (queries, bins, row_bytes), rows contiguous; written
            for the bins of the range.
        sums: unreduced products, low word first; uint64 (queries, words, 2), contiguous; XORed in place.
            See `finish_tags`.
        segment: the segment of the bins.
        start: first bin.
        stop: one past the last bin.

    Raises:
        MisuseError: for wrong types or shapes, bins outside the segment, or leaves that cover several positions.
    """
    _, bins, row_bytes = answers.shape
    table = read_only("table", table, np.uint8, (-1, row_bytes))
    require("answers", answers, np.uint8, (len(queries), bins, row_bytes))
    require("sums", sums, np.uint64, (len(queries), tag_words(row_bytes), 2))
    leaves = -(-len(table) // bins)
    rows = table.reshape(leaves, bins, row_bytes)[:, start:stop]
    for query, answer, total in zip(queries, answers, sums, strict=True):
        if query.positions != 1:
            raise MisuseError(f"a leaf of a tagged retrieval covers one position, not {query.positions}")
        blocks = np.zeros((query.tree.count // bins, leaves, bins, 2), dtype=np.uint64)
        evaluate_leaves(query, np.arange(leaves, dtype=np.uint32), blocks, segment, start, stop)
        blocks = blocks[segment, :, start:stop]
        chosen = (blocks[..., :1] & np.uint64(1)).astype(np.uint8) * np.uint8(255)
        answer[start:stop] = np.bitwise_xor.reduce(rows & chosen, axis=0)
        parts = products(blocks[..., 1].reshape(-1), as_words(rows.reshape(-1, row_bytes)))
        total ^= np.stack([np.bitwise_xor.reduce(part, axis=0) for part in parts], axis=1)
