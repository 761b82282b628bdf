"""The noise that this server adds to what it reveals of a round, before it commits to it.

Rules: the noise is derived from a secret that is not in the store, from the round and from the submissions that are
counted; so a share that is formed again, after a kill or from a store that was put back, is the same share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.privacy.noise import noise_key, noised
from fsl_async.protocols.entries import roster_digest
from fsl_async.ring import Ring
from fsl_async.wire.public_part import Opened
from fsl_async.wire.share_pieces import Span
from parties.compute import ComputeLane
from parties.identity.keys import Identity

COUNT_RING = Ring(32)
"""In which rows' contributors are counted."""

Noised: TypeAlias = Callable[[Span, Buffer], bytes]
"""Adds noise to what a share has of a span."""


class Noise:
    """One server's noise in one round.

    Args:
        config: the round.
        identity: this server's keys, of which the noise has one.
        lane: where it is computed.
    """

    def __init__(self, config: RoundConfig, identity: Identity, lane: ComputeLane) -> None:
        self._config = config
        self._identity = identity
        self._lane = lane

    def of_share(self, counted: Mapping[str, bytes], opened: Opened) -> Noised:
        """What adds the noise that the task asks for to a piece of the share; nothing where it asks for none.

        It is a pure function of a piece's span and content, for a thread.

        Args:
            counted: the clients that count, and their submissions' digests.
            opened: by sparse block, the rows that are in the share.
        """
        ring, sigma, blocks = self._config.shape.ring, self._config.task.doses.values, self._config.shape.blocks
        if not sigma:
            return lambda _, content: bytes(content)
        keys = [self._key(counted, f"values {block}") for block in range(len(blocks))]

        def noised_at(span: Span, content: Buffer) -> bytes:
            rows = opened.get(blocks[span.block].name)
            there = range(span.start, span.stop) if rows is None else rows[span.start : span.stop]
            return noised(ring, content, sigma, keys[span.block], there, span.weights)

        return noised_at

    async def on_counts(self, counted: Mapping[str, bytes], counts: Buffer) -> bytes:
        """Shares of rows' contributors, words of 32 bits, with the noise that the task asks for."""
        sigma = self._config.task.doses.counts
        if sigma:
            return await self._lane.run(partial(noised, COUNT_RING, counts, sigma, self._key(counted, "counts")))
        return bytes(counts)

    def _key(self, counted: Mapping[str, bytes], use: str) -> bytes:
        return noise_key(self._identity.noise_secret, self._config.round_id(), roster_digest(counted), use)
