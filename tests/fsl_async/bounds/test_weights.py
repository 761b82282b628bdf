"""A client's weight from 0 to the largest: accepted if it is, and not if it is not, whatever is proved of it."""

from dataclasses import replace

import pytest

from fsl_async.bounds import private_part
from fsl_async.bounds.client import proved
from fsl_async.bounds.sum_of_squares import Query, Wires, holds, prove
from fsl_async.bounds.terms import BoundTerms
from fsl_async.errors import MisuseError
from tests.support.bounded import ALL, EXACT, PROJECTED, Scene, of_norm

from .test_tiny_fields import SMALL, answer, points, views

PLACE, SIZE = 38, 40

WEIGHED = {name: replace(terms, largest_weight=terms.norm // 4, weight_place=PLACE) for name, terms in ALL.items()}
each_method = pytest.mark.parametrize("terms", WEIGHED.values(), ids=WEIGHED)


def weighing(terms: BoundTerms, weight: int, rest: int = 0) -> list[int]:
    numbers = of_norm(max(1, rest), SIZE, 9)
    numbers[PLACE] = weight
    return numbers


@each_method
@pytest.mark.parametrize("carrier", [0, 1])
def test_a_weight_from_0_to_the_largest_is_accepted(terms: BoundTerms, carrier: int):
    for weight in (0, 1, terms.largest_weight // 2, terms.largest_weight):
        scene = Scene(terms, weighing(terms, weight, terms.norm // 2), carrier, seed=weight % 97)
        private = scene.honest()
        assert len(private) == terms.private_bytes
        assert len(scene.answer(0, private)) == terms.verifier_bytes
        assert scene.accepted(private)


@each_method
def test_the_library_does_not_send_another(terms: BoundTerms):
    for weight in (-1, terms.largest_weight + 1):
        with pytest.raises(MisuseError, match="a weight from 0 to"):
            Scene(terms, weighing(terms, weight)).honest()


@each_method
@pytest.mark.parametrize("name", ["-1", "L + 1", "-L", "half of the ring"])
def test_another_weight_is_not_accepted_whatever_is_proved(terms: BoundTerms, name: str):
    most, half = terms.largest_weight, 2 ** (terms.ring_bits - 1)
    weight = {"-1": -1, "L + 1": most + 1, "-L": -most, "half of the ring": half}[name]
    scene = Scene(terms, weighing(terms, weight))
    words = scene.lifted() if terms.exact else []
    shown = [] if terms.exact else scene.projected()
    have = words or shown
    squares = scene.squares(max(0, terms.limit - sum(value * value for value in have)))
    largest = 2 ** (8 * terms.mask_bytes - 2)
    for claimed in (weight, 0, most, weight % 2**terms.ring_bits):
        missing = max(0, most**2 - (2 * claimed - most) ** 2)
        for ranged in ([0] * 4, scene.squares(missing), [largest] * 4):
            linked = [] if terms.exact else [*shown, claimed]
            if any(not -terms.offset <= value <= largest for value in linked):
                continue  # no integer that could be sent stands for it
            masked = [*linked, *squares, *ranged]
            told = [*words[:PLACE], claimed, *words[PLACE + 1 :]] if terms.exact else []
            for values in (words, told):
                assert not scene.accepted(scene.pack(masked, scene.proof(proved(terms, values, masked))))


@each_method
def test_the_bound_is_not_paid_with_what_the_weight_leaves(terms: BoundTerms):
    """Two sums and not one of both: what is missing in one range of calls is not made good in the other."""
    scene = Scene(terms, weighing(terms, terms.largest_weight // 2))
    private = scene.honest()
    have = scene.lifted() if terms.exact else scene.projected()
    linked = [] if terms.exact else [*have, terms.largest_weight // 2]
    squares = scene.squares(terms.limit - sum(value * value for value in have) + 1)
    ranged = scene.squares(terms.largest_weight**2 - (2 * (terms.largest_weight // 2) - terms.largest_weight) ** 2 - 1)
    masked = [*linked, *squares, *ranged]
    assert scene.accepted(private)
    assert not scene.accepted(scene.pack(masked, scene.proof(proved(terms, have if terms.exact else [], masked))))


@each_method
def test_the_sums_of_any_proof_are_below_the_prime(terms: BoundTerms):
    integer = 2 ** (8 * terms.mask_bytes) + terms.offset
    weight = 2**terms.ring_bits if terms.exact else integer
    assert (2 * weight + terms.largest_weight) ** 2 + 4 * integer**2 <= terms.largest_sum < terms.field.prime


def test_a_share_of_the_weight_off_by_one_is_not_accepted():
    for terms in (WEIGHED["exact"], WEIGHED["projected 32"]):
        scene = Scene(terms, weighing(terms, 5))
        private = scene.honest()
        scene.shares[1] = scene.shares[1].copy()
        scene.shares[1][PLACE] += 1
        assert not scene.accepted(private)


def test_without_a_weight_no_byte_is_another():
    for terms in (EXACT, PROJECTED):
        scene, again = Scene(terms, of_norm(terms.norm, 40, 5)), Scene(terms, of_norm(terms.norm, 40, 5))
        part = private_part(terms, scene.elements, scene.msk[1], scene.bind, scene.source)
        assert part == again.honest()
        assert terms.limits == (terms.limit,)


# ---- over a tiny field


APART = Wires(SMALL, 6, 3)
VALUES = APART.laid_out([1, -2, 3, 0, 5, 1], [4, 2, -1])


def test_values_apart_lie_in_calls_of_their_own():
    assert (APART.first_calls, APART.calls, APART.count) == (2, 3, 3)
    assert APART.sums == (range(1, 3), range(3, 4))
    for values in range(2, 200):
        wires = Wires(SMALL, values, 5)
        assert (
            (wires.calls - wires.first_calls - 1) * wires.count < 5 <= (wires.calls - wires.first_calls) * wires.count
        )


def test_both_sums_are_proved_at_every_point_and_neither_alone():
    proof = prove(APART, VALUES, [7, 8, 9])
    for t in points(APART):
        opened = answer(APART, VALUES, proof, t)
        assert holds(APART, opened, 40, 21)
        assert not any(holds(APART, opened, *claimed) for claimed in ((41, 20), (40, 20), (39, 21), (61, 0)))


def test_what_is_opened_is_the_same_for_two_updates_with_equal_sums():
    from fsl_async.bounds.field import Field

    wires = Wires(Field(11), 2, 1)
    assert (wires.first_calls, wires.count, wires.calls) == (1, 2, 2)
    one, other = wires.laid_out([1, 3], [2]), wires.laid_out([3, -1], [-2])
    for t in points(wires):
        assert views(wires, one, t) == views(wires, other, t)
        assert Query(wires, t).wires is wires
