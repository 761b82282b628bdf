"""What a client adds to a submission where its task has a bound: the proof that the whole update is within it.

Rule: it is made once for one update. A submission that is made again, for whatever reason, has another salt, so no mask
hides two values; and nothing is made of an update that is beyond the bound.

Source: docs/bounds-proofs.md; what a server does with it is in `fsl_async.bounds.server`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fsl_async.bounds import BoundTerms, private_digest, private_part, terms_of
from fsl_async.bounds.field import signed
from fsl_async.config import RoundConfig
from fsl_async.errors import BoundExceededError
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements


def bound_part(
    config: RoundConfig,
    update: Mapping[str, Elements],
    msk: tuple[bytes, bytes],
    carrier: int,
    bind: bytes,
    randomness: Randomness,
) -> tuple[bytes, bytes]:
    """Prove that an update is within the task's bound.

    Args:
        config: the round.
        update: by block, in the order of the wire, all its elements (`upload.update_elements`).
        msk: both servers' master seeds.
        carrier: the server that gets the private part.
        bind: the submission's binding, of a fresh salt.
        randomness: the source of the proof's seeds.

    Returns:
        The private part, and its digest; both are empty where the task has no bound.

    Raises:
        BoundExceededError: the update is beyond the bound; the error names the block that weighs most.
        ProjectionError: once in 2^40 times: another salt is another projection.
    """
    terms = terms_of(config.shape)
    if terms is None:
        return b"", b""
    elements = np.concatenate([config.shape.ring.zeros(0), *update.values()])
    try:
        private = private_part(terms, elements, msk[1 - carrier], bind, randomness)
    except BoundExceededError as error:
        raise BoundExceededError(error.norm, error.bound, *_heaviest(terms, update)) from None
    return private, private_digest(private, msk[carrier])


def _heaviest(terms: BoundTerms, update: Mapping[str, Elements]) -> tuple[str, float]:
    """The block of the largest norm, and that norm in the values' units."""
    squares = {name: sum(weight * weight for weight in signed(part, terms.ring_bits)) for name, part in update.items()}
    name = max(squares, key=lambda block: squares[block])
    return name, terms.in_units(squares[name])
