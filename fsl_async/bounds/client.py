"""A client's side: the private part, which proves to both servers that its update is within the bound.

The carrier gets the four squares of what is missing (and, if the method is projected, the projections) as integers
under masks that the other server expands from its master seed, and its share of the proof.

Rule: one binding, one private part. The salt of the binding is drawn for each call, and what was made is sent again as
the same bytes: a mask that hid two values would show their difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsl_async.bounds.four_squares import four_squares
from fsl_async.bounds.masking import fresh_seeds, integer_masks, proof_mask
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import prove
from fsl_async.bounds.terms import SQUARES, BoundTerms
from fsl_async.bounds.words import content, signed
from fsl_async.errors import BoundExceededError, FslError, MisuseError
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements

SEED_BYTES = 32
"""Randomness from which the wires' seeds are drawn."""


class ProjectionError(FslError):
    """An update within the bound whose projections are too long by chance, once in 2^40 times: take another salt."""


def private_part(terms: BoundTerms, elements: Elements, msk_other: bytes, bind: bytes, randomness: Randomness) -> bytes:
    """The bytes that the carrier gets beside the public part, `terms.private_bytes` of them.

    Args:
        terms: of the proof.
        elements: the whole update: all trees' payloads in the order of the wire, then all dense blocks; (n,) as `Ring`
            has them.
        msk_other: the master seed of the server that is not the carrier.
        bind: `binding`, with a fresh salt.
        randomness: the source of the wires' seeds and of the four squares.

    Raises:
        BoundExceededError: the update's norm is above the bound; the error names both.
        ProjectionError: it is not, but its projections are; never where the method is exact.
        MisuseError: the client's weight is below 0 or above the largest.
    """
    weights = signed(elements, terms.ring_bits)
    squares = sum(weight * weight for weight in weights)
    if squares > terms.norm**2:
        raise BoundExceededError(terms.in_units(squares), terms.in_units(terms.norm**2))
    shown = [] if terms.exact else _projections(terms, elements, bind)
    missing = terms.limit - (squares if terms.exact else sum(value * value for value in shown))
    if missing < 0:
        raise ProjectionError("the update's projections are too long, which happens once in 2^40 times; try again")
    weight = [weights[terms.weight_place]] if terms.largest_weight else []
    linked = [] if terms.exact else [*shown, *weight]
    ranged = [square for each in weight for square in _ranged(terms, each, randomness)]
    masked = [*linked, *four_squares(missing, randomness), *ranged]
    seeds = fresh_seeds(terms, content(elements), msk_other, bind, randomness(SEED_BYTES))
    return packed(terms, masked, prove(terms.wires, proved(terms, weights, masked), seeds), msk_other, bind)


def proved(terms: BoundTerms, words: list[int], masked: list[int]) -> list[int]:
    """The values of the proof at their numbers, from the words' differences and the masked integers."""
    of_update, squares = words if terms.exact else masked[: terms.projections], masked[terms.linked :]
    if not terms.largest_weight:
        return [*of_update, *squares]
    weight = words[terms.weight_place] if terms.exact else masked[terms.projections]
    apart = [2 * weight - terms.largest_weight, *squares[SQUARES:]]
    return terms.wires.laid_out([*of_update, *squares[:SQUARES]], apart)


def _ranged(terms: BoundTerms, weight: int, randomness: Randomness) -> Sequence[int]:
    """Four squares that complete (2v - L)² to L²: there are some exactly if v is from 0 to L."""
    most = terms.largest_weight
    if not 0 <= weight <= most:
        raise MisuseError(f"a weight from 0 to {most} units of the ring expected, got {weight}")
    return four_squares(most**2 - (2 * weight - most) ** 2, randomness)


def packed(terms: BoundTerms, masked: list[int], proof: list[int], msk_other: bytes, bind: bytes) -> bytes:
    """The private part of these values and this proof."""
    masks = integer_masks(terms, msk_other, bind)
    integers = [value + terms.offset + mask for value, mask in zip(masked, masks, strict=True)]
    field = terms.field
    shares = [
        (element - mask) % field.prime for element, mask in zip(proof, proof_mask(terms, msk_other, bind), strict=True)
    ]
    return b"".join(integer.to_bytes(terms.mask_bytes, "little") for integer in integers) + field.pack(shares)


def _projections(terms: BoundTerms, elements: Elements, bind: bytes) -> list[int]:
    """R·w as signed numbers: within the bound they are too short to wrap."""
    half = 1 << (terms.ring_bits - 1)
    projected = project(bind, terms.projections, elements, terms.ring_bits)
    return [number - 2 * half if number >= half else number for number in projected]
