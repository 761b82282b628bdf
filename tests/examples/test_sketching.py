"""The sketch over a prime field: tiny fields whole, honest and cheating clients, servers that shift a share."""

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from examples.sketching import (
    MERSENNE_61,
    Claim,
    PrimeField,
    accepts,
    correlate,
    first_message,
    payload_planes,
    second_message,
)
from examples.sketching.inner_products import PRIME, multiply_residues, sketch_sums
from examples.sketching.sketch import value_shares
from fsl_async.errors import MisuseError
from fsl_async.randomness import SeededSource
from tests.support.cases import often

Residues = npt.NDArray[np.uint64]

CLAIMS = pytest.mark.parametrize("claim", Claim)


@dataclass
class Round:
    """Both servers' shares of some bins, and what is tossed for them."""

    field: PrimeField
    claim: Claim
    shares: list[Residues]
    correlated: list[Residues]
    points: Residues
    coefficients: Residues

    def verdict(self) -> bool:
        """Both servers' messages, and what comes of them."""
        first, second = (
            first_message(self.field, self.claim, share, self.points, own)
            for share, own in zip(self.shares, self.correlated, strict=True)
        )
        ours, theirs = (
            second_message(self.field, self.claim, server, (first, second), own, self.coefficients)
            for server, own in enumerate(self.correlated)
        )
        return accepts(self.field, ours, theirs)


def honest(field: PrimeField, claim: Claim, at: list[int], payloads: list[int], seed: int, positions: int = 6) -> Round:
    source = SeededSource(seed, "sketch")
    bins = len(at)
    keys = field.uniform(source, bins, claim.keys)
    whole = np.zeros((positions, bins, claim.planes), dtype=np.uint64)
    whole[at, range(bins)] = payload_planes(field, claim, np.array(payloads, dtype=np.uint64), keys)
    mask = field.uniform(source, *whole.shape)
    first = field.uniform(source, bins, claim.correlated)
    masks = field.uniform(source, bins, claim.masks)
    second = np.column_stack([masks, correlate(field, claim, keys, first, masks)])
    points, coefficients = field.uniform(source, positions, bins), field.uniform(source, bins)
    return Round(field, claim, [field.subtract(whole, mask), mask], [first, second], points, coefficients)


def payloads_of(claim: Claim) -> list[int]:
    return [1, 0, 1] if claim is Claim.BIT else [PRIME - 5, 0, 3]


@CLAIMS
@pytest.mark.parametrize("seed", often(5, range(20)))
def test_honest_bins_are_accepted(claim: Claim, seed: int) -> None:
    assert honest(MERSENNE_61, claim, [5, 0, 2], payloads_of(claim), seed).verdict()


@CLAIMS
@pytest.mark.parametrize("seed", range(20))
def test_a_second_entry_in_one_bin_is_refused(claim: Claim, seed: int) -> None:
    cheat = honest(MERSENNE_61, claim, [5, 0, 2], payloads_of(claim), seed)
    cheat.shares[0][1, 2, 0] = (int(cheat.shares[0][1, 2, 0]) + 1) % PRIME
    assert not cheat.verdict()


def test_a_bit_of_two_is_refused_by_servers_and_by_name_before() -> None:
    cheat = honest(MERSENNE_61, Claim.BIT, [5], [1], seed=1)
    cheat.shares[1][5, 0, 0] = (int(cheat.shares[1][5, 0, 0]) + 1) % PRIME
    assert not cheat.verdict()
    with pytest.raises(MisuseError, match="a bit is 0 or 1"):
        honest(MERSENNE_61, Claim.BIT, [5], [2], seed=1)


@CLAIMS
def test_any_altered_element_of_a_share_is_refused(claim: Claim) -> None:
    for plane in range(claim.planes):
        cheat = honest(MERSENNE_61, claim, [5, 0, 2], payloads_of(claim), seed=7)
        cheat.shares[0][3, 1, plane] = (int(cheat.shares[0][3, 1, plane]) + 1) % PRIME
        assert not cheat.verdict(), plane
    for index in range(claim.correlated):
        cheat = honest(MERSENNE_61, claim, [5, 0, 2], payloads_of(claim), seed=7)
        cheat.correlated[1][0, index] = (int(cheat.correlated[1][0, index]) + 1) % PRIME
        assert not cheat.verdict(), index


