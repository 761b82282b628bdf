"""The noise that this server adds to what it reveals of a round, before it commits to it.

Rules: noise is added once, to what is about to be stored and committed to; a restart sends what is stored and adds
none again. If the server is killed before it has committed, it draws anew, and the earlier share was seen by nobody.
"""

from __future__ import annotations

from functools import partial

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.privacy.noise import FRESH_BYTES, noise_key, noised
from fsl_async.randomness import Randomness
from fsl_async.ring import Ring
from parties.compute import ComputeLane

COUNT_RING = Ring(32)
"""In which rows' contributors are counted."""


class Noise:
    """One server's noise in one round.

    Args:
        config: the round.
        lane: where it is computed.
        randomness: the operating system's; in a simulation, a seed's.
    """

    def __init__(self, config: RoundConfig, lane: ComputeLane, randomness: Randomness) -> None:
        self._config = config
        self._lane = lane
        self._randomness = randomness

    async def on_share(self, share: Buffer) -> bytes:
        """A share of the sum with the noise that the task asks for; the same share where it asks for none."""
        return await self._on(share, self._config.shape.ring, self._config.task.doses.values)

    async def on_counts(self, counts: Buffer) -> bytes:
        """Shares of rows' contributors, words of 32 bits, with the noise that the task asks for."""
        return await self._on(counts, COUNT_RING, self._config.task.doses.counts)

    async def _on(self, share: Buffer, ring: Ring, sigma: int) -> bytes:
        if not sigma:
            return bytes(share)
        key = noise_key(self._randomness(FRESH_BYTES), self._config.round_id(), share)
        return await self._lane.run(partial(noised, ring, share, sigma, key))
