"""The noise of one server, and how it is added to a share.

Rules: each server adds the whole dose to every weight, so that the guarantee holds against the other server, which
knows its own noise and may have left it out; the noise is drawn from a key that is used for one share of one round and
for nothing else; what has been noised once is never noised again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fsl_async import kernels
from fsl_async.digests import Buffer, Domain, derive_key, digest
from fsl_async.ring import Elements, Ring

FRESH_BYTES: Final = 16
"""Fresh random bytes for the noise of a round."""


def noise_key(fresh: bytes, round_id: bytes, share: Buffer, place: int = 0) -> bytes:
    """The key of the noise of one share, or of one piece of it.

    The round and the share go into it, so that a random generator that repeats itself, as that of a virtual machine
    does which was put back, gives no two shares the same noise: their difference would be free of it. Of a share that
    is formed piece by piece, a piece's own content does: every piece of a share is masked by all of its clients' trees,
    so two shares of other clients differ in all of them.

    Args:
        fresh: 16 fresh random bytes.
        round_id: the round.
        share: the share or the piece, before any noise.
        place: which piece it is, so that two pieces with the same content have not the same noise.
    """
    return derive_key(Domain.NOISE, fresh, round_id, digest(Domain.SHARE, share), place.to_bytes(8, "little"))


def noised(ring: Ring, share: Buffer, sigma: int, key: bytes) -> bytes:
    """A share with fresh noise on every element.

        noised(task.ring, share, task.doses.values, noise_key(os.urandom(16), round_id, share))

    Args:
        ring: of its elements.
        share: little-endian elements.
        sigma: the standard deviation of the noise, from 1 to 2^120.
        key: 16 bytes, for this share alone.

    Raises:
        MisuseError: sigma is out of its range.
    """
    count = len(share) // ring.element_bytes
    elements = ring.from_bytes(share, count)
    out = bytearray(len(share))
    step = kernels.NOISE_CHUNK * ring.element_bytes
    for chunk, first in enumerate(range(0, count, kernels.NOISE_CHUNK)):
        part = elements[first : first + kernels.NOISE_CHUNK]
        drawn = _elements(ring, kernels.discrete_gaussian(key, chunk, sigma, len(part)))
        out[chunk * step : (chunk + 1) * step] = np.ascontiguousarray(ring.add(part, drawn)).tobytes()
    return bytes(out)


def _elements(ring: Ring, samples: kernels.Blocks) -> Elements:
    """Samples as elements: two's complement of 128 bits, cut to the ring's."""
    if ring.bits == 128:
        return samples
    low = samples[:, 0]
    return low.astype(np.uint32) if ring.bits == 32 else low