def test_a_message_that_is_no_element_is_refused() -> None:
    assert accepts(MERSENNE_61, 5, PRIME - 5)
    assert not accepts(MERSENNE_61, 5, 2 * PRIME - 5)
    assert not accepts(MERSENNE_61, 5, -5)


# ---- whole tables of tiny fields


def bits_of(p: int, claim: Claim, v: tuple[int, ...]) -> bool:
    """Whether a vector is as claimed."""
    entries = [value for value in v if value]
    return len(entries) <= 1 and (claim is Claim.ANY or entries in ([], [1]))


def passes(field: PrimeField, claim: Claim, planes: Residues, correlated: Residues) -> npt.NDArray[np.intp]:
    """Of each bin, for how many of all points it passes; bins are shared as (all, nothing)."""
    found = np.zeros(len(correlated), dtype=np.intp)
    for point in itertools.product(range(field.modulus), repeat=len(planes)):
        points = np.repeat(np.array(point, dtype=np.uint64)[:, np.newaxis], len(correlated), axis=1)
        opened = first_message(field, claim, planes, points, correlated)
        found += value_shares(field, claim, 0, (opened, np.zeros_like(opened)), correlated) == 0
    return found


@CLAIMS
@pytest.mark.parametrize("p", often(2, [3, 7, 5]))
def test_a_false_claim_passes_at_no_more_than_two_points_in_p_whatever_else_is_sent(claim: Claim, p: int) -> None:
    field = PrimeField(p)
    draw = np.random.default_rng(p)
    others = 400  # key planes and corrections of a cheating client, drawn; p = 3 below has all of them for BIT
    for v in itertools.product(range(p), repeat=2):
        planes = draw.integers(0, p, (2, others, claim.planes), dtype=np.uint64)
        planes[:, :, 0] = np.array(v, dtype=np.uint64)[:, np.newaxis]
        correlated = draw.integers(0, p, (others, claim.correlated), dtype=np.uint64)
        if not bits_of(p, claim, v):
            assert passes(field, claim, planes, correlated).max() <= 2 * p


def test_the_best_cheating_bit_of_a_whole_tiny_field_passes_at_two_points_in_p() -> None:
    field, p = PrimeField(3), 3
    rest = np.array(list(itertools.product(range(p), repeat=4)), dtype=np.uint64)  # key plane, slope, constant
    best = 0
    for v in itertools.product(range(p), repeat=2):
        planes = np.zeros((2, len(rest), 2), dtype=np.uint64)
        planes[:, :, 0] = np.array(v, dtype=np.uint64)[:, np.newaxis]
        planes[:, :, 1] = rest[:, :2].T
        correlated = np.column_stack([np.zeros((len(rest), 3), dtype=np.uint64), rest[:, 2:]])
        counts = passes(field, Claim.BIT, planes, correlated)
        if bits_of(p, Claim.BIT, v):
            assert counts.max() == p**2
        else:
            best = max(best, counts.max())
    assert best == 2 * p


def views(
    field: PrimeField,
    claim: Claim,
    at: int,
    shift: Residues,
    points: Residues,
    keyed: bool,
    added: tuple[int, ...] = (),
) -> Counter[bytes]:
    """What a server sees of a bin with 1 at a position, over all keys and masks.

    It adds a shift to its share, and to its first message what it likes.
    """
    p = field.modulus
    free = np.array(list(itertools.product(range(p), repeat=claim.keys + claim.masks)), dtype=np.uint64)
    keys, masks = free[:, : claim.keys], free[:, claim.keys :]
    if not keyed:
        keys = np.zeros_like(keys)
    bins = len(free)
    whole = np.zeros((2, bins, claim.planes), dtype=np.uint64)
    whole[at] = payload_planes(field, claim, np.ones(bins, dtype=np.uint64), keys)
    nothing = np.zeros((bins, claim.correlated), dtype=np.uint64)
    correlated = np.column_stack([masks, correlate(field, claim, keys, nothing, masks)])
    spread = np.repeat(points[:, np.newaxis], bins, axis=1)
    its = np.repeat(shift[:, np.newaxis, :], bins, axis=1)
    ours = first_message(field, claim, whole, spread, correlated)
    theirs = first_message(field, claim, its, spread, nothing)
    if added:
        theirs = field.add(theirs, np.repeat(np.array([added], dtype=np.uint64), bins, axis=0))
    value = value_shares(field, claim, 0, (ours, theirs), correlated)
    return Counter(line.tobytes() for line in np.column_stack([ours, value]))


