"""What a round begins with."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsl_async.config import RoundConfig
from parties.outcome import Model


@dataclass(frozen=True)
class RoundStart:
    """What a round begins with.

    Attributes:
        config: the round.
        server: 0 or 1.
        proof_key: the key under which both servers hash proofs.
        model: the model before the round, equal on both servers.
        state: what the optimizer or the own rule has kept, before the round.
        union: by sparse block, the rows that the round is aligned on.
        opened_at: when it opened, in seconds since 1970.
        closes_at: when it closes, in seconds since 1970; infinity if only enough clients close it.
        enough: how many clients close it at once.
        drawn: who may take part; None where everybody may.
    """

    config: RoundConfig
    server: int
    proof_key: bytes = field(repr=False)
    model: Model
    state: Model
    union: Model
    opened_at: float
    closes_at: float
    enough: int
    drawn: frozenset[str] | None = None

    def is_drawn(self, client: str) -> bool:
        """Whether this client may take part: everybody may, unless the task draws who does."""
        return self.drawn is None or client in self.drawn
