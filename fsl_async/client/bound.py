"""What a client adds to a submission where its task has a bound: the proof that the whole update is within it.

Rule: it is made once for one update. A submission that is made again, for whatever reason, draws another salt, so no
mask hides two values; and nothing is made of an update that is beyond the bound.

Source: docs/bounds-proofs.md; what a server does with it is in `fsl_async.bounds.server`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fsl_async.bounds import SALT_BYTES, BoundTerms, ProjectionError, private_digest, private_part, terms_of
from fsl_async.bounds.field import signed
from fsl_async.config import RoundConfig
from fsl_async.errors import BoundExceededError
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements

BoundTo: TypeAlias = Callable[[bytes], bytes]
"""From a salt to the binding of one submission (`fsl_async.bounds.binding`)."""


@dataclass(frozen=True)
class BoundPart:
    """The proof of one submission's bound; everything is empty where the task has none.

    Attributes:
        private: the private part, for the carrier.
        salt: what its masks depend on.
        digest: a commitment to it.
    """

    private: bytes = field(default=b"", repr=False)
    salt: bytes = b""
    digest: bytes = b""


def bound_part(
    config: RoundConfig,
    update: Mapping[str, Elements],
    msk: tuple[bytes, bytes],
    carrier: int,
    bound_to: BoundTo,
    randomness: Randomness,
) -> BoundPart:
    """Prove that an update is within the task's bound.

    Args:
        config: the round.
        update: by block, in the order of the wire, all its elements (`upload.update_elements`).
        msk: both servers' master seeds.
        carrier: the server that gets the private part.
        bound_to: gives the submission's binding.
        randomness: the source of the salt and of the proof's seeds.

    Raises:
        BoundExceededError: the update is beyond the bound; the error names the block that weighs most.
    """
    terms = terms_of(config.shape)
    if terms is None:
        return BoundPart()
    elements = np.concatenate([config.shape.ring.zeros(0), *update.values()])
    while True:
        salt = randomness(SALT_BYTES)
        try:
            private = private_part(terms, elements, msk[1 - carrier], bound_to(salt), randomness)
        except ProjectionError:
            continue  # once in 2^40 times: another salt is another projection
        except BoundExceededError as error:
            raise BoundExceededError(error.norm, error.bound, *_heaviest(terms, update)) from None
        return BoundPart(private, salt, private_digest(private, msk[carrier]))


def _heaviest(terms: BoundTerms, update: Mapping[str, Elements]) -> tuple[str, float]:
    """The block of the largest norm, and that norm in the values' units."""
    squares = {name: sum(weight * weight for weight in signed(part, terms.ring_bits)) for name, part in update.items()}
    name = max(squares, key=lambda block: squares[block])
    return name, terms.in_units(squares[name])