def test_a_server_that_shifts_an_unkeyed_share_learns_where_the_bit_is() -> None:
    field = PrimeField(5)
    shift = np.array([[4, 0], [1, 0]], dtype=np.uint64)  # the bit goes from position 0 to 1, if it stands at 0
    points = np.array([2, 4], dtype=np.uint64)
    at_0, at_1 = (views(field, Claim.BIT, at, shift, points, keyed=False) for at in (0, 1))
    assert {line[-8:] for line in at_0} == {bytes(8)}
    assert bytes(8) not in {line[-8:] for line in at_1}


@pytest.mark.parametrize(("claim", "p"), [(Claim.BIT, 5), (Claim.ANY, 3)])
def test_with_keys_its_view_is_the_same_wherever_the_bit_is(claim: Claim, p: int) -> None:
    field = PrimeField(p)
    draw = np.random.default_rng(1)
    shifts = [np.zeros((2, claim.planes), dtype=np.uint64)]
    shifts += [draw.integers(0, p, (2, claim.planes), dtype=np.uint64) for _ in range(30)]
    for shift, point in itertools.product(shifts, [(1, 2), (0, 1), (2, 2)]):
        points = np.array(point, dtype=np.uint64)
        at_0, at_1 = (views(field, claim, at, shift, points, keyed=True) for at in (0, 1))
        assert at_0 == at_1


@pytest.mark.parametrize(("claim", "p"), [(Claim.BIT, 5), (Claim.ANY, 3)])
def test_whatever_it_adds_to_its_message_its_view_is_the_same(claim: Claim, p: int) -> None:
    field = PrimeField(p)
    none, points = np.zeros((2, claim.planes), dtype=np.uint64), np.array([1, 2], dtype=np.uint64)
    for added in itertools.product(range(p), repeat=claim.masks):
        at_0, at_1 = (views(field, claim, at, none, points, True, added) for at in (0, 1))
        assert at_0 == at_1


# ---- arithmetic


EDGES = [0, 1, 2, 2**32 - 1, 2**32, 2**60, PRIME - 1, PRIME, PRIME + 1, 2**63, 2**64 - 1]


def test_products_are_those_of_whole_numbers() -> None:
    draw = np.random.default_rng(3)
    pairs = list(itertools.product(EDGES, EDGES)) + draw.integers(0, 2**64, (500, 2), dtype=np.uint64).tolist()
    first, second = np.array(pairs, dtype=np.uint64).T
    assert multiply_residues(first, second).tolist() == [a * b % PRIME for a, b in pairs]


@CLAIMS
def test_inner_products_are_those_of_whole_numbers(claim: Claim) -> None:
    draw = np.random.default_rng(4)
    shares = draw.integers(0, 2**64, (5, 3, claim.planes), dtype=np.uint64)
    shares[0, 0], shares[1, 1] = 2**64 - 1, PRIME
    points = draw.integers(0, 2**64, (5, 3), dtype=np.uint64)
    found = sketch_sums(shares, points)
    for j in range(3):
        sums = [[0] * claim.planes for _ in range(3)]  # by power of r, then plane
        for x in range(5):
            for power, plane in itertools.product(range(3), range(claim.planes)):
                sums[power][plane] += int(points[x, j]) ** power * int(shares[x, j, plane])
        bit = [sums[1][0], sums[2][0], sums[1][1]]
        anything = [sums[0][0], sums[1][0], sums[2][0], sum(sums[i][1 + i] for i in range(3))] if claim.keys > 1 else []
        assert found[j].tolist() == [value % PRIME for value in anything or bit]


def test_totals_of_many_elements_do_not_overflow() -> None:
    assert MERSENNE_61.total(np.full(1000, PRIME - 1, dtype=np.uint64)) == PRIME - 1000


@pytest.mark.parametrize("modulus", [2, 9, 1, 2**31 - 1, 2**61])
def test_another_modulus_is_refused(modulus: int) -> None:
    with pytest.raises(MisuseError, match="odd prime below 2"):
        PrimeField(modulus)


def test_arrays_of_another_shape_are_refused() -> None:
    it = honest(MERSENNE_61, Claim.BIT, [5, 0], [1, 1], seed=1)
    with pytest.raises(MisuseError, match="shares: expected uint64"):
        first_message(it.field, Claim.ANY, it.shares[0], it.points, it.correlated[0])
    with pytest.raises(MisuseError, match="first message: expected uint64"):
        second_message(it.field, Claim.BIT, 0, (it.points, it.points), it.correlated[0], it.coefficients)
