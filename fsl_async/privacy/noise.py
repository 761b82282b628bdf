"""The noise of one server, and how it is added to a share.

Rules: each server adds the whole dose to every weight, so that the guarantee holds against the other server, which
knows its own noise and may have left it out. A server's noise is a pseudo-random function of what determines its share
and of nothing else: the round, and the submissions that are counted. So a share that is formed again, even from a store
that was put back, has the same noise, and shares of other submissions have independent noise. The noise of a weight
does not depend on which rows are opened beside it, because the other server has a say in that (docs/security.md, §14).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.digests import KEY_BYTES, Buffer, Domain, digest
from fsl_async.geometry import RowNumbers
from fsl_async.ring import Elements, Ring

SECRET_BYTES: Final = 32
"""Of the secret from which a server's noise is derived."""

AT_ONCE: Final = 2**18
"""Weights whose noise is drawn at a time: many chunks, because one that two draws share is sampled twice."""


def noise_key(secret: bytes, round_id: bytes, counted: bytes, use: str) -> bytes:
    """The key of a server's noise in one use for one list of submissions: 16 bytes.

    Args:
        secret: the server's, 32 bytes that it uses for nothing else, and that are in no store.
        round_id: the round.
        counted: the digest of the clients that count, and of their submissions.
        use: what it is noise on: the weights of one block, or the counts of contributors.
    """
    return digest(Domain.NOISE, round_id, counted, use.encode(), key=secret)[:KEY_BYTES]


def noised(
    ring: Ring, share: Buffer, sigma: int, key: bytes, rows: range | RowNumbers | None = None, width: int = 1
) -> bytes:
    """A share with noise on every element, each of which has its own sample of the key's, by its place in the block.

        noised(task.ring, share, task.doses.values, noise_key(secret, round_id, counted, "values 0"))

    Args:
        ring: of its elements.
        share: little-endian elements.
        sigma: the standard deviation of the noise, from 1 to 2^120.
        key: 16 bytes, for this block of this share alone.
        rows: which rows of the block the share has, ascending; by default all, from the first.
        width: elements of one row.

    Raises:
        MisuseError: sigma is out of its range.
    """
    count = len(share) // ring.element_bytes
    elements, out = ring.from_bytes(share, count), bytearray(len(share))
    rows = range(count // width) if rows is None else rows
    step = max(1, AT_ONCE // width)
    for first in range(0, len(rows), step):
        drawn = _elements(ring, _samples(key, sigma, _places(rows[first : first + step], width)))
        part = slice(first * width, first * width + len(drawn))
        data = np.ascontiguousarray(ring.add(elements[part], drawn)).tobytes()
        out[part.start * ring.element_bytes : part.stop * ring.element_bytes] = data
    return bytes(out)


def _places(rows: range | RowNumbers, width: int) -> npt.NDArray[np.int64]:
    """The places in their block of all elements of some rows."""
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows.astype(np.int64)
    return (numbers[:, None] * width + np.arange(width)).reshape(-1)


def _samples(key: bytes, sigma: int, places: npt.NDArray[np.int64]) -> kernels.Blocks:
    """The samples at some places of a key's noise, ascending."""
    samples = np.empty((len(places), 2), dtype=np.uint64)
    chunks, within = np.divmod(places, kernels.NOISE_CHUNK)
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(places)], strict=True):
        drawn = kernels.discrete_gaussian(key, int(chunks[start]), sigma, int(within[stop - 1]) + 1)
        samples[start:stop] = drawn[within[start:stop]]
    return samples


def _elements(ring: Ring, samples: kernels.Blocks) -> Elements:
    """Samples as elements: two's complement of 128 bits, cut to the ring's."""
    if ring.bits == 128:
        return samples
    low = samples[:, 0]
    return low.astype(np.uint32) if ring.bits == 32 else low
