"""The noise that this server adds to what it reveals of a round, before it commits to it.

Rules: noise is added once, to what is about to be stored and committed to; a restart sends what is stored and adds
none again. If the server is killed before it has committed, it draws anew, and the earlier share was seen by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.privacy.noise import FRESH_BYTES, noise_key, noised
from fsl_async.randomness import Randomness
from fsl_async.ring import Ring
from parties.compute import ComputeLane

COUNT_RING = Ring(32)
"""In which rows' contributors are counted."""

Noised: TypeAlias = Callable[[int, Buffer], bytes]
"""Adds noise to what stands at a place, of which there is one for each piece."""


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

    def of_share(self) -> Noised:
        """What adds the noise that the task asks for to a piece of one share of the sum; none where it asks for none.

        It is a pure function of a piece's place and content, for a thread.
        """
        return self._drawn(self._config.shape.ring, self._config.task.doses.values)

    async def on_counts(self, counts: Buffer) -> bytes:
        """Shares of rows' contributors, words of 32 bits, with the noise that the task asks for."""
        return await self._lane.run(partial(self._drawn(COUNT_RING, self._config.task.doses.counts), 0, counts))

    def _drawn(self, ring: Ring, sigma: int) -> Noised:
        if not sigma:
            return lambda _, content: bytes(content)
        fresh, round_id = self._randomness(FRESH_BYTES), self._config.round_id()

        def noised_at(place: int, content: Buffer) -> bytes:
            return noised(ring, content, sigma, noise_key(fresh, round_id, content, place))

        return noised_at
