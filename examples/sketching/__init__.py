"""The sketch of Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai over a prime field: are shared bins one-hot?

The source paper names it against malicious clients; here verified trees replace it: docs/bounds-proofs.md has both.
No protocol of this package uses it: it is here so that the two can be measured side by side.
"""

from examples.sketching.field import MERSENNE_61, PrimeField
from examples.sketching.sketch import (
    Claim,
    accepts,
    correlate,
    first_message,
    payload_planes,
    second_message,
)

__all__ = [
    "MERSENNE_61",
    "Claim",
    "PrimeField",
    "accepts",
    "correlate",
    "first_message",
    "payload_planes",
    "second_message",
]
