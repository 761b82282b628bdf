"""Two servers test that every bin that they share is one-hot, in two messages each, and learn nothing else.

A bin is a vector v of field elements, shared additively. Against clients, one equation in random points r suffices:

    BIT   v has at most one entry, and it is 1:        <r, v>² = <r², v>
    ANY   v has at most one entry, whatever it is:     <r, v>² = <1, v>·<r², v>

As polynomials in r, the left sides less the right sides have the coefficients 2·v_x·v_y at r_x·r_y, and BIT v_x² - v_x
at r_x²: not all 0 unless v is as claimed, so a false claim passes with probability at most 2/p. Whatever else the
client sends does not touch these coefficients: it adds to linear terms and the constant, and with ANY to squares.

Against a server, that is not enough: one that adds e_y - e_x to its share of an honest client's v sees the test pass if
v stood at x. So the client shares keys κ too, and with v the planes κ·v. The servers test

    BIT   z₁² - z₂ + κ·z₁ - y = 0                        z₁ = <r, v>, z₂ = <r², v>, y = <r, κ·v>
    ANY   z₁² - z₀·z₂ + Σ_i κ_i·z_i - y = 0              z_i = <r^i, v>, y = Σ_i <r^i, κ_i·v>, i = 0, 1, 2

An error δ in a product's factor adds κ·δ, uniform and unknown to who made it; so the opened value is uniform whatever v
is, and the honest zero shows nothing. z₂ of BIT, and y, enter alone, without a factor: an error in them moves the value
by what its maker knows.

The products need the client's help. With masks a it sends shares of corrections, and servers open z + a:

    BIT   A = κ - 2a,  B = a² + b - κ·a + c              Z₁² - Z₂ - Y + A·Z₁ + B
    ANY   C₀ = κ₀ + a₂,  C₁ = κ₁ - 2a₁,  C₂ = κ₂ + a₀,  D = a₁² - a₀·a₂ - Σ_i κ_i·a_i + w
                                                         Z₁² - Z₀·Z₂ - Y + Σ_i C_i·Z_i + D

Rules: the points are tossed after the client's message is fixed, and clients never learn them; masks serve one sketch;
a server that answers one sketch under two tosses gives two equations in one mask. The values of all bins are added
under tossed coefficients, so that one element is opened, and no bin stands out.

Source: Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, "Lightweight techniques for private heavy hitters" (2021), for BIT;
Boyle, Gilboa, Ishai, "Function secret sharing: improvements and extensions" (2016) for the equation of ANY. Its keys,
three where one does not cover both factors, are this module's own.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from examples.sketching.field import PrimeField, Residues
from examples.sketching.inner_products import sketch_sums
from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import require


class Claim(Enum):
    """What is claimed of a bin.

    Attributes:
        keys: how many keys a bin has; its planes are one more.
        masks: how many elements a server opens of a bin, each under a mask.
        corrections: how many elements the client sends of a bin, beside what seeds expand to.
    """

    BIT = (1, 3, 2)
    ANY = (3, 4, 4)

    def __init__(self, keys: int, masks: int, corrections: int) -> None:
        self.keys, self.masks, self.corrections = keys, masks, corrections

    @property
    def planes(self) -> int:
        """Elements of a leaf: the payload and its product with each key."""
        return 1 + self.keys

    @property
    def correlated(self) -> int:
        """Elements of a bin's correlated randomness: masks, then corrections."""
        return self.masks + self.corrections


def payload_planes(field: PrimeField, claim: Claim, payloads: Residues, keys: Residues) -> Residues:
    """What a client shares at each bin's position: the payload, and its product with each key.

    Args:
        field: of all elements.
        claim: what is claimed.
        payloads: uint64 (bins,); for `BIT` 0 or 1.
        keys: uint64 (bins, claim.keys), uniform and fresh.

    Returns:
        uint64 (bins, claim.planes).

    Raises:
        MisuseError: a type or a shape is wrong, or a payload of `BIT` is not 0 or 1.
    """
    bins = len(payloads)
    require("payloads", payloads, np.uint64, (bins,))
    require("keys", keys, np.uint64, (bins, claim.keys))
    if claim is Claim.BIT and np.any(payloads > 1):
        raise MisuseError("payloads: a bit is 0 or 1; for other payloads claim ANY")
    return np.column_stack([payloads, field.multiply(payloads[:, np.newaxis], keys)])


