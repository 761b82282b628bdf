"""The noise of one server: how much of it, and how it is added to a share.

Rules: each server adds the whole dose to every weight, so that the guarantee holds against the other server, which
knows its own noise and may have left it out; the noise is drawn from a key that is used for one share of one round and
for nothing else; what has been noised once is never noised again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from fsl_async import kernels
from fsl_async.digests import Buffer, Domain, derive_key, digest
from fsl_async.ring import Elements, Ring

FRESH_BYTES: Final = 16
"""Fresh random bytes for the noise of a round."""

COUNTS_SHARE: Final = 10
"""Where contributors are counted, their counts take one part in so many of a round's Rényi divergence."""


@dataclass(frozen=True)
class Doses:
    """The standard deviations of one server's noise, in ring integers.

    Attributes:
        values: of the noise on every weight.
        counts: of the noise on every row's count of contributors; 0 where they are not counted.
    """

    values: int
    counts: int = 0


def doses(noise: float, bound: int, counted_rows: int = 0) -> Doses:
    """The doses that keep a round within a Rényi divergence of α/(2z²).

        doses(12.7, 2**17)                      # Doses(values=1664615, counts=0)
        doses(12.7, 2**17, counted_rows=50)     # the counts take a tenth, the values nine tenths

    Args:
        noise: z.
        bound: b, the L2 norm that no client's update exceeds, as a ring integer.
        counted_rows: how many rows a client can be counted in, if contributors are counted: its counts have a norm of
            at most the square root of it.
    """
    exact = _ratio(noise)
    if not counted_rows:
        return Doses(_ceiling_of_root((exact[0] * bound) ** 2, exact[1] ** 2))
    values = _ceiling_of_root(COUNTS_SHARE * (exact[0] * bound) ** 2, (COUNTS_SHARE - 1) * exact[1] ** 2)
    return Doses(values, _ceiling_of_root(COUNTS_SHARE * exact[0] ** 2 * counted_rows, exact[1] ** 2))


def _ratio(number: float) -> tuple[int, int]:
    return float(number).as_integer_ratio()


def _ceiling_of_root(numerator: int, denominator: int) -> int:
    """The smallest whole number from 1 on whose square is at least numerator/denominator: the same everywhere."""
    return max(1, 1 + math.isqrt(-(-numerator // denominator) - 1)) if numerator else 1


def noise_key(fresh: bytes, round_id: bytes, share: Buffer) -> bytes:
    """The key of one share's noise.

    The round and the share go into it, so that a random generator that repeats itself, as that of a virtual machine
    does which was put back, gives no two shares the same noise: their difference would be free of it.

    Args:
        fresh: 16 fresh random bytes.
        round_id: the round.
        share: the share, before any noise.
    """
    return derive_key(Domain.NOISE, fresh, round_id, digest(Domain.SHARE, share))


def noised(ring: Ring, share: Buffer, sigma: int, key: bytes) -> bytes:
    """A share with fresh noise on every element.

        noised(task.ring, share, doses(12.7, bound).values, noise_key(os.urandom(16), round_id, share))

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