def correlate(field: PrimeField, claim: Claim, keys: Residues, first: Residues, masks: Residues) -> Residues:
    """The corrections that a client sends to one server; all else of its correlated randomness comes from seeds.

    Args:
        field: of all elements.
        claim: what is claimed.
        keys: uint64 (bins, claim.keys).
        first: uint64 (bins, claim.correlated): the other server's whole share, expanded from its seed.
        masks: uint64 (bins, claim.masks): this server's masks, expanded from its seed.

    Returns:
        uint64 (bins, claim.corrections): this server's share of the corrections.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    bins = len(keys)
    require("keys", keys, np.uint64, (bins, claim.keys))
    require("first share", first, np.uint64, (bins, claim.correlated))
    require("masks", masks, np.uint64, (bins, claim.masks))
    total = field.add(first[:, : claim.masks], masks)
    whole = _bit_corrections(field, keys, total) if claim is Claim.BIT else _any_corrections(field, keys, total)
    return field.subtract(whole, first[:, claim.masks :])


def _bit_corrections(field: PrimeField, keys: Residues, masks: Residues) -> Residues:
    key = keys[:, 0]
    a, b, c = masks.T
    slope = field.subtract(key, field.add(a, a))
    constant = field.subtract(field.add(field.multiply(a, a), field.add(b, c)), field.multiply(key, a))
    return np.column_stack([slope, constant])


def _any_corrections(field: PrimeField, keys: Residues, masks: Residues) -> Residues:
    a0, a1, a2, w = masks.T
    slopes = (
        field.add(keys[:, 0], a2),
        field.subtract(keys[:, 1], field.add(a1, a1)),
        field.add(keys[:, 2], a0),
    )
    products = field.total(field.multiply(keys, masks[:, :3]).T)
    squares = field.subtract(field.multiply(a1, a1), field.multiply(a0, a2))
    return np.column_stack([*slopes, field.subtract(field.add(squares, w), products)])


def first_message(
    field: PrimeField, claim: Claim, shares: Residues, points: Residues, correlated: Residues
) -> Residues:
    """A server's first message: every bin's inner products under its masks, (bins, claim.masks).

    Args:
        field: of all elements.
        claim: what is claimed.
        shares: uint64 (positions, bins, claim.planes), this server's.
        points: uint64 (positions, bins), tossed.
        correlated: uint64 (bins, claim.correlated), this server's.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    positions, bins = points.shape
    require("shares", shares, np.uint64, (positions, bins, claim.planes))
    require("points", points, np.uint64, (positions, bins))
    require("correlated randomness", correlated, np.uint64, (bins, claim.correlated))
    sums = sketch_sums(shares, points) if field.compiled else _slow_sums(field, claim, shares, points)
    return field.add(sums, correlated[:, : claim.masks])


def _slow_sums(field: PrimeField, claim: Claim, shares: Residues, points: Residues) -> Residues:
    """What `sketch_sums` computes, in any field."""
    v = shares[:, :, 0]
    powers = np.ones_like(points), points, field.multiply(points, points)
    sums = [field.total(field.multiply(power, v)) for power in powers]
    if claim is Claim.BIT:
        return np.column_stack([*sums[1:], field.total(field.multiply(points, shares[:, :, 1]))])
    keyed = [field.total(field.multiply(power, shares[:, :, 1 + i])) for i, power in enumerate(powers)]
    return np.column_stack([*sums, field.total(np.stack(keyed))])


def second_message(
    field: PrimeField,
    claim: Claim,
    server: int,
    messages: tuple[Residues, Residues],
    correlated: Residues,
    coefficients: Residues,
) -> int:
    """A server's second message: its share of all bins' values, added under tossed coefficients, one element.

    Args:
        field: of all elements.
        claim: what is claimed.
        server: 0 or 1; server 0 adds what both know.
        messages: both servers' first messages, uint64 (bins, claim.masks), in any order.
        correlated: uint64 (bins, claim.correlated), this server's.
        coefficients: uint64 (bins,), tossed after the first messages are fixed.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    require("coefficients", coefficients, np.uint64, (len(correlated),))
    return int(field.total(field.multiply(coefficients, value_shares(field, claim, server, messages, correlated))))


def value_shares(
    field: PrimeField, claim: Claim, server: int, messages: tuple[Residues, Residues], correlated: Residues
) -> Residues:
    """A server's share of every bin's value, uint64 (bins,), which is 0 if the bin is as claimed.

    Raises:
        MisuseError: a type or a shape is wrong.
    """
    bins = len(correlated)
    for message in messages:
        require("first message", message, np.uint64, (bins, claim.masks))
    require("correlated randomness", correlated, np.uint64, (bins, claim.correlated))
    opened = field.add(*(field.of(message) for message in messages))
    *slopes, constant = correlated[:, claim.masks :].T
    factors = opened[:, : len(slopes)].T
    share = field.add(field.total(field.multiply(np.stack(slopes), factors)), constant)
    return field.add(share, _known(field, claim, opened)) if server == 0 else share


def _known(field: PrimeField, claim: Claim, opened: Residues) -> Residues:
    """The part of every bin's value that both servers know."""
    if claim is Claim.BIT:
        z1, z2, y = opened.T
        return field.subtract(field.multiply(z1, z1), field.add(z2, y))
    z0, z1, z2, y = opened.T
    return field.subtract(field.multiply(z1, z1), field.add(field.multiply(z0, z2), y))


def accepts(field: PrimeField, ours: int, theirs: int) -> bool:
    """Whether the bins are as claimed, from both servers' second messages."""
    return 0 <= theirs < field.modulus and (ours + theirs) % field.modulus == 0
